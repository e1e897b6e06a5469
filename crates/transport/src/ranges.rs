//! Sets of byte ranges: bytes that a receiver has out of order, or bytes that a sender knows to have arrived.

use std::iter::Sum;
use std::ops::{Add, Sub};

/// Capacity that is always kept. A larger capacity is reduced when it is less than a quarter full.
const KEPT: usize = 8;

/// Positions that are checked one by one before a binary search starts.
const MOST_STEPS: usize = 6;

/// The type of a byte number.
pub(crate) trait Number: Copy + Ord + Add<Output = Self> + Sub<Output = Self> + Sum {}

impl Number for u64 {}
impl Number for u32 {}

/// Half-open ranges of sequence numbers: disjoint, not touching, ascending.
#[derive(Clone, Debug)]
pub(crate) struct Ranges<N = u64>(Vec<(N, N)>);

impl<N> Default for Ranges<N> {
    fn default() -> Ranges<N> {
        Ranges(Vec::new())
    }
}

impl<N: Number> Ranges<N> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn as_slice(&self) -> &[(N, N)] {
        &self.0
    }

    /// Extends the last range to `end` if it ends at `start`, and returns whether it does. After a loss, segments
    /// continue to arrive in order.
    #[inline]
    pub(crate) fn extend_last(&mut self, start: N, end: N) -> bool {
        match self.0.last_mut() {
            Some(last) if last.1 == start => {
                last.1 = end;
                true
            }
            _ => false,
        }
    }

    /// Adds a range and merges it with ranges that it overlaps or touches. Returns the number of new bytes.
    pub(crate) fn insert(&mut self, start: N, end: N) -> N {
        let from = self.0.partition_point(|&(_, to)| to < start);
        self.insert_at(from, start, end)
    }

    /// As [`Ranges::insert`], but the search for the position starts at `near`. Returns the position of the range.
    #[inline]
    pub(crate) fn insert_near(&mut self, near: usize, start: N, end: N) -> usize {
        let from = self.place_near(near, start);
        let is_free = self.0.get(from + 1).is_none_or(|next| end < next.0);
        match self.0.get_mut(from) {
            Some(range) if range.1 == start && is_free => range.1 = end,
            _ => {
                self.insert_at(from, start, end);
            }
        }
        from
    }

    /// Returns the position of the first range that ends at or after `start`. If a caller adds ranges in ascending
    /// order, it is at the position of the previous one or close to it.
    #[inline]
    fn place_near(&self, near: usize, start: N) -> usize {
        let mut at = near.min(self.0.len());
        for _ in 0..MOST_STEPS {
            if at > 0 && self.0[at - 1].1 >= start {
                at -= 1;
            } else if self.0.get(at).is_some_and(|range| range.1 < start) {
                at += 1;
            } else {
                return at;
            }
        }
        self.0.partition_point(|&(_, to)| to < start)
    }

    /// Adds a range. `from` is the position of the first range that ends at or after `start`.
    fn insert_at(&mut self, from: usize, start: N, end: N) -> N {
        // Usually the range touches at most one other range.
        let Some(first) = self.0.get(from).filter(|first| first.0 <= end) else {
            self.0.insert(from, (start, end));
            return end - start;
        };
        if self.0.get(from + 1).is_none_or(|second| second.0 > end) {
            let merged = (first.0.min(start), first.1.max(end));
            let new = (merged.1 - merged.0) - (first.1 - first.0);
            self.0[from] = merged;
            return new;
        }
        let until = self.0.partition_point(|&(first, _)| first <= end);
        let known = total(&self.0[from..until]);
        let merged = self.0[from..until].iter().fold((start, end), |m, r| (m.0.min(r.0), m.1.max(r.1)));
        self.0.splice(from..until, [merged]);
        merged.1 - merged.0 - known
    }

    /// Removes everything before `edge`. A range that begins at or before `edge` is removed entirely. Returns the end
    /// of that range, or `edge` if there is no such range.
    pub(crate) fn take_reached(&mut self, edge: N) -> N {
        let reached = self.0.iter().take_while(|(from, _)| *from <= edge).count();
        if reached == 0 {
            return edge;
        }
        let edge = self.0.drain(..reached).fold(edge, |edge, (_, to)| edge.max(to));
        let (len, room) = (self.0.len(), self.0.capacity());
        if room > KEPT && len < room / 4 {
            self.0.shrink_to((2 * len).max(KEPT));
        }
        edge
    }

    /// Subtracts `by` from all numbers; no number is below `by`.
    pub(crate) fn lower(&mut self, by: N) {
        for range in &mut self.0 {
            *range = (range.0 - by, range.1 - by);
        }
    }

    /// Number of ranges.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the number of bytes in all ranges.
    pub(crate) fn total(&self) -> N {
        total(&self.0)
    }

    /// Whether one range contains this whole range.
    pub(crate) fn holds(&self, start: N, end: N) -> bool {
        self.last_from(start).is_some_and(|(_, to)| end <= to)
    }

    /// Returns the range that contains this byte.
    pub(crate) fn around(&self, byte: N) -> Option<(N, N)> {
        self.last_from(byte).filter(|&(_, to)| byte < to)
    }

    /// Returns the last range that begins at or before this byte. Most callers ask for bytes close to the end.
    fn last_from(&self, byte: N) -> Option<(N, N)> {
        self.0.iter().rev().copied().find(|&(from, _)| from <= byte)
    }

    /// Returns the first gap that ends after `start`: its begin (at least `start`), and the begin of the next range.
    /// `None` after the last range.
    pub(crate) fn gap_from(&self, start: N) -> Option<(N, N)> {
        let mut from = start;
        for &(first, to) in &self.0 {
            if from < first {
                return Some((from, first));
            }
            from = from.max(to);
        }
        None
    }
}

