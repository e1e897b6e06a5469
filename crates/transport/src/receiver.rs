//! The receiving half: cumulative, duplicate (RFC 5681 §4.2) and selective (RFC 2018) acknowledgements.

use crate::ranges::Ranges;
use crate::sack::SackBlocks;
use crate::Settings;
use pathloom_model::Nanos;

/// Puts segments in order and decides when to acknowledge.
///
/// The fields that every segment needs come first, so that they share a cache line; see [`Receiver::BUSY_BYTES`].
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Receiver {
    /// All bytes before this one have arrived.
    next: u64,
    /// Bytes that have arrived beyond `next`.
    beyond: Ranges,
    ack_due: Option<Nanos>,
    /// In-order segments since the last acknowledgement.
    unacknowledged: u32,
    ack_every: u32,
    sack: bool,
    /// Whether the last segment had a congestion mark (DCTCP.CE of RFC 8257 §3.2).
    marked: bool,
    segments: u32,
    delayed_ack: Nanos,
    /// One byte of each of the most recent ranges, the newest first (RFC 2018 §4).
    recent: [u64; SackBlocks::MOST],
    reordered: u32,
}

impl Receiver {
    /// Number of bytes at the start of the struct that an in-order segment needs.
    pub const BUSY_BYTES: usize = std::mem::offset_of!(Receiver, delayed_ack);

    /// Creates a receiver to which no segment has arrived yet.
    pub fn new(settings: &Settings) -> Receiver {
        Receiver {
            next: 0,
            beyond: Ranges::default(),
            recent: [0; SackBlocks::MOST],
            sack: settings.sack,
            reordered: 0,
            segments: 0,
            unacknowledged: 0,
            ack_every: settings.ack_every,
            delayed_ack: settings.delayed_ack,
            ack_due: None,
            marked: false,
        }
    }

    /// Returns the number of bytes delivered in order to the application.
    pub fn delivered_bytes(&self) -> u64 {
        self.next
    }

    /// Returns the number of bytes that have arrived, in order or not.
    pub fn arrived_bytes(&self) -> u64 {
        self.next + self.beyond.total()
    }

    /// Returns the number of segments with new data that arrived after a segment from further on in the stream
    /// (reordered, as in RFC 4737 §3). Retransmissions that fill a gap count too.
    pub fn reordered(&self) -> u32 {
        self.reordered
    }

    /// Returns the number of segments that brought new data. The part of them that are [`Receiver::reordered`] is the
    /// reordered ratio (RFC 4737 §4.1).
    pub fn segments(&self) -> u32 {
        self.segments
    }

    /// Moves the time of a delayed acknowledgement by `by`, and counts segments that have arrived meanwhile, of which some
    /// were reordered.
    pub fn translate(&mut self, by: Nanos, segments: u32, reordered: u32) {
        self.ack_due = self.ack_due.map(|at| at + by);
        self.segments = self.segments.saturating_add(segments);
        self.reordered = self.reordered.saturating_add(reordered);
    }

    /// Handles a segment of `len` bytes from `seq` on. Returns the acknowledgement number to send now, if any.
    #[inline]
    pub fn handle_data(&mut self, now: Nanos, seq: u64, len: u32) -> Option<u64> {
        if seq == self.next && self.beyond.is_empty() {
            self.next += u64::from(len);
            self.segments += 1;
            self.unacknowledged += 1;
            if self.unacknowledged >= self.ack_every {
                return Some(self.acknowledge());
            }
            self.ack_due = Some(now + self.delayed_ack);
            return None;
        }
        self.handle_out_of_order(seq, seq + u64::from(len))
    }

    /// Handles the congestion mark of a segment, or its absence; [`Receiver::handle_data`] follows. If the mark
    /// differs from that of the segments before, returns the acknowledgement to send at once for those, if one is
    /// pending. It echoes the old value, the opposite of `marked` (RFC 8257 §3.2).
    pub fn handle_mark(&mut self, marked: bool) -> Option<u64> {
        let changed = std::mem::replace(&mut self.marked, marked) != marked;
        (changed && self.unacknowledged > 0).then(|| self.acknowledge())
    }

