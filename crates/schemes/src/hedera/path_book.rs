//! The shortest paths of the ToR pairs that a job meets.

use pathloom_mcf::placement::Paths;
use pathloom_model::search::ShortestPaths;
use pathloom_model::{NodeId, Path};
use pathloom_scheme::View;
use std::collections::BTreeMap;

/// Paths of one pair that are searched at most. A k=64 FatTree has 1024; only fabrics made to have beyond number of
/// them have more.
const MAX_PATHS: u128 = 4096;

/// Shortest paths over links that are up, by ToR pair.
#[derive(Default)]
pub(super) struct PathBook {
    numbers: BTreeMap<(NodeId, NodeId), u32>,
    pairs: Vec<ShortestPaths>,
}

impl PathBook {
    /// The number of a pair of ToRs; its paths are searched when it is new.
    pub(super) fn pair(&mut self, view: &View, from: NodeId, to: NodeId) -> u32 {
        *self.numbers.entry((from, to)).or_insert_with(|| {
            self.pairs.push(ShortestPaths::between(&view.fabric, &view.links, from, to));
            self.pairs.len() as u32 - 1
        })
    }

    /// A path of a pair.
    pub(super) fn path(&self, pair: u32, index: u64) -> Option<Path> {
        self.pairs[pair as usize].nth(u128::from(index))
    }

    /// The path of a pair that has one alone: flows take it without being told.
    pub(super) fn only_path(&self, pair: u32) -> Option<Path> {
        if self.count(pair) == 1 {
            self.path(pair, 0)
        } else {
            None
        }
    }
}

impl Paths for PathBook {
    fn count(&self, pair: u32) -> u64 {
        self.pairs[pair as usize].count().min(MAX_PATHS) as u64
    }

    fn links(&self, pair: u32, index: u64, links: &mut Vec<u32>) {
        if let Some(path) = self.path(pair, index) {
            links.extend(path.links().iter().map(|link| link.0));
        }
    }
}