fn total<N: Number>(ranges: &[(N, N)]) -> N {
    ranges.iter().map(|&(from, to)| to - from).sum()
}

impl Ranges {
    /// Returns the end of the last range, or 0 if there is none.
    pub(crate) fn end(&self) -> u64 {
        self.0.last().map_or(0, |last| last.1)
    }

    /// Returns the number of bytes in the set from `start` up to, but not including, `end`.
    pub(crate) fn bytes_within(&self, start: u64, end: u64) -> u64 {
        let within = |&(first, to): &(u64, u64)| to.min(end).saturating_sub(first.max(start));
        self.0.iter().take_while(|&&(first, _)| first < end).map(within).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_set_of_bytes(ranges in prop::collection::vec((0u64..200, 1u64..30), 0..20), edge in 0u64..240, start in 0u64..240, len in 0u64..60) {
            let (mut set, mut bytes) = (Ranges::default(), std::collections::BTreeSet::new());
            for (from, len) in ranges {
                let before = bytes.len();
                bytes.extend(from..from + len);
                prop_assert_eq!(set.insert(from, from + len) as usize, bytes.len() - before);
            }
            prop_assert!(set.as_slice().windows(2).all(|pair| pair[0].1 < pair[1].0));
            prop_assert_eq!(set.bytes_within(start, start + len) as usize, bytes.range(start..start + len).count());
            prop_assert_eq!(set.holds(start, start + len + 1), (start..=start + len).all(|byte| bytes.contains(&byte)));
            prop_assert_eq!(set.around(start).is_some(), bytes.contains(&start));
            let gap = (start..set.end()).find(|byte| !bytes.contains(byte));
            prop_assert_eq!(set.gap_from(start).map(|gap| gap.0), gap);
            let reached = (edge..).find(|byte| !bytes.contains(byte)).unwrap();
            prop_assert_eq!(set.take_reached(edge), reached.max(edge));
            prop_assert!(set.as_slice().iter().all(|range| range.0 > edge));
        }
    }
}
