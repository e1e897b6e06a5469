//! Which hosts have an agent: a program that labels and announces their long flows, and holds and paces them when told.

use pathloom_model::{Fabric, NodeId};
use rand::seq::SliceRandom;
use rand::SeedableRng;
use rand_pcg::Pcg64;

/// Constant that makes these draws differ from others with the same seed.
const STREAM: u64 = 0x6167_656e_7473;

/// The hosts of a run that have an agent.
#[derive(Clone, Debug)]
pub(crate) struct Agents {
    /// Whether each node has an agent, by node. Empty if every host has one.
    has: Vec<bool>,
}

impl Agents {
    /// Draws the hosts that have an agent: a share of all hosts, rounded to a whole number.
    pub(crate) fn draw(fabric: &Fabric, share: f64, seed: u64) -> Agents {
        if share >= 1.0 {
            return Agents { has: Vec::new() };
        }
        let mut hosts = fabric.hosts().to_vec();
        hosts.shuffle(&mut Pcg64::seed_from_u64(seed ^ STREAM));
        let with = (hosts.len() as f64 * share.max(0.0)).round() as usize;
        let mut has = vec![false; fabric.nodes().len()];
        for host in &hosts[..with.min(hosts.len())] {
            has[host.index()] = true;
        }
        Agents { has }
    }

    /// Whether every host has an agent.
    pub(crate) fn everywhere(&self) -> bool {
        self.has.is_empty()
    }

    /// Whether this host has an agent.
    pub(crate) fn at(&self, host: NodeId) -> bool {
        self.has.get(host.index()).copied().unwrap_or(true)
    }
}
