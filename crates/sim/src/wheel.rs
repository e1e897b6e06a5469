//! A timing wheel of links: when each link delivers its next packet.
//!
//! Deliveries of one link are in order, so the wheel holds links, not packets: a link is in it with the time of its
//! head. A slot of the wheel spans `2^shift` ps, wide enough for a few links. The links of one slot form an unordered
//! chain through the links themselves. When the time of a slot comes, its chain is sorted by (time, link) into a
//! batch, from which links are taken one by one. Links whose head is beyond the wheel's horizon (long delays, idle
//! fabrics) wait in a heap until they are due. This costs time, but results stay correct.
//!
//! On a large fabric, links are not in the CPU's caches, so a chain waits for memory at each of its links, one after
//! the other. There, a slot holds its links in blocks ([`blocks`]) instead.

#![allow(unsafe_code)]

mod blocks;

use crate::time::{Ps, NEVER};
use crate::trusted::{item, item_mut};
use blocks::Blocks;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const NONE: u32 = u32::MAX;
/// Number of slots of a wheel. It is fixed so that a masked index needs no check. Only a window of the slots is in
/// use at a time.
const SLOTS: usize = 1 << 14;
/// A batch holds times as 32-bit offsets from its start. This limits the width of a slot.
const MOST_SHIFT: u32 = 31;
/// A slot with at most this many links is sorted by insertion.
const MOST_INSERTED: usize = 24;
/// Number of links per slot for which the width is chosen: few enough to sort by insertion, enough to share the cost
/// of finding the slot.
const LINKS_PER_SLOT: u64 = 3;
/// The same for a large fabric, where the waits for all links of a slot overlap.
const LINKS_PER_LARGE_SLOT: u64 = 24;

/// A link's place in the wheel, stored in the link: the time when it is due, and its successor in its slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    at: Ps,
    next: u32,
}

impl Due {
    /// Value for a link that is not in the wheel.
    pub(crate) const NOT: Due = Due { at: NEVER, next: NONE };
}

/// Something that can be in a wheel.
pub(crate) trait Scheduled {
    fn due(&self) -> Due;
    fn set_due(&mut self, due: Due);
    /// Prefetches what is needed when this item is taken out soon.
    fn prepare(&self);
}

/// The links of a batch.
pub(crate) struct LinksDue<'a>(&'a [u64]);

impl LinksDue<'_> {
    /// The links in order of time.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + Clone + '_ {
        self.0.iter().rev().map(|&key| key as u32)
    }

    /// The same links in groups of at most `most`, in order of time.
    pub(crate) fn groups(&self, most: usize) -> impl Iterator<Item = LinksDue<'_>> {
        self.0.rchunks(most).map(LinksDue)
    }
}

pub(crate) struct Wheel {
    shift: u32,
    /// Number (not wrapped) of the slot whose links are in the batch. Earlier slots are empty.
    base: u64,
    /// The links of slot `base`, latest first: offset from the slot's start in the upper half, link in the lower
    /// half. The first `left` places are in use. There is one place for every link, so the batch never grows.
    batch: Box<[u64]>,
    left: usize,
    /// The links of later slots on a large fabric.
    blocks: Blocks,
    /// First link of each later slot (only on a small fabric), and a bit per slot that is not empty.
    slots: Box<[u32; SLOTS]>,
    words: Box<[u64; SLOTS / 64]>,
    /// Time when the first link of `far` is due.
    far_at: Ps,
    far: BinaryHeap<Reverse<(Ps, u32)>>,
}

impl Wheel {
    /// Creates a wheel for `links` links, most of which deliver within `typical_ps` of being scheduled. If `large`,
    /// only [`Wheel::insert_large`] and [`Wheel::pop_large`] may be used, otherwise only the other methods.
    pub(crate) fn new(links: usize, typical_ps: Ps, large: bool) -> Wheel {
        let links_per_slot = if large { LINKS_PER_LARGE_SLOT } else { LINKS_PER_SLOT };
        let for_density = typical_ps * links_per_slot / links.max(1) as u64;
        let for_horizon = 2 * typical_ps / SLOTS as u64;
        let width = for_density.max(for_horizon).max(1).next_power_of_two();
        Wheel {
            shift: width.trailing_zeros().min(MOST_SHIFT),
            base: 0,
            batch: vec![0; links].into_boxed_slice(),
            left: 0,
            blocks: Blocks::new(),
            slots: Box::new([NONE; SLOTS]),
            words: Box::new([0; SLOTS / 64]),
            far_at: NEVER,
            far: BinaryHeap::new(),
        }
    }

