//! The timers of a sender: retransmission (RFC 6298), loss by time and tail loss probe (RFC 8985); how long it has waited
//! for the first; and its translation to a later time.

use super::{Phase, Sender};
use crate::rack::Rack;
use pathloom_model::Nanos;

/// Time that a sender has spent idle, from its last segment or acknowledgement on, until its retransmission timer
/// expired.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TimeoutWait {
    /// Waits for time-outs without an RTT sample (`initial_rto`), mainly for the SYN.
    pub initial: Nanos,
    /// Waits for all other time-outs, which are `min_rto` or longer.
    pub sampled: Nanos,
}

/// What a connection does in a time that is skipped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SkippedWork {
    /// Bytes that are delivered and acknowledged.
    pub bytes: u64,
    /// Segments that are sent again.
    pub retransmits: u32,
    /// Expiries of the retransmission timer.
    pub timeouts: u32,
    /// Time spent waiting for them.
    pub waited: TimeoutWait,
}

impl Sender {
    /// Returns the time spent waiting for the retransmission timer so far. The current idle time counts once it is
    /// longer than the time-out that follows from the RTT samples alone: then only the timer can end it.
    pub fn timeout_wait(&self, now: Nanos) -> TimeoutWait {
        let mut waited = self.waited;
        let silence = now.saturating_sub(self.active_at);
        if self.rto_at.is_some() && self.rtt.unbounded().is_none_or(|rto| silence > rto) {
            *self.part_of(&mut waited) += silence;
        }
        waited
    }

    /// Returns the waiting time that expiries of the retransmission timer have ended: [`Sender::timeout_wait`]
    /// without the current idle time, which ends when all data has arrived.
    pub fn ended_timeout_wait(&self) -> TimeoutWait {
        self.waited
    }

    /// Returns the time of the next call to [`Sender::handle_timeout`] or, for a paced sender,
    /// [`Sender::poll_transmit`].
    #[inline]
    pub fn poll_timeout(&self) -> Option<Nanos> {
        let timer = match &self.rack {
            Some(rack) => self.timer_with_rack(rack),
            None => self.rto_at,
        };
        match (timer, self.paced_out) {
            (Some(at), true) => Some(at.min(self.pace_at)),
            (None, true) => Some(self.pace_at),
            (at, false) => at,
        }
    }

    /// Handles an expired timer: the retransmission timer (RFC 6298 §5.4-5.6, RFC 5681 §3.1), or those of RFC 8985. Does
    /// nothing if none has expired.
    pub fn handle_timeout(&mut self, now: Nanos) {
        if self.rack.is_some() && self.handle_rack_timer(now) {
            return;
        }
        if self.rto_at.is_none_or(|at| at > now) {
            return;
        }
        self.rto_at = None;
        self.timeouts += 1;
        let mut waited = self.waited;
        *self.part_of(&mut waited) += now.saturating_sub(self.active_at);
        (self.waited, self.active_at) = (waited, now);
        self.timing = None;
        self.rtt.back_off();
        if self.phase == Phase::SynSent {
            self.send_first = true;
            self.backoffs += 1;
            return;
        }
        self.window.on_timeout((self.backoffs == 0).then(|| self.flight()), self.in_recovery);
        self.backoffs += 1;
        self.recover = Some(self.high);
        self.in_recovery = false;
        self.send_first = false;
        self.probing = false;
        self.dup_acks = 0;
        self.next = self.una;
        if let (Some(rack), Some(board)) = (&mut self.rack, &mut self.scoreboard) {
            rack.on_timeout();
            board.begin_recovery(self.una);
        }
    }

    /// Returns when a tail loss probe is due (RFC 8985 §7.2), if the sender may send one: nothing has arrived out of order,
    /// it is not in recovery, and it knows the round-trip time. The retransmission timer is not later than the probe: if
    /// it is due first, the probe takes its place.
    #[inline(always)]
    fn probe_at(&self, rack: &Rack) -> Option<Nanos> {
        let rto_at = self.rto_at.filter(|_| self.phase == Phase::Open && !self.in_recovery && !self.probing)?;
        if self.una == self.high || self.recover.is_some_and(|recover| self.una < recover) {
            return None;
        }
        let is_one_segment = self.flight() <= self.mss;
        Some(rack.probe_at(self.active_at, self.rtt.smoothed()?, is_one_segment)?.min(rto_at))
    }

    /// Returns the time of the earliest timer.
    #[inline(always)]
    pub(super) fn timer_with_rack(&self, rack: &Rack) -> Option<Nanos> {
        let is_in_order = self.scoreboard.as_ref().is_some_and(|board| board.is_empty());
        let timer = if is_in_order { self.probe_at(rack) } else { rack.timer() };
        match (timer, self.rto_at) {
            (Some(timer), Some(rto)) => Some(timer.min(rto)),
            (_, rto) => rto,
        }
    }

    /// Handles the timers of RFC 8985. Returns whether one of them has expired in place of the retransmission timer.
    pub(super) fn handle_rack_timer(&mut self, now: Nanos) -> bool {
        let (Some(rack), Some(board)) = (&self.rack, &self.scoreboard) else { return false };
        if board.is_empty() {
            let is_due = self.probe_at(rack).is_some_and(|at| at <= now);
            if is_due {
                self.probing = true;
                self.rto_at = Some(self.rtt.expiry(now)); // §7.3
            }
            return is_due;
        }
        if rack.timer().is_none_or(|at| at > now) {
            return false;
        }
        // §6.2 step 5: RACK_detect_loss_and_arm_timer.
        self.recover_by_time(now);
        self.rto_at.is_none_or(|at| at > now)
    }

