//! Loss detection by time and tail loss probes (RACK-TLP, RFC 8985), for senders with selective acknowledgements.
//!
//! A segment is lost when a segment that was sent after it has arrived, and a round trip and a reordering window have
//! passed since it was sent (§6.2). This also finds retransmissions that are lost again, and losses after which fewer
//! than three segments arrive. When the last segments of a flight are lost, no later one arrives: after two round
//! trips without an answer the sender repeats the last segment, or sends a new one (§7).
//!
//! Differences from the RFC:
//! - Times of transmission are kept for groups of segments that left within an eighth of a round trip. A segment
//!   counts as sent at the end of its group, so it is found lost at most this much later.
//! - Receivers report no duplicates (D-SACK, RFC 2883). So the reordering window does not grow beyond a quarter of the
//!   round trip (step 4 of §6.2), and only §7.4.2's other two rules tell what a probe has repaired.
//! - After an expiry of the retransmission timer, recovery is that of RFC 6675 until all data sent before it have
//!   arrived.

use crate::ranges::Ranges;
use crate::sack::Scoreboard;
use pathloom_model::Nanos;
use std::collections::VecDeque;

/// Groups of segments per round trip.
const GROUPS: u64 = 8;

/// A group of retransmitted segments. Everything in the range that had not arrived was sent.
#[derive(Clone, Copy, Debug)]
struct Resent {
    start: u64,
    end: u64,
    /// When the first and the last segment of the group left.
    first: Nanos,
    last: Nanos,
}

/// What a sender knows about the time when an acknowledgement arrives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) now: Nanos,
    /// First byte not acknowledged, and one past the last byte sent.
    pub(crate) una: u64,
    pub(crate) high: u64,
    /// Least and smoothed round-trip time.
    pub(crate) least: Nanos,
    pub(crate) smoothed: Nanos,
    pub(crate) in_recovery: bool,
}

/// The last tail loss probe, until the sender knows what it has repaired (§7.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Probe {
    /// TLP.end_seq.
    end: u64,
    /// TLP.is_retrans.
    again: bool,
}

/// Times of transmissions and what follows from them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rack {
    /// First byte of each group of new segments and the time when it left, in order.
    sent: VecDeque<(u64, Nanos)>,
    /// When the last group began, and how long it lasts.
    group_at: Nanos,
    group_for: Nanos,
    /// Retransmissions in recovery and the last probe, in order of time.
    resent: VecDeque<Resent>,
    /// Bytes whose retransmission is lost.
    again: Ranges,
    /// One past the last byte that has arrived and was sent once (RACK.fack).
    fack: u64,
    /// When the latest segment left that is known to have arrived, and its round trip (RACK.xmit_ts, RACK.rtt).
    newest: Nanos,
    rtt: Nanos,
    /// RACK.reordering_seen.
    reordered: bool,
    /// Time of the reordering timer (§6.2 step 5).
    timer: Option<Nanos>,
    probe: Option<Probe>,
    /// WCDelAckT of §7.2.
    delayed_ack: Nanos,
}

impl Rack {
    /// Creates the state for receivers that delay acknowledgements for at most this time.
    pub(crate) fn new(delayed_ack: Nanos) -> Rack {
        Rack { delayed_ack, ..Rack::default() }
    }

    /// Moves all times by `by`.
    pub(crate) fn translate(&mut self, by: Nanos) {
        self.sent.iter_mut().for_each(|(_, at)| *at += by);
        for one in &mut self.resent {
            one.first += by;
            one.last += by;
        }
        self.group_at += by;
        self.newest += by;
        self.timer = self.timer.map(|at| at + by);
    }

    /// A segment is sent for the first time (§6.1).
    #[inline(always)]
    pub(crate) fn on_sent(&mut self, now: Nanos, seq: u64, una: u64, smoothed: Option<Nanos>) {
        if now.0 >= self.group_at.0 + self.group_for.0 {
            self.begin_group(now, seq, una, smoothed);
        }
    }

