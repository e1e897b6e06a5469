//! The part of a fork of the twin (`.plf`, docs/twin.md) that traffic needs, and its checks.

use crate::hosts::Hosts;
use crate::sizes::{SizeTable, MOST_BYTES};
use pathloom_model::{Fabric, NodeId};
use serde::Deserialize;

/// What a fork says it is.
const FORMAT: &str = "pathloom-fork";
/// The version that this program reads.
const VERSION: u32 = 1;
/// Highest window, rate and number of bytes of a flow.
const MOST: u64 = MOST_BYTES as u64;

/// The document, without the parts that describe the fabric and the scheme.
#[derive(Deserialize)]
pub(super) struct Document {
    pub flows: Flows,
    pub arrivals: Arrivals,
}

/// Flows under way, as columns.
#[derive(Deserialize)]
pub(super) struct Flows {
    pub src: Vec<String>,
    pub dst: Vec<String>,
    pub sent_bytes: Vec<u64>,
    /// The whole transfer; null if nobody announced it.
    pub size_bytes: Vec<Option<u64>>,
    /// Whether the flow has no end.
    pub endless: Vec<bool>,
    pub rate_bps: Vec<u64>,
    pub window_bytes: Vec<u64>,
    /// Whether the sender is still in slow start.
    pub slow_start: Vec<bool>,
    /// Names of the switches on its path; null if they are not known.
    pub path: Vec<Option<Vec<String>>>,
}

/// How flows arrive.
#[derive(Deserialize)]
pub(super) struct Arrivals {
    pub flows_per_s: f64,
    pub sizes: Sizes,
    pub pairs: Pairs,
    /// Mean number of flows that arrive together, at least 1, and the time over which their starts are spread.
    pub batch_flows: f64,
    pub batch_s: f64,
}

/// Quantiles of the sizes of flows.
#[derive(Deserialize)]
pub(super) struct Sizes {
    pub bytes: Vec<f64>,
    pub share: Vec<f64>,
    /// Exponent of the Pareto tail beyond the last quantile.
    pub tail_exponent: f64,
}

/// Shares of the flows by pair of hosts.
#[derive(Deserialize)]
pub(super) struct Pairs {
    pub src: Vec<String>,
    pub dst: Vec<String>,
    pub share: Vec<f64>,
}

/// Reads a document. The error names the field, what was expected, and the way out.
pub(super) fn read(text: &str) -> Result<Document, String> {
    #[derive(Deserialize)]
    struct Head {
        format: String,
        version: u32,
    }
    let damaged = |error: serde_json::Error| format!("is not a whole fork: {error}; write it again with `twin fork`");
    let head: Head = serde_json::from_str(text).map_err(damaged)?;
    if head.format != FORMAT {
        return Err(format!("format: `{}` is not `{FORMAT}`; expected a file of `pathloom twin fork`", head.format));
    }
    if head.version != VERSION {
        let found = head.version;
        return Err(format!(
            "version: {found} is not {VERSION}, which this Pathloom reads; write the fork again with it"
        ));
    }
    let document: Document = serde_json::from_str(text).map_err(damaged)?;
    document.flows.check()?;
    document.arrivals.check()?;
    Ok(document)
}

impl Flows {
    /// Number of flows.
    pub fn len(&self) -> usize {
        self.src.len()
    }

    fn check(&self) -> Result<(), String> {
        let lengths = [
            ("dst", self.dst.len()),
            ("sent_bytes", self.sent_bytes.len()),
            ("size_bytes", self.size_bytes.len()),
            ("endless", self.endless.len()),
            ("rate_bps", self.rate_bps.len()),
            ("window_bytes", self.window_bytes.len()),
            ("slow_start", self.slow_start.len()),
            ("path", self.path.len()),
        ];
        same_lengths("flows", self.len(), &lengths)?;
        for (name, column) in
            [("sent_bytes", &self.sent_bytes), ("rate_bps", &self.rate_bps), ("window_bytes", &self.window_bytes)]
        {
            if let Some(place) = column.iter().position(|&value| value > MOST) {
                return Err(format!("flows.{name}[{place}]: {} is more than {MOST}", column[place]));
            }
        }
        let too_small = |place: &usize| self.size_bytes[*place].is_some_and(|size| !(1..=MOST).contains(&size));
        match (0..self.len()).find(too_small) {
            Some(place) => Err(format!("flows.size_bytes[{place}]: expected 1 to {MOST}, or null if it is not known")),
            None => Ok(()),
        }
    }

    /// The switches of a flow's path.
    pub fn path(&self, place: usize, fabric: &Fabric) -> Result<Box<[NodeId]>, String> {
        let names = self.path[place].iter().flatten();
        let node = |name: &String| {
            let found = fabric.find(name).filter(|&node| !fabric.is_host(node));
            found.ok_or_else(|| format!("flows.path[{place}]: `{name}` is not a switch of the fabric"))
        };
        names.map(node).collect()
    }
}

impl Arrivals {
    fn check(&self) -> Result<(), String> {
        let numbers = [
            ("flows_per_s", self.flows_per_s, 0.0, 1e12),
            ("batch_flows", self.batch_flows, 1.0, 1e6),
            ("batch_s", self.batch_s, 0.0, 1e6),
            ("sizes.tail_exponent", self.sizes.tail_exponent, 0.1, 100.0),
        ];
        for (name, value, least, most) in numbers {
            if !(least..=most).contains(&value) {
                return Err(format!("arrivals.{name}: {value} is not a number from {least} to {most}"));
            }
        }
        let (sizes, pairs) = (&self.sizes, &self.pairs);
        same_lengths("arrivals.sizes", sizes.bytes.len(), &[("share", sizes.share.len())])?;
        let lengths = [("dst", pairs.dst.len()), ("share", pairs.share.len())];
        same_lengths("arrivals.pairs", pairs.src.len(), &lengths)?;
        if let Some(place) = pairs.share.iter().position(|share| !(0.0..=1e12).contains(share)) {
            return Err(format!("arrivals.pairs.share[{place}]: {} is not a weight from 0 on", pairs.share[place]));
        }
        if self.flows_per_s > 0.0 && pairs.share.iter().sum::<f64>() <= 0.0 {
            return Err("arrivals.pairs: no pair has a share; expected one, or flows_per_s of 0".to_owned());
        }
        Ok(())
    }

    /// The sizes of flows.
    pub fn table(&self) -> Result<SizeTable, String> {
        let points = self.sizes.bytes.iter().copied().zip(self.sizes.share.iter().copied()).collect();
        SizeTable::new("of the fork", points)
            .map_err(|(place, problem)| format!("arrivals.sizes: quantile {place}: {problem}"))
    }
}

/// Checks that columns have the length of the first one.
fn same_lengths(of: &str, expected: usize, columns: &[(&str, usize)]) -> Result<(), String> {
    match columns.iter().find(|(_, length)| *length != expected) {
        Some((name, length)) => Err(format!("{of}.{name}: has {length} values; expected {expected}, one for each row")),
        None => Ok(()),
    }
}

/// The two hosts of row `place`.
pub(super) fn pair(of: &str, place: usize, [src, dst]: [&[String]; 2], hosts: &Hosts) -> Result<(u32, u32), String> {
    let host =
        |name: &str, text: &String| hosts.find(text).map_err(|problem| format!("{of}.{name}[{place}]: {problem}"));
    let pair = (host("src", &src[place])?, host("dst", &dst[place])?);
    match pair.0 == pair.1 {
        true => Err(format!("{of}.dst[{place}]: host {} sends to itself; expected another host", hosts.name(pair.0))),
        false => Ok(pair),
    }
}
