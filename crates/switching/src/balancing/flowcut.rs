//! Flowcut switching (Bonato et al., Flowcut Switching: High-Performance Adaptive Routing With In-Order Delivery Guarantees, IEEE
//! Transactions on Networking 2025): a flow may change its path only while none of its packets is under way.
//!
//! The ToR of a sender sees the data of a flow and the acknowledgements that come back. When everything that it has passed on is
//! acknowledged, the next packet begins a *flowcut*, and the ToR sends it to the next hop with the shortest queue, or with the fewest
//! bytes under way where queues are equal. It numbers the flowcuts of a flow and writes the number into packets. The other switches
//! choose anew when the number changes. So they need not see acknowledgements, which may come back by other switches; in the paper,
//! each switch sees those of its own flows.
//!
//! What is lost is never acknowledged until it is repeated. So a flow that has been silent for a second has nothing under way either:
//! its sender waits for a time-out.
//!
//! Not implemented: the pauses by which the paper drains flows that always have packets under way. The path of an
//! acknowledgement is that of ecmp.

use super::{Balancer, Passing, Segment, NOTE_BITS};
use crate::selection::PortView;
use pathloom_model::Nanos;
use rustc_hash::FxHashMap;

/// No packet is under way for so long.
const SILENCE: Nanos = Nanos::from_secs(1);

/// A flow at the ToR of its sender.
#[derive(Clone, Copy, Debug)]
struct Cut {
    /// The connection that has the number of the flow now.
    connection: u32,
    port: u32,
    /// Number of the flowcut.
    number: u32,
    /// Bytes of the flow up to the last one that was passed on, and up to the last one that is acknowledged.
    sent: u64,
    acknowledged: u64,
    /// When its last packet passed.
    last: Nanos,
}

/// A flow at a switch further on.
#[derive(Clone, Copy, Debug)]
struct Followed {
    connection: u32,
    number: u32,
    port: u32,
}

/// Flowcut switching at one switch.
#[derive(Debug, Default)]
pub struct Flowcut {
    /// By number of the flow: those of the hosts of this switch, and those that come from other switches.
    own: FxHashMap<u32, Cut>,
    others: FxHashMap<u32, Followed>,
    /// By port: bytes of the switch's own flows that are under way.
    under_way: FxHashMap<u32, u64>,
}

impl Cut {
    fn under_way(&self) -> u64 {
        self.sent.saturating_sub(self.acknowledged)
    }

    fn may_be_under_way(&self, now: Nanos) -> bool {
        self.under_way() > 0 && now.saturating_sub(self.last) < SILENCE
    }
}

/// The port with the least time to drain its queue and, where several are equal, with the least of `load`; of those that remain, one
/// is drawn.
fn shortest(ports: &[u32], view: &dyn PortView, load: impl Fn(u32) -> u64, draw: &mut dyn FnMut() -> u32) -> usize {
    let wait = |(place, &port): (usize, &u32)| {
        let state = view.state(place);
        // Time in units of 2^-40 s, less than a picosecond.
        let time = (u128::from(state.queue_bytes) << 43) / u128::from(state.rate_bps.max(1));
        (if state.is_up { time } else { u128::MAX }, load(port))
    };
    let waits: Vec<(u128, u64)> = ports.iter().enumerate().map(wait).collect();
    let least = waits.iter().min();
    let best: Vec<usize> = (0..ports.len()).filter(|&place| waits.get(place) == least).collect();
    best[((u64::from(draw()) * best.len() as u64) >> 32) as usize]
}