    #[cold]
    fn begin_group(&mut self, now: Nanos, seq: u64, una: u64, smoothed: Option<Nanos>) {
        while self.sent.get(1).is_some_and(|next| next.0 <= una) {
            self.sent.pop_front();
        }
        self.sent.push_back((seq, now));
        (self.group_at, self.group_for) = (now, Nanos(smoothed.unwrap_or_default().0 / GROUPS));
    }

    /// A segment is sent again.
    pub(crate) fn on_resent(&mut self, now: Nanos, start: u64, end: u64, board: &Scoreboard) {
        if self.is_lost_again(start, end) {
            let rest = self.again.take_reached(end);
            if rest > end {
                self.again.insert(end, rest);
            }
        }
        if let Some(group) = self.resent.back_mut() {
            let goes_on = start >= group.end && board.sacked_within(group.end, start) == start - group.end;
            if goes_on && now.0 - group.first.0 < self.group_for.0 {
                (group.end, group.last) = (end, now);
                return;
            }
        }
        self.resent.push_back(Resent { start, end, first: now, last: now });
    }

    /// A recovery begins. It sends everything lost from `high_rxt` on again, and the last probe with it.
    pub(crate) fn begin_recovery(&mut self, high_rxt: u64) {
        self.resent.retain(|one| one.end <= high_rxt);
        self.probe = None;
    }

    /// The retransmission timer has expired: everything counts as lost (§6.3).
    pub(crate) fn on_timeout(&mut self) {
        *self = Rack { reordered: self.reordered, ..Rack::new(self.delayed_ack) };
    }

    /// A gap is filled that was not sent again: segments overtake each other (step 3 of §6.2).
    pub(crate) fn on_filled_gap(&mut self) -> bool {
        self.reordered |= self.resent.is_empty();
        self.reordered
    }

    /// Time when a probe is due, if nothing has been sent or acknowledged since `active_at` (§7.2).
    pub(crate) fn probe_at(&self, active_at: Nanos, smoothed: Nanos, is_one_segment: bool) -> Option<Nanos> {
        let more = if is_one_segment { self.delayed_ack } else { Nanos::ZERO };
        self.probe.is_none().then(|| active_at + Nanos(2 * smoothed.0) + more)
    }

    /// Time of the reordering timer.
    pub(crate) fn timer(&self) -> Option<Nanos> {
        self.timer
    }

    /// A probe has been sent (§7.3). `end` is one past the last byte sent.
    pub(crate) fn on_probe(&mut self, end: u64, again: bool) {
        self.probe = Some(Probe { end, again });
    }

    /// Handles an acknowledgement of all bytes before `ack`; `repeated` if it acknowledges nothing new. Returns whether the
    /// last probe has repaired a loss, to which congestion control must react (§7.4.2).
    pub(crate) fn on_ack_of_probe(&mut self, ack: u64, repeated: bool) -> bool {
        let Some(probe) = self.probe.filter(|probe| ack >= probe.end) else { return false };
        // The acknowledgement of the end may be for the first transmission. If so, a second one follows.
        if probe.again && ack == probe.end && !repeated {
            return false;
        }
        self.probe = None;
        probe.again && ack > probe.end
    }

    /// Whether the sender waits for what follows on a probe.
    #[inline(always)]
    pub(crate) fn has_probed(&self) -> bool {
        self.probe.is_some()
    }

    /// Whether an earlier retransmission of these bytes is lost.
    pub(crate) fn is_lost_again(&self, start: u64, end: u64) -> bool {
        self.again.holds(start, end)
    }

    /// Returns the first segment whose retransmission is lost.
    pub(crate) fn next_again(&self, una: u64, mss: u64, board: &Scoreboard) -> Option<(u64, u64)> {
        let mut ranges = self.again.as_slice().iter();
        ranges
            .find_map(|&(start, end)| board.missing_within(start.max(una), end).next())
            .map(|(start, end)| (start, end.min(start + mss)))
    }

