//! Selective acknowledgements: the option (RFC 2018), and the sender's conclusions from it (RFC 6675).

use crate::ranges::Ranges;

/// The blocks of one SACK option: ranges that have arrived out of order, the most recent first (RFC 2018 §4). Three
/// fit into a header with the timestamp option (RFC 2018 §3). Unused entries are empty ranges.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SackBlocks(pub [(u64, u64); SackBlocks::MOST]);

impl SackBlocks {
    /// Number of blocks in one option.
    pub const MOST: usize = 3;

    /// Returns the blocks that are not empty.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().copied().filter(|(start, end)| start < end)
    }
}

/// The bytes beyond the cumulative acknowledgement that a sender knows to have arrived.
#[derive(Clone, Debug)]
pub(crate) struct Scoreboard {
    sacked: Ranges,
    mss: u64,
    /// Number of later ranges or segments after which a segment counts as lost.
    threshold: u32,
    /// One past the highest byte retransmitted in this recovery (HighRxt of RFC 6675 §2, plus one).
    pub(crate) high_rxt: u64,
    /// Whether this recovery has used its rescue retransmission (RescueRxt of RFC 6675 §2).
    pub(crate) rescued: bool,
    /// Everything before this byte that has not arrived is lost, by the time since it was sent ([`crate::rack`]).
    overdue: u64,
}

/// Number of duplicate acknowledgements, or of later ranges, after which a segment counts as lost (DupThresh, RFC
/// 6675 §2), unless [`crate::Reordering`] says otherwise.
pub const DUP_THRESH: u32 = 3;

/// The bytes that count as lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Losses {
    /// Everything before this byte that has not arrived is lost. At or above it, as many separate ranges as the threshold
    /// (3), or the bytes of more than one segment less, have arrived. 0 if nothing is lost.
    pub(crate) before: u64,
    /// Number of bytes from `before` on that have arrived.
    arrived: u64,
}

impl Scoreboard {
    pub(crate) fn new(mss: u64) -> Scoreboard {
        Scoreboard { sacked: Ranges::default(), mss, threshold: DUP_THRESH, high_rxt: 0, rescued: false, overdue: 0 }
    }

    /// Sets how many later segments must arrive before a segment counts as lost.
    pub(crate) fn set_threshold(&mut self, segments: u32) {
        self.threshold = segments;
    }

    /// Adds the blocks of an acknowledgement that are above `una` and below `high` (RFC 6675 §4, Update). Blocks of
    /// bytes that were never sent are ignored. Returns the number of bytes that are reported for the first time.
    pub(crate) fn update(&mut self, una: u64, high: u64, blocks: &SackBlocks) -> u64 {
        let usable = blocks.blocks().filter(|&(start, end)| start > una && end <= high);
        usable.map(|(start, end)| self.sacked.insert(start, end)).sum()
    }

    /// Handles the acknowledgement of all bytes before `una`.
    pub(crate) fn acknowledge(&mut self, una: u64) {
        if !self.sacked.is_empty() {
            self.sacked.take_reached(una);
        }
    }

    /// Sets the byte before which everything that has not arrived is lost, by the time since it was sent.
    pub(crate) fn set_overdue(&mut self, byte: u64) {
        self.overdue = self.overdue.max(byte);
    }

