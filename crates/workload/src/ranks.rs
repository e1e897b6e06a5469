//! Which host has which rank: `hosts=` and `placement=`.

use crate::error::WorkloadError;
use crate::generate::Context;
use crate::random;
use pathloom_model::spec::{Spec, SpecError};
use rand::seq::SliceRandom;

/// The participating hosts, in rank order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ranks {
    hosts: Choice,
    /// Number of hosts that come first in the order of the placement and take no part.
    skip: u32,
    placement: Placement,
}

#[derive(Clone, Debug, PartialEq)]
enum Choice {
    All,
    Count(u32),
    Named(Vec<String>),
}

/// The order in which hosts get ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Placement {
    /// The fabric's order.
    Linear,
    /// One rack after the other.
    Rack,
    /// One host of each rack in turn.
    Striped,
    /// One rail after the other: the first host of each server, then the second ones.
    Rail,
    /// A random order.
    Random,
}

const PLACEMENTS: [(&str, Placement); 5] = [
    ("linear", Placement::Linear),
    ("rack", Placement::Rack),
    ("striped", Placement::Striped),
    ("rail", Placement::Rail),
    ("random", Placement::Random),
];

impl Ranks {
    /// Reads `hosts=` and `placement=` from a specification.
    pub fn take(spec: &Spec) -> Result<Ranks, SpecError> {
        let hosts = match spec.text_of("hosts") {
            None => Choice::All,
            Some(list) if list.contains('/') => {
                Choice::Named(list.split('/').map(|name| name.trim().to_owned()).collect())
            }
            Some(_) => Choice::Count(spec.count("hosts", 2, u64::from(u32::MAX))?.unwrap_or(2) as u32),
        };
        let placement = spec.choice("placement", &PLACEMENTS)?.unwrap_or(Placement::Linear);
        if placement != Placement::Linear && matches!(hosts, Choice::Named(_)) {
            let name = PLACEMENTS.iter().find(|known| known.1 == placement).map_or("", |known| known.0);
            let problem = format!("placement={name} is invalid with hosts by name: their order is the placement");
            return Err(spec.error(problem));
        }
        let skip = spec.count("skip", 0, u64::from(u32::MAX))?.unwrap_or(0) as u32;
        if skip > 0 && matches!(hosts, Choice::Named(_)) {
            return Err(spec.error("skip: leave it out with hosts by name"));
        }
        Ok(Ranks { hosts, skip, placement })
    }

    /// The host of each rank, all different. There are `ranks` of them if a file says so.
    pub fn hosts(&self, context: &Context, ranks: Option<usize>) -> Result<Vec<u32>, WorkloadError> {
        let all = context.hosts.len();
        let mut order = self.order(context)?;
        let mut sorted = order.clone();
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(context.error(format!("hosts: {} is named twice", context.hosts.name(pair[0]))));
        }
        order.drain(..order.len().min(self.skip as usize));
        if let Choice::Count(count) = self.hosts {
            if count > all {
                return Err(context.error(format!("hosts={count} is more than the {all} hosts of the fabric")));
            }
            order.truncate(count as usize);
        }
        let expected = if let Choice::Count(count) = self.hosts { count as usize } else { 2 };
        if order.len() < expected {
            let (left, skip) = (order.len(), self.skip);
            return Err(context.error(format!("skip={skip} leaves {left} of the {all} hosts; expected {expected}")));
        }
        let Some(ranks) = ranks else { return Ok(order) };
        if ranks > all as usize {
            return Err(context.error(format!("file: the file has {ranks} ranks; the fabric has {all} hosts")));
        }
        if self.skip > 0 && order.len() < ranks {
            let (left, skip) = (order.len(), self.skip);
            return Err(context.error(format!("skip={skip} leaves {left} hosts for {ranks} ranks of the file")));
        }
        if self.hosts != Choice::All && order.len() != ranks {
            let found = order.len();
            return Err(context.error(format!("hosts: {found} hosts for {ranks} ranks of the file; expected {ranks}")));
        }
        order.truncate(ranks);
        Ok(order)
    }

    fn order(&self, context: &Context) -> Result<Vec<u32>, WorkloadError> {
        if let Choice::Named(names) = &self.hosts {
            let find =
                |name: &String| context.hosts.find(name).map_err(|problem| context.error(format!("hosts: {problem}")));
            return names.iter().map(find).collect();
        }
        let mut order: Vec<u32> = (0..context.hosts.len()).collect();
        match self.placement {
            Placement::Linear => {}
            Placement::Rack => order = context.hosts.racks().concat(),
            Placement::Striped => order = striped(&context.hosts.racks()),
            Placement::Rail => order = self.rails(context)?,
            // The same order for all jobs of a run, so that skip= gives them different hosts.
            Placement::Random => order.shuffle(&mut random::seeded(context.shared_seed, "placement", 0)),
        }
        Ok(order)
    }

    /// One rail after the other.
    fn rails(&self, context: &Context) -> Result<Vec<u32>, WorkloadError> {
        let servers = context.hosts.servers();
        let order = striped(&servers);
        match order.len() == context.hosts.len() as usize {
            true => Ok(order),
            false => Err(context.error(
                "placement=rail needs servers with a switch of their own, as those of rail-optimized:; set \
                 placement=rack or striped",
            )),
        }
    }

    /// The hosts of ranks as text, such as `16 hosts in the fabric's order`.
    pub fn describe(&self, count: usize) -> String {
        let skipped = if self.skip > 0 { format!(", after the first {}", self.skip) } else { String::new() };
        let how = match (&self.hosts, self.placement) {
            (Choice::Named(_), _) => "in the order given",
            (_, Placement::Linear) => "in the fabric's order",
            (_, Placement::Rack) => "rack by rack",
            (_, Placement::Striped) => "one of each rack in turn",
            (_, Placement::Rail) => "rail by rail",
            (_, Placement::Random) => "in random order",
        };
        format!("{count} hosts {how}{skipped}")
    }

    /// A note if the ranks of a file share one rack, so that nothing crosses the fabric.
    pub fn note(&self, context: &Context, hosts: &[u32]) -> Option<String> {
        let racks = context.hosts.racks();
        let shared = racks.len() > 1 && racks.iter().any(|rack| hosts.iter().all(|host| rack.contains(host)));
        shared.then(|| {
            let ranks = hosts.len();
            format!("all {ranks} ranks are in one rack, so no path is chosen; placement=striped or hosts= spreads them")
        })
    }
}

fn striped(racks: &[Vec<u32>]) -> Vec<u32> {
    let longest = racks.iter().map(Vec::len).max().unwrap_or(0);
    (0..longest).flat_map(|place| racks.iter().filter_map(move |rack| rack.get(place).copied())).collect()
}
