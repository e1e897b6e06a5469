//! DCQCN (Zhu et al., Congestion Control for Large-Scale RDMA Deployments, SIGCOMM 2015, §3.1 and figure 7; defaults of §5).
//!
//! A notice cuts the rate by half of α, an estimate of the share of marked packets. Then the rate approaches the one before
//! the cut in halves (fast recovery), and after that a target that grows (additive, then hyper increase). Each step is due
//! after a time, and after a number of bytes.

use super::law::{RateEntry, RateLaw};
use super::RateControl;
use crate::listing::key;
use crate::settings::positive_time;
use crate::uec::NetworkTraits;
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::Nanos;
use serde::{Deserialize, Serialize};

/// Settings of DCQCN.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct DcqcnSettings {
    /// Weight of a notice in α.
    pub gain: f64,
    /// Time without a notice after which α decreases.
    pub alpha_timer: Nanos,
    /// Time of a step of increase.
    pub timer: Nanos,
    /// Bytes of a step of increase.
    pub step_bytes: u64,
    /// Steps of fast recovery (F).
    pub stages: u32,
    /// Growth of the target per step of additive increase, bit/s.
    pub additive_bps: u64,
    /// Growth of the target per step of hyper increase, bit/s.
    pub hyper_bps: u64,
    /// Least rate, bit/s.
    pub least_bps: u64,
    /// Whether each notice lowers the target to the present rate. Otherwise only the first one after a step of increase does.
    pub clamps: bool,
}

impl Default for DcqcnSettings {
    fn default() -> DcqcnSettings {
        DcqcnSettings {
            gain: 1.0 / 256.0,
            alpha_timer: Nanos::from_micros(55),
            timer: Nanos::from_micros(55),
            step_bytes: 10_000_000,
            stages: 5,
            additive_bps: 40_000_000,
            hyper_bps: 400_000_000,
            least_bps: 10_000_000,
            clamps: true,
        }
    }
}

impl DcqcnSettings {
    fn read(spec: &Spec) -> Result<DcqcnSettings, SpecError> {
        let d = DcqcnSettings::default();
        let rate = |key, default| match spec.rate_bps(key)? {
            Some(0) => Err(spec.error(format!("{key}: must be more than 0bps"))),
            given => Ok(given.unwrap_or(default)),
        };
        Ok(DcqcnSettings {
            gain: match spec.number("gain", 0.0, 1.0)? {
                Some(gain) if gain <= 0.0 => return Err(spec.error("gain: expected more than 0, and at most 1")),
                gain => gain.unwrap_or(d.gain),
            },
            alpha_timer: positive_time(spec, "alpha_timer", d.alpha_timer)?,
            timer: positive_time(spec, "timer", d.timer)?,
            step_bytes: spec.size_bytes("step_bytes")?.unwrap_or(d.step_bytes).max(1),
            stages: spec.count("stages", 1, 1000)?.map_or(d.stages, |stages| stages as u32),
            additive_bps: rate("rai", d.additive_bps)?,
            hyper_bps: rate("rhai", d.hyper_bps)?,
            least_bps: rate("min_rate", d.least_bps)?,
            clamps: spec.flag("clamp")?.unwrap_or(d.clamps),
        })
    }
}

/// State of DCQCN.
#[derive(Clone, Debug)]
pub(super) struct Dcqcn {
    settings: DcqcnSettings,
    line_bps: f64,
    /// Present and target rate (R_C and R_T), in bit/s.
    rate: f64,
    target: f64,
    alpha: f64,
    /// When α decreases, and when the next step by time is due; `None` before the first notice.
    alpha_at: Option<Nanos>,
    step_at: Option<Nanos>,
    /// Bytes since the last step by bytes.
    bytes: u64,
    /// Steps by time and by bytes since the last notice (T and BC).
    by_time: u32,
    by_bytes: u32,
}

impl Dcqcn {
    pub(super) fn new(own: &DcqcnSettings, network: &NetworkTraits) -> Dcqcn {
        let line_bps = network.rate_bps as f64;
        Dcqcn {
            settings: *own,
            line_bps,
            rate: line_bps,
            target: line_bps,
            alpha: 1.0,
            alpha_at: None,
            step_at: None,
            bytes: 0,
            by_time: 0,
            by_bytes: 0,
        }
    }

    /// A step of increase (figure 7).
    fn increase(&mut self) {
        let stages = self.settings.stages;
        if self.by_time.max(self.by_bytes) >= stages {
            let hyper = self.by_time.min(self.by_bytes) > stages;
            self.target += if hyper { self.settings.hyper_bps } else { self.settings.additive_bps } as f64;
            self.target = self.target.min(self.line_bps);
        }
        self.rate = (self.target + self.rate) / 2.0;
    }
}

impl RateLaw for Dcqcn {
    const ENTRY: RateEntry = RateEntry {
        name: "dcqcn",
        reads_telemetry: false,
        keys: &[
            key(
                "gain",
                "0.00390625",
                "weight of a congestion notice in the estimate α, above 0 to 1",
                "Zhu et al. 2015 §5",
            ),
            key("alpha_timer", "55us", "time without a notice after which α decreases", "Zhu et al. 2015 §3.1"),
            key("timer", "55us", "time of a step of increase", "Zhu et al. 2015 §5"),
            key("step_bytes", "10MB", "bytes of a step of increase", "Zhu et al. 2015 §5"),
            key("stages", "5", "steps of fast recovery, before the target grows", "Zhu et al. 2015 §3.1"),
            key("rai", "40Mbps", "growth of the target per step of additive increase", "Zhu et al. 2015 §3.1"),
            key("rhai", "400Mbps", "growth of the target per step of hyper increase", "this project: ten times rai"),
            key("min_rate", "10Mbps", "least rate of a transfer", "this project"),
            key(
                "clamp",
                "on",
                "on: each notice lowers the target to the present rate; off: only the first one after a step of increase, as \
                 clamp_tgt_rate=0 of ConnectX cards",
                "Zhu et al. 2015 §3.1",
            ),
        ],
        read: |spec| DcqcnSettings::read(spec).map(RateControl::Dcqcn),
    };