    /// Returns the category of a time-out that expires now.
    pub(super) fn part_of<'a>(&self, waited: &'a mut TimeoutWait) -> &'a mut Nanos {
        if self.rtt.smoothed().is_none() {
            &mut waited.initial
        } else {
            &mut waited.sampled
        }
    }

    /// Moves every time that the sender knows by `by`, and brings the end of its data nearer by the bytes of `work`. Byte
    /// numbers, window and estimates stay, so the sender continues as it would have done now. If its data are extended
    /// ([`Sender::extend`]), their end does not move.
    ///
    /// The clock of the host's timers does not move, so later time-outs may expire at other ticks.
    ///
    /// Returns whether that many bytes are left: if not, nothing changes. At least a byte that was never sent stays.
    pub fn translate(&mut self, by: Nanos, work: &SkippedWork) -> bool {
        if let Some(unsent) = self.unsent_bytes() {
            if work.bytes >= unsent && work.bytes > 0 {
                return false;
            }
            self.limit -= work.bytes;
        }
        self.skipped_bytes += work.bytes;
        self.retransmits = self.retransmits.saturating_add(work.retransmits);
        self.timeouts = self.timeouts.saturating_add(work.timeouts);
        self.waited.initial += work.waited.initial;
        self.waited.sampled += work.waited.sampled;
        if let Some((_, sent)) = &mut self.timing {
            *sent += by;
        }
        if let Some(at) = &mut self.rto_at {
            *at += by;
        }
        self.pace_at += by;
        self.active_at += by;
        if let Some(rack) = &mut self.rack {
            rack.translate(by);
        }
        self.window.translate(by);
        self.receive_window.translate(by);
        true
    }

    /// Bytes that have not been sent yet; `None` if the data have no end, or can be extended.
    pub fn unsent_bytes(&self) -> Option<u64> {
        (self.ended && self.limit != u64::MAX).then(|| self.limit.saturating_sub(self.high))
    }

    /// Bytes of all [`Sender::translate`] so far, which have no byte numbers.
    pub fn skipped_bytes(&self) -> u64 {
        self.skipped_bytes
    }

    /// The rate to which the network limits the sender: 0 on hold, `None` without a limit.
    pub fn provided_bps(&self) -> Option<u64> {
        if self.held {
            Some(0)
        } else {
            self.pace_bps.filter(|_| self.provided)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TransportSpec;
    use proptest::prelude::*;

    const ROUND_TRIP: Nanos = Nanos::from_micros(100);

    /// What a sender does in some round trips from `now` on: it sends, one segment in `lose_every` is lost, the receiver
    /// answers. Returns each segment with its time after `began` and its byte after `first`.
    fn drive(sender: &mut Sender, now: &mut Nanos, rounds: u64, lose_every: usize) -> Vec<(u64, u64, u64, bool)> {
        let (began, mut log) = (*now, Vec::new());
        let mut sent = 0;
        for _ in 0..rounds {
            let una = sender.acked_bytes();
            let mut acked = una;
            while let Some(one) = sender.poll_transmit(*now) {
                log.push(((*now - began).0, one.seq, sender.cwnd_bytes(), one.retransmission));
                sent += 1;
                if sent % lose_every != 0 && one.seq == acked {
                    acked += u64::from(one.len);
                }
                *now += Nanos(500);
            }
            *now += ROUND_TRIP;
            let due = sender.poll_timeout().is_some_and(|at| at <= *now);
            if due {
                sender.handle_timeout(*now);
            }
            (0..4).filter(|_| acked == una).for_each(|_| sender.handle_ack(*now, una));
            sender.handle_ack(*now, acked);
        }
        log
    }

    proptest! {
        /// A sender that was moved does the same as one that was not, later.
        #[test]
        fn a_translated_sender_continues_as_before(
            law in 0usize..3, before in 1u64..60, lose_every in 5usize..400, by in 1u64..1 << 40, bytes in 0u64..1 << 30,
        ) {
            let law = ["newreno", "cubic", "dctcp"][law];
            let spec = format!("{law}:handshake=off,min_rto=1ms,timers=exact,rwnd=auto");
            let settings = TransportSpec::parse(&spec).unwrap().settings().clone();
            let mut sender = Sender::new(&settings, Some(1 << 40));
            let mut now = Nanos::from_micros(7);
            sender.open(now);
            drive(&mut sender, &mut now, before, lose_every);
            let mut moved = sender.clone();
            let work = SkippedWork { bytes, ..SkippedWork::default() };
            prop_assert!(moved.translate(Nanos(by), &work));
            prop_assert_eq!(moved.unsent_bytes(), sender.unsent_bytes().map(|left| left - bytes));
            let mut later = now + Nanos(by);
            prop_assert_eq!(
                drive(&mut moved, &mut later, 80, lose_every),
                drive(&mut sender, &mut now, 80, lose_every)
            );
            prop_assert_eq!(later, now + Nanos(by));
        }
    }

    #[test]
    fn the_end_of_the_data_is_never_passed() {
        let settings = TransportSpec::parse("newreno:handshake=off").unwrap().settings().clone();
        let mut sender = Sender::new(&settings, Some(100_000));
        sender.open(Nanos::ZERO);
        assert!(sender.poll_transmit(Nanos::ZERO).is_some());
        let left = sender.unsent_bytes().unwrap();
        let work = |bytes| SkippedWork { bytes, ..SkippedWork::default() };
        assert!(!sender.translate(Nanos(1), &work(left)), "a byte must stay");
        assert_eq!(sender.unsent_bytes(), Some(left));
        assert!(sender.translate(Nanos(1), &work(left - 1)) && sender.unsent_bytes() == Some(1));
        assert_eq!(Sender::new(&settings, None).unsent_bytes(), None);
    }
}