    /// Informs the wheel that nothing will be scheduled before `now` any more.
    pub(crate) fn advance_to(&mut self, now: Ps) {
        if self.left == 0 {
            self.base = self.base.max(now >> self.shift);
        }
    }

    /// Inserts a link that is not in the wheel. `scheduled` is this link.
    #[inline(always)]
    pub(crate) fn insert(&mut self, scheduled: &mut impl Scheduled, at: Ps, link: u32) {
        let number = at >> self.shift;
        if number.wrapping_sub(self.base + 1) >= SLOTS as u64 - 1 {
            return self.insert_elsewhere(scheduled, at, link);
        }
        let slot = number as usize % SLOTS;
        let first = std::mem::replace(&mut self.slots[slot], link);
        scheduled.set_due(Due { at, next: first });
        if first == NONE {
            self.words[slot / 64] |= 1 << (slot % 64);
        }
    }

    /// Inserts a link that is not in the wheel, on a large fabric.
    #[inline(always)]
    pub(crate) fn insert_large(&mut self, scheduled: &mut impl Scheduled, at: Ps, link: u32) {
        let number = at >> self.shift;
        if number.wrapping_sub(self.base + 1) >= SLOTS as u64 - 1 {
            return self.insert_elsewhere(scheduled, at, link);
        }
        let slot = number as usize % SLOTS;
        self.words[slot / 64] |= 1 << (slot % 64);
        self.blocks.insert(slot, (at - (number << self.shift)) << 32 | u64::from(link));
    }

    /// Inserts a link into the present batch, or into the heap if it is beyond the horizon.
    #[cold]
    fn insert_elsewhere(&mut self, scheduled: &mut impl Scheduled, at: Ps, link: u32) {
        scheduled.set_due(Due { at, next: NONE });
        if at >> self.shift <= self.base {
            let key = self.key(at, link);
            let place = self.batch[..self.left].partition_point(|&other| other > key);
            self.batch.copy_within(place..self.left, place + 1);
            self.batch[place] = key;
            self.left += 1;
        } else {
            self.far.push(Reverse((at, link)));
            self.far_at = self.far_at.min(at);
        }
    }

    #[inline(always)]
    fn key(&self, at: Ps, link: u32) -> u64 {
        (at - (self.base << self.shift)) << 32 | u64::from(link)
    }

    /// Takes the link that is due first, if it is due before `limit`. After a result of `None`, nothing may be
    /// scheduled before `limit - 1` any more.
    #[inline(always)]
    pub(crate) fn pop_before<L: Scheduled>(&mut self, links: &[L], limit: Ps) -> Option<(Ps, u32)> {
        let (at, link) = self.pop(links, limit);
        (link != NONE).then_some((at, link))
    }

