//! The ways in which the path of a connection is told to a fabric, and which schemes each of them can carry.
//!
//! A scheme decides on paths. Rules in switches are only one way to put a connection on its path.

use crate::registry::SchemeSpec;
use pathloom_scheme::{Detection, Needs};
use pathloom_transport::TransportSpec;

/// How the path of a connection is told to a fabric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encoding {
    /// Rules and tags in OpenFlow switches: any path, for each connection, also for open ones.
    OpenFlow,
    /// The source port of a connection: routers hash it, so it chooses among their equal next hops. An open connection
    /// keeps its port.
    SourcePorts,
    /// Segments that a host's kernel writes into packets (SRv6, RFC 8754). All connections between two hosts share
    /// them.
    Segments,
    /// Weights of the next hops of routers: shares of all flows, no single connection.
    Weights,
}

/// Whether an encoding can carry what a scheme decides. The texts say why not, in half a sentence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Carried {
    /// All of it.
    Whole,
    /// All but what the text says.
    Part(&'static str),
    /// Nothing, for this reason.
    No(&'static str),
}

impl Encoding {
    /// Every encoding.
    pub const ALL: [Encoding; 4] = [Encoding::OpenFlow, Encoding::SourcePorts, Encoding::Segments, Encoding::Weights];

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Encoding::OpenFlow => "OpenFlow rules",
            Encoding::SourcePorts => "source ports",
            Encoding::Segments => "segments",
            Encoding::Weights => "weights",
        }
    }

    /// Whether it can carry the decisions of a central policy with these needs.
    fn carries(self, needs: &Needs) -> Carried {
        let decides = needs.detection != Detection::Nothing;
        match self {
            Encoding::OpenFlow => Carried::Whole,
            Encoding::SourcePorts if needs.subflows => Carried::No("the kernel draws the source ports of subflows"),
            Encoding::SourcePorts => match needs.detection {
                Detection::Nothing => Carried::Whole,
                Detection::Measured { .. } => Carried::No("it moves open connections, which keep their source ports"),
                Detection::Label | Detection::Announced | Detection::Any { .. } => {
                    Carried::Part("new connections take shortest paths; moves of open ones are refused")
                }
            },
            Encoding::Segments => Carried::No("all connections between two hosts share a path"),
            Encoding::Weights if decides || needs.subflows => Carried::No("it decides on single connections"),
            Encoding::Weights => Carried::Whole,
        }
    }
}

impl SchemeSpec {
    /// Whether an encoding can carry the scheme.
    pub fn carried_by(&self, encoding: Encoding) -> Carried {
        let Some(central) = self.central(0) else {
            return Carried::No("its switches find the paths themselves");
        };
        if self.require_central(0).is_err() {
            return Carried::No("the packets of a flow take several paths");
        }
        if matches!(self.transport(), TransportSpec::Streams(_)) && encoding != Encoding::OpenFlow {
            return Carried::No("its streams claim their paths from an OpenFlow controller");
        }
        encoding.carries(&central.needs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Registry;

    fn carried(scheme: &str) -> [Carried; 4] {
        let spec = Registry::Shipped.parse(scheme).expect("the scheme is known");
        Encoding::ALL.map(|encoding| spec.carried_by(encoding))
    }

    fn is_no(carried: Carried) -> bool {
        matches!(carried, Carried::No(_))
    }

    #[test]
    fn schemes_that_decide_when_a_connection_opens_fit_source_ports() {
        for scheme in ["ofpt", "lessor"] {
            let [openflow, ports, segments, weights] = carried(scheme);
            assert_eq!(openflow, Carried::Whole, "{scheme}");
            assert!(matches!(ports, Carried::Part(_)), "{scheme}: {ports:?}");
            assert!(is_no(segments) && is_no(weights), "{scheme}");
        }
    }

    #[test]
    fn schemes_that_move_measured_connections_do_not() {
        for scheme in ["hedera", "hedera-sa", "ofpt:detect=measured", "mptcp-aware", "parallel-tcp"] {
            let [openflow, ports, ..] = carried(scheme);
            assert_eq!(openflow, Carried::Whole, "{scheme}");
            assert!(is_no(ports), "{scheme}: {ports:?}");
        }
    }

    #[test]
    fn default_routes_fit_weights_and_sprayed_packets_fit_nothing() {
        for scheme in ["spt", "ecmp", "wcmp", "mptcp"] {
            assert_eq!(carried(scheme)[3], Carried::Whole, "{scheme}");
        }
        for scheme in ["rps", "loom", "tcp-path", "conga"] {
            assert!(carried(scheme).into_iter().all(is_no), "{scheme}");
        }
    }
}
