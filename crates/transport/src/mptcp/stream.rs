//! Bytes of a stream that arrive in any order.

use crate::ranges::Ranges;

/// All bytes before one, and ranges beyond it.
#[derive(Clone, Debug, Default)]
pub(super) struct Prefix {
    pub(super) next: u64,
    beyond: Ranges,
}

impl Prefix {
    /// Adds a range, all or part of which may be known.
    #[inline]
    pub(super) fn insert(&mut self, start: u64, end: u64) {
        if end <= self.next || self.beyond.extend_last(start, end) {
            return;
        }
        if start > self.next {
            self.beyond.insert(start, end);
        } else {
            self.next = self.beyond.take_reached(end);
        }
    }

    /// The first part of a range that is missing.
    pub(super) fn first_missing(&self, start: u64, end: u64) -> Option<(u64, u64)> {
        let start = start.max(self.next);
        let start = self.beyond.around(start).map_or(start, |known| known.1);
        let until = self.beyond.gap_from(start).map_or(end, |gap| gap.1.min(end));
        (start < end).then_some((start, until))
    }
}

/// The receiving end of a connection: puts what its subflows deliver in order.
#[derive(Clone, Debug, Default)]
pub struct Reassembly(Prefix);

impl Reassembly {
    /// A subflow has delivered the bytes of the stream from `start` on and before `end`; what is known already changes
    /// nothing.
    #[inline]
    pub fn insert(&mut self, start: u64, end: u64) {
        self.0.insert(start, end);
    }

    /// Bytes delivered in order to the application.
    #[inline]
    pub fn delivered_bytes(&self) -> u64 {
        self.0.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn agrees_with_a_set_of_bytes(
            ranges in prop::collection::vec((0u64..100, 1u64..20), 0..30), start in 0u64..110, len in 1u64..30,
        ) {
            let (mut prefix, mut bytes) = (Prefix::default(), BTreeSet::new());
            for (from, len) in ranges {
                prefix.insert(from, from + len);
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
