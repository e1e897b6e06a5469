//! The entropies that hosts write into their packets.

use crate::packet::Packet;
use crate::time::{to_nanos, to_ps, Ps};
use pathloom_scheme::{Acknowledged, Entropy, Rounds};
use rand::Rng;

/// What hosts remember of a lane for the entropy of its next packet.
#[derive(Clone, Copy, Default)]
struct Lane {
    /// Number of packets sent.
    packets: u32,
    /// The present value, at first 0, with which switches choose as without entropy. Later, the number of packets that
    /// had been sent when it began, or of the cells, or of the changes by the sender.
    entropy: u32,
    /// Time of the last packet.
    last: Ps,
    /// Bytes sent with the present value.
    bytes: u64,
}

/// Entropies of the packets of all lanes. They depend on nothing but the packets of the same lane.
pub(crate) struct Entropies {
    how: Entropy,
    /// Empty if packets of a flow have the same entropy.
    lanes: Vec<Lane>,
    /// By slot, if senders change the entropy of their flows.
    rounds: Vec<Rounds>,
}

impl Entropies {
    pub(crate) fn new(how: Entropy) -> Entropies {
        Entropies { how, lanes: Vec::new(), rounds: Vec::new() }
    }

    /// Whether packets of one flow may have different entropies.
    #[inline(always)]
    pub(crate) fn vary(&self) -> bool {
        self.how != Entropy::Flow
    }

    /// A new subflow uses a slot. Both of its lanes start anew.
    pub(crate) fn open(&mut self, slot: usize) {
        if self.vary() {
            let first = slot * 2;
            self.lanes.resize(self.lanes.len().max(first + 2), Lane::default());
            self.lanes[first..first + 2].fill(Lane::default());
        }
        if self.follow_senders() {
            self.rounds.resize(self.rounds.len().max(slot + 1), Rounds::default());
            self.rounds[slot] = Rounds::default();
        }
    }

    /// The data of a slot has this entropy, if hosts choose one for each part of a transfer.
    pub(crate) fn name_path(&mut self, slot: usize, entropy: u32) {
        if self.how == Entropy::Part {
            self.lanes[slot * 2].entropy = entropy;
        }
    }

    /// Whether senders change the entropy of their flows. If so, hosts call the three methods below.
    #[inline(always)]
    pub(crate) fn follow_senders(&self) -> bool {
        matches!(self.how, Entropy::Rehashed(_))
    }

    /// Data has arrived. Its acknowledgements have the same entropy, so they leave a dead path with it.
    #[inline(never)]
    pub(crate) fn arrived(&mut self, data: &Packet) {
        if let Some(lane) = self.lanes.get_mut(data.lane() as usize | 1) {
            lane.entropy = data.entropy();
        }
    }

    /// The sender of a slot has handled an acknowledgement.
    #[inline(never)]
    pub(crate) fn acknowledged(&mut self, now: Ps, slot: usize, ack: &Acknowledged) {
        let Entropy::Rehashed(law) = &self.how else { return };
        if self.rounds[slot].on_ack(law, to_nanos(now), *ack) {
            self.change(slot);
        }
    }

    /// The retransmission timer of a slot has expired.
    #[cold]
    pub(crate) fn timed_out(&mut self, now: Ps, slot: usize, rng: &mut impl Rng) {
        let Entropy::Rehashed(law) = &self.how else { return };
        let draw = if law.suspension.0 > 0 { rng.next_u64() } else { 0 };
        if self.rounds[slot].on_timeout(law, to_nanos(now), draw) {
            self.change(slot);
        }
    }

    /// The data of a slot gets the next entropy. Switches hash it, so it gives any path, perhaps the same.
    fn change(&mut self, slot: usize) {
        let lane = &mut self.lanes[slot * 2];
        lane.entropy = lane.entropy.wrapping_add(1);
    }

