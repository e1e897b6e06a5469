//! The shortest paths of the ToR pairs of a placement.

use pathloom_allocation::placement::Paths;
use pathloom_model::search::ShortestPaths;
use pathloom_model::{LinkId, NodeId, Path};
use pathloom_scheme::View;
use std::collections::BTreeMap;

/// Maximum number of paths of one pair. A k=64 FatTree has 1024; only artificial fabrics have more.
const MAX_PATHS: u128 = 4096;
/// Up to this number of links, the links of all paths of a pair are listed in advance. Reading the list costs a few
/// nanoseconds, computing a path about 150. A k=32 FatTree has 256 paths of four links.
const MAX_LISTED: u128 = 1024;

/// Shortest paths over links that are up, by ToR pair. They are longer than those of the healthy fabric if none of
/// these is left.
#[derive(Default)]
pub(crate) struct PathBook {
    numbers: BTreeMap<(NodeId, NodeId), u32>,
    pairs: Vec<Pair>,
}

struct Pair {
    paths: ShortestPaths,
    hops: usize,
    /// The links of all paths, concatenated, if they are few.
    listed: Vec<u32>,
}

impl Pair {
    fn new(paths: ShortestPaths) -> Pair {
        let hops = paths.hops().unwrap_or(0);
        let few = paths.count().saturating_mul(hops as u128) <= MAX_LISTED;
        let listed = match few {
            true => paths.iter().flat_map(|path| path.links().iter().map(|link| link.0).collect::<Vec<_>>()).collect(),
            false => Vec::new(),
        };
        Pair { paths, hops, listed }
    }

    fn listed(&self, index: u64) -> Option<&[u32]> {
        let first = usize::try_from(index).ok()?.checked_mul(self.hops)?;
        self.listed.get(first..first.checked_add(self.hops)?).filter(|links| !links.is_empty())
    }
}

impl PathBook {
    /// The number of a pair of ToRs; its paths are searched when it is new.
    pub(crate) fn pair(&mut self, view: &View, from: NodeId, to: NodeId) -> u32 {
        *self.numbers.entry((from, to)).or_insert_with(|| {
            self.pairs.push(Pair::new(ShortestPaths::between(&view.fabric, &view.links, from, to)));
            self.pairs.len() as u32 - 1
        })
    }

    /// A path of a pair.
    pub(crate) fn path(&self, pair: u32, index: u64) -> Option<Path> {
        let pair = &self.pairs[pair as usize];
        match pair.listed(index) {
            Some(links) => Some(Path::new(links.iter().map(|&link| LinkId(link)).collect::<Vec<_>>())),
            None => pair.paths.nth(u128::from(index)),
        }
    }

    /// The path of a pair that has only one: flows take it without rules of their own.
    pub(crate) fn only_path(&self, pair: u32) -> Option<Path> {
        if self.count(pair) == 1 {
            self.path(pair, 0)
        } else {
            None
        }
    }
}

impl Paths for PathBook {
    fn count(&self, pair: u32) -> u64 {
        self.pairs[pair as usize].paths.count().min(MAX_PATHS) as u64
    }

    fn links(&self, pair: u32, index: u64, links: &mut Vec<u32>) {
        match self.pairs[pair as usize].listed(index) {
            Some(listed) => links.extend_from_slice(listed),
            None => links.extend(self.path(pair, index).iter().flat_map(|path| path.links().iter().map(|link| link.0))),
        }
    }
}
