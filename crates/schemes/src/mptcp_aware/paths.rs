//! Sets of paths between two ToRs, and the cache of them by pair of addresses (MPTCP-aware SDN §IV-B.1).

use pathloom_model::search::{k_shortest, ShortestPaths};
use pathloom_model::{LinkState, Nanos, NodeId, Path};
use pathloom_scheme::{FlowView, View};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// A set of paths is good for 60 minutes, as published, unless a link changes before.
const LIFETIME: Nanos = Nanos::from_secs(3600);
/// Sets that are kept. With more pairs of addresses, all are searched anew.
const MOST_SETS: usize = 1 << 16;

/// Source and destination of a subflow: an interface each.
pub(super) type Addresses = (Ipv4Addr, Ipv4Addr);

/// Which paths make up a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Choice {
    /// Those of least hops.
    Shortest,
    /// Those of fewest hops.
    KShortest,
    /// In ascending order of hops, those that share no cable with one before them.
    EdgeDisjoint,
}

/// Which paths are searched for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PathRule {
    pub choice: Choice,
    /// Most paths of a set.
    pub most: usize,
    /// Most links between the ToRs; `None` for no bound.
    pub most_hops: Option<usize>,
}

impl PathRule {
    /// The paths between two ToRs over links that are up, in ascending order of hops.
    pub(super) fn search(&self, view: &View, from: NodeId, to: NodeId) -> Vec<Path> {
        let shortest = |state: &LinkState| ShortestPaths::between(&view.fabric, state, from, to);
        let is_short = |path: &Path| self.most_hops.is_none_or(|most| path.hops() <= most);
        match self.choice {
            Choice::Shortest => shortest(&view.links).iter().take_while(is_short).take(self.most).collect(),
            Choice::KShortest => {
                k_shortest(&view.fabric, &view.links, from, to).take_while(is_short).take(self.most).collect()
            }
            Choice::EdgeDisjoint => {
                // The next path in ascending order that shares no cable with those before it is the first of the
                // shortest ones when their cables are gone.
                let mut left = view.links.clone();
                let mut found = Vec::new();
                while let Some(path) = shortest(&left).nth(0).filter(|path| is_short(path) && found.len() < self.most) {
                    if path.is_empty() {
                        return vec![path];
                    }
                    for &link in path.links() {
                        left.set_cable(link, false);
                    }
                    found.push(path);
                }
                found
            }
        }
    }
}

struct Cached {
    paths: Arc<[Path]>,
    until: Nanos,
}

/// Sets of paths by pair of addresses.
#[derive(Default)]
pub(super) struct PathCache(BTreeMap<Addresses, Cached>);

impl PathCache {
    /// The paths of a flow, from the cache where they are there and not out of date.
    pub(super) fn paths(&mut self, now: Nanos, rule: &PathRule, view: &View, flow: &FlowView) -> Arc<[Path]> {
        let addresses = (flow.five_tuple.src, flow.five_tuple.dst);
        if let Some(cached) = self.0.get(&addresses).filter(|cached| now < cached.until) {
            return cached.paths.clone();
        }
        if self.0.len() >= MOST_SETS {
            self.0.clear();
        }
        let paths: Arc<[Path]> = rule.search(view, flow.src_tor, flow.dst_tor).into();
        self.0.insert(addresses, Cached { paths: paths.clone(), until: now.saturating_add(LIFETIME) });
        paths
    }

    /// Forgets all sets: a link has changed. (As published, paths over dead links stay in the sets until they expire.)
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_model::fabric_from_spec;
    use std::collections::BTreeSet;

    fn searched(fabric: &str, choice: Choice, most: usize, most_hops: Option<usize>) -> Vec<Path> {
        let view = View::new(Arc::new(fabric_from_spec(fabric).unwrap()));
        let tors = view.fabric.tors();
        let (from, to) = (tors[0], tors[tors.len() - 1]);
        PathRule { choice, most, most_hops }.search(&view, from, to)
    }

    #[test]
    fn sets_have_as_many_paths_as_published_for_a_fat_tree() {
        let fabric = "fat-tree:k=8";
        let count = |choice, most| searched(fabric, choice, most, None).len();
        assert_eq!((count(Choice::Shortest, 64), count(Choice::Shortest, 8)), (16, 8));
        assert_eq!((count(Choice::EdgeDisjoint, 8), count(Choice::EdgeDisjoint, 2)), (4, 2));
        assert_eq!(count(Choice::KShortest, 40), 40);
        assert_eq!(searched(fabric, Choice::KShortest, 40, Some(4)).len(), 16);
        assert_eq!(searched(fabric, Choice::EdgeDisjoint, 8, Some(3)), []);
    }

    /// The set by the words of the paper: all simple paths in ascending order, and of these what shares no cable with
    /// one that was taken before.
    #[test]
    fn disjoint_paths_are_those_of_the_published_filter() {
        for seed in 1..=10 {
            let fabric = format!("jellyfish:switches=10,ports=5,hosts=10,seed={seed}");
            let view = View::new(Arc::new(fabric_from_spec(&fabric).unwrap()));
            let tors = view.fabric.tors();
            let mut taken = BTreeSet::new();
            let filtered = k_shortest(&view.fabric, &view.links, tors[0], tors[9]).filter(|path| {
                let cables: Vec<u32> = path.links().iter().map(|link| link.cable()).collect();
                let is_disjoint = cables.iter().all(|cable| !taken.contains(cable));
                taken.extend(cables.into_iter().filter(|_| is_disjoint));
                is_disjoint
            });
            let expected: Vec<Path> = filtered.collect();
            assert!(expected.len() > 1, "{fabric}");
            assert_eq!(searched(&fabric, Choice::EdgeDisjoint, 99, None), expected, "{fabric}");
        }
    }
}
