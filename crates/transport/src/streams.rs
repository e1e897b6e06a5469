//! Parallel TCP streams: a transfer has several connections, each with a fixed part of the data and its own path.
//! This module computes how many streams a path can use, and how streams are spread over paths (parallel TCP §3.2).

use crate::Settings;
use pathloom_model::spec::{Spec, SpecError};
use serde::{Deserialize, Serialize};

/// Largest number of streams of a transfer.
pub const MOST_STREAMS: u64 = 256;
/// Largest number of paths of a transfer, equal to the limit of an assignment.
pub const MOST_PATHS: u64 = 64;
/// Streams per Mbit/s and ms, as measured in the virtual set-up of the paper (§5.1.2).
pub const PUBLISHED_A: f64 = 0.001_495;

/// How the streams of a transfer are spread over its paths.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// All streams on the shortest path.
    Single,
    /// Paths in turn.
    RoundRobin,
    /// In proportion to the number of streams that each path can use.
    Optimal,
    /// In a given ratio; paths beyond the ratio get no stream.
    Ratio(Vec<u32>),
}

/// Settings of hosts that open several streams per transfer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StreamSettings {
    /// Settings of each stream.
    pub tcp: Settings,
    /// Number of paths that a transfer requests.
    pub paths: u32,
    /// Number of streams of a transfer.
    pub streams: u32,
    /// How the streams are spread over paths.
    pub policy: Policy,
    /// Whether the paths share no cable; otherwise they are the paths with the fewest hops.
    pub disjoint: bool,
    /// Number of streams that a path can use per Mbit/s of its bandwidth and per ms of its round trip.
    pub a: f64,
    /// Whether the bandwidth of a path is what other traffic leaves (B of parallel TCP §3.2). Otherwise it is the rate
    /// of its slowest link.
    // Settings written before this option existed mean `false`.
    #[serde(default)]
    pub available: bool,
}

/// The properties of a path that determine its streams.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PathTraits {
    /// Its bandwidth, bit/s.
    pub rate_bps: u64,
    /// Round trip over the path, ms.
    pub round_trip_ms: f64,
}

impl StreamSettings {
    /// Parses `paths`, `streams`, `policy`, `ratio`, `search`, `a` and `bandwidth`.
    ///
    /// # Errors
    /// A value is invalid; the message says what was expected.
    pub fn read(spec: &Spec, tcp: Settings) -> Result<StreamSettings, SpecError> {
        let count = |key, default, most| Ok(spec.count(key, 1, most)?.map_or(default, |count| count as u32));
        let (paths, streams) = (count("paths", 4, MOST_PATHS)?, count("streams", 4, MOST_STREAMS)?);
        let words = [("single", Policy::Single), ("round-robin", Policy::RoundRobin), ("optimal", Policy::Optimal)];
        let numbers = [0, 1, 2].map(|index| (words[index].0, index));
        let named = spec.choice("policy", &numbers)?.map(|index: usize| words[index].1.clone());
        let given = spec.text_of("ratio").filter(|&text| text != "none");
        let ratio = given.map(|text| ratio(spec, text, paths)).transpose()?;
        let policy = match (named, ratio) {
            (Some(_), Some(_)) => return Err(spec.error("ratio: it sets how streams are spread; leave policy out")),
            (named, ratio) => named.or(ratio.map(Policy::Ratio)).unwrap_or(Policy::Optimal),
        };
        let disjoint = spec.choice("search", &[("breadth-first", false), ("edge-disjoint", true)])?.unwrap_or(false);
        let a = spec.number("a", 0.0, 1e6)?.unwrap_or(PUBLISHED_A);
        let bandwidth = spec.choice("bandwidth", &[("available", true), ("rate", false)])?;
        if bandwidth.is_some() && policy != Policy::Optimal {
            return Err(spec.error("bandwidth: only policy=optimal uses it; leave it out"));
        }
        let available = bandwidth.unwrap_or(true);
        Ok(StreamSettings { tcp, paths, streams, policy, disjoint, a, available })
    }

    /// Returns the number of paths to request.
    pub fn paths_wanted(&self) -> u32 {
        if self.policy == Policy::Single {
            1
        } else {
            self.paths
        }
    }

    /// Returns the number of streams that a path can use: max(1, a·B·R), rounded to the nearest (parallel TCP eq. 8).
    pub fn optimum(&self, path: &PathTraits) -> u32 {
        optimum(self.a, path)
    }

