//! CUBIC (RFC 9438): in congestion avoidance, the window follows a cubic function of the time since the last loss.
//!
//! If no loss is known (at the start, and after a time-out), the window grows by at least a twentieth per round trip,
//! as in Linux and ns-3. In that case, the RFC uses only the convex part of the cubic function, which takes seconds
//! to fill a free path.
//!
//! Not implemented: HyStart++ (RFC 9406), which the RFC recommends for slow start, and the rules for senders that do
//! not use their window (RFC 9438 §5.8). The arithmetic uses `f64` operations that IEEE 754 defines to the last bit,
//! so that results do not depend on the machine.

use super::law::{Ack, LawEntry, WindowLaw};
use super::Extent;
use crate::CongestionControl;
use pathloom_model::Nanos;

/// C of RFC 9438 §5, in segments per cubed second.
const C: f64 = 0.4;
/// β_cubic of RFC 9438 §4.6.
const BETA: f64 = 0.7;
/// α_cubic of RFC 9438 §4.3: with it, a flow of AIMD(α, β) has the mean window of Reno.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// Least growth per acknowledged segment if no loss is known, in segments.
const LEAST_GROWTH: f64 = 1.0 / 20.0;

/// State of CUBIC. Windows are in segments, times in seconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Cubic {
    /// Window before the last loss, lowered by fast convergence; 0 if no loss is known (at the start, after a
    /// time-out).
    w_max: f64,
    /// Window when the last loss was detected.
    cwnd_prior: f64,
    epoch: Option<Epoch>,
    /// Fraction of a byte that the window has not grown by yet.
    remainder: f64,
}

/// A period of congestion avoidance since the last loss or time-out.
#[derive(Clone, Debug)]
struct Epoch {
    start: Nanos,
    /// Time after which the cubic function returns to `w_max`.
    k: f64,
    /// Plateau of the cubic function.
    w_max: f64,
    /// Window that Reno would have.
    w_est: f64,
}

impl Cubic {
    pub(super) fn new() -> Cubic {
        Cubic::default()
    }

    /// Handles a loss that was detected with this window (RFC 9438 §4.6, §4.7).
    fn lose(&mut self, cwnd: f64) {
        // Fast convergence: a flow with a smaller window than before leaves room for others.
        self.w_max = if cwnd < self.w_max { cwnd * (1.0 + BETA) / 2.0 } else { cwnd };
        self.cwnd_prior = cwnd;
        self.epoch = None;
    }

    /// Returns the growth in bytes of a window of `cwnd` segments of `mss` bytes, after `acked` segments were
    /// acknowledged in congestion avoidance (RFC 9438 §4.2 to §4.5).
    fn growth(&mut self, now: Nanos, rtt: Nanos, acked: f64, cwnd: f64, mss: f64) -> u64 {
        let w_max = self.w_max;
        let epoch = self.epoch.get_or_insert_with(|| Epoch::new(now, cwnd, w_max));
        let alpha = if epoch.w_est >= self.cwnd_prior { 1.0 } else { ALPHA };
        epoch.w_est += alpha * acked / cwnd;
        let elapsed = now.saturating_sub(epoch.start);
        let grown = if epoch.at(elapsed) < epoch.w_est {
            (epoch.w_est - cwnd).max(0.0)
        } else {
            let target = epoch.at(elapsed + rtt).clamp(cwnd, 1.5 * cwnd);
            (target - cwnd) / cwnd * acked
        };
        let grown = if w_max == 0.0 { grown.max(LEAST_GROWTH * acked) } else { grown };
        let bytes = grown * mss + self.remainder;
        self.remainder = bytes.fract();
        bytes as u64
    }
}

impl WindowLaw for Cubic {
    const ENTRY: Option<LawEntry> = Some(LawEntry {
        name: "cubic",
        about: "TCP with CUBIC congestion control, Linux's default, without HyStart",
        source: "RFC 9438, RFC 6675, RFC 6298",
        sack: true,
        reacts_to_marks: false,
        keys: &[],
        read: |_| Ok(CongestionControl::Cubic),
    });

    fn on_ack(&mut self, extent: &mut Extent, ack: &Ack) {
        let mss = extent.mss as f64;
        let round_trip = ack.round_trip.unwrap_or_default();
        extent.cwnd += self.growth(ack.now, round_trip, ack.bytes as f64 / mss, extent.segments(), mss);
    }

    /// RFC 9438 §4.6.
    fn reduced(&self, flight: u64) -> u64 {
        (flight as f64 * BETA) as u64
    }

