//! Which byte of the stream a byte of a subflow stands for (RFC 8684 §3.3). A mapping does not change once it is made.

use std::collections::VecDeque;

/// The mappings of a subflow that are not acknowledged.
#[derive(Clone, Debug, Default)]
pub(super) struct Mappings {
    /// First byte in the subflow and in the stream, in the order of the subflow. A mapping ends where the next one begins.
    starts: VecDeque<(u64, u64)>,
    /// One past the last byte of the subflow that was handed out, and the first one not acknowledged.
    end: u64,
    una: u64,
}

impl Mappings {
    /// The next `len` bytes of the subflow stand for those of the stream from `data` on.
    #[inline]
    pub(super) fn push(&mut self, data: u64, len: u64) {
        let joins = self.starts.back().is_some_and(|&(start, first)| first + (self.end - start) == data);
        if !joins {
            self.starts.push_back((self.end, data));
        }
        self.end += len;
    }

    /// All bytes of the subflow before `una` have been acknowledged: calls `each` for the ranges of the stream that they
    /// stand for, and forgets them. Returns how many bytes that is news of.
    #[inline]
    pub(super) fn acknowledge(&mut self, una: u64, mut each: impl FnMut(u64, u64)) -> u64 {
        let (from, una) = (self.una, una.min(self.end));
        while self.una < una {
            let Some(&(start, data)) = self.starts.front() else { break };
            let mapping_end = self.starts.get(1).map_or(self.end, |next| next.0);
            let until = mapping_end.min(una);
            each(data + (self.una - start), data + (until - start));
            self.una = until;
            if until == mapping_end {
                self.starts.pop_front();
            }
        }
        self.una - from
    }

    /// The ranges of the stream for the subflow's bytes from `start` on and before `end`, which are not acknowledged.
    pub(super) fn pieces(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let first = self.starts.partition_point(|mapping| mapping.0 <= start).saturating_sub(1);
        let after = (first..self.starts.len()).take_while(move |&place| self.starts[place].0 < end);
        after.map(move |place| {
            let (from, data) = self.starts[place];
            let mapping_end = self.starts.get(place + 1).map_or(self.end, |next| next.0);
            (data + (start.max(from) - from), data + (end.min(mapping_end) - from))
        })
    }

    /// The ranges of the stream that were handed out and are not acknowledged.
    pub(super) fn outstanding(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.pieces(self.una, self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_is_not_acknowledged() {
        let mut m = Mappings::default();
        for (data, len) in [(0, 100), (100, 100), (500, 100), (700, 50)] {
            m.push(data, len);
        }
        assert_eq!(m.starts.len(), 3, "what goes on where the last one ended is one mapping");
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