    /// Whether acknowledgements sent now echo a congestion mark.
    #[inline]
    pub fn echoes(&self) -> bool {
        self.marked
    }

    /// Handles the end of the stream, after all data have arrived. A FIN is acknowledged at once (RFC 9293
    /// §3.10.7.4), without the delay of data. Returns the acknowledgement number to send now.
    pub fn handle_fin(&mut self) -> u64 {
        self.acknowledge()
    }

    /// RFC 5681 §4.2: a segment that is out of order, repeated or fills a gap is acknowledged at once.
    #[cold]
    fn handle_out_of_order(&mut self, start: u64, end: u64) -> Option<u64> {
        if self.sack && start > self.next {
            self.remember(start);
        }
        if self.beyond.extend_last(start, end) {
            self.segments += 1;
            return Some(self.acknowledge());
        }
        let is_new = end > self.next && !self.beyond.holds(start, end);
        self.segments += u32::from(is_new);
        let is_overtaken = self.beyond.as_slice().last().is_some_and(|last| start < last.0);
        self.reordered += u32::from(is_new && is_overtaken);
        if start > self.next {
            self.beyond.insert(start, end);
        } else {
            self.next = self.beyond.take_reached(self.next.max(end));
        }
        Some(self.acknowledge())
    }

    /// Moves the range of this byte to the front of the ranges to report.
    fn remember(&mut self, byte: u64) {
        let same = |&old: &u64| self.beyond.around(old).is_some_and(|(start, end)| start <= byte && byte <= end);
        let place = self.recent.iter().position(same).unwrap_or(SackBlocks::MOST - 1);
        self.recent[..=place].rotate_right(1);
        self.recent[0] = byte;
    }

    /// Whether an acknowledgement has SACK blocks to report.
    #[inline]
    pub fn has_sack_blocks(&self) -> bool {
        self.sack && !self.beyond.is_empty()
    }

    /// Returns the SACK option of an acknowledgement that is sent now: the range of the newest segment, then the
    /// ranges reported before it (RFC 2018 §4).
    pub fn sack_blocks(&self) -> SackBlocks {
        let mut blocks = SackBlocks::default();
        let mut used = 0;
        for range in self.recent.iter().filter_map(|&byte| self.beyond.around(byte)) {
            if !blocks.0[..used].contains(&range) {
                blocks.0[used] = range;
                used += 1;
            }
        }
        blocks
    }