    /// Returns the path of each stream, in the order in which the streams are opened; empty without paths. First,
    /// every path with a share gets one stream, in descending order of shares. Each further stream goes to the path
    /// that is furthest below its share (Sainte-Laguë), so the numbers are as close to the ratio as possible.
    pub fn spread(&self, paths: &[PathTraits]) -> Vec<usize> {
        let weights: Vec<u32> = match &self.policy {
            Policy::Single => vec![1],
            Policy::RoundRobin => vec![1; paths.len()],
            Policy::Optimal => paths.iter().map(|path| self.optimum(path)).collect(),
            Policy::Ratio(ratio) => ratio.clone(),
        };
        let mut given = vec![0u64; weights.len().min(paths.len())];
        let lack = |path: usize, given: &[u64]| match (given[path], f64::from(weights[path])) {
            (0, weight) => -weight,
            (count, weight) => (2 * count + 1) as f64 / weight,
        };
        let mut next = || {
            let open = (0..given.len()).filter(|&path| weights[path] > 0);
            let path = open.min_by(|&x, &y| lack(x, &given).total_cmp(&lack(y, &given)))?;
            given[path] += 1;
            Some(path)
        };
        (0..self.streams).map_while(|_| next()).collect()
    }
}

/// max(1, a·B·R), rounded to the nearest (parallel TCP eq. 8).
fn optimum(a: f64, path: &PathTraits) -> u32 {
    (a * path.rate_bps as f64 / 1e6 * path.round_trip_ms).round().max(1.0) as u32
}

fn ratio(spec: &Spec, text: &str, paths: u32) -> Result<Vec<u32>, SpecError> {
    let read = |part: &str| part.parse::<u32>().ok().filter(|&share| u64::from(share) <= MOST_STREAMS);
    let shares: Option<Vec<u32>> = text.split('/').map(read).collect();
    let fits = |shares: &Vec<u32>| shares.len() <= paths as usize && shares.iter().any(|&share| share > 0);
    shares.filter(fits).ok_or_else(|| {
        spec.error(format!("ratio: `{text}` is not up to {paths} numbers from 0 to {MOST_STREAMS} such as 8/2/10/2"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Result<StreamSettings, String> {
        let spec = Spec::parse("scheme", text).unwrap();
        let read = StreamSettings::read(&spec, Settings::default()).map_err(|problem| problem.to_string())?;
        spec.finish().map_err(|problem| problem.to_string())?;
        Ok(read)
    }

    fn path(rate_mbps: u64, round_trip_ms: f64) -> PathTraits {
        PathTraits { rate_bps: rate_mbps * 1_000_000, round_trip_ms }
    }

    #[test]
    fn optimum_matches_table_2_and_is_at_least_one() {
        let wide = settings("parallel-tcp:a=0.000065").unwrap();
        let paths = [(7284, 191.0), (6380, 183.0), (9160, 211.0), (7805, 191.0)];
        let predicted =
            paths.map(|(tenths, ms)| wide.optimum(&PathTraits { rate_bps: tenths * 100_000, round_trip_ms: ms }));
        assert_eq!(predicted, [9, 8, 13, 10]);
        assert_eq!(settings("parallel-tcp").unwrap().optimum(&path(100, 0.0)), 1);
    }

    #[test]
    fn streams_are_spread_by_policy() {
        let paths = [path(50, 26.0), path(50, 26.0), path(100, 120.0)];
        let counts = |text: &str| {
            let spread = settings(text).unwrap().spread(&paths);
            [0, 1, 2].map(|path| spread.iter().filter(|&&other| other == path).count())
        };
        assert_eq!(counts("parallel-tcp:streams=22"), [2, 2, 18]);
        assert_eq!(counts("parallel-tcp:streams=11"), [1, 1, 9]);
        assert_eq!(counts("parallel-tcp:streams=2"), [1, 0, 1]);
        assert_eq!(counts("parallel-tcp:streams=3"), [1, 1, 1]);
        assert_eq!(counts("parallel-tcp:streams=6"), [1, 1, 4]);
        assert_eq!(counts("parallel-tcp:streams=7,policy=round-robin"), [3, 2, 2]);
        assert_eq!(counts("parallel-tcp:streams=7,policy=single"), [7, 0, 0]);
        assert_eq!(counts("parallel-tcp:streams=8,ratio=1/0/3"), [2, 0, 6]);
        assert_eq!(settings("parallel-tcp:ratio=1/1").unwrap().spread(&paths[..1]), [0; 4]);
        assert!(settings("parallel-tcp").unwrap().spread(&[]).is_empty());
    }

    #[test]
    fn errors_name_the_problem() {
        for (text, words) in [
            ("parallel-tcp:streams=0", "streams"),
            ("parallel-tcp:policy=optimum", "did you mean `optimal`"),
            ("parallel-tcp:ratio=0/0", "ratio"),
            ("parallel-tcp:paths=2,ratio=1/1/1", "up to 2 numbers"),
            ("parallel-tcp:policy=single,ratio=1/1", "leave policy out"),
            ("parallel-tcp:search=depth", "breadth-first"),
            ("parallel-tcp:a=-1", "`-1`"),
            ("parallel-tcp:bandwidth=free", "available"),
            ("parallel-tcp:policy=round-robin,bandwidth=rate", "leave it out"),
        ] {
            let problem = settings(text).unwrap_err();
            assert!(problem.contains(words), "{problem}");
        }
    }
}
