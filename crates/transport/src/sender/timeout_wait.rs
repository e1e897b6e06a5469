//! How long a sender has waited for its retransmission timer.

use super::Sender;
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

    /// Returns the category of a time-out that expires now.
    pub(super) fn part_of<'a>(&self, waited: &'a mut TimeoutWait) -> &'a mut Nanos {
        if self.rtt.smoothed().is_none() {
            &mut waited.initial
        } else {
            &mut waited.sampled
        }
    }
}
