//! Random streams and the distributions drawn from them. They are the same to the last bit on every machine.

use pathloom_model::{split_mix, GOLDEN};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::BTreeSet;

/// A separate generator for one purpose (and for one of several similar things). Draws from it do not change other
/// streams.
pub(crate) fn seeded(seed: u64, purpose: &str, index: u64) -> Pcg64 {
    // FNV-1a of the purpose, then the finaliser of SplitMix64 over everything.
    let purpose = purpose
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let mut state = split_mix(seed ^ split_mix(purpose ^ split_mix(index)));
    let mut bytes = [0u8; 32];
    for word in bytes.chunks_exact_mut(8) {
        state = state.wrapping_add(GOLDEN);
        word.copy_from_slice(&split_mix(state).to_le_bytes());
    }
    Pcg64::from_seed(bytes)
}

/// The seed of a part of a joined specification, other than the first one.
pub(crate) fn seed_of_part(seed: u64, part: u64) -> u64 {
    seeded(seed, "part", part).random()
}

/// Uniform in 0 (included) to 1 (excluded).
pub(crate) fn uniform(rng: &mut Pcg64) -> f64 {
    rng.random::<f64>()
}

/// Uniform whole number below `bound`, which is at least 1.
pub(crate) fn below(rng: &mut Pcg64, bound: u32) -> u32 {
    rng.random_range(0..bound)
}

/// Uniform whole number below `bound`, other than `but`, which is below `bound` too; `bound` is at least 2.
pub(crate) fn below_but(rng: &mut Pcg64, bound: u32, but: u32) -> u32 {
    let drawn = below(rng, bound - 1);
    drawn + u32::from(drawn >= but)
}

/// Uniform nanoseconds below `bound`; 0 when `bound` is 0.
pub(crate) fn nanos_below(rng: &mut Pcg64, bound: u64) -> u64 {
    rng.random_range(0..bound.max(1))
}

/// Exponential with mean 1.
pub(crate) fn exponential(rng: &mut Pcg64) -> f64 {
    -libm::log(1.0 - uniform(rng))
}

/// A random set of `count` numbers below `bound`, in ascending order (Floyd's algorithm). `count` is at most `bound`.
pub(crate) fn distinct(rng: &mut Pcg64, count: u32, bound: u32) -> Vec<u32> {
    let mut set = BTreeSet::new();
    for last in bound - count..bound {
        let drawn = below(rng, last + 1);
        if !set.insert(drawn) {
            set.insert(last);
        }
    }
    set.into_iter().collect()
}

/// Standard normal (Marsaglia's polar method).
fn normal(rng: &mut Pcg64) -> f64 {
    loop {
        let (u, v) = (2.0 * uniform(rng) - 1.0, 2.0 * uniform(rng) - 1.0);
        let s = u * u + v * v;
        if s > 0.0 && s < 1.0 {
            return u * (-2.0 * libm::log(s) / s).sqrt();
        }
    }
}

/// A log-normal distribution.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogNormal {
    mu: f64,
    sigma: f64,
}

impl LogNormal {
    /// The distribution with this mean and this standard deviation of the logarithm.
    pub fn with_mean(mean: f64, sigma: f64) -> LogNormal {
        LogNormal { mu: libm::log(mean) - sigma * sigma / 2.0, sigma }
    }

    /// Draws one value.
    pub fn draw(&self, rng: &mut Pcg64) -> f64 {
        libm::exp(self.mu + self.sigma * normal(rng))
    }

    /// Draws the rest of the interval that contains a random moment, if intervals follow one another. Long intervals
    /// contain it more often (the length-biased log-normal has mu + sigma²), and the moment is anywhere in them.
    pub fn draw_rest(&self, rng: &mut Pcg64) -> f64 {
        let whole = libm::exp(self.mu + self.sigma * self.sigma + self.sigma * normal(rng));
        whole * uniform(rng)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(count: u32, mut draw: impl FnMut() -> f64) -> f64 {
        (0..count).map(|_| draw()).sum::<f64>() / f64::from(count)
    }

    #[test]
    fn streams_differ_by_seed_purpose_and_index_alone() {
        let first = |seed, purpose: &str, index| seeded(seed, purpose, index).random::<u64>();
        assert_eq!(first(1, "sizes", 0), first(1, "sizes", 0));
        let all = [first(1, "sizes", 0), first(2, "sizes", 0), first(1, "gaps", 0), first(1, "sizes", 1)];
        let distinct: BTreeSet<u64> = all.into_iter().collect();
        assert_eq!(distinct.len(), 4);
        // Results were published with a seed, so the numbers of a seed must not change.
        assert_eq!(first(1, "sizes", 0), 14_739_695_414_570_224_869);
    }

    #[test]
    fn distributions_have_their_means() {
        let mut rng = seeded(7, "test", 0);
        assert!((mean(100_000, || exponential(&mut rng)) - 1.0).abs() < 0.02);
        let law = LogNormal::with_mean(3.0, 1.0);
        assert!((mean(200_000, || law.draw(&mut rng)) - 3.0).abs() < 0.06);
        // Mean of the rest: E[X²] / 2 E[X], with E[X²] = E[X]² exp(sigma²).
        let rest = 3.0 * 1f64.exp() / 2.0;
        assert!((mean(400_000, || law.draw_rest(&mut rng)) - rest).abs() < 0.15);
        assert!(mean(100_000, || normal(&mut rng)).abs() < 0.02);
        assert!((mean(100_000, || normal(&mut rng).powi(2)) - 1.0).abs() < 0.03);
    }

    #[test]
    fn whole_numbers_stay_in_bounds() {
        let mut rng = seeded(7, "test", 1);
        for bound in 2..20 {
            for but in 0..bound {
                let drawn = below_but(&mut rng, bound, but);
                assert!(drawn < bound && drawn != but);
            }
            for count in 0..=bound {
                let set = distinct(&mut rng, count, bound);
                assert_eq!(set.len() as u32, count);
                assert!(set.windows(2).all(|pair| pair[0] < pair[1]) && set.iter().all(|&n| n < bound));
            }
        }
        assert_eq!(nanos_below(&mut rng, 0), 0);
    }
}