    fn rate_bps(&self) -> f64 {
        self.rate
    }

    fn advance(&mut self, now: Nanos) {
        while let Some(at) = self.alpha_at.filter(|&at| at <= now) {
            // Equation 2.
            self.alpha *= 1.0 - self.settings.gain;
            self.alpha_at = Some(at.saturating_add(self.settings.alpha_timer));
        }
        while let Some(at) = self.step_at.filter(|&at| at <= now) {
            self.by_time = self.by_time.saturating_add(1);
            self.increase();
            self.step_at = Some(at.saturating_add(self.settings.timer));
        }
    }

    fn on_sent(&mut self, bytes: u64) {
        if self.step_at.is_none() {
            return;
        }
        self.bytes += bytes;
        while self.bytes >= self.settings.step_bytes {
            self.bytes -= self.settings.step_bytes;
            self.by_bytes = self.by_bytes.saturating_add(1);
            self.increase();
        }
    }

    fn on_notice(&mut self, now: Nanos) {
        self.advance(now);
        // Equation 1.
        if self.settings.clamps || self.step_at.is_none() || self.by_time.max(self.by_bytes) > 0 {
            self.target = self.rate;
        }
        self.rate = (self.rate * (1.0 - self.alpha / 2.0)).max((self.settings.least_bps as f64).min(self.line_bps));
        self.alpha = (1.0 - self.settings.gain) * self.alpha + self.settings.gain;
        (self.by_time, self.by_bytes, self.bytes) = (0, 0, 0);
        self.alpha_at = Some(now.saturating_add(self.settings.alpha_timer));
        self.step_at = Some(now.saturating_add(self.settings.timer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GBIT: f64 = 1e9;

    fn law_at(rate_bps: u64) -> Dcqcn {
        let network = NetworkTraits { rate_bps, ..crate::roce::tests::TRAITS };
        Dcqcn::new(&DcqcnSettings::default(), &network)
    }

    fn micros(us: u64) -> Nanos {
        Nanos::from_micros(us)
    }

    #[test]
    fn a_notice_halves_the_first_rate_and_fast_recovery_restores_it() {
        let mut law = law_at(40_000_000_000);
        law.on_sent(1 << 40);
        law.advance(micros(1_000_000));
        assert_eq!((law.rate, law.alpha), (40.0 * GBIT, 1.0), "nothing happens before the first notice");
        law.on_notice(micros(1_000_000));
        assert_eq!((law.rate, law.target, law.alpha), (20.0 * GBIT, 40.0 * GBIT, 1.0));
        let rates: Vec<f64> = (1..=4)
            .map(|step| {
                law.advance(micros(1_000_000 + 55 * step));
                law.rate / GBIT
            })
            .collect();
        assert_eq!(rates, [30.0, 35.0, 37.5, 38.75]);
        let decayed = (255.0f64 / 256.0).powi(4);
        assert!((law.alpha - decayed).abs() < 1e-12);
        law.on_notice(micros(1_000_230));
        assert!((law.rate / GBIT - 38.75 * (1.0 - decayed / 2.0)).abs() < 1e-9);
        assert!((law.alpha - (decayed * 255.0 / 256.0 + 1.0 / 256.0)).abs() < 1e-12);
    }

    #[test]
    fn the_target_grows_after_five_steps_and_faster_if_both_counters_have_passed_them() {
        let mut law = law_at(40_000_000_000);
        law.on_notice(Nanos::ZERO);
        law.on_notice(Nanos::ZERO);
        let (mut rate, target) = (10.0 * GBIT, 20.0 * GBIT);
        assert_eq!((law.rate, law.target), (rate, target));
        law.advance(micros(4 * 55));
        (0..4).for_each(|_| rate = (rate + target) / 2.0);
        assert_eq!((law.rate, law.target), (rate, target));
        law.advance(micros(5 * 55));
        let grown = target + 0.04 * GBIT;
        assert_eq!((law.rate, law.target), ((rate + grown) / 2.0, grown), "additive");
        // Six steps of bytes; the first five are additive, because one of the counters is not above five.
        law.advance(micros(6 * 55));
        law.on_sent(50_000_000);
        let before = law.target;
        law.on_sent(10_000_000);
        assert!((law.target - before - 0.4 * GBIT).abs() < 1.0, "hyper");
        law.advance(micros(1_000_000));
        assert!(law.rate <= 40.0 * GBIT && law.rate > 39.9 * GBIT);
    }

    #[test]
    fn without_clamping_notices_in_a_row_leave_the_target_where_it_was() {
        let mut law = law_at(40_000_000_000);
        law.settings.clamps = false;
        (0..3).for_each(|_| law.on_notice(Nanos::ZERO));
        assert_eq!((law.rate, law.target), (5.0 * GBIT, 40.0 * GBIT));
        law.advance(micros(55));
        assert_eq!((law.rate, law.target), (22.5 * GBIT, 40.0 * GBIT));
        law.on_notice(micros(56));
        assert_eq!(law.target, 22.5 * GBIT, "the rate has recovered for a step");
    }

    #[test]
    fn the_rate_never_falls_below_its_least_value() {
        let mut law = law_at(1_000_000_000);
        (0..100).for_each(|_| law.on_notice(Nanos::ZERO));
        assert_eq!(law.rate_bps(), 10_000_000.0);
    }
}
