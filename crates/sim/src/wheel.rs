//! When each link delivers its next packet: a timing wheel of links.
//!
//! Deliveries of one link are in order, so only the head of each link is here: the wheel holds links, not packets. A slot
//! of the wheel spans `2^shift` ps; links of one slot stand in an intrusive list ordered by (time, link). Finding the
//! next one is a look at a bitmap. Links whose head lies beyond the wheel's horizon (long delays, idle fabrics) wait in a
//! heap until they are due; that costs time, never correctness.

use crate::time::{Ps, NEVER};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const NONE: u32 = u32::MAX;
/// Slots of a wheel. The size is fixed so that a masked index needs no check; what is in use at a time is a window of it.
const SLOTS: usize = 1 << 14;
const WORDS: usize = SLOTS / 64;
const TOPS: usize = WORDS / 64;

/// A link's place in the wheel, kept with the link: when it is due, and its successor in its slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    at: Ps,
    next: u32,
}

impl Due {
    /// Of a link that is not in the wheel.
    pub(crate) const NOT: Due = Due { at: NEVER, next: NONE };
}

/// Something that can be in a wheel.
pub(crate) trait Scheduled {
    fn due(&self) -> Due;
    fn set_due(&mut self, due: Due);
}

pub(crate) struct Wheel {
    shift: u32,
    /// Slot number (not wrapped) of the earliest time that may still be in the wheel.
    base: u64,
    near: usize,
    /// First link of each slot.
    slots: Box<[u32; SLOTS]>,
    /// A bit per slot that is not empty, and a bit per word of those bits that is not zero.
    words: Box<[u64; WORDS]>,
    summary: [u64; TOPS],
    /// When the first of `far` is due.
    far_at: Ps,
    far: BinaryHeap<Reverse<(Ps, u32)>>,
}

impl Wheel {
    /// A wheel for links most of which deliver within `typical_ps` of being scheduled.
    pub(crate) fn new(typical_ps: Ps) -> Wheel {
        let shift = (2 * typical_ps / SLOTS as u64 + 1).next_power_of_two().trailing_zeros();
        Wheel {
            shift,
            base: 0,
            near: 0,
            slots: Box::new([NONE; SLOTS]),
            words: Box::new([0; WORDS]),
            summary: [0; TOPS],
            far_at: NEVER,
            far: BinaryHeap::new(),
        }
    }

    /// Tells the wheel that nothing will be scheduled before `now` any more.
    pub(crate) fn advance_to(&mut self, now: Ps) {
        self.base = self.base.max(now >> self.shift);
    }

    /// Puts a link that is not in the wheel into it.
    #[inline(always)]
    pub(crate) fn insert(&mut self, links: &mut [impl Scheduled], at: Ps, link: u32) {
        let number = at >> self.shift;
        if number - self.base >= SLOTS as u64 {
            return self.insert_far(links, at, link);
        }
        let slot = number as usize % SLOTS;
        self.near += 1;
        let first = self.slots[slot];
        if first != NONE {
            return self.insert_in_order(links, slot, at, link);
        }
        self.slots[slot] = link;
        links[link as usize].set_due(Due { at, next: NONE });
        let word = &mut self.words[slot / 64];
        if *word == 0 {
            self.summary[slot / 4096] |= 1 << (slot / 64 % 64);
        }
        *word |= 1 << (slot % 64);
    }

    #[cold]
    fn insert_far(&mut self, links: &mut [impl Scheduled], at: Ps, link: u32) {
        links[link as usize].set_due(Due { at, next: NONE });
        self.far.push(Reverse((at, link)));
        self.far_at = self.far_at.min(at);
    }

    #[inline(never)]
    fn insert_in_order(&mut self, links: &mut [impl Scheduled], slot: usize, at: Ps, link: u32) {
        let mut before = NONE;
        let mut after = self.slots[slot];
        while after != NONE {
            let due = links[after as usize].due();
            if (due.at, after) >= (at, link) {
                break;
            }
            before = after;
            after = due.next;
        }
        links[link as usize].set_due(Due { at, next: after });
        self.set_successor(links, slot, before, link);
    }

    fn set_successor(&mut self, links: &mut [impl Scheduled], slot: usize, before: u32, link: u32) {
        match before {
            NONE => self.slots[slot] = link,
            _ => {
                let due = links[before as usize].due();
                links[before as usize].set_due(Due { next: link, ..due });
            }
        }
    }

    /// Takes the link that is due first, if that is before `limit`.
    #[inline(always)]
    pub(crate) fn pop_before<L: Scheduled>(&mut self, links: &[L], limit: Ps) -> Option<(Ps, u32)> {
        if self.near == 0 {
            return self.pop_far(limit);
        }
        let slot = self.first_slot();
        let link = self.slots[slot];
        let Due { at, next } = links[link as usize].due();
        if at >= self.far_at && self.far.peek().is_some_and(|&Reverse(far)| far < (at, link)) {
            return self.pop_far(limit);
        }
        if at >= limit {
            return None;
        }
        self.base = at >> self.shift;
        self.unlink_first(slot, next);
        Some((at, link))
    }