    /// The same for a large fabric. `prefetch_batch` gets the links of each batch, in order of time.
    #[inline(always)]
    pub(crate) fn pop_large(&mut self, limit: Ps, prefetch_batch: impl Fn(LinksDue<'_>)) -> Option<(Ps, u32)> {
        // If all links of a slot have been removed, the batch is empty.
        while self.left == 0 {
            if !self.fill_large_batch(limit) {
                let (at, link) = self.pop_far(limit);
                return (link != NONE).then_some((at, link));
            }
            prefetch_batch(LinksDue(&self.batch[..self.left]));
        }
        let (at, link) = self.pop_near(limit);
        (link != NONE).then_some((at, link))
    }

    /// As [`Wheel::pop_before`], with [`NONE`] for no link: two words fit into registers, but an `Option` of them
    /// goes through memory.
    #[inline(always)]
    fn pop<L: Scheduled>(&mut self, links: &[L], limit: Ps) -> (Ps, u32) {
        if self.left == 0 && !self.fill_batch(links, limit) {
            return self.pop_far(limit);
        }
        self.pop_near(limit)
    }

    /// Takes the first link of a batch that is not empty.
    #[inline(always)]
    fn pop_near(&mut self, limit: Ps) -> (Ps, u32) {
        // SAFETY: `left` is not 0 here, and never more than the places of the batch.
        let key = *unsafe { item(&self.batch, self.left - 1) };
        let (at, link) = ((self.base << self.shift) + (key >> 32), key as u32);
        if at >= limit.min(self.far_at) {
            return self.pop_late(limit, (at, link));
        }
        self.left -= 1;
        (at, link)
    }

    /// The first link of the batch is not before the limit, or the heap may have an earlier one.
    #[cold]
    #[inline(never)]
    fn pop_late(&mut self, limit: Ps, near: (Ps, u32)) -> (Ps, u32) {
        if self.far.peek().is_some_and(|&Reverse(far)| far < near) {
            return self.pop_far(limit);
        }
        if near.0 >= limit {
            return (NEVER, NONE);
        }
        self.left -= 1;
        near
    }

    #[cold]
    #[inline(never)]
    fn pop_far(&mut self, limit: Ps) -> (Ps, u32) {
        let first = self.far.peek().map(|&Reverse(first)| first).filter(|first| first.0 < limit);
        let Some(first) = first else { return (NEVER, NONE) };
        self.far.pop();
        self.far_at = self.far.peek().map_or(NEVER, |Reverse(next)| next.0);
        self.advance_to(first.0);
        first
    }

    /// Fills the batch from the next slot that is not empty. Returns `false` and changes nothing if that slot begins
    /// at `limit` or later, or not before the first time in the heap: other links may still come before it.
    #[inline(never)]
    fn fill_batch<L: Scheduled>(&mut self, links: &[L], limit: Ps) -> bool {
        let Some(number) = self.next_number() else { return false };
        if number << self.shift >= limit.min(self.far_at) {
            return false;
        }
        let slot = number as usize % SLOTS;
        self.base = number;
        self.words[slot / 64] &= !(1 << (slot % 64));
        let start = number << self.shift;
        let mut link = std::mem::replace(&mut self.slots[slot], NONE);
        let mut count = 0;
        while link != NONE {
            // SAFETY: only links of these were inserted, so a chain has no others.
            let scheduled = unsafe { item(links, link as usize) };
            let due = scheduled.due();
            scheduled.prepare();
            let key = (due.at - start) << 32 | u64::from(link);
            // Insertion sort for the usual few links. More links are sorted by the library, below.
            assert!(count < self.batch.len(), "a link is in the wheel twice");
            let mut place = count;
            // SAFETY: `place` is at most `count`, so it is a place of the batch.
            unsafe {
                while place > 0 && count < MOST_INSERTED && *item(&self.batch, place - 1) < key {
                    *item_mut(&mut self.batch, place) = *item(&self.batch, place - 1);
                    place -= 1;
                }
                *item_mut(&mut self.batch, place) = key;
            }
            count += 1;
            link = due.next;
        }
        if count > MOST_INSERTED {
            self.batch[..count].sort_unstable_by(|a, b| b.cmp(a));
        }
        self.left = count;
        true
    }

    /// The same for a large fabric.
    #[inline(never)]
    fn fill_large_batch(&mut self, limit: Ps) -> bool {
        let Some(number) = self.next_number() else { return false };
        if number << self.shift >= limit.min(self.far_at) {
            return false;
        }
        let slot = number as usize % SLOTS;
        self.base = number;
        self.words[slot / 64] &= !(1 << (slot % 64));
        let mut count = 0;
        self.blocks.take(slot, |key| {
            self.batch[count] = key;
            count += 1;
        });
        self.batch[..count].sort_unstable_by(|a, b| b.cmp(a));
        self.left = count;
        if let Some(next) = self.next_number() {
            self.blocks.fetch(next as usize % SLOTS);
        }
        true
    }

    /// Lower bound of the time when the next link is due. It is too low by less than a slot.
    pub(crate) fn earliest(&self) -> Ps {
        let near = match self.left.checked_sub(1) {
            Some(first) => (self.base << self.shift) + (self.batch[first] >> 32),
            None => self.next_number().map_or(NEVER, |number| number << self.shift),
        };
        near.min(self.far_at)
    }

    /// Number of the first slot from `base` on that is not empty.
    fn next_number(&self) -> Option<u64> {
        let start = self.base as usize % SLOTS;
        let first = start / 64;
        let here = self.words[first] & (u64::MAX << (start % 64));
        if here != 0 {
            return Some(self.base + (here.trailing_zeros() as usize - start % 64) as u64);
        }
        // Goes once round the wheel. The last step is the part of the first word before `start`.
        let found = (1..=SLOTS / 64).map(|step| (first + step) % (SLOTS / 64)).find(|&word| self.words[word] != 0)?;
        let slot = found * 64 + self.words[found].trailing_zeros() as usize;
        Some(self.base + (slot + SLOTS - start) as u64 % SLOTS as u64)
    }

    /// Removes a link, wherever it is. Slow; for links that fail or get another rate.
    pub(crate) fn remove(&mut self, links: &mut [impl Scheduled], link: u32) {
        self.far.retain(|Reverse((_, other))| *other != link);
        self.far_at = self.far.peek().map_or(NEVER, |Reverse(first)| first.0);
        if let Some(place) = self.batch[..self.left].iter().position(|&key| key as u32 == link) {
            self.batch.copy_within(place + 1..self.left, place);
            self.left -= 1;
        }
        let due = links[link as usize].due();
        links[link as usize].set_due(Due::NOT);
        if self.blocks.remove(link) {
            return;
        }
        let slot = (due.at >> self.shift) as usize % SLOTS;
        if self.slots[slot] == link {
            self.slots[slot] = due.next;
            if due.next == NONE {
                self.words[slot / 64] &= !(1 << (slot % 64));
            }
            return;
        }
        let mut here = self.slots[slot];
        while here != NONE {
            let other = links[here as usize].due();
            if other.next == link {
                links[here as usize].set_due(Due { next: due.next, ..other });
                return;
            }
            here = other.next;
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
        fn prepare(&self) {}
    }

    fn pop(wheel: &mut Wheel, links: &[Due], limit: Ps, large: bool) -> Option<(Ps, u32)> {
        if large {
            wheel.pop_large(limit, |due| {
                assert!(due.iter().all(|link| (link as usize) < links.len()));
                let grouped: Vec<u32> = due.groups(5).flat_map(|group| group.iter().collect::<Vec<_>>()).collect();
                assert_eq!(grouped, due.iter().collect::<Vec<_>>());
            })
        } else {
            wheel.pop_before(links, limit)
        }
    }

    proptest! {
        /// The wheel returns the same links as a sorted set, through wraps, entries beyond the horizon, removals and
        /// clock jumps.
        #[test]
        fn agrees_with_a_sorted_set(
            typical in 1u64..5_000_000, spread in 1usize..3000, large: bool,
            steps in prop::collection::vec((0u8..8, 0u32..300, 0u64..8_000_000), 1..600),
        ) {
            let mut wheel = Wheel::new(300, typical / spread as u64 + 1, large);
            let mut links = vec![Due::NOT; 300];
            let mut model = BTreeSet::new();
            let mut due = vec![None; 300];
            let mut now = 0;
            for (what, link, delta) in steps {
                match what {
                    0..=4 if due[link as usize].is_none() => {
                        let at = now + if what == 4 { delta * 1000 } else { delta };
                        if large {
                            wheel.insert_large(&mut links[link as usize], at, link);
                        } else {
                            wheel.insert(&mut links[link as usize], at, link);
                        }
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
                        prop_assert_eq!(pop(&mut wheel, &links, limit, large), expected);
                        match expected {
                            Some((at, link)) => {
                                now = at;
                                model.remove(&(at, link));
                                due[link as usize] = None;
                            }
                            None => now = now.max(limit.saturating_sub(1)),
                        }
                    }
                }
            }
            while let Some(expected) = model.pop_first() {
                prop_assert_eq!(pop(&mut wheel, &links, u64::MAX, large), Some(expected));
            }
            prop_assert_eq!(pop(&mut wheel, &links, u64::MAX, large), None);
        }
    }
}
