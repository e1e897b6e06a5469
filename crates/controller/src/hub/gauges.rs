//! Measurements of the hub itself and of its switches' ports.

use pathloom_control::{DurationHistogram, PortStats};
use pathloom_model::{Fabric, LinkId, Nanos, NodeId, PortNo};
use serde::{Deserialize, Serialize};

/// Number of message types that are counted separately; OpenFlow 1.3 has 30.
const KINDS: usize = 32;

/// The last hand-over between controllers, as etcd stores it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct HandOver {
    /// The number of the election.
    pub election: u64,
    /// The controller that led before.
    pub from: Option<String>,
    /// The controller that leads since.
    pub to: String,
    /// When it became the leader, in seconds since 1970.
    pub at_s: f64,
    /// Why the one before does not lead any more.
    pub cause: String,
    /// Number of hand-overs so far.
    pub count: u64,
}

/// What a member of the cluster says about itself.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct MemberRow {
    /// Its name.
    pub name: String,
    /// Its API, as clients reach it.
    pub api: Option<String>,
    /// Its version.
    pub version: String,
    /// When it said so, in seconds since 1970 by its own clock.
    pub said_s: f64,
}

/// A controller as a member of a cluster.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Membership {
    /// Its name.
    pub name: String,
    /// The leader that it follows, if it follows one.
    pub follows: Option<String>,
    /// When etcd last gave the list of members.
    pub etcd_answered: Option<Nanos>,
    /// All members.
    pub members: Vec<MemberRow>,
    /// The last hand-over.
    pub hand_over: Option<HandOver>,
    /// When etcd last stored the leader's state.
    pub stored: Option<Nanos>,
}

/// How a controller leads those of its fabric.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Leadership {
    /// The number of its election.
    pub election: u64,
    /// When it became the leader.
    pub since: Nanos,
    /// Whether etcd confirms it. If not, another controller may lead by now.
    pub is_confirmed: bool,
}

/// Measurements of a hub.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    /// When the program started.
    pub started: Nanos,
    /// The specification of the scheme in charge, and its start time.
    pub scheme: (String, Nanos),
    /// This controller among several ones; `None` if it is the only one.
    pub member: Option<Membership>,
    /// How this controller leads; `None` if it is the only one, or follows.
    pub leadership: Option<Leadership>,
    /// Messages read, by their kind on the wire.
    pub kinds: [u64; KINDS],
    /// How late timers of the program fire.
    pub lag: DurationHistogram,
    /// How long jobs of schemes took.
    pub solver: DurationHistogram,
    loads: Vec<Load>,
}

/// The recent load of a link.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    bytes: u64,
    dropped: u64,
    read: Option<Nanos>,
    rate_bps: Option<u64>,
}

impl Gauges {
    /// Counts a message.
    #[inline]
    pub(crate) fn message(&mut self, kind: u8) {
        self.kinds[usize::from(kind) % KINDS] += 1;
    }

    /// Takes the port counters of a switch, read `now`. Sent bytes count for the port's link, received bytes for the
    /// host's link if a host is at the port.
    pub(crate) fn ports(&mut self, now: Nanos, fabric: &Fabric, switch: NodeId, rows: &[PortStats]) {
        self.loads.resize(fabric.links().len(), Load::default());
        for row in rows {
            let Some(link) = fabric.out_link(switch, row.port) else { continue };
            self.loads[link.index()].read(now, row.tx_bytes, row.tx_dropped);
            if fabric.is_host(fabric.link(link).to) {
                self.loads[link.reverse().index()].read(now, row.rx_bytes, 0);
            }
        }
    }

    /// Handles a port that was added or removed, or went up or down. It may be another interface now, with other
    /// counters.
    pub(crate) fn port_changed(&mut self, fabric: &Fabric, switch: NodeId, port: PortNo) {
        let Some(link) = fabric.out_link(switch, port) else { return };
        for link in [link, link.reverse()] {
            // Frames from another switch are counted at that switch.
            if fabric.link(link).from == switch || fabric.is_host(fabric.link(link).from) {
                self.loads.get_mut(link.index()).into_iter().for_each(Load::forget);
            }
        }
    }

