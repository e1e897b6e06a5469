//! TIMELY (Mittal et al., TIMELY: RTT-based Congestion Control for the Datacenter, SIGCOMM 2015, §4.3 and algorithm 1): the
//! rate follows the slope of the round trip, between a low and a high round trip at which it grows or falls whatever the slope.
//!
//! The paper computes a rate for each segment of 16 to 64 KB that is acknowledged. Here that is each acknowledgement, which
//! covers `acks=` packets. The rate changes at most once in the least round trip, as in the model of Zhu et al. 2016, §4.1.
//! The model also shows that the rates of several flows have no single fixed point, so shares of a link may stay unequal.

use super::law::{RateEntry, RateLaw};
use super::RateControl;
use crate::listing::key;
use crate::settings::{optional_time, positive_time};
use crate::uec::NetworkTraits;
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::Nanos;
use serde::{Deserialize, Serialize};

/// Least rate of a transfer, bit/s: that of DCQCN here.
const LEAST_BPS: f64 = 10e6;

/// Settings of TIMELY.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct TimelySettings {
    /// Round trips below which the rate grows (`T_low`).
    pub low: Nanos,
    /// Round trips above which the rate falls (`T_high`).
    pub high: Nanos,
    /// Growth of the rate per step (δ), bit/s.
    pub step_bps: u64,
    /// Factor of a decrease (β).
    pub decrease: f64,
    /// Weight of the newest difference of round trips (α).
    pub weight: f64,
    /// Steps with a falling round trip after which the rate grows faster, and how many times as fast (N of HAI).
    pub fast_steps: u32,
    /// Round trip that slopes are divided by (minRTT); `None` for that of the longest path without queues.
    pub least: Option<Nanos>,
}

impl Default for TimelySettings {
    fn default() -> TimelySettings {
        TimelySettings {
            low: Nanos::from_micros(50),
            high: Nanos::from_micros(500),
            step_bps: 10_000_000,
            decrease: 0.8,
            weight: 0.875,
            fast_steps: 5,
            least: None,
        }
    }
}

impl TimelySettings {
    fn read(spec: &Spec) -> Result<TimelySettings, SpecError> {
        let d = TimelySettings::default();
        let share = |key, default| match spec.number(key, 0.0, 1.0)? {
            Some(share) if share <= 0.0 => Err(spec.error(format!("{key}: expected more than 0, and at most 1"))),
            share => Ok(share.unwrap_or(default)),
        };
        let settings = TimelySettings {
            low: positive_time(spec, "t_low", d.low)?,
            high: positive_time(spec, "t_high", d.high)?,
            step_bps: spec.rate_bps("delta")?.unwrap_or(d.step_bps),
            decrease: share("beta", d.decrease)?,
            weight: share("ewma", d.weight)?,
            fast_steps: spec.count("hai", 1, 1000)?.map_or(d.fast_steps, |steps| steps as u32),
            least: optional_time(spec, "min_rtt")?,
        };
        if settings.low >= settings.high {
            return Err(spec.error("t_low: must be less than t_high"));
        }
        Ok(settings)
    }
}

/// State of TIMELY. Times are in nanoseconds, rates in bit/s.
#[derive(Clone, Debug)]
pub(super) struct Timely {
    settings: TimelySettings,
    line_bps: f64,
    least: f64,
    rate: f64,
    /// The last round trip, and when it was measured.
    before: Option<(Nanos, f64)>,
    /// Average difference of successive round trips.
    difference: f64,
    /// Successive steps without a rise.
    falls: u32,
}

impl Timely {
    pub(super) fn new(own: &TimelySettings, network: &NetworkTraits) -> Timely {
        let line_bps = network.rate_bps as f64;
        Timely {
            settings: *own,
            line_bps,
            least: own.least.unwrap_or(network.round_trip).0.max(1) as f64,
            rate: line_bps,
            before: None,
            difference: 0.0,
            falls: 0,
        }
    }

    /// Algorithm 1.
    fn compute(&mut self, round_trip: f64) {
        let TimelySettings { low, high, decrease, fast_steps, .. } = self.settings;
        let (low, high, step) = (low.0 as f64, high.0 as f64, self.settings.step_bps as f64);
        let gradient = self.difference / self.least;
        let is_between = (low..=high).contains(&round_trip);
        self.falls = if is_between && gradient <= 0.0 { self.falls.saturating_add(1) } else { 0 };
        if round_trip < low {
            self.rate += step;
        } else if round_trip > high {
            self.rate *= 1.0 - decrease * (1.0 - high / round_trip);
        } else if gradient <= 0.0 {
            let times = if self.falls >= fast_steps { f64::from(fast_steps) } else { 1.0 };
            self.rate += times * step;
        } else {
            self.rate *= 1.0 - decrease * gradient.min(1.0);
        }
        self.rate = self.rate.clamp(LEAST_BPS.min(self.line_bps), self.line_bps);
    }
}

