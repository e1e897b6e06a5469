//! Retransmission time-out (RFC 6298).

use crate::Settings;
use pathloom_model::Nanos;

/// Smoothed RTT, its variation, and the time-out they make.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RttEstimator {
    /// Smoothed RTT and RTT variation in nanoseconds; none before the first sample.
    smoothed: Option<(u64, u64)>,
    rto: Nanos,
    min_rto: Nanos,
    max_rto: Nanos,
}

impl RttEstimator {
    pub(crate) fn new(settings: &Settings) -> RttEstimator {
        let (min_rto, max_rto) = (settings.min_rto, settings.max_rto);
        RttEstimator { smoothed: None, rto: settings.initial_rto, min_rto, max_rto }
    }

    /// The present time-out, backed off or not.
    pub(crate) fn rto(&self) -> Nanos {
        self.rto
    }

    /// The smoothed RTT.
    pub(crate) fn smoothed(&self) -> Option<Nanos> {
        self.smoothed.map(|(srtt, _)| Nanos(srtt))
    }

    /// The time-out that the samples make by themselves, without bounds and not backed off.
    pub(crate) fn unbounded(&self) -> Option<Nanos> {
        self.smoothed.map(|(srtt, rttvar)| Nanos(srtt + 4 * rttvar))
    }

    /// RFC 6298 §2.2, §2.3.
    pub(crate) fn sample(&mut self, rtt: Nanos) {
        let (srtt, rttvar) = match self.smoothed {
            None => (rtt.0, rtt.0 / 2),
            Some((srtt, rttvar)) => {
                let rttvar = (3 * rttvar + srtt.abs_diff(rtt.0)) / 4;
                ((7 * srtt + rtt.0) / 8, rttvar)
            }
        };
        self.smoothed = Some((srtt, rttvar));
        self.rto = Nanos(srtt + 4 * rttvar).clamp(self.min_rto, self.max_rto);
    }

    /// RFC 6298 §5.5.
    pub(crate) fn back_off(&mut self) {
        self.rto = Nanos(self.rto.0.saturating_mul(2)).min(self.max_rto);
    }

    /// RFC 6298 §5.7: after a SYN had to be repeated, data start with at least 3 s, until the first sample.
    pub(crate) fn after_repeated_syn(&mut self) {
        self.smoothed = None;
        self.rto = self.rto.max(Nanos::from_secs(3)).min(self.max_rto);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
