//! Loss recovery by selective acknowledgements (RFC 6675).
//!
//! Difference from the RFC: reported ranges stay known after a time-out, and slow start skips them. RFC 6675 §5.1
//! permits that. Simulated receivers never discard what they have reported.

use super::{Phase, Sender};
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
        let new_bytes = board.update(una, self.high, blocks);
        self.handle_ack(now, ack);
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
            if board.next_lost(losses, una).is_some() {
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
        let free = free.min((una + self.receive_window).saturating_sub(high));
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
        if !self.in_recovery {
            // After a time-out, data that arrived before it is not sent again.
            let (seq, until) = board.skip_arrived(self.next);
            self.next = seq;
            let len = self.mss.min(until - self.next).min(self.limit - self.next);
            let outstanding = (self.next - una) - board.sacked_within(una, self.next);
            let fits = outstanding + len <= self.window.bytes().min(self.flight_limit)
                && self.next + len <= una + self.receive_window;
            return (len > 0 && fits).then_some((self.next, len));
        }
        // RFC 6675 §5 (C) and NextSeg of §4.
        let losses = board.losses();
        if self.window.bytes().min(self.flight_limit) < board.pipe(losses, una, high) + self.mss {
            return None;
        }
        let new = (high, self.mss.min(self.limit - high));
        let new = (new.1 > 0 && high + new.1 <= una + self.receive_window).then_some(new);
        let range = |(start, end): (u64, u64)| (start, end - start);
        let rescue = || if board.rescued { None } else { board.last_missing(una, high) };
        board
            .next_lost(losses, una)
            .map(range)
            .or(new)
            .or_else(|| board.next_missing(una).map(range))
            .or_else(|| rescue().map(range))
    }
}
