//! Packets that a paused card takes back from its queue.

use super::{times, LinkQueue};
use crate::packet::Packet;
use crate::time::Ps;

impl LinkQueue {
    /// Takes back the packets whose sending has not begun, in their order. The link then is as if it had never taken
    /// them, except that they have waited up to now.
    pub(crate) fn take_back(&mut self, now: Ps) -> Vec<Packet> {
        let mask = self.ring.len().wrapping_sub(1);
        let mut taken = Vec::new();
        while self.in_flight > 0 {
            let newest = self.ring[(self.tail() - 1) as usize & mask];
            let begin = self.begins(&newest);
            if begin <= now {
                break;
            }
            self.in_flight -= 1;
            self.waiting = self.waiting.saturating_sub(1);
            self.taken_bytes -= newest.wire();
            self.waited = self.waited.saturating_sub(begin - now);
            // The packet before it has left when it would have begun, or earlier.
            self.busy_until = begin;
            taken.push(newest.due(0));
        }
        taken.reverse();
        taken
    }

    /// Takes a packet again that was taken back. Returns when the link must be scheduled, if it has no other packet.
    pub(crate) fn take_again(&mut self, now: Ps, packet: Packet) -> Option<Ps> {
        let start = self.busy_until.max(now);
        self.waited += start - now;
        self.waiting += 1;
        let left = start + times(packet.wire(), self.ps_per_byte);
        self.busy_until = left;
        let deliver_at = if self.hands_on_at_begin() { start } else { left } + self.delay;
        match self.push(packet, deliver_at) {
            super::EnqueueResult::First(at) => Some(at),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Handover;
    use pathloom_model::{Link, LinkSettings, NodeId, PortNo};

    #[test]
    fn packets_that_have_not_begun_come_back_and_leave_later() {
        for handover in [Handover::End, Handover::Begin] {
            // A packet of 1000 bytes takes 8 µs.
            let settings = LinkSettings { rate_bps: 1_000_000_000, delay_ps: 1_000_000, buffer_packets: 9 };
            let link = Link { from: NodeId(0), to: NodeId(1), from_port: PortNo(1), to_port: PortNo(1), settings };
            let mut link = LinkQueue::new(&link, false, handover, None);
            for seq in 0..4 {
                link.enqueue(0, Packet::new(2, seq, 0, 1000, 0), None);
            }
            let back = link.take_back(10_000_000);
            assert_eq!(back.iter().map(|packet| packet.seq).collect::<Vec<_>>(), [2, 3], "{handover:?}");
            assert_eq!((link.taken().packets, link.backlog(10_000_000)), (2, 6_000_000));
            assert_eq!(link.waited(10_000_000, 10_000_000), 8_000_000 + 2 * 10_000_000);
            back.into_iter().for_each(|packet| assert_eq!(link.take_again(20_000_000, packet), None));
            // The wait from 10 to 20 µs is counted by whoever held the packets.
            assert_eq!(link.waited(50_000_000, 50_000_000), 8_000_000 + 2 * 10_000_000 + 8_000_000);
            let send = if handover == Handover::End { 8_000_000 } else { 0 };
            let due: Vec<Ps> = (0..4)
                .map_while(|_| {
                    let at = link.next_due();
                    link.dequeue();
                    at
                })
                .collect();
            assert_eq!(due, [0, 8, 20, 28].map(|begin| begin * 1_000_000 + send + 1_000_000), "{handover:?}");
            assert_eq!((link.take_back(60_000_000), link.backlog(60_000_000)), (Vec::new(), 0));
        }
    }
}