    /// Forgets the counters of a switch's ports, because later values cannot be compared with them.
    pub(crate) fn switch_changed(&mut self, fabric: &Fabric, switch: NodeId) {
        for port in 1..=fabric.node(switch).ports.len() as u32 {
            self.port_changed(fabric, switch, PortNo(port));
        }
    }

    /// Load of a link between the last two readings, in bits per second; `None` before there are two.
    pub(crate) fn load_bps(&self, link: LinkId) -> Option<u64> {
        self.loads.get(link.index())?.rate_bps
    }

    /// Packets that a link's port has dropped.
    pub(crate) fn dropped(&self, link: LinkId) -> u64 {
        self.loads.get(link.index()).map_or(0, |load| load.dropped)
    }
}

impl Load {
    fn forget(&mut self) {
        (self.read, self.rate_bps) = (None, None);
    }

    fn read(&mut self, now: Nanos, bytes: u64, dropped: u64) {
        let since = self.read.filter(|&read| read < now);
        // A restarted switch counts from zero.
        let more = bytes.checked_sub(self.bytes);
        self.rate_bps = since.zip(more).map(|(read, more)| {
            let time_ns = u128::from(now.saturating_sub(read).0);
            (u128::from(more) * 8_000_000_000 / time_ns) as u64
        });
        (self.bytes, self.dropped, self.read) = (bytes, dropped, Some(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_fabrics::fabric_from_spec;

    #[test]
    fn the_load_is_computed_from_the_bytes_between_two_readings() {
        let fabric = fabric_from_spec("fat-tree:k=4").unwrap();
        let at = fabric.attachments()[0];
        let (down, port) = (at.uplink.reverse(), fabric.link(at.uplink).to_port);
        let row = |tx, rx| [PortStats { port, tx_bytes: tx, rx_bytes: rx, tx_dropped: 3 }];
        let mut gauges = Gauges::default();
        gauges.ports(Nanos::from_secs(1), &fabric, at.tor, &row(1000, 50));
        assert_eq!((gauges.load_bps(down), gauges.dropped(down)), (None, 3));
        gauges.ports(Nanos::from_secs(3), &fabric, at.tor, &row(3500, 300));
        assert_eq!((gauges.load_bps(down), gauges.load_bps(at.uplink)), (Some(10_000), Some(1000)));
        gauges.ports(Nanos::from_secs(4), &fabric, at.tor, &row(10, 10));
        assert_eq!(gauges.load_bps(down), None, "the counters restarted");
        gauges.ports(Nanos::from_secs(4), &fabric, at.tor, &[PortStats { port: PortNo(99), ..row(0, 0)[0] }]);
    }

    #[test]
    fn a_new_interface_at_a_port_has_no_load_before_two_readings() {
        let fabric = fabric_from_spec("fat-tree:k=4,rate=10Mbps").unwrap();
        let at = fabric.attachments()[0];
        let up = fabric.switch_ports(at.tor)[0].link;
        let row = |link: LinkId, bytes| PortStats {
            port: fabric.link(link).from_port,
            tx_bytes: bytes,
            rx_bytes: bytes,
            tx_dropped: 0,
        };
        let all = |bytes| [row(up, bytes), row(at.uplink.reverse(), bytes)];
        let mut gauges = Gauges::default();
        gauges.ports(Nanos::from_secs(1), &fabric, at.tor, &all(0));
        gauges.ports(Nanos::from_secs(2), &fabric, at.tor, &all(1000));
        for port in [up, at.uplink.reverse()].map(|link| fabric.link(link).from_port) {
            gauges.port_changed(&fabric, at.tor, port);
        }
        // The new interface has already counted 580 MB elsewhere.
        gauges.ports(Nanos::from_secs(7), &fabric, at.tor, &all(580_000_000));
        let loads = |gauges: &Gauges| [up, at.uplink, at.uplink.reverse()].map(|link| gauges.load_bps(link));
        assert_eq!(loads(&gauges), [None; 3]);
        gauges.ports(Nanos::from_secs(8), &fabric, at.tor, &all(580_001_000));
        assert_eq!(loads(&gauges), [Some(8000); 3]);
    }
}