    /// Returns the time when a delayed acknowledgement is due.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Nanos> {
        self.ack_due
    }

    /// Returns the delayed acknowledgement if it is due.
    pub fn handle_timeout(&mut self, now: Nanos) -> Option<u64> {
        (self.ack_due? <= now).then(|| self.acknowledge())
    }

    #[inline]
    fn acknowledge(&mut self) -> u64 {
        self.unacknowledged = 0;
        self.ack_due = None;
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn receiver(ack_every: u32) -> Receiver {
        Receiver::new(&Settings { ack_every, ..Settings::default() })
    }

    #[test]
    fn delays_every_second_acknowledgement() {
        let mut r = receiver(2);
        assert_eq!(r.handle_data(Nanos(0), 0, 100), None);
        assert_eq!(r.poll_timeout(), Some(Nanos::from_millis(40)));
        assert_eq!(r.handle_timeout(Nanos::from_millis(39)), None);
        assert_eq!(r.handle_data(Nanos(5), 100, 100), Some(200));
        assert_eq!(r.poll_timeout(), None);
        assert_eq!(r.handle_data(Nanos(5), 200, 100), None);
        assert_eq!(r.handle_timeout(Nanos::from_millis(50)), Some(300));
    }

    #[test]
    fn does_not_delay_the_last_acknowledgement() {
        let mut r = receiver(2);
        assert_eq!(r.handle_data(Nanos(0), 0, 100), None);
        assert_eq!((r.handle_fin(), r.poll_timeout()), (100, None));
    }

    #[test]
    fn a_change_of_marks_is_acknowledged_at_once() {
        let mut r = receiver(2);
        assert_eq!((r.handle_mark(false), r.handle_data(Nanos(0), 0, 100)), (None, None));
        assert_eq!(r.handle_mark(true), Some(100), "bytes without a mark are acknowledged separately");
        assert_eq!((r.handle_data(Nanos(0), 100, 100), r.echoes()), (None, true));
        assert_eq!((r.handle_mark(true), r.handle_data(Nanos(0), 200, 100)), (None, Some(300)));
        assert_eq!((r.handle_mark(false), r.echoes()), (None, false), "nothing is left to acknowledge");
    }

    #[test]
    fn gaps_and_their_filling_are_acknowledged_at_once() {
        let mut r = receiver(2);
        assert_eq!(r.handle_data(Nanos(0), 100, 100), Some(0));
        assert_eq!(r.handle_data(Nanos(0), 300, 100), Some(0));
        assert_eq!(r.handle_data(Nanos(0), 0, 100), Some(200));
        assert_eq!(r.handle_data(Nanos(0), 0, 100), Some(200), "a repeat is answered");
        assert_eq!(r.handle_data(Nanos(0), 200, 100), Some(400));
        assert_eq!((r.delivered_bytes(), r.reordered()), (400, 2));
    }

    #[test]
    fn the_most_recent_range_is_reported_first() {
        let mut r = Receiver::new(&Settings { sack: true, ..Settings::default() });
        let mut blocks = |seq| {
            r.handle_data(Nanos(0), seq, 100);
            r.sack_blocks().blocks().collect::<Vec<_>>()
        };
        assert_eq!(blocks(200), [(200, 300)]);
        assert_eq!(blocks(600), [(600, 700), (200, 300)]);
        assert_eq!(blocks(300), [(200, 400), (600, 700)]);
        assert_eq!(blocks(800), [(800, 900), (200, 400), (600, 700)]);
        assert_eq!(blocks(1000), [(1000, 1100), (800, 900), (200, 400)]);
        assert_eq!(blocks(900), [(800, 1100), (200, 400)], "two ranges have merged");
        assert_eq!(blocks(0), [(800, 1100), (200, 400)]);
        assert_eq!(blocks(100), [(800, 1100)], "acknowledged bytes are not reported");
    }

    proptest! {
        #[test]
        fn reordered_segments_are_counted(order in Just((0u64..40).collect::<Vec<_>>()).prop_shuffle(), again in 0usize..40) {
            let mut r = receiver(1);
            for &item in &order {
                r.handle_data(Nanos(0), item * 100, 100);
            }
            let late = (0..order.len()).filter(|&at| order[..at].iter().any(|&before| before > order[at])).count();
            prop_assert_eq!((r.reordered() as usize, r.segments() as usize), (late, order.len()));
            r.handle_data(Nanos(0), order[again] * 100, 100);
            let counts = (r.reordered() as usize, r.segments() as usize);
            prop_assert_eq!(counts, (late, order.len()), "a repeat brings nothing new");
        }

        #[test]
        fn any_order_and_overlap_delivers_all_bytes(mut order in Just((0u64..40).collect::<Vec<_>>()).prop_shuffle(), extra in prop::collection::vec((0u64..3900, 1u32..300), 0..20)) {
            let mut r = receiver(1);
            for &(seq, len) in &extra {
                let len = len.min((4000 - seq) as u32);
                order.push(1_000_000 + (seq << 12 | u64::from(len)));
            }
            let mut last = 0;
            for item in order {
                let (seq, len) = if item < 40 { (item * 100, 100) } else { let x = item - 1_000_000; (x >> 12, (x & 0xfff) as u32) };
                let ack = r.handle_data(Nanos(0), seq, len);
                prop_assert!(ack.is_none_or(|a| a >= last && a == r.delivered_bytes()));
                last = r.delivered_bytes();
            }
            prop_assert_eq!(r.delivered_bytes(), 4000);
            prop_assert!(r.beyond.is_empty());
        }
    }
}