impl RateLaw for Timely {
    const ENTRY: RateEntry = RateEntry {
        name: "timely",
        reads_telemetry: false,
        keys: &[
            key("t_low", "50us", "round trip below which the rate grows", "Zhu et al. 2016 (ECN or delay) §4.1"),
            key("t_high", "500us", "round trip above which the rate falls", "Zhu et al. 2016 (ECN or delay) §4.1"),
            key("delta", "10Mbps", "growth of the rate per step", "Zhu et al. 2016 (ECN or delay) §4.1"),
            key("beta", "0.8", "factor of a decrease, above 0 to 1", "Zhu et al. 2016 (ECN or delay) §4.1"),
            key(
                "ewma",
                "0.875",
                "weight of the newest difference of round trips, above 0 to 1",
                "Zhu et al. 2016 (ECN or delay) §4.1",
            ),
            key(
                "hai",
                "5",
                "steps without a rise of the round trip after which the rate grows faster, by this factor",
                "Mittal et al. 2015 (TIMELY) §4.3",
            ),
            key(
                "min_rtt",
                "none",
                "round trip by which slopes are divided, a time; none means that of the longest path",
                "Mittal et al. 2015 (TIMELY) §4.3",
            ),
        ],
        read: |spec| TimelySettings::read(spec).map(RateControl::Timely),
    };

    fn rate_bps(&self) -> f64 {
        self.rate
    }

    fn advance(&mut self, _now: Nanos) {}

    fn on_sent(&mut self, _bytes: u64) {}

    fn on_notice(&mut self, _now: Nanos) {}

    fn measures_round_trips(&self) -> bool {
        true
    }

    /// A first round trip only gives something to compare with.
    fn on_round_trip(&mut self, now: Nanos, round_trip: Nanos) {
        let new = round_trip.0 as f64;
        let Some((at, old)) = self.before else {
            self.before = Some((now, new));
            return;
        };
        if ((now - at).0 as f64) < self.least {
            return;
        }
        let weight = self.settings.weight;
        self.difference = (1.0 - weight) * self.difference + weight * (new - old);
        self.before = Some((now, new));
        self.compute(new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: Nanos = Nanos(20_000);

    /// A law at half of 10 Gbit/s, with all weight on the newest difference, that has measured this round trip.
    fn law(round_trip_us: u64) -> Timely {
        let network = NetworkTraits { round_trip: LEAST, ..crate::roce::tests::TRAITS };
        let mut law = Timely::new(&TimelySettings { weight: 1.0, ..TimelySettings::default() }, &network);
        law.rate = 5e9;
        law.on_round_trip(Nanos::ZERO, Nanos::from_micros(round_trip_us));
        law
    }

    /// Rates in Mbit/s after further round trips, each one a least round trip after the last.
    fn rates(law: &mut Timely, round_trips_us: &[u64]) -> Vec<f64> {
        let mut now = law.before.unwrap().0;
        let rate = |&us: &u64| {
            now += LEAST;
            law.on_round_trip(now, Nanos::from_micros(us));
            law.rate / 1e6
        };
        round_trips_us.iter().map(rate).collect()
    }

    #[test]
    fn below_the_low_threshold_the_rate_grows_though_the_round_trip_rises() {
        assert_eq!(rates(&mut law(20), &[30, 49, 20]), [5_010.0, 5_020.0, 5_030.0]);
    }

    #[test]
    fn above_the_high_threshold_it_falls_by_the_excess_though_the_round_trip_falls() {
        // A fifth too long: 0.8 of a fifth less.
        let found = rates(&mut law(900), &[625]);
        assert!((found[0] - 5_000.0 * (1.0 - 0.8 * 0.2)).abs() < 1e-6, "{found:?}");
    }

    #[test]
    fn between_them_it_falls_by_the_slope_and_grows_faster_after_five_steps_without_a_rise() {
        // 2 of 20 us more: a slope of a tenth.
        let found = rates(&mut law(100), &[102]);
        assert!((found[0] - 5_000.0 * 0.92).abs() < 1e-6, "{found:?}");
        let found = rates(&mut law(100), &[100, 99, 98, 97, 96, 95, 96, 96]);
        let grown = [5_010.0, 5_020.0, 5_030.0, 5_040.0, 5_090.0, 5_140.0];
        assert_eq!(found[..6], grown);
        assert!((found[6] - 5_140.0 * 0.96).abs() < 1e-6 && (found[7] - found[6] - 10.0).abs() < 1e-6, "{found:?}");
    }

    #[test]
    fn round_trips_within_a_least_one_are_left_out_and_the_rate_stays_within_bounds() {
        let mut law = law(100);
        law.on_round_trip(Nanos(19_999), Nanos::from_micros(400));
        assert_eq!((law.rate, law.before.unwrap().1), (5e9, 100_000.0));
        assert!((rates(&mut law, &[499])[0] - 1_000.0).abs() < 1e-6, "no slope counts more than 1");
        (0..100).for_each(|_| {
            rates(&mut law, &[5_000]);
        });
        assert_eq!(law.rate, LEAST_BPS);
        law.rate = 9.999e9;
        assert_eq!(rates(&mut law, &[20, 20]), [10_000.0; 2]);
    }

    #[test]
    fn keys_are_read_and_checked() {
        let parse = |keys: &str| crate::TransportSpec::parse(&format!("roce:cc=timely{keys}"));
        let Ok(crate::TransportSpec::Roce(settings)) = parse(",t_low=10us,t_high=40us,delta=40Mbps,min_rtt=8us") else {
            panic!("valid keys");
        };
        let expected = TimelySettings {
            low: Nanos::from_micros(10),
            high: Nanos::from_micros(40),
            step_bps: 40_000_000,
            least: Some(Nanos::from_micros(8)),
            ..TimelySettings::default()
        };
        assert_eq!(settings.control, RateControl::Timely(expected));
        for (keys, message) in [(",t_low=500us", "t_low: must be less than t_high"), (",beta=0", "beta: expected more")]
        {
            assert!(parse(keys).unwrap_err().to_string().contains(message), "{keys}");
        }
    }
}