impl Flowcut {
    /// Place of the port of a packet from a host of this switch.
    fn of_own(
        &mut self,
        packet: &Passing,
        end: u64,
        ports: &[u32],
        view: &dyn PortView,
        draw: &mut dyn FnMut() -> u32,
    ) -> usize {
        let known = self.own.get_mut(&packet.flow).filter(|cut| cut.connection == packet.connection);
        let number = known.as_ref().map_or(1, |cut| cut.number + 1);
        if let Some(cut) = known.filter(|cut| cut.may_be_under_way(packet.now)) {
            if let Some(place) = ports.iter().position(|&port| port == cut.port) {
                let more = end.saturating_sub(cut.sent);
                cut.sent += more;
                cut.last = packet.now;
                *self.under_way.entry(cut.port).or_default() += more;
                return place;
            }
        }
        let before = self.own.remove(&packet.flow);
        if let Some(cut) = before {
            self.leave(cut.port, cut.under_way());
        }
        let place = shortest(ports, view, |port| self.under_way.get(&port).copied().unwrap_or_default(), draw);
        // What is unacknowledged of a flowcut whose port has failed remains so.
        let before = before.filter(|cut| cut.connection == packet.connection);
        let (sent, acknowledged) = before.map_or((0, 0), |cut| (cut.sent, cut.acknowledged));
        let (connection, port) = (packet.connection, ports[place]);
        let cut = Cut { connection, port, number, sent: sent.max(end), acknowledged, last: packet.now };
        *self.under_way.entry(port).or_default() += cut.under_way();
        self.own.insert(packet.flow, cut);
        place
    }

    /// So many bytes are no longer under way behind a port.
    fn leave(&mut self, port: u32, bytes: u64) {
        if let Some(under_way) = self.under_way.get_mut(&port) {
            *under_way = under_way.saturating_sub(bytes);
        }
    }

    /// Place of the port of a packet from another switch, which has written the number of the flowcut into it.
    fn of_other(
        &mut self,
        packet: &Passing,
        ports: &[u32],
        view: &dyn PortView,
        draw: &mut dyn FnMut() -> u32,
    ) -> usize {
        let (connection, number) = (packet.connection, packet.note);
        let known = self.others.get(&packet.flow).filter(|of| of.connection == connection && of.number == number);
        if let Some(place) = known.and_then(|of| ports.iter().position(|&port| port == of.port)) {
            return place;
        }
        let place = shortest(ports, view, |_| 0, draw);
        self.others.insert(packet.flow, Followed { connection, number, port: ports[place] });
        place
    }
}

impl Balancer for Flowcut {
    fn choose(
        &mut self,
        packet: &Passing,
        ports: &[u32],
        view: &dyn PortView,
        draw: &mut dyn FnMut() -> u32,
    ) -> Option<usize> {
        match packet.segment {
            Segment::Ack { .. } => None,
            Segment::Data { end } if packet.from_host => Some(self.of_own(packet, end, ports, view, draw)),
            Segment::Data { .. } => Some(self.of_other(packet, ports, view, draw)),
        }
    }

    fn forward(&mut self, packet: &Passing, _port: u32, _state: crate::selection::PortState) -> u32 {
        match packet.from_host {
            true => self.own.get(&packet.flow).map_or(0, |cut| cut.number & ((1 << NOTE_BITS) - 1)),
            false => packet.note,
        }
    }

