//! Which packets of a link's queue have been sent. The queue counts packets when it takes them.

use super::{times, LinkQueue};
use crate::packet::Packet;
use crate::time::{Ps, NEVER};
use std::ops::{Add, Sub};

/// A number of packets, and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Quantity {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

impl Add for Quantity {
    type Output = Quantity;

    fn add(self, other: Quantity) -> Quantity {
        Quantity { packets: self.packets + other.packets, bytes: self.bytes + other.bytes }
    }
}

impl Sub for Quantity {
    type Output = Quantity;

    fn sub(self, other: Quantity) -> Quantity {
        Quantity { packets: self.packets - other.packets, bytes: self.bytes - other.bytes }
    }
}

impl LinkQueue {
    /// All packets taken so far.
    pub(crate) fn taken(&self) -> Quantity {
        Quantity { packets: self.tail(), bytes: self.taken_bytes }
    }

    /// Packets whose sending begins after this time.
    pub(crate) fn beginning_after(&self, time: Ps) -> Quantity {
        let waiting = self.newest_first().take_while(|packet| self.begins(packet) > time);
        waiting.fold(Quantity::default(), |sum, packet| sum + Quantity { packets: 1, bytes: packet.wire() })
    }

    /// Sum of the times that packets have waited up to now. By Little's law, this is the mean number of waiting
    /// packets times the elapsed time. Packets whose sending begins after `begun_by` still wait.
    pub(crate) fn waited(&self, now: Ps, begun_by: Ps) -> Ps {
        let waiting = self.newest_first().map(|packet| self.begins(packet)).take_while(|&begin| begin > begun_by);
        // A packet that its host is still working on has not waited, although its sending begins later.
        self.waited.saturating_sub(waiting.map(|begin| begin.saturating_sub(now)).sum())
    }

    /// When the packet that is being sent at this time will have left; a time not after `now` if there is none. If
    /// packets are handed on when their sending begins, the next packet must follow at once.
    pub(crate) fn leaves(&self, now: Ps) -> Ps {
        let mut next = None;
        for packet in self.newest_first() {
            let begin = self.begins(packet);
            if begin <= now {
                if !self.hands_on_at_begin() {
                    return packet.deliver_at - self.delay;
                }
                break;
            }
            next = Some(begin);
        }
        match next {
            _ if self.busy_until == NEVER => 0,
            None => self.busy_until,
            Some(begin) if self.hands_on_at_begin() => begin,
            Some(_) => 0,
        }
    }

    /// Time to send a byte at the present rate, in units of 2^-20 ps.
    pub(crate) fn ps_per_byte(&self) -> u64 {
        self.ps_per_byte
    }

    /// When the sending of a packet begins, if it is sent at the present rate.
    pub(super) fn begins(&self, packet: &Packet) -> Ps {
        let send_time = if self.hands_on_at_begin() { 0 } else { times(packet.wire(), self.ps_per_byte) };
        (packet.deliver_at - self.delay).saturating_sub(send_time)
    }

    /// The packets that wait, are being sent or are under way.
    pub(crate) fn packets(&self) -> impl Iterator<Item = &Packet> {
        self.newest_first()
    }

    /// The packets on the link, from the one that was taken last.
    fn newest_first(&self) -> impl Iterator<Item = &Packet> {
        let mask = self.ring.len().wrapping_sub(1);
        (self.head..self.tail()).rev().map(move |at| &self.ring[at as usize & mask])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Handover;
    use pathloom_model::{Link, LinkSettings, NodeId, PortNo};

    const FRAME: u16 = 1000;

    /// A link of 1 Gbit/s: a frame of 1000 bytes takes 8 µs, and 20 µs to the other end.
    fn link(handover: Handover) -> LinkQueue {
        let settings = LinkSettings { rate_bps: 1_000_000_000, delay_ps: 20_000_000, buffer_packets: 10 };
        let link = Link { from: NodeId(0), to: NodeId(1), from_port: PortNo(1), to_port: PortNo(1), settings };
        LinkQueue::new(&link, false, handover, None)
    }

    fn frames(packets: u64) -> Quantity {
        Quantity { packets, bytes: packets * u64::from(FRAME) }
    }

    #[test]
    fn tells_which_packets_wait_and_when_the_one_being_sent_leaves() {
        for handover in [Handover::End, Handover::Begin] {
            let mut link = link(handover);
            assert_eq!((link.beginning_after(0), link.leaves(0)), (frames(0), 0));
            for _ in 0..3 {
                link.enqueue(1_000_000, Packet::new(2, 0, 0, FRAME, 0), None);
            }
            assert_eq!(link.taken(), frames(3));
            for (now, waiting, leaves) in [(1, 2, 9), (8, 2, 9), (9, 1, 17), (16, 1, 17), (17, 0, 25), (30, 0, 25)] {
                let now = now * 1_000_000;
                assert_eq!(link.beginning_after(now), frames(waiting), "{handover:?} {now}");
                assert_eq!(link.leaves(now), leaves * 1_000_000, "{handover:?} {now}");
            }
            // All packets have left, and some are still under way. A new rate does not change that.
            link.set_rate(26_000_000, 1_000_000);
            assert!(link.leaves(26_000_000) <= 26_000_000, "{handover:?}");
            link.set_rate(26_000_000, 1_000_000_000);
            while link.next_due().is_some() {
                link.dequeue();
            }
            assert_eq!((link.beginning_after(50_000_000), link.leaves(50_000_000)), (frames(0), 25_000_000));
            link.enqueue(60_000_000, Packet::new(2, 0, 0, FRAME, 0), None);
            assert!(link.leaves(50_000_000) <= 60_000_000, "a host is still working on this packet");
            link.fail(61_000_000, 61_000_000);
            assert_eq!((link.beginning_after(61_000_000), link.leaves(61_000_000)), (frames(0), 0));
        }
    }
}
