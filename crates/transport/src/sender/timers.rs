//! The timers of a sender: retransmission (RFC 6298), loss by time and tail loss probe (RFC 8985); and how long it has
//! waited for the first.

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
}
