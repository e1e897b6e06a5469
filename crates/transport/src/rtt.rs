//! Retransmission time-out (RFC 6298).

use crate::timer_clock::{Ticks, TimerClock};
use crate::Settings;
use pathloom_model::Nanos;

/// Number of samples per minimum. The least RTT covers at least this many samples and at most twice as many, so that
/// a flow that moves to a longer path forgets the RTT of the shorter one.
const LEAST_OF: u32 = 64;

/// The smoothed RTT, its variation, the resulting time-out, and the smallest recent RTT.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RttEstimator {
    /// Smoothed RTT and RTT variation in nanoseconds; `None` before the first sample.
    smoothed: Option<(u64, u64)>,
    rto: Nanos,
    /// Ticks of timers for this time-out.
    ticks: Ticks,
    clock: TimerClock,
    /// Least RTT of the current samples, and of the [`LEAST_OF`] samples before them.
    least: [u64; 2],
    /// Number of current samples.
    samples: u32,
    min_rto: Nanos,
    max_rto: Nanos,
}

impl RttEstimator {
    pub(crate) fn new(settings: &Settings) -> RttEstimator {
        let (min_rto, max_rto) = (settings.min_rto, settings.max_rto);
        let (rto, clock) = (settings.initial_rto, TimerClock::EXACT);
        let ticks = clock.ticks(rto);
        RttEstimator { smoothed: None, rto, ticks, clock, least: [u64::MAX; 2], samples: 0, min_rto, max_rto }
    }

    /// Sets the clock by which time-outs expire.
    pub(crate) fn set_clock(&mut self, clock: TimerClock) {
        self.clock = clock;
        self.set_rto(self.rto);
    }

    fn set_rto(&mut self, rto: Nanos) {
        self.rto = rto;
        self.ticks = self.clock.ticks(rto);
    }

    /// Returns when a retransmission timer expires that starts now.
    #[inline(always)]
    pub(crate) fn expiry(&self, now: Nanos) -> Nanos {
        self.ticks.expiry(now + self.rto)
    }

    /// Returns the current time-out, with backoff.
    pub(crate) fn rto(&self) -> Nanos {
        self.rto
    }

    /// Returns the smoothed RTT.
    pub(crate) fn smoothed(&self) -> Option<Nanos> {
        self.smoothed.map(|(srtt, _)| Nanos(srtt))
    }

    /// Returns the time-out that follows from the samples alone, without bounds and backoff.
    pub(crate) fn unbounded(&self) -> Option<Nanos> {
        self.smoothed.map(|(srtt, rttvar)| Nanos(srtt + 4 * rttvar))
    }

    /// Returns the smallest recent RTT, which is the RTT of the path without queueing.
    pub(crate) fn least(&self) -> Option<Nanos> {
        let least = self.least[0].min(self.least[1]);
        (least < u64::MAX).then_some(Nanos(least))
    }

    /// RFC 6298 §2.2, §2.3: adds a sample.
    pub(crate) fn sample(&mut self, rtt: Nanos) {
        if self.samples == LEAST_OF {
            (self.least, self.samples) = ([u64::MAX, self.least[0]], 0);
        }
        self.samples += 1;
        self.least[0] = self.least[0].min(rtt.0);
        let (srtt, rttvar) = match self.smoothed {
            None => (rtt.0, rtt.0 / 2),
            Some((srtt, rttvar)) => {
                let rttvar = (3 * rttvar + srtt.abs_diff(rtt.0)) / 4;
                ((7 * srtt + rtt.0) / 8, rttvar)
            }
        };
        self.smoothed = Some((srtt, rttvar));
        self.set_rto(Nanos(srtt + 4 * rttvar).clamp(self.min_rto, self.max_rto));
    }

    /// RFC 6298 §5.5: doubles the time-out.
    pub(crate) fn back_off(&mut self) {
        self.set_rto(Nanos(self.rto.0.saturating_mul(2)).min(self.max_rto));
    }

    /// RFC 6298 §5.7: after a repeated SYN, the time-out for data is at least 3 s until the first sample.
    pub(crate) fn after_repeated_syn(&mut self) {
        self.smoothed = None;
        self.set_rto(self.rto.max(Nanos::from_secs(3)).min(self.max_rto));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_least_rtt_is_forgotten() {
        let mut e = RttEstimator::new(&Settings::default());
        assert_eq!(e.least(), None);
        e.sample(Nanos::from_millis(2));
        for _ in 0..LEAST_OF {
            e.sample(Nanos::from_millis(5));
            assert_eq!(e.least(), Some(Nanos::from_millis(2)));
        }
        for _ in 0..LEAST_OF {
            e.sample(Nanos::from_millis(6));
        }
        assert_eq!(e.least(), Some(Nanos::from_millis(5)));
    }

    #[test]
    fn follows_the_rfc() {
        let mut e = RttEstimator::new(&Settings { min_rto: Nanos(1), ..Settings::default() });
        assert_eq!(e.rto(), Nanos::from_secs(1));
        e.sample(Nanos::from_millis(100));
        assert_eq!(e.rto(), Nanos::from_millis(300));
        e.sample(Nanos::from_millis(100));
        assert_eq!((e.smoothed(), e.rto()), (Some(Nanos::from_millis(100)), Nanos::from_millis(250)));
        e.back_off();
        assert_eq!(e.rto(), Nanos::from_millis(500));
        for _ in 0..20 {
            e.back_off();
        }
        assert_eq!(e.rto(), Nanos::from_secs(60));
        let mut e = RttEstimator::new(&Settings::default());
        e.sample(Nanos::from_micros(50));
        assert_eq!(e.rto(), Nanos::from_millis(200));
    }
}
