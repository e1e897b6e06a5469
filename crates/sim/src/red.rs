//! Random early detection: a port begins to drop or mark packets before its queue is full (Floyd and Jacobson, Random
//! Early Detection Gateways for Congestion Avoidance, 1993, Figure 2).

use pathloom_model::RedSettings;

/// State of RED for one queue.
#[derive(Clone, Debug)]
pub(crate) struct Red {
    settings: RedSettings,
    /// Mean number of waiting packets.
    mean: f64,
    /// Packets that arrived since the last one was dropped or marked, while the mean was between the thresholds.
    spared: u64,
}

impl Red {
    pub(crate) fn new(settings: RedSettings) -> Red {
        Red { settings, mean: 0.0, spared: 0 }
    }

    /// Whether data of transports that react to marks are marked instead of dropped.
    pub(crate) fn marks(&self) -> bool {
        self.settings.ecn
    }

    /// A packet arrives and finds `waiting` others; before, the port was idle for the time of `idle_frames` full
    /// frames. Returns whether to drop or mark it. `draw` returns a number from 0 up to, but not including, 1; it is
    /// called only if needed.
    pub(crate) fn acts(&mut self, waiting: usize, idle_frames: u64, draw: impl FnOnce() -> f64) -> bool {
        let RedSettings { min_packets, max_packets, most_probability, weight, .. } = self.settings;
        // An idle port counts as if it had sent this many packets and found its queue empty each time (§4).
        self.mean *= power(1.0 - weight, idle_frames);
        self.mean += weight * (waiting as f64 - self.mean);
        let (min, max) = (f64::from(min_packets), f64::from(max_packets));
        if self.mean < min {
            self.spared = 0;
            return false;
        }
        let acts = self.mean >= max || {
            let base = most_probability * (self.mean - min) / (max - min);
            // The distance from one drop to the next is uniform from 1 to 1/base (§7).
            let rest = 1.0 - self.spared as f64 * base;
            base > 0.0 && (rest <= base || draw() < base / rest)
        };
        self.spared = if acts { 0 } else { self.spared + 1 };
        acts
    }
}

/// Power by squaring. It gives the same bits on every machine, which the library function does not guarantee.
fn power(base: f64, exponent: u64) -> f64 {
    let (mut result, mut square, mut rest) = (1.0, base, exponent);
    while rest > 0 && result > 0.0 {
        if rest & 1 == 1 {
            result *= square;
        }
        square *= square;
        rest >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64;

    fn red(min: u32, max: u32, most_probability: f64, weight: f64) -> Red {
        Red::new(RedSettings { min_packets: min, max_packets: max, most_probability, weight, ecn: false })
    }

    #[test]
    fn distances_between_drops_are_uniform_as_the_paper_derives() {
        let mut rng = Pcg64::seed_from_u64(1);
        // The mean stays at 10, between the thresholds 5 and 15, so the base is 0.1 / 2, and distances range from 1
        // to 20.
        let mut red = red(5, 15, 0.1, 1.0);
        let mut counts = [0u32; 20];
        let (mut distance, mut drops) = (0, 0u32);
        while drops < 40_000 {
            distance += 1;
            if red.acts(10, 0, || rng.random_range(0.0..1.0)) {
                counts[distance - 1] += 1;
                (distance, drops) = (0, drops + 1);
            }
        }
        let expected = f64::from(drops) / 20.0;
        let chi_square: f64 = counts.iter().map(|&count| (f64::from(count) - expected).powi(2) / expected).sum();
        assert!(chi_square < 36.2, "{chi_square} with 19 degrees of freedom (99 %): {counts:?}");
    }

    #[test]
    fn red_drops_nothing_below_the_lower_threshold_and_everything_from_the_upper_one() {
        let mut low = red(5, 15, 1.0, 1.0);
        assert!((0..1000).all(|_| !low.acts(4, 0, || 0.0)));
        assert!((0..1000).all(|_| !low.acts(5, 0, || 0.0)), "at the threshold the probability is 0");
        assert!((0..1000).all(|_| low.acts(15, 0, || 0.999_999)));
    }

    #[test]
    fn the_mean_follows_the_queue_and_decays_while_the_port_is_idle() {
        let mut red = red(1000, 2000, 0.1, 0.002);
        for _ in 0..500 {
            red.acts(100, 0, || 1.0);
        }
        let expected = 100.0 * (1.0 - 0.998f64.powi(500));
        assert!((red.mean - expected).abs() < 1e-9, "{} {expected}", red.mean);
        red.acts(0, 999, || 1.0);
        let expected = expected * 0.998f64.powi(1000);
        assert!((red.mean - expected).abs() < 1e-9, "{} {expected}", red.mean);
        red.acts(0, u64::MAX, || 1.0);
        assert_eq!(red.mean, 0.0);
    }
}
