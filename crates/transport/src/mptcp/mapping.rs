//! Maps bytes of a subflow to bytes of the stream (RFC 8684 §3.3). A mapping does not change once it is made.

use std::collections::VecDeque;

/// Capacity that is always kept. A larger capacity is reduced when it is less than a quarter full.
const KEPT: usize = 8;

/// The starts of mappings: their first byte in the subflow and in the stream, in the order of the subflow.
#[derive(Clone, Debug, Default)]
struct Starts {
    /// Base of the offsets in `compact`: a byte of the subflow and a byte of the stream.
    origin: (u64, u64),
    compact: VecDeque<(u32, u32)>,
    /// Replaces `compact` if the offsets are too large for it, for example in a subflow that was cut off for 2 GiB of
    /// the stream. Boxed, because nearly all subflows leave it empty.
    #[allow(clippy::box_collection)]
    wide: Option<Box<VecDeque<(u64, u64)>>>,
}

impl Starts {
    fn len(&self) -> usize {
        self.wide.as_ref().map_or(self.compact.len(), |wide| wide.len())
    }

    #[inline]
    fn get(&self, place: usize) -> Option<(u64, u64)> {
        if let Some(wide) = &self.wide {
            return wide.get(place).copied();
        }
        let &(start, data) = self.compact.get(place)?;
        Some((self.origin.0 + u64::from(start), self.origin.1.wrapping_add(u64::from(data))))
    }

    fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        (0..self.len()).map_while(|place| self.get(place))
    }

    #[inline]
    fn push(&mut self, start: u64, data: u64) {
        match self.offsets(start, data) {
            Some(offsets) if self.wide.is_none() && !self.compact.is_empty() => self.compact.push_back(offsets),
            _ => self.push_anew(start, data),
        }
    }

    fn offsets(&self, start: u64, data: u64) -> Option<(u32, u32)> {
        let offsets = (start.checked_sub(self.origin.0)?, data.wrapping_sub(self.origin.1));
        Some((u32::try_from(offsets.0).ok()?, u32::try_from(offsets.1).ok()?))
    }

    /// Adds an entry with a new origin: the first entry, with as much of the stream before it as after it.
    #[cold]
    fn push_anew(&mut self, start: u64, data: u64) {
        let all: VecDeque<(u64, u64)> = self.iter().chain([(start, data)]).collect();
        self.origin = (all[0].0, all[0].1.wrapping_sub(1 << 31));
        let compact: Option<VecDeque<(u32, u32)>> =
            all.iter().map(|&(start, data)| self.offsets(start, data)).collect();
        self.wide = compact.is_none().then(|| Box::new(all));
        self.compact = compact.unwrap_or_default();
    }

    #[inline]
    fn pop(&mut self) {
        if let Some(wide) = &mut self.wide {
            wide.pop_front();
            return;
        }
        self.compact.pop_front();
        let (len, room) = (self.compact.len(), self.compact.capacity());
        if room > KEPT && len < room / 4 {
            self.compact.shrink_to((2 * len).max(KEPT));
        }
    }
}

/// The mappings of a subflow that are not fully acknowledged.
#[derive(Clone, Debug, Default)]
pub(super) struct Mappings {
    /// A mapping ends where the next one begins.
    starts: Starts,
    /// One past the last byte of the subflow that was assigned, and the first byte that is not acknowledged.
    end: u64,
    una: u64,
    /// One past the last byte of the stream in the last mapping.
    data_end: u64,
    /// Number of mappings removed so far, and number of the mapping with the last byte taken. Both count from the
    /// first mapping ever (modulo 2^32).
    forgotten: u32,
    taken: u32,
}

impl Mappings {
    /// Maps the next `len` bytes of the subflow to those of the stream from `data` on.
    #[inline]
    pub(super) fn push(&mut self, data: u64, len: u64) {
        // If everything is acknowledged, there is no mapping that could be extended.
        if self.data_end != data || self.una == self.end {
            self.starts.push(self.end, data);
        }
        self.end += len;
        self.data_end = data + len;
    }

    /// Handles the acknowledgement of all bytes of the subflow before `una`. Calls `each` for their ranges of the
    /// stream, and removes completed mappings. Returns the number of bytes that are newly acknowledged.
    #[inline]
    pub(super) fn acknowledge(&mut self, una: u64, mut each: impl FnMut(u64, u64)) -> u64 {
        let (from, una) = (self.una, una.min(self.end));
        while self.una < una {
            let Some((start, data)) = self.starts.get(0) else { break };
            let mapping_end = self.starts.get(1).map_or(self.end, |next| next.0);
            let until = mapping_end.min(una);
            each(data + (self.una - start), data + (until - start));
            self.una = until;
            if until == mapping_end {
                self.starts.pop();
                self.forgotten = self.forgotten.wrapping_add(1);
            }
        }
        self.una - from
    }