    /// Whether no data are known to have arrived out of order.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.sacked.is_empty()
    }

    /// Returns one past the last byte that has arrived out of order; 0 if none has.
    pub(crate) fn sacked_end(&self) -> u64 {
        self.sacked.end()
    }

    /// Returns the parts of a range that have not arrived.
    pub(crate) fn missing_within(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut from = start;
        std::iter::from_fn(move || {
            let (first, until) = self.sacked.gap_from(from).unwrap_or((from.max(self.sacked.end()), u64::MAX));
            from = until.min(end);
            (first < end).then_some((first, from))
        })
    }

    /// Begins a recovery, in which nothing has been retransmitted yet.
    pub(crate) fn begin_recovery(&mut self, una: u64) {
        self.high_rxt = una;
        self.rescued = false;
    }

    /// Records a retransmission in recovery, from `start` up to `end`. If nothing above it has arrived, or it was
    /// retransmitted before, it is the rescue of NextSeg (4), which does not change HighRxt.
    pub(crate) fn sent_again(&mut self, start: u64, end: u64) {
        if end <= self.high_rxt || start >= self.sacked.end() {
            self.rescued = true;
        } else {
            self.high_rxt = end;
        }
    }

    /// Returns the number of bytes from `start` up to `end` that have arrived.
    pub(crate) fn sacked_within(&self, start: u64, end: u64) -> u64 {
        if self.sacked.is_empty() {
            return 0;
        }
        self.sacked.bytes_within(start, end)
    }

    /// Returns which bytes are lost (IsLost of RFC 6675 §4).
    pub(crate) fn losses(&self) -> Losses {
        let losses = self.losses_by_order();
        if self.overdue <= losses.before {
            return losses;
        }
        Losses { before: self.overdue, arrived: self.sacked_within(self.overdue, u64::MAX) }
    }

    fn losses_by_order(&self) -> Losses {
        let (mut ranges, mut arrived) = (0, 0);
        for &(start, end) in self.sacked.as_slice().iter().rev() {
            ranges += 1;
            arrived += end - start;
            if ranges >= self.threshold || arrived > u64::from(self.threshold - 1) * self.mss {
                return Losses { before: start, arrived };
            }
        }
        Losses { before: 0, arrived }
    }

    /// Returns the number of bytes in the network (SetPipe of RFC 6675 §4) between `una` and `high`. `losses` is the
    /// present value of [`Scoreboard::losses`].
    pub(crate) fn pipe(&self, losses: Losses, una: u64, high: u64) -> u64 {
        let lost = losses.before.max(una);
        debug_assert_eq!(losses.arrived, self.sacked_within(lost, high), "ranges are above {una} and below {high}");
        let again = self.high_rxt.clamp(una, high);
        (high - lost - losses.arrived) + (again - una - self.sacked_within(una, again))
    }

    /// Returns the first lost segment after the retransmitted ones (rule 1 of NextSeg, RFC 6675 §4). `losses` is the
    /// present value of [`Scoreboard::losses`].
    pub(crate) fn next_lost(&self, losses: Losses, una: u64) -> Option<(u64, u64)> {
        self.next_missing(una).filter(|&(start, _)| start < losses.before)
    }

    /// Returns the first missing segment after the retransmitted ones, if a later one has arrived (rule 3 of NextSeg).
    pub(crate) fn next_missing(&self, una: u64) -> Option<(u64, u64)> {
        let (start, end) = self.sacked.gap_from(self.high_rxt.max(una))?;
        Some((start, end.min(start + self.mss)))
    }

    /// Returns the last segment before `high` that has not arrived (rule 4 of NextSeg).
    pub(crate) fn last_missing(&self, una: u64, high: u64) -> Option<(u64, u64)> {
        let mut end = high;
        while let Some((start, _)) = end.checked_sub(1).and_then(|byte| self.sacked.around(byte)) {
            end = start;
        }
        let below = self.sacked.as_slice().iter().rev().find(|range| range.1 <= end).map_or(una, |range| range.1);
        (end > una).then(|| (end.saturating_sub(self.mss).max(below).max(una), end))
    }

    /// Returns where a sender continues after a time-out: the first missing byte from `next` on, and the end of that
    /// gap.
    pub(crate) fn skip_arrived(&self, next: u64) -> (u64, u64) {
        match self.sacked.gap_from(next) {
            Some(gap) => gap,
            None => (next.max(self.sacked.end()), u64::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scoreboard(ranges: &[(u64, u64)]) -> Scoreboard {
        let mut scoreboard = Scoreboard::new(100);
        ranges.iter().for_each(|&range| {
            scoreboard.update(0, 10_000, &SackBlocks([range, (0, 0), (0, 0)]));
        });
        scoreboard
    }

    #[test]
    fn a_segment_is_lost_when_three_ranges_or_more_than_two_segments_arrived_above() {
        let lost_before = |ranges: &[(u64, u64)]| scoreboard(ranges).losses().before;
        assert_eq!(lost_before(&[]), 0);
        assert_eq!(lost_before(&[(100, 300)]), 0, "two segments are not enough");
        assert_eq!(lost_before(&[(100, 301)]), 100);
        assert_eq!(lost_before(&[(100, 150), (200, 250), (300, 350)]), 100);
        assert_eq!(lost_before(&[(100, 150), (500, 900)]), 500);
    }

    #[test]
    fn the_pipe_excludes_arrived_and_lost_bytes() {
        let mut b = scoreboard(&[(100, 500), (600, 700)]);
        // 0..100 is lost; 500..600 and 700..1000 are in flight.
        assert_eq!(b.pipe(b.losses(), 0, 1000), 400);
        b.high_rxt = 100;
        assert_eq!(b.pipe(b.losses(), 0, 1000), 500, "retransmitted bytes are in flight too");
    }

    #[test]
    fn next_seg_follows_its_four_rules() {
        let mut b = scoreboard(&[(100, 200), (300, 600), (700, 800)]);
        let losses = b.losses();
        assert_eq!(b.next_lost(losses, 0), Some((0, 100)));
        b.high_rxt = 100;
        assert_eq!(b.next_lost(losses, 0), Some((200, 300)));
        b.high_rxt = 300;
        assert_eq!((b.next_lost(losses, 0), b.next_missing(0)), (None, Some((600, 700))));
        b.high_rxt = 700;
        assert_eq!((b.next_missing(0), b.last_missing(0, 950)), (None, Some((850, 950))));
        assert_eq!(b.last_missing(0, 800), Some((600, 700)));
        assert_eq!(scoreboard(&[(50, 100)]).last_missing(0, 100), Some((0, 50)));
        assert_eq!(scoreboard(&[]).last_missing(100, 100), None);
    }

    #[test]
    fn blocks_of_unsent_or_acknowledged_bytes_are_ignored() {
        let mut b = Scoreboard::new(100);
        let wild = SackBlocks([(0, 100), (900, 1100), (u64::MAX - 1, u64::MAX)]);
        assert_eq!(b.update(50, 1000, &wild), 0);
        assert_eq!(b.update(50, 1000, &SackBlocks([(200, 300), (250, 350), (0, 0)])), 150);
        b.acknowledge(220);
        assert_eq!(b.sacked_within(0, 1000), 0, "an acknowledgement that ends in a block covers it");
    }
}
