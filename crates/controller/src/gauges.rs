//! What a hub measures about itself and its switches' ports, for whoever asks.

use pathloom_control::{DurationHistogram, PortStats};
use pathloom_model::{Fabric, LinkId, Nanos, NodeId};

/// Kinds of messages that are told apart; OpenFlow 1.3 has 30.
const KINDS: usize = 32;

/// What is measured.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    /// When the program started.
    pub started: Nanos,
    /// The scheme in charge, as it was named, and since when.
    pub scheme: (String, Nanos),
    /// Messages read, by their kind on the wire.
    pub kinds: [u64; KINDS],
    /// How late the program is when it wants to wake up.
    pub lag: DurationHistogram,
    /// How long jobs of schemes took.
    pub solver: DurationHistogram,
    loads: Vec<Load>,
}

/// What a link carried lately.
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

    /// The port counters of a switch, read `now`. What a port sent went over its link; what came from a host came over the
    /// host's.
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

    /// What a link carried between the last two readings, in bits per second; `None` before there are two.
    pub(crate) fn load_bps(&self, link: LinkId) -> Option<u64> {
        self.loads.get(link.index())?.rate_bps
    }

    /// Packets that a link's port has dropped.
    pub(crate) fn dropped(&self, link: LinkId) -> u64 {
        self.loads.get(link.index()).map_or(0, |load| load.dropped)
    }
}

impl Load {
    fn read(&mut self, now: Nanos, bytes: u64, dropped: u64) {
        let since = self.read.filter(|&read| read < now);
        // A switch that started anew counts from zero.
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
    use pathloom_model::{fabric_from_spec, PortNo};

    #[test]
    fn a_load_is_what_was_sent_between_two_readings() {
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
        assert_eq!(gauges.load_bps(down), None, "it started anew");
        gauges.ports(Nanos::from_secs(4), &fabric, at.tor, &[PortStats { port: PortNo(99), ..row(0, 0)[0] }]);
    }
}