    #[inline(always)]
    fn unlink_first(&mut self, slot: usize, next: u32) {
        self.near -= 1;
        self.slots[slot] = next;
        if next == NONE {
            let word = &mut self.words[slot / 64];
            *word &= !(1 << (slot % 64));
            if *word == 0 {
                self.summary[slot / 4096] &= !(1 << (slot / 64 % 64));
            }
        }
    }

    #[cold]
    fn pop_far(&mut self, limit: Ps) -> Option<(Ps, u32)> {
        let first = self.far.peek().map(|&Reverse(first)| first).filter(|first| first.0 < limit)?;
        self.far.pop();
        self.far_at = self.far.peek().map_or(NEVER, |Reverse(next)| next.0);
        self.advance_to(first.0);
        Some(first)
    }

    /// First slot from `base` on that is not empty. The wheel must not be empty.
    #[inline(always)]
    fn first_slot(&self) -> usize {
        let start = self.base as usize % SLOTS;
        let word = start / 64;
        let here = self.words[word] & (u64::MAX << (start % 64));
        if here != 0 {
            return word * 64 + here.trailing_zeros() as usize;
        }
        self.next_slot(word)
    }

    /// First slot in a word after `word`, going round the wheel and back into `word` itself.
    #[inline(never)]
    fn next_slot(&self, word: usize) -> usize {
        let mut top = word / 64;
        let mut bits = self.summary[top] & (u64::MAX << (word % 64)) & !(1 << (word % 64));
        while bits == 0 {
            top = (top + 1) % TOPS;
            bits = self.summary[top];
        }
        let found = top * 64 + bits.trailing_zeros() as usize;
        found * 64 + self.words[found].trailing_zeros() as usize
    }

    /// Takes a link out, wherever it is. Slow; for links that fail.
    pub(crate) fn remove(&mut self, links: &mut [impl Scheduled], link: u32) {
        self.far.retain(|Reverse((_, other))| *other != link);
        self.far_at = self.far.peek().map_or(NEVER, |Reverse(first)| first.0);
        let due = links[link as usize].due();
        links[link as usize].set_due(Due::NOT);
        let slot = (due.at >> self.shift) as usize % SLOTS;
        let mut before = NONE;
        let mut here = self.slots[slot];
        while here != NONE && here != link {
            before = here;
            here = links[here as usize].due().next;
        }
        if here == link && before == NONE {
            self.unlink_first(slot, due.next);
        } else if here == link {
            self.near -= 1;
            self.set_successor(links, slot, before, due.next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    impl Scheduled for Due {
        fn due(&self) -> Due {
            *self
        }
        fn set_due(&mut self, due: Due) {
            *self = due;
        }
    }

    proptest! {
        /// The wheel gives out what a sorted set would, through wraps, far entries, removals and clock jumps.
        #[test]
        fn agrees_with_a_sorted_set(
            typical in 1u64..5_000_000,
            steps in prop::collection::vec((0u8..8, 0u32..300, 0u64..8_000_000), 1..600),
        ) {
            let mut wheel = Wheel::new(typical);
            let mut links = vec![Due::NOT; 300];
            let mut model = BTreeSet::new();
            let mut due = vec![None; 300];
            let mut now = 0;
            for (what, link, delta) in steps {
                match what {
                    0..=4 if due[link as usize].is_none() => {
                        let at = now + if what == 4 { delta * 1000 } else { delta };
                        wheel.insert(&mut links, at, link);
                        model.insert((at, link));
                        due[link as usize] = Some(at);
                    }
                    5 => {
                        wheel.remove(&mut links, link);
                        if let Some(at) = due[link as usize].take() {
                            model.remove(&(at, link));
                        }
                    }
                    6 => {
                        let jump = now + delta;
                        if model.first().is_none_or(|&(at, _)| at >= jump) {
                            now = jump;
                            wheel.advance_to(now);
                        }
                    }
                    _ => {
                        let limit = now + delta;
                        let expected = model.first().copied().filter(|&(at, _)| at < limit);
                        prop_assert_eq!(wheel.pop_before(&links, limit), expected);
                        if let Some((at, link)) = expected {
                            now = at;
                            model.remove(&(at, link));
                            due[link as usize] = None;
                        }
                    }
                }
            }
            while let Some(expected) = model.pop_first() {
                prop_assert_eq!(wheel.pop_before(&links, u64::MAX), Some(expected));
            }
            prop_assert_eq!(wheel.pop_before(&links, u64::MAX), None);
        }
    }
}