    /// The packet with its entropy; its host sends it now.
    #[inline(always)]
    pub(crate) fn stamp(&mut self, now: Ps, packet: Packet) -> Packet {
        if self.vary() {
            self.stamp_next(now, packet)
        } else {
            packet
        }
    }

    #[inline(never)]
    fn stamp_next(&mut self, now: Ps, packet: Packet) -> Packet {
        let Some(lane) = self.lanes.get_mut(packet.lane() as usize) else { return packet };
        if self.how == Entropy::Packet {
            let number = lane.packets;
            lane.packets = number.wrapping_add(1);
            return packet.with_entropy(number);
        }
        let (is_new, next) = match self.how {
            Entropy::Flow | Entropy::Rehashed(_) | Entropy::Packet | Entropy::Part => (false, 0),
            Entropy::Flowlet { gap } => (now.saturating_sub(lane.last) >= to_ps(gap), lane.packets),
            Entropy::Cell { bytes } => (lane.bytes >= bytes, lane.entropy.wrapping_add(1)),
        };
        if is_new && lane.packets > 0 {
            (lane.entropy, lane.bytes) = (next, 0);
        }
        lane.packets = lane.packets.wrapping_add(1);
        lane.bytes += packet.wire();
        lane.last = now;
        packet.with_entropy(lane.entropy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_model::Nanos;

    /// Entropies of packets of 1000 bytes that a lane sends at these microseconds.
    fn entropies(how: Entropy, at_us: &[u64]) -> Vec<u32> {
        let mut all = Entropies::new(how);
        all.open(1);
        let packet = |&us: &u64| all.stamp(us * 1_000_000, Packet::new(2, 0, 900, 1000, 0)).entropy();
        at_us.iter().map(packet).collect()
    }

    #[test]
    fn each_unit_has_its_own_value_and_the_first_is_0() {
        let gap = |us| Entropy::Flowlet { gap: Nanos::from_micros(us) };
        let at_us = [50, 50, 59, 69, 70, 500];
        assert_eq!(entropies(Entropy::Flow, &at_us), [0; 6]);
        assert_eq!(entropies(Entropy::Packet, &at_us), [0, 1, 2, 3, 4, 5]);
        assert_eq!(entropies(gap(0), &at_us), [0, 1, 2, 3, 4, 5]);
        assert_eq!(entropies(gap(10), &at_us), [0, 0, 0, 3, 3, 5]);
        assert_eq!(entropies(gap(1000), &at_us), [0; 6]);
        let cell = |bytes| entropies(Entropy::Cell { bytes }, &at_us);
        assert_eq!([1, 1000].map(cell), [[0, 1, 2, 3, 4, 5]; 2]);
        assert_eq!((cell(2000), cell(2001)), (vec![0, 0, 1, 1, 2, 2], vec![0, 0, 0, 1, 1, 1]));
        assert_eq!(cell(u64::MAX), [0; 6]);
    }

    #[test]
    fn parts_keep_the_path_that_they_have_and_acknowledgements_have_none() {
        let mut all = Entropies::new(Entropy::Part);
        all.open(1);
        all.name_path(1, 3);
        let mut next = |lane| all.stamp(0, Packet::new(lane, 0, 0, 66, 0)).entropy();
        assert_eq!([2, 2, 3].map(&mut next), [3, 3, 0]);
        all.open(1);
        assert_eq!(all.stamp(0, Packet::new(2, 0, 0, 66, 0)).entropy(), 0);
    }

    #[test]
    fn lanes_are_independent_and_start_anew() {
        let mut all = Entropies::new(Entropy::Packet);
        all.open(1);
        let mut next = |lane| all.stamp(0, Packet::new(lane, 0, 0, 66, 0)).entropy();
        assert_eq!([2, 2, 3, 2, 3].map(&mut next), [0, 1, 0, 2, 1]);
        all.open(1);
        assert_eq!(all.stamp(0, Packet::new(2, 0, 0, 66, 0)).entropy(), 0);
    }
}
