//! Sets of byte ranges: what a receiver holds out of order, and what a sender knows to have arrived.

/// Half-open ranges of sequence numbers: disjoint, not touching, ascending.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn as_slice(&self) -> &[(u64, u64)] {
        &self.0
    }

    /// The end of the last range, or 0 if there is none.
    pub(crate) fn end(&self) -> u64 {
        self.0.last().map_or(0, |last| last.1)
    }

    /// Lengthens the last range to `end` if it ends at `start`. Behind a loss, segments keep coming in order.
    #[inline]
    pub(crate) fn extend_last(&mut self, start: u64, end: u64) -> bool {
        match self.0.last_mut() {
            Some(last) if last.1 == start => {
                last.1 = end;
                true
            }
            _ => false,
        }
    }

    /// Adds a range and merges it with those that it overlaps or touches. Returns how many bytes are new.
    pub(crate) fn insert(&mut self, start: u64, end: u64) -> u64 {
        let from = self.0.partition_point(|&(_, to)| to < start);
        // Mostly it touches no range, or one.
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
        let known: u64 = self.0[from..until].iter().map(|(first, to)| to - first).sum();
        let merged = self.0[from..until].iter().fold((start, end), |m, r| (m.0.min(r.0), m.1.max(r.1)));
        self.0.splice(from..until, [merged]);
        merged.1 - merged.0 - known
    }

    /// Removes everything before `edge`; a range that begins at or before `edge` is removed whole, and the place where it
    /// ends is returned, or `edge` if there is no such range.
    pub(crate) fn take_reached(&mut self, edge: u64) -> u64 {
        let reached = self.0.iter().take_while(|(from, _)| *from <= edge).count();
        self.0.drain(..reached).fold(edge, |edge, (_, to)| edge.max(to))
    }

    /// Bytes in the set from `start` on and before `end`.
    pub(crate) fn bytes_within(&self, start: u64, end: u64) -> u64 {
        let within = |&(first, to): &(u64, u64)| to.min(end).saturating_sub(first.max(start));
        self.0.iter().map(within).sum()
    }

    /// Whether one range holds all of this one.
    pub(crate) fn holds(&self, start: u64, end: u64) -> bool {
        self.0.iter().any(|&(from, to)| from <= start && end <= to)
    }

    /// The range that holds this byte.
    pub(crate) fn around(&self, byte: u64) -> Option<(u64, u64)> {
        self.0.iter().copied().find(|&(from, to)| from <= byte && byte < to)
    }

    /// The first gap that ends behind `start`: where it begins (`start` at least), and where the next range does.
    /// `None` behind the last range.
    pub(crate) fn gap_from(&self, start: u64) -> Option<(u64, u64)> {
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
