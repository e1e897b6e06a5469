//! What an operator sets, and what a driver says about the switch.

use pathloom_model::{FiveTuple, Headers, Mac, Nanos, PortNo, Tier, LONG_FLOW_DSCP};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Who a switch is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Identity {
    /// Its own address, the source of its Hello. Unique among switches and hosts.
    pub mac: Mac,
    /// Its tier. `None`: unknown; then a flood is never kept from going up.
    pub tier: Option<Tier>,
    /// Number of this start of the program; must differ between two starts of one switch.
    pub boot: u64,
    /// What is known of ports beforehand. A port that is not named learns its role from Hello.
    pub roles: BTreeMap<PortNo, PortRole>,
}

/// What a port is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum PortRole {
    /// A switch from the first Hello on, a host if none comes within [`Settings::settle`]. Whoever is at the port may so
    /// become a switch: only for hosts that are trusted.
    #[default]
    Learn,
    /// A host. Hello and messages are refused.
    Host,
    /// A switch, of this tier if it is known; used at once, before the first Hello.
    Switch {
        /// Tier of the neighbour.
        tier: Option<Tier>,
    },
}

/// Timers and limits of a program. The defaults are those of the paper or of the public implementations by its authors
/// (ns-3 model), where these say something; the others are ours.
///
/// One assumption carries the proof that no host receives a frame twice: a frame is under way for less than
/// [`Settings::lock`], and for less than [`Settings::quiet`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Settings {
    /// Time between two Hellos (ns-3 model: 5 s). `None`: none are sent, and no neighbour is expected to send any.
    pub hello: Option<Nanos>,
    /// A neighbour without Hello for this long is gone (ours: three Hellos).
    pub neighbour_age: Nanos,
    /// A port with [`PortRole::Learn`] is a host's if no Hello has come for this long since it went up, and a neighbour that has
    /// not heard us after this long is on a one-way link (ours).
    pub settle: Nanos,
    /// For this long after its start, a switch passes on no exploration of others (ours; the quiet time of RFC 9293 §3.4.3).
    /// May be zero when the whole fabric starts.
    pub quiet: Nanos,
    /// Life of a locked entry, and the time for which late copies are recognised (ns-3 model: 3 s).
    pub lock: Nanos,
    /// Life of an unused entry of a confirmed connection (tcp-path.txt §V.D.1: 10 s).
    pub connection_age: Nanos,
    /// Life of an unused entry of a host, and of its claim on its address (IEEE 802.1D-2004 §7.9.2: 300 s; user-space
    /// switch: 20 s). The frame that finds no entry is lost while the way is repaired, so an entry has to live until TCP sends
    /// again, which takes it a minute and more (RFC 6298 §2.5). With 20 s, a sender that has backed off never gets through.
    pub host_age: Nanos,
    /// Time between two recoveries of one path (user-space switch, ARP-Path: 1 s).
    pub recovery_retry: Nanos,
    /// Explorations for one connection that may stay without an answer. After that, its SYN takes the default forwarding,
    /// for as long as the last entry lives (ours).
    pub unanswered: u8,
    /// Switches a message may pass (ours).
    pub most_hops: u8,
    /// Connections, on the whole switch (ours).
    pub most_connections: usize,
    /// Of these, connections of the hosts at one port (ours).
    pub most_connections_per_port: usize,
    /// Hosts, on the whole switch (ours).
    pub most_hosts: usize,
    /// Of these, hosts at one port (ours).
    pub most_hosts_per_port: usize,
    /// Explorations, recoveries and broadcasts that a host port may begin per second; twice as many at once after a
    /// pause. On a switch port, as many Path Fail messages (ours).
    pub explorations_per_s: u32,
    /// Remembered decisions of the default forwarding; when there are more, all are forgotten (ours).
    pub most_remembered: usize,
    /// Whether a flood that came from a higher tier goes to lower tiers alone (both public implementations;
    /// on for TFE). Paths that go down and up again are not found then.
    pub descend_only: bool,
    /// Whether late copies pass, which no switch allows: tests show what would happen then.
    #[cfg(test)]
    pub(crate) late_copies_pass: bool,
}

impl Settings {
    /// Defaults of TFE: a flood that came from above goes down alone.
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
            most_remembered: 65_536,
            descend_only: false,
            #[cfg(test)]
            late_copies_pass: false,
        }
    }
}

/// Which TCP connections get a path of their own. Must be the same on all switches of a fabric.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Selection {
    /// All (TCP-Path).
    AllTcp,
    /// Those marked as elephants (TFE).
    Elephants(Elephants),
}

/// How hosts mark elephants (tcp-path.txt §V.B).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Elephants {
    /// Source ports of the host that opens the connection (ns-3 model: 3500 to 4500).
    pub source_ports: Option<RangeInclusive<u16>>,
    /// DSCP of each frame. The frames of the other direction need not have it; they take the default forwarding then.
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
        if headers.five_tuple.proto != pathloom_model::PROTO_TCP {
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
        let FiveTuple { src_port, dst_port, .. } = headers.five_tuple;
        // Nobody can tell from a segment which end opened the connection.
        let by_port =
            self.source_ports.as_ref().is_some_and(|ports| ports.contains(&src_port) || ports.contains(&dst_port));
        by_port || self.dscp == Some(headers.dscp)
    }
}
