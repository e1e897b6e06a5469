//! Histograms of durations.

use pathloom_model::Nanos;
use serde::Serialize;

/// Upper bounds of the classes of a [`DurationHistogram`]. Longer durations are in the last class, which has no
/// bound.
pub const DURATION_BOUNDS: [Nanos; 14] = [
    Nanos(100_000),
    Nanos(250_000),
    Nanos(500_000),
    Nanos(1_000_000),
    Nanos(2_500_000),
    Nanos(5_000_000),
    Nanos(10_000_000),
    Nanos(25_000_000),
    Nanos(50_000_000),
    Nanos(100_000_000),
    Nanos(250_000_000),
    Nanos(500_000_000),
    Nanos(1_000_000_000),
    Nanos(10_000_000_000),
];

/// Number of durations in each class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct DurationHistogram {
    /// Number in each class: durations up to its bound and above the bound before.
    pub counts: [u64; DURATION_BOUNDS.len() + 1],
    /// Sum of all durations.
    pub sum: Nanos,
}

impl DurationHistogram {
    /// Adds a duration.
    pub fn add(&mut self, took: Nanos) {
        self.counts[DURATION_BOUNDS.partition_point(|&bound| bound < took)] += 1;
        self.sum = self.sum.saturating_add(took);
    }

    /// Number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_class() {
        let mut times = DurationHistogram::default();
        [0, 100_000, 100_001, 10_000_000_000, 10_000_000_001].into_iter().for_each(|took| times.add(Nanos(took)));
        assert_eq!((times.counts[0], times.counts[1], times.counts[13], times.counts[14]), (2, 1, 1, 1));
        assert_eq!((times.count(), times.sum), (5, Nanos(20_000_200_002)));
    }
}