    fn deliver(&mut self, packet: &Passing) {
        let Segment::Ack { of, next } = packet.segment else { return };
        let Some(cut) = self.own.get_mut(&of).filter(|cut| cut.connection == packet.connection) else { return };
        let before = cut.under_way();
        cut.acknowledged = cut.acknowledged.max(next);
        let (port, bytes) = (cut.port, before - cut.under_way());
        self.leave(port, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selection::PortState;
    use pathloom_model::Nanos;

    /// Queues of ports.
    struct Queues([u64; 2]);

    impl PortView for Queues {
        fn state(&self, port: usize) -> PortState {
            PortState { queue_bytes: self.0[port], sent_bytes: 0, rate_bps: 1_000_000_000, is_up: true }
        }
    }

    const PORTS: [u32; 2] = [7, 8];

    fn packet(segment: Segment, from_host: bool, note: u32) -> Passing {
        let (flow, connection) = if let Segment::Ack { .. } = segment { (5, 1) } else { (4, 1) };
        Passing { now: Nanos(0), flow, connection, src_tor: 0, dst_tor: 1, from_host, note, segment }
    }

    fn data(flowcut: &mut Flowcut, end: u64, queues: [u64; 2]) -> (usize, u32) {
        let packet = packet(Segment::Data { end }, true, 0);
        let place = flowcut.choose(&packet, &PORTS, &Queues(queues), &mut || 0).unwrap();
        (place, flowcut.forward(&packet, PORTS[place], Queues(queues).state(place)))
    }

    fn ack(flowcut: &mut Flowcut, next: u64) {
        flowcut.deliver(&packet(Segment::Ack { of: 4, next }, false, 0));
    }

    #[test]
    fn a_flow_changes_its_path_only_when_everything_is_acknowledged() {
        let mut flowcut = Flowcut::default();
        assert_eq!(data(&mut flowcut, 1000, [5000, 0]), (1, 1), "the shortest queue");
        assert_eq!(data(&mut flowcut, 2000, [0, 5000]), (1, 1), "two packets are under way");
        ack(&mut flowcut, 1000);
        assert_eq!(data(&mut flowcut, 3000, [0, 5000]), (1, 1));
        ack(&mut flowcut, 3000);
        assert_eq!(data(&mut flowcut, 4000, [0, 5000]), (0, 2), "the next flowcut");
        assert_eq!(data(&mut flowcut, 1000, [5000, 0]), (0, 2), "repeated data are under way as well");
        ack(&mut flowcut, 4000);
    }

    #[test]
    fn a_new_connection_and_a_port_that_fails_begin_a_flowcut() {
        let mut flowcut = Flowcut::default();
        data(&mut flowcut, 9000, [5000, 0]);
        ack(&mut flowcut, 9000);
        let other = Passing { connection: 2, ..packet(Segment::Data { end: 1000 }, true, 0) };
        assert_eq!(flowcut.choose(&other, &PORTS, &Queues([0, 1]), &mut || 0), Some(0));
        let more = Passing { segment: Segment::Data { end: 2000 }, ..other };
        assert_eq!(flowcut.choose(&more, &PORTS, &Queues([1, 0]), &mut || 0), Some(0), "its first packet is under way");
        assert_eq!(flowcut.choose(&more, &PORTS[1..], &Queues([1, 0]), &mut || 0), Some(0), "the port is down");
        assert_eq!(flowcut.forward(&more, 8, Queues([0, 0]).state(0)), 2);
    }

    #[test]
    fn a_silent_flow_has_nothing_under_way() {
        let mut flowcut = Flowcut::default();
        data(&mut flowcut, 1000, [5000, 0]);
        let late = |seconds| Passing { now: Nanos::from_secs(seconds), ..packet(Segment::Data { end: 1000 }, true, 0) };
        assert_eq!(flowcut.choose(&late(1), &PORTS, &Queues([0, 5000]), &mut || 0), Some(0), "what was sent is lost");
        assert_eq!(flowcut.forward(&late(1), 7, Queues([0; 2]).state(0)), 2);
    }

    #[test]
    fn where_queues_are_equal_the_port_with_the_fewest_bytes_under_way_is_taken() {
        let mut flowcut = Flowcut::default();
        let of = |flow, end| Passing { flow, ..packet(Segment::Data { end }, true, 0) };
        let choose = |flowcut: &mut Flowcut, flow, end| {
            flowcut.choose(&of(flow, end), &PORTS, &Queues([0, 0]), &mut || 0).unwrap()
        };
        assert_eq!(
            [(4, 1000), (6, 500), (8, 100), (10, 300)].map(|(flow, end)| choose(&mut flowcut, flow, end)),
            [0, 1, 1, 1]
        );
        ack(&mut flowcut, 1000);
        assert_eq!(choose(&mut flowcut, 12, 100), 0, "all of the first flow is acknowledged");
        assert_eq!(flowcut.under_way[&8], 900);
    }

    #[test]
    fn other_switches_follow_the_number_of_the_flowcut() {
        let mut core = Flowcut::default();
        let mut choose = |note, queues| {
            core.choose(&packet(Segment::Data { end: 1 }, false, note), &PORTS, &Queues(queues), &mut || 0)
        };
        assert_eq!([choose(1, [9, 0]), choose(1, [0, 9]), choose(2, [0, 9])], [Some(1), Some(1), Some(0)]);
        assert_eq!(
            core.choose(&packet(Segment::Ack { of: 4, next: 0 }, false, 1), &PORTS, &Queues([0; 2]), &mut || 0),
            None
        );
    }
}