    /// Handles bytes from `start` up to `end` that the subflow's receiver has delivered and that are not
    /// acknowledged. Calls `each` for their ranges of the stream. Bytes must be taken in order.
    #[inline]
    pub(super) fn take(&mut self, start: u64, end: u64, mut each: impl FnMut(u64, u64)) {
        if start == end {
            return;
        }
        // Acknowledged bytes were taken before.
        let ahead = self.taken.wrapping_sub(self.forgotten);
        let mut place = if ahead as i32 > 0 { ahead as usize } else { 0 };
        while let Some((from, data)) = self.starts.get(place) {
            let mapping_end = self.starts.get(place + 1).map_or(self.end, |next| next.0);
            if start < mapping_end {
                each(data + (start.max(from) - from), data + (end.min(mapping_end) - from));
                if end <= mapping_end {
                    break;
                }
            }
            place += 1;
        }
        self.taken = self.forgotten.wrapping_add(place as u32);
    }

    /// Returns the ranges of the stream for the subflow's bytes from `start` up to `end`, which must not be
    /// acknowledged.
    pub(super) fn pieces(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let until = |place: usize| self.starts.get(place + 1).map_or(self.end, |next| next.0);
        let each = self.starts.iter().enumerate().skip_while(move |&(place, _)| until(place) <= start);
        each.take_while(move |&(_, (from, _))| from < end)
            .map(move |(place, (from, data))| (data + (start.max(from) - from), data + (end.min(until(place)) - from)))
    }

    /// Returns the ranges of the stream that were assigned and are not acknowledged.
    pub(super) fn outstanding(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.outstanding_from(0)
    }

    /// The same, for the bytes of the subflow from `start` on.
    pub(super) fn outstanding_from(&self, start: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.pieces(self.una.max(start), self.end)
    }

    /// One past the last byte of the subflow that was assigned.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// First byte of the subflow that is not acknowledged.
    pub(super) fn una(&self) -> u64 {
        self.una
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bytes_taken_in_order_match_their_mappings(
            chunks in prop::collection::vec((0u64..5, 1u64..40), 1..40), steps in prop::collection::vec((1u64..60, 0u64..60, 0usize..3), 1..60),
        ) {
            let (mut m, mut data, mut left) = (Mappings::default(), 0, chunks.into_iter());
            let (mut taken, mut acked) = (0, 0);
            for (take, acknowledge, more) in steps {
                for (gap, len) in left.by_ref().take(more) {
                    m.push(data + gap, len);
                    data += gap + len;
                }
                let to = (taken + take).min(m.end);
                let expected: Vec<_> = m.pieces(taken, to).collect();
                let mut found = Vec::new();
                m.take(taken, to, |start, end| found.push((start, end)));
                prop_assert_eq!(found, expected);
                taken = to;
                acked = (acked + acknowledge).min(taken);
                m.acknowledge(acked, |_, _| ());
            }
        }
    }

    #[test]
    fn distant_mappings_work_and_memory_is_released() {
        let mut m = Mappings::default();
        let places: Vec<u64> = (0..200).map(|n| if n % 20 < 10 { n * 200 } else { n << 33 }).collect();
        for round in 0..3u64 {
            places.iter().for_each(|&data| m.push(data + (round << 60), 100));
            let expected: Vec<_> =
                places.iter().map(|&data| (data + (round << 60), data + (round << 60) + 100)).collect();
            assert_eq!(m.outstanding().collect::<Vec<_>>(), expected);
            let mut acked = Vec::new();
            m.acknowledge(m.end, |start, end| acked.push((start, end)));
            assert_eq!(acked, expected);
            // The next mappings are close together again.
            m.push(5 << 60, 100);
            assert!(m.starts.wide.is_none());
            (0..500).for_each(|n| m.push((6 << 60) | (n * 200), 100));
            assert!(m.starts.wide.is_some(), "more than 4 GiB of the stream apart");
            m.acknowledge(m.end, |_, _| ());
            (0..500).for_each(|n| m.push((6 << 60) | (n * 200), 100));
            assert!(m.starts.wide.is_none() && m.starts.compact.capacity() >= 500);
            m.acknowledge(m.end, |_, _| ());
            assert!(m.starts.compact.capacity() <= KEPT);
        }
    }

    #[test]
    fn unacknowledged_mappings_are_kept() {
        let mut m = Mappings::default();
        for (data, len) in [(0, 100), (100, 100), (500, 100), (700, 50)] {
            m.push(data, len);
        }
        assert_eq!(m.starts.len(), 3, "consecutive bytes form one mapping");
        assert_eq!(m.pieces(150, 320).collect::<Vec<_>>(), [(150, 200), (500, 600), (700, 720)]);
        let mut acked = Vec::new();
        assert_eq!(m.acknowledge(250, |start, end| acked.push((start, end))), 250);
        assert_eq!(acked, [(0, 200), (500, 550)]);
        assert_eq!(m.outstanding().collect::<Vec<_>>(), [(550, 600), (700, 750)]);
        assert_eq!((m.acknowledge(250, |_, _| ()), m.acknowledge(350, |_, _| ())), (0, 100));
        assert_eq!((m.outstanding().count(), m.starts.len()), (0, 0));
        m.push(900, 10);
        assert_eq!(m.pieces(350, 360).collect::<Vec<_>>(), [(900, 910)]);
    }
}
