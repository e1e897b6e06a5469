//! A meter: a token bucket (OpenFlow 1.3 §5.7, band type drop).

use pathloom_model::rules::Meter;
use pathloom_model::Nanos;

#[derive(Clone, Copy, Debug)]
pub(crate) struct MeterState {
    pub(crate) meter: Meter,
    /// Tokens in bits, times [`SCALE`], so that slow meters gain tokens without rounding errors.
    tokens: u128,
    filled: Nanos,
}

const SCALE: u128 = 1_000_000_000;

impl MeterState {
    pub(crate) fn new(now: Nanos, meter: Meter) -> MeterState {
        let mut state = MeterState { meter, tokens: 0, filled: now };
        state.tokens = state.capacity();
        state
    }

    /// Returns whether a frame of `bytes` passes, and takes its tokens if it does.
    pub(crate) fn pass(&mut self, now: Nanos, bytes: u32) -> bool {
        let gained = u128::from(now.saturating_sub(self.filled).0) * u128::from(self.meter.rate_bps);
        self.tokens = (self.tokens + gained).min(self.capacity());
        self.filled = now;
        let cost = u128::from(bytes) * 8 * SCALE;
        let passes = self.tokens >= cost;
        if passes {
            self.tokens -= cost;
        }
        passes
    }

    fn capacity(&self) -> u128 {
        u128::from(self.meter.burst_bytes) * 8 * SCALE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_model::rules::MeterId;

    #[test]
    fn passes_the_burst_and_then_the_rate() {
        let meter = Meter { id: MeterId(1), rate_bps: 8_000_000, burst_bytes: 3_000 };
        let mut state = MeterState::new(Nanos::ZERO, meter);
        let passed = |state: &mut MeterState, at| (0..10).filter(|_| state.pass(at, 1_000)).count();
        assert_eq!(passed(&mut state, Nanos::ZERO), 3);
        assert_eq!(passed(&mut state, Nanos::from_millis(2)), 2);
        assert_eq!(passed(&mut state, Nanos::from_secs(10)), 3);
    }
}
