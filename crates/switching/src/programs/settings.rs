//! Settings of an operator, and information of a driver about the switch.

use pathloom_model::{Headers, Mac, Nanos, PortNo, Tier, LONG_FLOW_DSCP};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Identity of a switch.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Identity {
    /// Address of the switch, the source of its Hello. Unique among switches and hosts.
    pub mac: Mac,
    /// Tier of the switch. `None`: unknown. Then [`Settings::descend_only`] has no effect.
    pub tier: Option<Tier>,
    /// Number of this start of the program. It must differ between two starts of one switch.
    pub boot: u64,
    /// Configured roles of ports. A port without an entry learns its role from Hello.
    pub roles: BTreeMap<PortNo, PortRole>,
}

/// Role of a port: whether it leads to a switch or to a host.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum PortRole {
    /// The port leads to a switch after the first Hello, and to a host if no Hello arrives within [`Settings::settle`].
    /// So a host at the port can act as a switch. Use this role only for trusted hosts.
    #[default]
    Learn,
    /// The port leads to a host. Hello and messages are refused.
    Host,
    /// The port leads to a switch. It is used at once, before the first Hello.
    Switch {
        /// Tier of the neighbour, if known.
        tier: Option<Tier>,
    },
}

/// Timers and limits of a program. The defaults come from the paper or from the public implementations by its authors
/// (ns-3 model), if these specify a value. The others are marked as own choice: the authors of Pathloom chose them.
///
/// The proof that no host receives a frame twice needs one assumption: a frame is under way for less than
/// [`Settings::lock`], and for less than [`Settings::quiet`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Settings {
    /// Time between two Hellos (ns-3 model: 5 s). `None`: the switch sends no Hello, and expects none.
    pub hello: Option<Nanos>,
    /// A neighbour without Hello for this long is lost (own choice: three Hellos).
    pub neighbour_age: Nanos,
    /// A port with [`PortRole::Learn`] leads to a host if no Hello has arrived for this long since it went up. A
    /// neighbour that has not heard this switch after this time is on a one-way link (own choice).
    pub settle: Nanos,
    /// For this long after its start, a switch forwards no exploration of other switches (own choice; the quiet time of
    /// RFC 9293 §3.4.3). May be zero when the whole fabric starts.
    pub quiet: Nanos,
    /// Lifetime of a locked entry, and the time for which late copies are recognised (ns-3 model: 3 s).
    pub lock: Nanos,
    /// Lifetime of an unused entry of a confirmed connection (tcp-path.txt §V.D.1: 10 s).
    pub connection_age: Nanos,
    /// Lifetime of an unused entry of a host, and of its claim to its address (IEEE 802.1D-2004 §7.9.2: 300 s;
    /// user-space switch: 20 s). A frame without an entry is lost while the way is repaired. So an entry must live
    /// until TCP sends again, which can take more than a minute (RFC 6298 §2.5). With 20 s, a sender in back-off never
    /// succeeds.
    pub host_age: Nanos,
    /// Time between two recoveries of one path (user-space switch, ARP-Path: 1 s).
    pub recovery_retry: Nanos,
    /// Maximum number of explorations for one connection without an answer. After that, its SYN takes the default
    /// forwarding, until [`Settings::lock`] has passed since the last exploration (own choice).
    pub unanswered: u8,
    /// Maximum number of switches that a message may pass (own choice).
    pub most_hops: u8,
    /// Maximum number of connections of the switch. If there are more, the host that opened the most of them loses the one
    /// that was idle for longest. Connections without an answer are the first to go (own choice).
    pub most_connections: usize,
    /// Maximum number of connections of the hosts at one port (own choice).
    pub most_connections_per_port: usize,
    /// Maximum number of hosts in the table of the switch. If there are more, the port with the most hosts of other switches
    /// loses the one that was not used for longest (own choice).
    pub most_hosts: usize,
    /// Maximum number of hosts at one port (own choice).
    pub most_hosts_per_port: usize,
    /// Number of explorations of connections and of ARP replies that a host port may begin per second. After a pause,
    /// twice as many are allowed at once. For a switch port, the same limit applies to Path Fail messages. It limits
    /// the Hellos of new neighbours at every port (own choice).
    pub explorations_per_s: u32,
    /// Number of explorations per second that a host port may begin for connections which its hosts do not use. An
    /// exploration that ends in a connection does not count once the host that opened it has sent a segment on the path:
    /// the acknowledgement of the SYN+ACK, or data. After a pause, twice as many are allowed at once. The default leaves
    /// [`Settings::explorations_per_s`] as the only limit (own choice).
    pub unused_explorations_per_s: u32,
    /// Number of floods of the default forwarding, which are broadcasts and recoveries of ways to hosts, that a host port
    /// may begin per second. After a pause, twice as many are allowed at once (own choice).
    pub broadcasts_per_s: u32,
    /// The host ports of the switch together may begin as many explorations and floods per second as this many of them alone.
    /// Half of that is divided among them equally, and they compete for the rest (own choice).
    pub busy_ports: u32,
    /// Maximum number of remembered decisions of the default forwarding. If there are more, the oldest one of the host
    /// with the most is forgotten (own choice).
    pub most_remembered: usize,
    /// Whether a flood that came from a higher tier is sent to lower tiers only (both public implementations; on for
    /// TFE). Paths that go down and up again are not found then.
    pub descend_only: bool,
    /// Whether late copies are accepted. Only tests set this, to show what happens then.
    #[cfg(test)]
    pub(crate) late_copies_pass: bool,
}

