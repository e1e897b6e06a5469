//! Counts of how long things took.

use pathloom_model::Nanos;
use serde::Serialize;

/// Upper ends of the classes of a [`DurationHistogram`]; what took longer is in the last class, which has no end.
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

/// How many things took how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct DurationHistogram {
    /// Number in each class, of those that took no longer than its bound and longer than the bound before.
    pub counts: [u64; DURATION_BOUNDS.len() + 1],
    /// Sum of all times.
    pub sum: Nanos,
}

impl DurationHistogram {
    /// Counts one thing.
    pub fn add(&mut self, took: Nanos) {
        self.counts[DURATION_BOUNDS.partition_point(|&bound| bound < took)] += 1;
        self.sum = self.sum.saturating_add(took);
    }

    /// Things counted.
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
