//! Loss recovery by selective acknowledgements (RFC 6675) and by time (RFC 8985).
//!
//! Difference from the RFC: reported ranges stay known after a time-out, and slow start skips them. RFC 6675 §5.1
//! permits that. Simulated receivers never discard what they have reported.

use super::{Phase, Sender};
use crate::rack::Moment;
use crate::sack::{SackBlocks, DUP_THRESH};
use pathloom_model::Nanos;

impl Sender {
    /// Handles an acknowledgement of all bytes before `ack`, with the ranges that arrived beyond it.
    // Never inlined, because it contains an inlined copy of `handle_ack`.
    #[inline(never)]
    pub fn handle_sack(&mut self, now: Nanos, ack: u64, blocks: &SackBlocks) {
        if self.phase != Phase::Open || ack > self.high {
            return;
        }
        let una = self.una.max(ack);
        let Some(board) = &mut self.scoreboard else { return self.handle_ack(now, ack) };
        let fack = board.sacked_end();
        let new_bytes = board.update(una, self.high, blocks);
        let fills = new_bytes > 0 && board.sacked_end() == fack;
        self.handle_ack(now, ack);
        if fills {
            self.note_filled_gap();
        }
        if self.rack.is_some() {
            self.recover_by_time(now);
        }
        if self.phase != Phase::Open || self.in_recovery || new_bytes == 0 {
            return;
        }
        // RFC 6675 §2: a duplicate is an acknowledgement that reports new data, whatever its number.
        self.dup_acks += 1;
        if self.dup_acks == 1 {
            self.set_threshold();
        }
        let lost = self.scoreboard.as_ref().is_some_and(|board| board.losses().before > self.una);
        if self.dup_acks >= self.dup_thresh || lost {
            self.begin_recovery();
        }
    }

    /// Data have arrived out of order. If the sender tolerates a window of reordering, sets how many segments must
    /// arrive before the first missing one counts as lost (RFC 4653 §3.1).
    fn set_threshold(&mut self) {
        if self.tolerates_window {
            self.dup_thresh = u32::try_from(self.flight() / self.mss).unwrap_or(u32::MAX).max(DUP_THRESH);
        }
        if let Some(board) = &mut self.scoreboard {
            board.set_threshold(self.dup_thresh);
        }
    }

    /// As [`Sender::room_bytes`], if all available data has been sent.
    pub(super) fn room_selectively(&mut self) -> u64 {
        let Some(board) = self.scoreboard.as_mut() else { return 0 };
        let (una, high) = (self.una, self.high);
        let outstanding = if self.in_recovery {
            // Lost data goes first.
            let losses = board.losses();
            let lost_again = self.rack.as_ref().and_then(|rack| rack.next_again(una, self.mss, board));
            if lost_again.is_some() || board.next_lost(losses, una).is_some() {
                return 0;
            }
            board.pipe(losses, una, high)
        } else {
            self.next = board.skip_arrived(self.next).0;
            if self.next != high {
                return 0;
            }
            (high - una) - board.sacked_within(una, high)
        };
        let free = self.window.bytes().min(self.flight_limit).saturating_sub(outstanding);
        let free = free.min((una + self.receive_window.bytes).saturating_sub(high));
        if free >= self.mss {
            free - free % self.mss
        } else {
            0
        }
    }

    /// Returns first byte and length of the next segment.
    pub(super) fn choose_selectively(&mut self) -> Option<(u64, u64)> {
        let board = self.scoreboard.as_mut()?;
        let (una, high) = (self.una, self.high);
        if self.send_first {
            // RFC 6675 §5 (4.3): the first missing segment is sent at once.
            return (self.limit > una).then(|| (una, self.mss.min(self.limit - una)));
        }
        if self.probing {
            // RFC 8985 §7.3: new data if there are any, otherwise the last segment. The window does not limit it.
            let len = self.mss.min(self.limit - high);
            if len > 0 && high + len <= una + self.receive_window.bytes {
                return Some((high, len));
            }
            return board.last_missing(una, high).map(|(start, end)| (start, end - start));
        }
        if !self.in_recovery {
            // After a time-out, data that arrived before it is not sent again.
            let (seq, until) = board.skip_arrived(self.next);
            self.next = seq;
            let len = self.mss.min(until - self.next).min(self.limit - self.next);
            let outstanding = (self.next - una) - board.sacked_within(una, self.next);
            let fits = outstanding + len <= self.window.bytes().min(self.flight_limit)
                && self.next + len <= una + self.receive_window.bytes;
            return (len > 0 && fits).then_some((self.next, len));
        }
        // RFC 6675 §5 (C) and NextSeg of §4.
        let losses = board.losses();
        let lost_again = self.rack.as_ref().map_or(0, |rack| rack.again_bytes(una, board));
        let pipe = board.pipe(losses, una, high).saturating_sub(lost_again);
        if self.window.bytes().min(self.flight_limit) < pipe + self.mss {
            return None;
        }
        if lost_again > 0 {
            let again = self.rack.as_ref().and_then(|rack| rack.next_again(una, self.mss, board));
            return again.map(|(start, end)| (start, end - start));
        }
        let new = (high, self.mss.min(self.limit - high));
        let new = (new.1 > 0 && high + new.1 <= una + self.receive_window.bytes).then_some(new);
        let range = |(start, end): (u64, u64)| (start, end - start);
        // By time, retransmissions that arrive show whether earlier segments are lost, the last ones too.
        let needs_rescue = !board.rescued && self.rack.is_none();
        let rescue = || if needs_rescue { board.last_missing(una, high) } else { None };
        board
            .next_lost(losses, una)
            .map(range)
            .or(new)
            .or_else(|| board.next_missing(una).map(range))
            .or_else(|| rescue().map(range))
    }

