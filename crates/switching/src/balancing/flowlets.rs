//! Flowlets: packets of a flow that follow each other without a pause take one port.

use super::Passing;
use pathloom_model::Nanos;
use rustc_hash::FxHashMap;

/// The ports of the flowlets at a switch, by the number of their flow. The table has room for all flows; those of the papers have
/// 2^16 places, which flows with the same hash share.
#[derive(Clone, Debug)]
pub(super) struct Flowlets {
    gap: Nanos,
    last: FxHashMap<u32, Last>,
}

/// The last packet of a flow.
#[derive(Clone, Copy, Debug)]
struct Last {
    /// Tells the flow from earlier ones with its number ([`Passing::connection`]).
    connection: u32,
    port: u32,
    at: Nanos,
}

impl Flowlets {
    /// A pause of `gap` or more ends a flowlet. With a gap of 0, each packet is one.
    pub(super) fn new(gap: Nanos) -> Flowlets {
        Flowlets { gap, last: FxHashMap::default() }
    }

    /// The port of the last packet of this packet's flow, and whether its flowlet goes on.
    pub(super) fn last(&self, packet: &Passing) -> Option<(u32, bool)> {
        let last = self.last.get(&packet.flow).filter(|last| last.connection == packet.connection)?;
        Some((last.port, packet.now.0.saturating_sub(last.at.0) < self.gap.0))
    }

    /// A packet takes this port.
    pub(super) fn note(&mut self, packet: &Passing, port: u32) {
        self.last.insert(packet.flow, Last { connection: packet.connection, port, at: packet.now });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balancing::Segment;

    fn packet(at: u64, flow: u32, connection: u32) -> Passing {
        let segment = Segment::Data { end: 0 };
        Passing { now: Nanos(at), flow, connection, src_tor: 0, dst_tor: 1, from_host: true, note: 0, segment }
    }

    #[test]
    fn a_pause_ends_a_flowlet() {
        let mut flowlets = Flowlets::new(Nanos(10));
        assert_eq!(flowlets.last(&packet(0, 7, 1)), None);
        flowlets.note(&packet(0, 7, 1), 3);
        flowlets.note(&packet(9, 7, 1), 3);
        assert_eq!([18, 19].map(|at| flowlets.last(&packet(at, 7, 1))), [Some((3, true)), Some((3, false))]);
        assert_eq!(flowlets.last(&packet(10, 8, 1)), None, "another flow");
        let mut packets = Flowlets::new(Nanos::ZERO);
        packets.note(&packet(5, 7, 1), 3);
        assert_eq!(packets.last(&packet(5, 7, 1)), Some((3, false)), "each packet is a flowlet");
    }

    #[test]
    fn a_new_connection_with_the_number_of_one_that_is_over_has_no_flowlet() {
        let mut flowlets = Flowlets::new(Nanos(10));
        flowlets.note(&packet(0, 7, 1), 3);
        assert_eq!(flowlets.last(&packet(1, 7, 2)), None);
        flowlets.note(&packet(1, 7, 2), 4);
        assert_eq!(flowlets.last(&packet(2, 7, 2)), Some((4, true)));
    }
}
