//! Flowlets: packets of a flow that follow each other without a pause take one port.

use pathloom_model::Nanos;
use rustc_hash::FxHashMap;

/// The ports of the flowlets at a switch, by the number of their flow. The table has room for all flows; those of the papers have
/// 2^16 places, which flows with the same hash share.
#[derive(Clone, Debug)]
pub(super) struct Flowlets {
    gap: Nanos,
    last: FxHashMap<u32, (u32, Nanos)>,
}

impl Flowlets {
    /// A pause of `gap` or more ends a flowlet. With a gap of 0, each packet is one.
    pub(super) fn new(gap: Nanos) -> Flowlets {
        Flowlets { gap, last: FxHashMap::default() }
    }

    /// The port of the flow's last packet, and whether its flowlet goes on.
    pub(super) fn last(&self, now: Nanos, flow: u32) -> Option<(u32, bool)> {
        let &(port, at) = self.last.get(&flow)?;
        Some((port, now.0.saturating_sub(at.0) < self.gap.0))
    }

    /// A packet of the flow takes this port.
    pub(super) fn note(&mut self, now: Nanos, flow: u32, port: u32) {
        self.last.insert(flow, (port, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_ends_a_flowlet() {
        let mut flowlets = Flowlets::new(Nanos(10));
        assert_eq!(flowlets.last(Nanos(0), 7), None);
        flowlets.note(Nanos(0), 7, 3);
        flowlets.note(Nanos(9), 7, 3);
        assert_eq!([18, 19].map(|at| flowlets.last(Nanos(at), 7)), [Some((3, true)), Some((3, false))]);
        assert_eq!(flowlets.last(Nanos(10), 8), None, "another flow");
        let mut packets = Flowlets::new(Nanos::ZERO);
        packets.note(Nanos(5), 7, 3);
        assert_eq!(packets.last(Nanos(5), 7), Some((3, false)), "each packet is a flowlet");
    }
}