    /// Handles the cumulative part of an acknowledgement.
    #[inline(always)]
    pub(super) fn acknowledge_selectively(&mut self, ack: u64) {
        let Some(board) = &mut self.scoreboard else { return };
        if !board.is_empty() {
            board.acknowledge(ack);
            self.note_filled_gap();
        }
        if self.rack.as_ref().is_some_and(|rack| rack.has_probed()) {
            self.handle_answer_to_probe(ack, false);
        }
    }

    /// Data have arrived behind data that had arrived before. If they were sent once, segments overtake each other. From
    /// then on, only time shows losses, not the number of later segments (RFC 8985 §6.2, steps 3 and 4).
    #[cold]
    fn note_filled_gap(&mut self) {
        let Some(rack) =
            self.rack.as_mut().filter(|_| !self.in_recovery && self.recover.is_none_or(|to| to <= self.una))
        else {
            return;
        };
        if rack.on_filled_gap() {
            self.dup_thresh = u32::MAX;
            self.set_threshold();
        }
    }

    /// Reacts to an acknowledgement after a tail loss probe (RFC 8985 §7.4).
    #[cold]
    pub(super) fn handle_answer_to_probe(&mut self, ack: u64, repeated: bool) {
        // A duplicate with blocks is an answer to later data.
        if repeated && self.scoreboard.as_ref().is_some_and(|board| !board.is_empty()) {
            return;
        }
        let has_repaired = self.rack.as_mut().is_some_and(|rack| rack.on_ack_of_probe(ack, repeated));
        if has_repaired && !self.in_recovery {
            self.window.on_loss(self.window.bytes());
        }
    }

    /// Looks for segments that are lost by the time since they were sent (RFC 8985 §6.2), and begins recovery if any are.
    pub(super) fn recover_by_time(&mut self, now: Nanos) {
        let Some(smoothed) = self.rtt.smoothed().filter(|_| self.phase == Phase::Open) else { return };
        let at = Moment {
            now,
            una: self.una,
            high: self.high,
            least: self.rtt.least().unwrap_or(smoothed),
            smoothed,
            in_recovery: self.in_recovery,
        };
        let (Some(rack), Some(board)) = (&mut self.rack, &mut self.scoreboard) else { return };
        let overdue = rack.detect(at, board);
        board.set_overdue(overdue);
        if !self.in_recovery && board.losses().before > self.una {
            self.begin_recovery();
        }
    }

    /// A segment is sent.
    #[inline(always)]
    pub(super) fn note_sent(&mut self, now: Nanos, seq: u64, end: u64) {
        if seq < self.high || self.probing {
            return self.note_sent_again(now, seq, end);
        }
        if let Some(rack) = &mut self.rack {
            rack.on_sent(now, seq, self.una, self.rtt.smoothed());
        }
    }

    #[cold]
    fn note_sent_again(&mut self, now: Nanos, seq: u64, end: u64) {
        let Some(board) = &mut self.scoreboard else { return };
        let again = seq < self.high;
        let Some(rack) = &mut self.rack else { return board.sent_again(seq, end) };
        if self.in_recovery && again && !rack.is_lost_again(seq, end) {
            board.sent_again(seq, end);
        }
        if again && (self.in_recovery || self.probing) {
            rack.on_resent(now, seq, end, board);
            // RFC 6675 §6 permits that retransmissions restart the timer. Otherwise it may expire before an answer to
            // a repeated retransmission can arrive.
            self.rto_at = Some(self.rtt.expiry(now));
        } else if !again {
            rack.on_sent(now, seq, self.una, self.rtt.smoothed());
        }
        if std::mem::take(&mut self.probing) {
            rack.on_probe(self.high.max(end), again);
            // Karn's algorithm: an answer to the probe is no sample.
            self.timing = self.timing.filter(|_| !again);
            self.rto_at = Some(self.rtt.expiry(now)); // RFC 8985 §7.3
        }
    }
}
