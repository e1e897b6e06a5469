//! The bytes of a stream, which arrive in any order.

use crate::ranges::Ranges;

/// Largest window (RFC 7323 §2.3). All bytes beyond the first missing byte of a stream are within this window.
pub(super) const MOST_WINDOW: u64 = 1 << 30;

/// All bytes before `next`, and ranges beyond it, up to [`MOST_WINDOW`].
#[derive(Clone, Debug, Default)]
pub(super) struct Prefix {
    pub(super) next: u64,
    /// Ranges as offsets from `base`, which is at most 2^31 - 1 before `next`: half of the range of `u32`.
    beyond: Ranges<u32>,
    base: u64,
    /// Number of ranges removed from the front so far (modulo 2^32).
    gone: u32,
}

/// A hint for the position of a range that will be extended later, counted from the first range ever (modulo 2^32).
/// The position can be wrong, because ranges before it can be added or removed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PositionHint(u32);

impl Prefix {
    /// Adds a range; parts of it can be known already. A caller whose ranges often continue where the previous one
    /// ended passes the same `hint` each time.
    #[inline]
    pub(super) fn insert(&mut self, hint: &mut PositionHint, start: u64, end: u64) {
        if end <= self.next {
            return;
        }
        if start > self.next {
            // If that range has been removed from the front, the next one is first now.
            let ahead = hint.0.wrapping_sub(self.gone) as i32;
            let place = self.beyond.insert_near(ahead.max(0) as usize, self.offset(start), self.offset(end));
            hint.0 = self.gone.wrapping_add(place as u32);
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

    /// Returns the first missing part of a range.
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

/// The receiving end of a connection: puts the data of its subflows in order.
#[derive(Clone, Debug, Default)]
pub struct Reassembly(Prefix);

impl Reassembly {
    /// Adds the bytes of the stream from `start` up to `end` that a subflow has delivered. Known bytes are ignored.
    #[inline]
    pub(super) fn insert(&mut self, hint: &mut PositionHint, start: u64, end: u64) {
        self.0.insert(hint, start, end);
    }

    /// Returns the number of bytes delivered in order to the application.
    #[inline]
    pub fn delivered_bytes(&self) -> u64 {
        self.0.next
    }

    /// Returns the number of bytes that subflows have delivered, in order or not.
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
        let (mut prefix, mut hints) = (Prefix::default(), [PositionHint::default(); 2]);
        let step = 1 << 29;
        // Every second piece arrives before its predecessor.
        for piece in (0..64u64).step_by(2) {
            prefix.insert(&mut hints[1], (piece + 1) * step, (piece + 2) * step);
            assert_eq!(prefix.next, piece * step);
            assert_eq!(prefix.first_missing(0, (piece + 2) * step), Some((piece * step, (piece + 1) * step)));
            prefix.insert(&mut hints[0], piece * step, (piece + 1) * step);
            assert_eq!((prefix.next, prefix.beyond.len()), ((piece + 2) * step, 0));
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_set_of_bytes(
            ranges in prop::collection::vec((0u64..100, 1u64..20, 0usize..3, any::<bool>()), 0..60), start in 0u64..110, len in 1u64..30,
        ) {
            let (mut prefix, mut bytes) = (Prefix::default(), BTreeSet::new());
            // Hints are correct, outdated or arbitrary.
            let mut hints = [(PositionHint::default(), 0), (PositionHint(7), 40), (PositionHint(u32::MAX), 80)];
            for (from, len, who, goes_on) in ranges {
                let (hint, last) = &mut hints[who];
                let from = if goes_on && *last < 100 { *last } else { from };
                prefix.insert(hint, from, from + len);
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
