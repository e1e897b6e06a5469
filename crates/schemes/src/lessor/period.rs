//! How often to poll: the polling period follows the controller's load (LESSOR §4.2, Algorithm 1).

use pathloom_model::Nanos;
use serde::{Deserialize, Serialize};

/// Minimum of α, and the step by which α falls (Alg. 1 line 6).
const ALPHA_LEAST: f64 = 0.01;
const ALPHA_STEP: f64 = 0.01;
/// A round-trip time counts as grown if it is at least this many times its average (§4.2).
const GROWN: u128 = 2;
/// Divisor of the weight of the latest round-trip time in the average, as in TCP's smoothed round-trip time (RFC 6298
/// §2.3). The paper gives none.
const RTT_WEIGHT: u64 = 8;

/// Settings of Algorithm 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct PeriodSettings {
    /// LT: below this busy share of the controller the period is halved.
    pub lower: f64,
    /// UT: above this busy share the period is doubled.
    pub upper: f64,
    /// T at the start.
    pub first: Nanos,
    /// Bounds of T. The paper gives none, but without a minimum an idle controller would poll more and more often.
    pub least: Nanos,
    pub most: Nanos,
    /// α at the start.
    pub alpha: f64,
}

/// The period T, with the state on which its next change depends.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Period {
    /// T.
    pub now: Nanos,
    alpha: f64,
    /// Average round-trip time to a switch.
    rtt: Option<Nanos>,
}

impl Period {
    pub(super) fn new(settings: &PeriodSettings) -> Period {
        Period { now: settings.first, alpha: settings.alpha, rtt: None }
    }

    /// Algorithm 1: computes the period of the next round from the busy share of the controller (0..=1) and the
    /// round-trip time to its switches, if one was measured.
    pub(super) fn adjust(&mut self, settings: &PeriodSettings, busy_share: f64, rtt: Option<Nanos>) {
        let direction = self.direction(rtt);
        let factor = if busy_share < settings.lower {
            0.5
        } else if busy_share <= settings.upper {
            let factor = 1.0 + self.alpha * direction;
            self.alpha = (self.alpha - ALPHA_STEP).max(ALPHA_LEAST);
            factor
        } else {
            2.0
        };
        let next = Nanos((self.now.0 as f64 * factor) as u64);
        self.now = next.clamp(settings.least, settings.most);
    }

    /// `dir`: up if the round-trip time has grown to twice its average, down otherwise.
    fn direction(&mut self, rtt: Option<Nanos>) -> f64 {
        let Some(rtt) = rtt else { return -1.0 };
        let average = self.rtt.unwrap_or(rtt);
        // This order of operations cannot overflow.
        self.rtt = Some(Nanos(average.0 - average.0 / RTT_WEIGHT + rtt.0 / RTT_WEIGHT));
        let grown = rtt.0 > 0 && u128::from(rtt.0) >= GROWN * u128::from(average.0);
        if grown {
            1.0
        } else {
            -1.0
        }
    }
}

/// The mean of the measured round-trip times to the switches of a view.
pub(super) fn mean_rtt(of_switches: &[Option<Nanos>]) -> Option<Nanos> {
    let (sum, count) =
        of_switches.iter().flatten().fold((0u128, 0u128), |(sum, n), rtt| (sum + u128::from(rtt.0), n + 1));
    sum.checked_div(count).map(|mean| Nanos(mean as u64))
}

#[cfg(test)]
mod tests {
    use super::super::{UNCLAMPED_LEAST, UNCLAMPED_MOST};
    use super::*;

    const SETTINGS: PeriodSettings = PeriodSettings {
        lower: 0.5,
        upper: 0.7,
        first: Nanos::from_secs(5),
        least: Nanos::from_millis(500),
        most: Nanos::from_secs(60),
        alpha: 0.05,
    };
    const RTT: Option<Nanos> = Some(Nanos::from_millis(1));

    fn ms(period: &Period) -> f64 {
        (period.now.0 as f64 / 1e3).round() / 1e3
    }

    #[test]
    fn idle_halves_and_overload_doubles_within_bounds() {
        let mut period = Period::new(&SETTINGS);
        let mut seen = Vec::new();
        for busy in [0.0, 0.49, 0.2, 0.1, 0.0, 0.71, 1.0, 0.9, 0.8, 0.75, 0.99, 1.0, 1.0] {
            period.adjust(&SETTINGS, busy, RTT);
            seen.push(ms(&period));
        }
        let expected =
            [2500.0, 1250.0, 625.0, 500.0, 500.0, 1000.0, 2000.0, 4000.0, 8000.0, 16000.0, 32000.0, 60000.0, 60000.0];
        assert_eq!(seen, expected);
        assert_eq!(period.alpha, SETTINGS.alpha, "α changes only within the band");
    }

    #[test]
    fn without_bounds_the_period_halves_and_doubles_on() {
        let settings = PeriodSettings { least: UNCLAMPED_LEAST, most: UNCLAMPED_MOST, ..SETTINGS };
        let mut period = Period::new(&settings);
        (0..12).for_each(|_| period.adjust(&settings, 0.1, RTT));
        assert_eq!(period.now, Nanos(5_000_000_000 >> 12));
        (0..40).for_each(|_| period.adjust(&settings, 0.1, RTT));
        assert_eq!(period.now, settings.least);
        (0..60).for_each(|_| period.adjust(&settings, 0.9, RTT));
        assert_eq!(period.now, settings.most);
    }

    #[test]
    fn within_the_band_the_steps_get_smaller() {
        let mut period = Period::new(&SETTINGS);
        let mut seen = Vec::new();
        for busy in [0.5, 0.6, 0.7, 0.55, 0.6, 0.6] {
            period.adjust(&SETTINGS, busy, RTT);
            seen.push(ms(&period));
        }
        // 5 s · 0.95 · 0.96 · 0.97 · 0.98 · 0.99 · 0.99
        assert_eq!(seen, [4750.0, 4560.0, 4423.2, 4334.736, 4291.389, 4248.475]);
        assert!((period.alpha - ALPHA_LEAST).abs() < 1e-12);
    }

    #[test]
    fn a_round_trip_time_of_twice_the_average_reverses_the_direction() {
        let mut period = Period::new(&SETTINGS);
        period.adjust(&SETTINGS, 0.6, RTT);
        assert_eq!(ms(&period), 4750.0);
        period.adjust(&SETTINGS, 0.6, Some(Nanos::from_micros(1999)));
        assert_eq!(ms(&period), 4560.0, "not twice yet");
        // The average is 1.125 ms by now.
        period.adjust(&SETTINGS, 0.6, Some(Nanos::from_micros(2250)));
        assert_eq!(ms(&period), 4696.8);
        period.adjust(&SETTINGS, 0.6, None);
        assert_eq!(ms(&period), 4602.864, "no round trip was measured");
    }

    #[test]
    fn round_trip_times_are_averaged_over_switches() {
        assert_eq!(mean_rtt(&[None, None]), None);
        assert_eq!(mean_rtt(&[Some(Nanos(4)), None, Some(Nanos(8))]), Some(Nanos(6)));
        assert_eq!(mean_rtt(&[Some(Nanos::MAX), Some(Nanos::MAX)]), Some(Nanos::MAX));
        let mut period = Period::new(&SETTINGS);
        for _ in 0..3 {
            period.adjust(&SETTINGS, 0.6, Some(Nanos::MAX));
        }
        assert!(period.now < SETTINGS.first);
    }
}
