//! Bytes of a stream that arrive in any order.

use crate::ranges::Ranges;

/// The greatest window (RFC 7323 §2.3). What is beyond the first missing byte of a stream is within it.
pub(super) const MOST_WINDOW: u64 = 1 << 30;

/// All bytes before one, and ranges beyond it, by no more than [`MOST_WINDOW`].
#[derive(Clone, Debug, Default)]
pub(super) struct Prefix {
    pub(super) next: u64,
    /// Counted from `base` on, which is at `next` or less than 2^31 before it: half the room of whole numbers.
    beyond: Ranges<u32>,
    base: u64,
    /// Ranges that went from the front so far (modulo 2^32).
    gone: u32,
}

/// Where a range was put that goes on later: its place, counted from the first range ever (modulo 2^32). Only a hint: ranges
/// between may have come or gone.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Near(u32);

impl Prefix {
    /// Adds a range, all or part of which may be known. Whoever adds ranges that often go on where the one before ended keeps
    /// `near` from one to the next.
    #[inline]
    pub(super) fn insert(&mut self, near: &mut Near, start: u64, end: u64) {
        if end <= self.next {
            return;
        }
        if start > self.next {
            // Where that range has gone from the front, what follows is first now.
            let ahead = near.0.wrapping_sub(self.gone) as i32;
            let place = self.beyond.insert_near(ahead.max(0) as usize, self.offset(start), self.offset(end));
            near.0 = self.gone.wrapping_add(place as u32);
        } else {
            let before = self.beyond.len();
            self.next = self.base + u64::from(self.beyond.take_reached(self.offset(end)));
            self.gone = self.gone.wrapping_add((before - self.beyond.len()) as u32);
            if self.next - self.base >= 1 << 31 {
                self.beyond.lower(self.offset(self.next));
                self.base = self.next;
            }
        }
    }

    fn offset(&self, byte: u64) -> u32 {
        debug_assert!(byte <= self.next + MOST_WINDOW && byte >= self.base, "{byte} is outside the window");
        (byte - self.base) as u32
    }

    /// The first part of a range that is missing.
    pub(super) fn first_missing(&self, start: u64, end: u64) -> Option<(u64, u64)> {
        let start = start.max(self.next);
        if start >= end {
            return None;
        }
        let (start, end) = (self.offset(start), self.offset(end));
        let start = self.beyond.around(start).map_or(start, |known| known.1);
        let until = self.beyond.gap_from(start).map_or(end, |gap| gap.1.min(end));
        (start < end).then_some((self.base + u64::from(start), self.base + u64::from(until)))
    }
}

/// The receiving end of a connection: puts what its subflows deliver in order.
#[derive(Clone, Debug, Default)]
pub struct Reassembly(Prefix);

impl Reassembly {
    /// A subflow has delivered the bytes of the stream from `start` on and before `end`; what is known already changes
    /// nothing.
    #[inline]
    pub(super) fn insert(&mut self, near: &mut Near, start: u64, end: u64) {
        self.0.insert(near, start, end);
    }

    /// Bytes delivered in order to the application.
    #[inline]
    pub fn delivered_bytes(&self) -> u64 {
        self.0.next
    }

    /// Bytes that subflows have delivered, in order or not.
    pub fn arrived_bytes(&self) -> u64 {
        self.0.next + u64::from(self.0.beyond.total())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn long_streams_keep_their_order() {
        let (mut prefix, mut near) = (Prefix::default(), [Near::default(); 2]);
        let step = 1 << 29;
        // Every second piece overtakes the one before it.
        for piece in (0..64u64).step_by(2) {
            prefix.insert(&mut near[1], (piece + 1) * step, (piece + 2) * step);
            assert_eq!(prefix.next, piece * step);
            assert_eq!(prefix.first_missing(0, (piece + 2) * step), Some((piece * step, (piece + 1) * step)));
            prefix.insert(&mut near[0], piece * step, (piece + 1) * step);
            assert_eq!((prefix.next, prefix.beyond.len()), ((piece + 2) * step, 0));
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_set_of_bytes(
            ranges in prop::collection::vec((0u64..100, 1u64..20, 0usize..3, any::<bool>()), 0..60), start in 0u64..110, len in 1u64..30,
        ) {
            let (mut prefix, mut bytes) = (Prefix::default(), BTreeSet::new());
            // Hints are right, out of date, or nonsense.
            let mut hints = [(Near::default(), 0), (Near(7), 40), (Near(u32::MAX), 80)];
            for (from, len, who, goes_on) in ranges {
                let (near, last) = &mut hints[who];
                let from = if goes_on && *last < 100 { *last } else { from };
                prefix.insert(near, from, from + len);
                *last = from + len;
                bytes.extend(from..from + len);
                prop_assert_eq!(Some(prefix.next), (0..).find(|byte| !bytes.contains(byte)));
            }
            let missing = |byte: &u64| !bytes.contains(byte);
            let expected = (start..start + len).find(missing).map(|from| {
                (from, (from..start + len).find(|byte| !missing(byte)).unwrap_or(start + len))
            });
            prop_assert_eq!(prefix.first_missing(start, start + len), expected);
        }
    }
}
