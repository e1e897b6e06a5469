//! A link that is moved to a later time, as if it had carried packets at a steady rate until then.

use super::LinkQueue;
use crate::time::{Ps, NEVER};

/// What a link has counted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct LinkCounts {
    /// Packets that have left the link's ring: those that arrived at the other end, and those that were lost.
    pub(crate) passed: u64,
    /// Bytes of all packets taken.
    pub(crate) bytes: u64,
    /// Packets that found no room.
    pub(crate) refused: u64,
    /// Packets lost on the link, which count in `passed` too.
    pub(crate) lost: u64,
    /// Sum of the times that packets have waited.
    pub(crate) waited: Ps,
}

impl LinkCounts {
    /// What a link has counted so far.
    pub(crate) fn of(link: &LinkQueue) -> LinkCounts {
        LinkCounts {
            passed: link.head,
            bytes: link.taken_bytes,
            refused: link.refused,
            lost: link.lost,
            waited: link.waited,
        }
    }
}

/// Moves the packets on a link and the time when its port is free by `by`, and adds `more` to what it has counted. The caller
/// schedules the link again: its head is due later.
pub(crate) fn translate(link: &mut LinkQueue, by: Ps, more: &LinkCounts) {
    let mask = link.ring.len().wrapping_sub(1);
    for at in link.head..link.tail() {
        link.ring[at as usize & mask].deliver_at += by;
    }
    if !link.ring.is_empty() {
        let places = (more.passed & mask as u64) as usize;
        link.ring.rotate_right(places);
    }
    link.head += more.passed;
    link.taken_bytes += more.bytes;
    link.refused += more.refused;
    link.lost += more.lost;
    link.waited += more.waited;
    if link.busy_until != NEVER {
        link.busy_until += by;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Packet;
    use crate::settings::Handover;
    use pathloom_model::{Link, LinkSettings, NodeId, PortNo};
    use proptest::prelude::*;

    proptest! {
        /// A link that was moved delivers and drops the same packets as one that was not, later.
        #[test]
        fn a_translated_link_continues_as_before(
            gaps in prop::collection::vec(0u64..4_000_000, 1..60), later in prop::collection::vec(0u64..4_000_000, 1..60),
            taken_out in 0usize..40, by in 0u64..1 << 50, passed in 0u64..1000, mark in prop::option::of(1u32..6),
        ) {
            let settings = LinkSettings { rate_bps: 10_000_000_000, delay_ps: 20_000_000, buffer_packets: 8 };
            let record = Link { from: NodeId(0), to: NodeId(1), from_port: PortNo(1), to_port: PortNo(1), settings };
            let mut link = LinkQueue::new(&record, false, Handover::End, mark);
            let mut now = 0;
            let offer = |link: &mut LinkQueue, gaps: &[u64], now: &mut Ps| -> Vec<crate::link::EnqueueResult> {
                let enqueue = |gap: &u64| {
                    *now += gap;
                    link.enqueue(*now, Packet::new(2, *gap, 0, 1000 + (gap % 500) as u16, 0), None)
                };
                gaps.iter().map(enqueue).collect()
            };
            offer(&mut link, &gaps, &mut now);
            for _ in 0..taken_out.min(link.in_flight() as usize) {
                link.dequeue();
            }
            let mut moved = LinkQueue { ring: link.ring.clone(), ..LinkQueue::new(&record, false, Handover::End, mark) };
            (moved.head, moved.in_flight, moved.waiting) = (link.head, link.in_flight, link.waiting);
            (moved.busy_until, moved.taken_bytes) = (link.busy_until, link.taken_bytes);
            (moved.waited, moved.refused) = (link.waited, link.refused);
            let more = LinkCounts { passed, bytes: 1000 * passed, refused: 3, lost: 0, waited: 17 };
            translate(&mut moved, by, &more);
            prop_assert_eq!(moved.next_due(), link.next_due().map(|at| at + by));
            let mut moved_now = now + by;
            let (taken, taken_later) = (offer(&mut link, &later, &mut now), offer(&mut moved, &later, &mut moved_now));
            let is_dropped = |one: &crate::link::EnqueueResult| *one == crate::link::EnqueueResult::Dropped;
            prop_assert!(taken.iter().map(is_dropped).eq(taken_later.iter().map(is_dropped)));
            while let Some(at) = link.next_due() {
                prop_assert_eq!(moved.next_due(), Some(at + by));
                let (one, other) = (link.dequeue().0, moved.dequeue().0);
                prop_assert_eq!((one.seq, one.wire(), one.is_marked()), (other.seq, other.wire(), other.is_marked()));
            }
            let (counts, later) = (LinkCounts::of(&link), LinkCounts::of(&moved));
            prop_assert_eq!(later.passed, counts.passed + passed);
            prop_assert_eq!(later.bytes, counts.bytes + 1000 * passed);
            prop_assert_eq!((later.refused, later.waited), (counts.refused + 3, counts.waited + 17));
        }
    }
}