    /// Returns the number of bytes whose retransmission is lost.
    pub(crate) fn again_bytes(&self, una: u64, board: &Scoreboard) -> u64 {
        let missing = |&(start, end): &(u64, u64)| {
            let start = start.max(una);
            end.saturating_sub(start) - board.sacked_within(start, end)
        };
        self.again.as_slice().iter().map(missing).sum()
    }

    /// RACK_detect_loss (§6.2), after an acknowledgement with new information or when the timer has expired. Notes lost
    /// retransmissions. Returns the byte before which everything that has not arrived is lost, and sets the timer for those
    /// segments that will be lost later.
    pub(crate) fn detect(&mut self, at: Moment, board: &Scoreboard) -> u64 {
        self.learn(at, board);
        // Step 4: RACK_update_reo_wnd.
        let window = match !self.reordered && at.in_recovery {
            true => Nanos::ZERO,
            false => Nanos(at.least.0 / 4).min(at.smoothed),
        };
        let patience = self.rtt + window;
        self.timer = None;
        self.find_lost_again(at, patience, board);
        self.find_overdue(at, patience)
    }

    /// Steps 1 and 2 of §6.2: learns which of the segments that have arrived left last.
    fn learn(&mut self, at: Moment, board: &Scoreboard) {
        let Moment { now, una, least, .. } = at;
        let arrived = |one: &Resent| {
            let start = one.start.max(una);
            start >= one.end || board.sacked_within(start, one.end) == one.end - start
        };
        let fack = board.sacked_end().max(una);
        if fack > self.fack {
            let is_again = self.resent.iter().any(|one| (one.start..one.end).contains(&(fack - 1)));
            self.fack = fack;
            if !is_again {
                self.note_arrival(now, self.sent_at(fack - 1));
            }
        }
        // An answer within less than the least round trip is one to the first transmission.
        let latest = self.resent.iter().rev().find(|one| arrived(one)).map(|one| one.last);
        if latest.is_some_and(|last| now.saturating_sub(last) >= least) {
            self.note_arrival(now, latest);
        }
        self.resent.retain(|one| !arrived(one));
    }

    fn note_arrival(&mut self, now: Nanos, sent: Option<Nanos>) {
        if let Some(sent) = sent.filter(|&sent| sent >= self.newest) {
            (self.newest, self.rtt) = (sent, now.saturating_sub(sent));
        }
    }

    /// Returns when the group left to which a byte belongs.
    fn sent_at(&self, byte: u64) -> Option<Nanos> {
        let after = self.sent.partition_point(|group| group.0 <= byte);
        Some(self.sent.get(after.checked_sub(1)?)?.1)
    }

    /// Notes the retransmissions that are lost: later ones, or new segments that left after them, have arrived.
    fn find_lost_again(&mut self, at: Moment, patience: Nanos, board: &Scoreboard) {
        while let Some(&one) = self.resent.front().filter(|one| at.in_recovery && one.last < self.newest) {
            let due = one.last + patience;
            if due > at.now {
                self.timer = Some(due);
                break;
            }
            for (start, end) in board.missing_within(one.start.max(at.una), one.end) {
                self.again.insert(start, end);
            }
            self.resent.pop_front();
        }
    }

    /// Step 5 of §6.2 for segments that were sent once.
    fn find_overdue(&mut self, at: Moment, patience: Nanos) -> u64 {
        let mut overdue = 0;
        for place in 0..self.sent.len() {
            let (start, first) = self.sent[place];
            let (end, next) = self.sent.get(place + 1).map_or((at.high, Nanos(u64::MAX)), |&group| group);
            let last = (first + self.group_for).min(next);
            // Within a group, the order of bytes is the order of transmission.
            let until = if last < self.newest { end } else { end.min(self.fack) };
            if until <= start.max(at.una) {
                continue;
            }
            let due = last + patience;
            if due > at.now {
                self.timer = Some(self.timer.map_or(due, |timer| timer.max(due)));
                break;
            }
            overdue = until;
        }
        overdue
    }
}
