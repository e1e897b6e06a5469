//! Flow-size distributions given by a table of cumulative probabilities.

use crate::random::uniform;
use crate::tables::PUBLISHED;
use rand_pcg::Pcg64;

/// The maximum flow size of a table, in bytes.
pub(crate) const MOST_BYTES: f64 = 1e15;

/// A flow-size distribution: points (bytes, cumulative probability) with straight lines between them.
///
/// Sizes are drawn by inverting the table, limited to between 1 byte and the maximum size, and rounded to whole
/// bytes. Below the probability of the first point, all sizes are that of the first point. Two points with the same
/// size are a step: that size has a probability of its own. Two points with the same probability are a gap: no size
/// between them occurs.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeTable {
    name: String,
    points: Vec<(f64, f64)>,
    most_bytes: f64,
}

impl SizeTable {
    /// The published table of this name: `web-search`, `data-mining`, `hadoop` or `web-server`.
    pub fn published(name: &str) -> Option<SizeTable> {
        let table = PUBLISHED.iter().find(|table| table.name == name)?;
        Some(SizeTable {
            name: format!("{name} ({})", table.source),
            points: table.points.to_vec(),
            most_bytes: MOST_BYTES,
        })
    }

    /// A table of these points, with `name` for descriptions. Neither column may fall, and the last probability must
    /// be 1; otherwise the error has the index of the point and the problem.
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Result<SizeTable, (usize, String)> {
        let last = points.len().checked_sub(1).ok_or((0, "a size table needs at least one point".to_owned()))?;
        for (index, &(size, probability)) in points.iter().enumerate() {
            let (size_before, before) = if index == 0 { (0.0, 0.0) } else { points[index - 1] };
            let problem = if !(0.0..=MOST_BYTES).contains(&size) {
                format!("size {size} is not a number of bytes from 0 to {MOST_BYTES:e}")
            } else if !(0.0..=1.0).contains(&probability) {
                format!("cumulative probability {probability} is not between 0 and 1")
            } else if size < size_before {
                format!("size {size} is below the one before it, {size_before}; sizes must not fall")
            } else if probability < before {
                format!("cumulative probability {probability} is below the one before it, {before}; it must not fall")
            } else if index == last && probability != 1.0 {
                format!("the table ends at cumulative probability {probability}; the last must be 1")
            } else {
                continue;
            };
            return Err((index, problem));
        }
        Ok(SizeTable { name: name.into(), points, most_bytes: MOST_BYTES })
    }

    /// The same table with every size multiplied by `factor` (positive).
    pub fn scaled(mut self, factor: f64) -> SizeTable {
        self.points.iter_mut().for_each(|point| point.0 *= factor);
        if factor != 1.0 {
            self.name = format!("{}, sizes x {factor}", self.name);
        }
        self
    }

    /// The same table with larger sizes cut down to `most_bytes` (at least 1).
    pub fn cut_at(mut self, most_bytes: u64) -> SizeTable {
        self.most_bytes = (most_bytes.max(1) as f64).min(MOST_BYTES);
        self.name = format!("{}, cut at {}", self.name, crate::quantity::bytes(self.most_bytes));
        self
    }

    /// Description and source of the table.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The points, (bytes, cumulative probability), after scaling and before the cut.
    pub fn points(&self) -> &[(f64, f64)] {
        &self.points
    }

    /// The flow size below which a share `u` of all flows lies, `u` from 0 (included) to 1 (excluded).
    pub fn quantile_bytes(&self, u: f64) -> u64 {
        let next = self.points.partition_point(|point| point.1 <= u).min(self.points.len() - 1);
        let (size, probability) = self.points[next];
        let exact = if next == 0 || probability <= u {
            size
        } else {
            let (size_before, before) = self.points[next - 1];
            (size_before + (u - before) / (probability - before) * (size - size_before)).clamp(size_before, size)
        };
        exact.clamp(1.0, self.most_bytes).round() as u64
    }

    /// The share of all flows that are at most this large, before rounding and cut.
    pub fn share_at_most(&self, bytes: f64) -> f64 {
        let next = self.points.partition_point(|point| point.0 <= bytes);
        let Some(&(size, probability)) = self.points.get(next) else { return 1.0 };
        let Some(&(size_before, before)) = next.checked_sub(1).map(|place| &self.points[place]) else { return 0.0 };
        before + (probability - before) * (bytes - size_before) / (size - size_before)
    }

    /// Mean flow size in bytes. It is exact for the values of [`SizeTable::quantile_bytes`], including rounding and
    /// cut.
    pub fn mean_bytes(&self) -> f64 {
        let first = self.points[0];
        let start = first.1 * first.0.clamp(1.0, self.most_bytes).round();
        let pairs = self.points.windows(2);
        start + pairs.map(|pair| (pair[1].1 - pair[0].1) * self.mean_between(pair[0].0, pair[1].0)).sum::<f64>()
    }

    /// Draws one flow size.
    pub(crate) fn draw(&self, rng: &mut Pcg64) -> u64 {
        self.quantile_bytes(uniform(rng))
    }