    fn on_loss(&mut self, extent: &Extent) {
        self.lose(extent.segments());
    }

    /// The plateau of the next epoch is the window at its start (RFC 9438 §4.8).
    fn on_timeout(&mut self, extent: &Extent) {
        self.cwnd_prior = extent.segments();
        self.w_max = 0.0;
        self.epoch = None;
    }

    fn translate(&mut self, by: Nanos) {
        if let Some(epoch) = &mut self.epoch {
            epoch.start += by;
        }
    }

    /// The time without data does not count (RFC 9438 §5.8), so a new epoch begins with the next acknowledgement.
    fn on_resume(&mut self) {
        self.epoch = None;
    }
}

impl Epoch {
    fn new(start: Nanos, cwnd: f64, w_max: f64) -> Epoch {
        let below = (w_max - cwnd).max(0.0);
        Epoch { start, k: cube_root(below / C), w_max: w_max.max(cwnd), w_est: cwnd }
    }

    /// Returns W_cubic of RFC 9438 §4.2.
    fn at(&self, elapsed: Nanos) -> f64 {
        let from_plateau = elapsed.0 as f64 * 1e-9 - self.k;
        C * from_plateau * from_plateau * from_plateau + self.w_max
    }
}

/// Returns the cube root of a number that is not negative, accurate to a few units in the last place. The operations
/// give the same result on every machine.
fn cube_root(value: f64) -> f64 {
    if value <= 0.0 {
        return 0.0;
    }
    // A third of the exponent approximates the root to within a third; each Newton step squares the error.
    let mut root = f64::from_bits(value.to_bits() / 3 + 0x2A9F_7893_0000_0000);
    for _ in 0..6 {
        root = (2.0 * root + value / (root * root)) / 3.0;
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cube_roots_are_right() {
        for value in [1e-9, 0.02, 0.4, 1.0, 27.0, 1234.5, 1e12] {
            let root = cube_root(value);
            assert!((root * root * root / value - 1.0).abs() < 1e-14, "{value}: {root}");
        }
        assert_eq!((cube_root(0.0), cube_root(-1.0)), (0.0, 0.0));
    }

    /// Grows a window for `seconds`, one acknowledgement per segment. Returns the window at each whole second.
    fn run(cubic: &mut Cubic, start: f64, seconds: u64, rtt_ms: u64) -> Vec<f64> {
        let (mss, mut cwnd) = (1000.0, start);
        let mut marks = Vec::new();
        for round in 0..seconds * 1000 / rtt_ms {
            let now = Nanos::from_millis(round * rtt_ms);
            for _ in 0..cwnd as u64 {
                cwnd += cubic.growth(now, Nanos::from_millis(rtt_ms), 1.0, cwnd, mss) as f64 / mss;
            }
            if ((round + 1) * rtt_ms).is_multiple_of(1000) {
                marks.push(cwnd);
            }
        }
        marks
    }

    #[test]
    fn grows_back_to_its_plateau_after_k_and_then_beyond() {
        let mut cubic = Cubic::default();
        cubic.lose(1000.0);
        // K is the cube root of 300 / 0.4: 9.09 s.
        let windows = run(&mut cubic, 700.0, 13, 100);
        assert!((windows[8] - 1000.0).abs() < 3.0, "{windows:?}");
        assert!((windows[3] - 1000.0).abs() > 40.0 && windows[12] > 1015.0, "{windows:?}");
    }

    #[test]
    fn matches_reno_with_short_round_trips() {
        let mut cubic = Cubic::default();
        cubic.lose(20.0);
        // Reno with α of RFC 9438 §4.3: 0.53 segments per round trip up to 20, then one.
        let windows = run(&mut cubic, 14.0, 1, 10);
        assert!((windows[0] - (20.0 + 100.0 - 6.0 / ALPHA)).abs() < 4.0, "{windows:?}");
    }

    #[test]
    fn without_a_loss_it_grows_by_a_twentieth_per_round_trip() {
        let windows = run(&mut Cubic::default(), 100.0, 1, 100);
        assert!((windows[0] - 100.0 * 1.05f64.powi(10)).abs() < 3.0, "{windows:?}");
    }

    #[test]
    fn fast_convergence_lowers_the_plateau() {
        let mut cubic = Cubic::default();
        cubic.lose(100.0);
        cubic.lose(80.0);
        assert!((cubic.w_max - 68.0).abs() < 1e-9);
        cubic.on_timeout(&Extent::new(1000, 50_000));
        assert_eq!(cubic.w_max, 0.0);
    }
}