impl Settings {
    /// Defaults of TFE: a flood that came from a higher tier is sent to lower tiers only.
    pub fn for_elephants() -> Settings {
        Settings { descend_only: true, ..Settings::default() }
    }

    #[cfg(not(test))]
    pub(crate) fn late_copies_pass(&self) -> bool {
        false
    }

    #[cfg(test)]
    pub(crate) fn late_copies_pass(&self) -> bool {
        self.late_copies_pass
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            hello: Some(Nanos::from_secs(5)),
            neighbour_age: Nanos::from_secs(15),
            settle: Nanos::from_millis(200),
            quiet: Nanos::from_secs(1),
            lock: Nanos::from_secs(3),
            connection_age: Nanos::from_secs(10),
            host_age: Nanos::from_secs(300),
            recovery_retry: Nanos::from_secs(1),
            unanswered: 2,
            most_hops: 32,
            most_connections: 65_536,
            most_connections_per_port: 8_192,
            most_hosts: 16_384,
            most_hosts_per_port: 64,
            explorations_per_s: 1_000,
            unused_explorations_per_s: 1_000,
            broadcasts_per_s: 1_000,
            busy_ports: 8,
            most_remembered: 65_536,
            descend_only: false,
            #[cfg(test)]
            late_copies_pass: false,
        }
    }
}

/// The TCP connections that get a path of their own. Must be the same on all switches of a fabric.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Selection {
    /// All connections (TCP-Path).
    AllTcp,
    /// Connections that are marked as elephants (TFE).
    Elephants(Elephants),
}

/// How hosts mark elephants (tcp-path.txt §V.B).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Elephants {
    /// Source ports of the host that opens the connection (ns-3 model: 3500 to 4500).
    pub source_ports: Option<RangeInclusive<u16>>,
    /// DSCP of each frame. Frames of the other direction need not have it; they then take the default forwarding.
    pub dscp: Option<u8>,
}

impl Default for Elephants {
    fn default() -> Elephants {
        Elephants { source_ports: Some(3500..=4500), dscp: Some(LONG_FLOW_DSCP) }
    }
}

impl Selection {
    /// Whether a frame belongs to a connection that gets a path of its own.
    pub(crate) fn has(&self, headers: &Headers) -> bool {
        if headers.five_tuple.proto() != pathloom_model::PROTO_TCP {
            return false;
        }
        match self {
            Selection::AllTcp => true,
            Selection::Elephants(elephants) => elephants.has(headers),
        }
    }
}

impl Elephants {
    fn has(&self, headers: &Headers) -> bool {
        let (src_port, dst_port) = (headers.five_tuple.src_port(), headers.five_tuple.dst_port());
        // A segment does not show which end opened the connection.
        let by_port =
            self.source_ports.as_ref().is_some_and(|ports| ports.contains(&src_port) || ports.contains(&dst_port));
        by_port || self.dscp == Some(headers.dscp)
    }
}