    /// Mean of the rounded, cut values when sizes are uniform from `a` to `b`.
    fn mean_between(&self, a: f64, b: f64) -> f64 {
        let (low, high) = (a.clamp(1.0, self.most_bytes), b.clamp(1.0, self.most_bytes));
        if b <= a {
            return low.round();
        }
        // The integral of round(x) is x²/2 minus half the square of the rounding difference.
        let rest = |x: f64| (x - x.round()).powi(2) / 2.0;
        let within = (high - low) * (high + low) / 2.0 - (rest(high) - rest(low));
        let below = (low.min(b) - a).max(0.0);
        let above = (b - high.max(a)).max(0.0);
        (below + within + above * self.most_bytes) / (b - a)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::seeded;

    #[test]
    fn published_tables_have_the_published_means() {
        let cases = [("web-search", 1.711e6, 1e3), ("data-mining", 12.7e6, 5e4), ("hadoop", 0.12e6, 5e3)];
        for (name, mean, tolerance) in cases {
            let table = SizeTable::published(name).unwrap();
            assert!((table.mean_bytes() - mean).abs() < tolerance, "{name}: {}", table.mean_bytes());
            assert!(SizeTable::new(name, table.points().to_vec()).is_ok());
        }
        let web_server = SizeTable::published("web-server").unwrap().mean_bytes();
        assert!((web_server - 66_121.0).abs() < 1.0, "{web_server}");
        assert!(SizeTable::published("websearch").is_none());
    }

    #[test]
    fn mean_counts_rounding_steps_gaps_and_cuts() {
        let points = vec![(0.0, 0.1), (2.3, 0.3), (2.3, 0.5), (7.75, 0.5), (11.4, 0.9), (4000.6, 1.0)];
        for table in [
            SizeTable::new("t", points.clone()).unwrap(),
            SizeTable::new("t", points.clone()).unwrap().scaled(0.37),
            SizeTable::new("t", points.clone()).unwrap().cut_at(9),
            SizeTable::new("t", points.clone()).unwrap().scaled(0.01),
        ] {
            let steps = 2_000_000;
            let sum: u64 = (0..steps).map(|i| table.quantile_bytes((f64::from(i) + 0.5) / f64::from(steps))).sum();
            let numeric = sum as f64 / f64::from(steps);
            assert!((table.mean_bytes() / numeric - 1.0).abs() < 1e-5, "{} {numeric}", table.mean_bytes());
        }
    }

    #[test]
    fn quantiles_follow_the_table() {
        let table = SizeTable::published("web-search").unwrap();
        assert_eq!(table.quantile_bytes(0.0), 1);
        assert_eq!(table.quantile_bytes(0.15), 10_000);
        assert_eq!(table.quantile_bytes(0.65), 600_000);
        let step = SizeTable::published("web-server").unwrap();
        assert_eq!(step.quantile_bytes(0.15), 300);
        assert_eq!(step.quantile_bytes(0.2), 600);
        assert_eq!(step.quantile_bytes(1.0 - f64::EPSILON), 500_000);
        let one = SizeTable::new("one", vec![(1500.0, 1.0)]).unwrap();
        assert_eq!((one.quantile_bytes(0.0), one.quantile_bytes(0.999), one.mean_bytes()), (1500, 1500, 1500.0));
    }

    #[test]
    fn drawn_sizes_pass_a_kolmogorov_smirnov_test() {
        for name in ["web-search", "data-mining", "hadoop"] {
            let table = SizeTable::published(name).unwrap();
            let mut rng = seeded(3, "sizes", 0);
            let count = 20_000;
            let mut drawn: Vec<u64> = (0..count).map(|_| table.draw(&mut rng)).collect();
            drawn.sort_unstable();
            let cumulative = |size: f64| {
                let next = table.points.partition_point(|point| point.0 < size);
                let ((x0, p0), (x1, p1)) = (table.points[next - 1], table.points[next]);
                p0 + (size - x0) / (x1 - x0) * (p1 - p0)
            };
            let gap = |(rank, &size): (usize, &u64)| {
                // A whole byte represents all sizes that round to it.
                let low = rank as f64 / f64::from(count) - cumulative((size as f64 + 0.5).min(1e9 - 1.0));
                let high = cumulative((size as f64 - 0.5).max(0.1)) - (rank + 1) as f64 / f64::from(count);
                low.max(high)
            };
            let worst = drawn.iter().enumerate().filter(|(_, &size)| size > 1).map(gap).fold(0.0, f64::max);
            // 1.95 / sqrt(n) is exceeded by one sample in a thousand.
            assert!(worst < 1.95 / f64::from(count).sqrt(), "{name}: {worst}");
        }
    }

    #[test]
    fn refuses_invalid_tables() {
        let problem = |points: &[(f64, f64)]| SizeTable::new("t", points.to_vec()).unwrap_err();
        assert!(problem(&[]).1.contains("at least one point"));
        assert!(problem(&[(1.0, 0.0), (5.0, 0.9)]).1.contains("the last must be 1"));
        assert_eq!(problem(&[(9.0, 0.0), (5.0, 1.0)]).0, 1);
        assert!(problem(&[(1.0, 0.5), (5.0, 0.2), (6.0, 1.0)]).1.contains("must not fall"));
        for bad in [f64::NAN, f64::INFINITY, -1.0, 1e16] {
            assert_eq!(problem(&[(bad, 1.0)]).0, 0);
            assert_eq!(problem(&[(1.0, bad)]).0, 0);
        }
    }
}
