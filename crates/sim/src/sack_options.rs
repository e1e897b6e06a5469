//! The SACK options of the acknowledgements of one connection that are under way. A packet has room only for the
//! number of its option.

use pathloom_transport::SackBlocks;
use std::collections::VecDeque;

/// Greatest number that fits into a packet beside its congestion mark.
const LAST: u16 = 0x7FFF;

/// Most options for which memory is kept when none is under way.
const KEPT: usize = 8;

/// Options by number, in the order in which they were sent.
#[derive(Debug, Default)]
pub(crate) struct SackOptions {
    under_way: VecDeque<SackBlocks>,
    /// Number of the newest option; 0 before the first.
    newest: u16,
}

impl SackOptions {
    /// Stores an option. Returns its number, which is not 0.
    pub(crate) fn put(&mut self, blocks: SackBlocks) -> u16 {
        self.newest = self.newest % LAST + 1;
        if self.under_way.len() == usize::from(LAST) {
            self.under_way.pop_front();
        }
        self.under_way.push_back(blocks);
        self.newest
    }

    /// Takes the option with this number and removes older ones: their acknowledgements are lost, or were overtaken
    /// and contain nothing new. Returns `None` if the option itself was overtaken.
    pub(crate) fn take(&mut self, number: u16) -> Option<SackBlocks> {
        let behind = (self.newest + LAST - number) % LAST;
        let place = self.under_way.len().checked_sub(usize::from(behind) + 1)?;
        for _ in 0..place {
            self.under_way.pop_front();
        }
        let taken = self.under_way.pop_front();
        if self.under_way.is_empty() && self.under_way.capacity() > KEPT {
            // In most cases the loss has been repaired, so the memory is freed.
            self.under_way = VecDeque::new();
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(start: u64) -> SackBlocks {
        SackBlocks([(start, start + 1), (0, 0), (0, 0)])
    }

    #[test]
    fn keeps_options_under_way_and_removes_overtaken_ones() {
        let mut options = SackOptions::default();
        let numbers: Vec<u16> = (0..4).map(|start| options.put(blocks(start))).collect();
        assert_eq!(numbers, [1, 2, 3, 4]);
        assert_eq!(options.take(3), Some(blocks(2)));
        assert_eq!((options.take(3), options.take(1)), (None, None));
        assert_eq!(options.take(4), Some(blocks(3)));
        assert!(options.under_way.is_empty());
        let last = (0..=KEPT as u64).map(|start| options.put(blocks(start))).last();
        assert_eq!(last.and_then(|last| options.take(last)), Some(blocks(KEPT as u64)));
        assert_eq!(options.under_way.capacity(), 0);
    }

    #[test]
    fn numbers_wrap_around() {
        let mut options = SackOptions::default();
        for start in 0..100_000 {
            let number = options.put(blocks(start));
            assert!(number != 0 && number <= LAST);
            if start % 3 == 0 {
                assert_eq!(options.take(number), Some(blocks(start)));
            }
        }
        let last: Vec<u16> = (0..40_000).map(|start| options.put(blocks(start))).collect();
        assert_eq!(options.under_way.len(), usize::from(LAST));
        assert_eq!(options.take(last[39_990]), Some(blocks(39_990)));
    }
}
