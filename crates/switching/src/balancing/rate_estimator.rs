//! How busy a link is: bytes sent, with a weight that falls with their age.

use crate::selection::PortState;
use pathloom_model::Nanos;

/// Each step takes an eighth of the value away.
const DECAY_SHIFT: u32 = 3;
/// Steps after which nothing is left of a value: (7/8)^128 < 10^-7.
const MOST_STEPS: u64 = 128;
/// Fraction bits of the value, so that small values fall, too.
const FRACTION: u32 = 8;

/// The discounting rate estimator of CONGA (§3.2): bytes sent are added to a register, which loses a share α every T. With a
/// steady rate R, its value is R·τ, with τ = T/α. Here α = 1/8. The driver's counter of sent bytes takes the place of the register
/// in the port, so nothing is done for packets while nobody asks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RateEstimator {
    value: u64,
    sent_bytes: u64,
    steps: u64,
}

impl RateEstimator {
    /// The rate in parts of the link's rate: `scale` for all of it or more. `tau` is τ, at least 8 ns.
    pub(super) fn level(&mut self, now: Nanos, state: PortState, tau: Nanos, scale: u32) -> u32 {
        let steps = now.0 / (tau.0 >> DECAY_SHIFT).max(1);
        let elapsed = steps.saturating_sub(self.steps);
        match elapsed {
            0..=MOST_STEPS => (0..elapsed).for_each(|_| self.value -= self.value >> DECAY_SHIFT),
            _ => self.value = 0,
        }
        let full = (u128::from(state.rate_bps) * u128::from(tau.0) / 8_000_000_000).max(1) as u64;
        let new = state.sent_bytes.saturating_sub(self.sent_bytes);
        // What was sent long ago should have lost its weight by now. It never counts more than a full link would.
        self.value = (self.value + (new << FRACTION)).min(full << FRACTION);
        (self.steps, self.sent_bytes) = (steps, state.sent_bytes);
        ((u128::from(self.value >> FRACTION) * u128::from(scale)) / u128::from(full)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAU: Nanos = Nanos::from_micros(160);

    /// Levels of a link of 1 Gbit/s after each of some intervals of 10 us, in which it sends this many bytes. It can send 1250.
    fn levels(sent: &[u64]) -> Vec<u32> {
        let (mut estimator, mut sent_bytes) = (RateEstimator::default(), 0);
        let mut at = |(index, bytes): (usize, &u64)| {
            sent_bytes += bytes;
            let state = PortState { queue_bytes: 0, sent_bytes, rate_bps: 1_000_000_000, is_up: true };
            estimator.level(Nanos::from_micros(10 * (index as u64 + 1)), state, TAU, 1000)
        };
        sent.iter().enumerate().map(&mut at).collect()
    }

    #[test]
    fn it_follows_the_rate_within_tau() {
        let half = levels(&[625; 200]);
        assert!(half[15].abs_diff(320) < 40 && half[199].abs_diff(500) < 40, "{half:?}");
        let full = levels(&[1250; 200]);
        assert!(full[199] > 930 && full.iter().all(|&level| level <= 1000), "{full:?}");
    }

    #[test]
    fn an_idle_link_loses_its_value() {
        let mut sent = vec![1250; 100];
        sent.resize(200, 0);
        let levels = levels(&sent);
        assert!(levels[115].abs_diff(levels[99] * 34 / 100) < 60 && levels[199] < 10, "{levels:?}");
        let mut estimator = RateEstimator::default();
        let state = |sent_bytes| PortState { queue_bytes: 0, sent_bytes, rate_bps: 1_000_000_000, is_up: true };
        assert_eq!(estimator.level(Nanos(1), state(1 << 40), TAU, 7), 7, "never more than a full link");
        assert_eq!(estimator.level(Nanos::from_secs(1), state(1 << 40), TAU, 7), 0);
    }
}
