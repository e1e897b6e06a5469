//! Sets of paths between two ToRs, and the cache of them by pair of addresses (MPTCP-aware SDN §IV-B.1).

use crate::helpers::draws;
use pathloom_model::search::{k_shortest, ShortestPaths};
use pathloom_model::{Address, LinkState, Nanos, NodeId, Path};
use pathloom_scheme::{FlowView, View};
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A set of paths is valid for 60 minutes, as published, unless a link changes before.
const LIFETIME: Nanos = Nanos::from_secs(3600);
/// Maximum number of sets that are kept. When it is reached, all sets are dropped.
const MOST_SETS: usize = 1 << 16;
/// Maximum number of shortest paths between two ToRs from which a set is drawn. Only artificial fabrics have more.
const MOST_DRAWN: u128 = 4096;

/// Source and destination address of a subflow. Each is the address of one interface.
pub(super) type Addresses = (Address, Address);

/// The addresses of a subflow.
pub(super) fn addresses(flow: &FlowView) -> Addresses {
    (flow.five_tuple.src(), flow.five_tuple.dst())
}

/// Which paths form a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Choice {
    /// Paths with the minimum number of hops.
    Shortest,
    /// The paths with the fewest hops, up to the maximum number of a set.
    KShortest,
    /// In ascending order of hops, the paths that share no cable with an earlier one.
    EdgeDisjoint,
}

/// How the paths of a set are searched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PathRule {
    pub choice: Choice,
    /// Maximum number of paths in a set.
    pub most: usize,
    /// Maximum number of links between the ToRs; `None` for no limit.
    pub most_hops: Option<usize>,
}

impl PathRule {
    /// The paths between two ToRs over links that are up, in ascending order of hops. Paths with equal numbers of
    /// hops are in random order. If all pairs had the same order, the first subflows of all connections would use the
    /// first core.
    pub(super) fn search(&self, view: &View, from: NodeId, to: NodeId, chance: &mut Pcg64) -> Vec<Path> {
        let shortest = |state: &LinkState| ShortestPaths::between(&view.fabric, state, from, to);
        let is_short = |path: &Path| self.most_hops.is_none_or(|most| path.hops() <= most);
        match self.choice {
            Choice::Shortest => {
                let all = shortest(&view.links);
                let mut drawn: Vec<u128> = (0..all.count().min(MOST_DRAWN)).collect();
                drawn.shuffle(chance);
                drawn.iter().take(self.most).filter_map(|&index| all.nth(index)).filter(is_short).collect()
            }
            Choice::KShortest => {
                let all = k_shortest(&view.fabric, &view.links, from, to).take_while(is_short);
                let mut paths: Vec<Path> = all.take(self.most).collect();
                paths.shuffle(chance);
                paths.sort_by_key(Path::hops);
                paths
            }
            Choice::EdgeDisjoint => {
                // In ascending order of hops, the next path that shares no cable with earlier ones is a shortest path
                // over the cables that are left.
                let mut left = view.links.clone();
                let mut found = Vec::new();
                while found.len() < self.most {
                    let all = shortest(&left);
                    let Some(path) = all.nth(draws::below(chance, all.count())).filter(is_short) else { break };
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
pub(super) struct PathCache {
    /// Seed that breaks ties, together with the addresses.
    seed: u64,
    sets: BTreeMap<Addresses, Cached>,
}

impl PathCache {
    pub(super) fn new(seed: u64) -> PathCache {
        PathCache { seed, sets: BTreeMap::new() }
    }

    /// The paths of a flow, from the cache if they are there and have not expired.
    pub(super) fn paths(&mut self, now: Nanos, rule: &PathRule, view: &View, flow: &FlowView) -> Arc<[Path]> {
        let addresses = addresses(flow);
        if let Some(cached) = self.sets.get(&addresses).filter(|cached| now < cached.until) {
            return cached.paths.clone();
        }
        if self.sets.len() >= MOST_SETS {
            self.sets.clear();
        }
        let stream = u64::from(addresses.0.low()) << 32 | u64::from(addresses.1.low());
        let mut chance = draws::generator(self.seed, stream);
        let paths: Arc<[Path]> = rule.search(view, flow.src_tor, flow.dst_tor, &mut chance).into();
        self.sets.insert(addresses, Cached { paths: paths.clone(), until: now.saturating_add(LIFETIME) });
        paths
    }

    /// Number of sets in the cache.
    pub(super) fn len(&self) -> usize {
        self.sets.len()
    }

    /// Drops all sets, because a link has changed. (In the published controller, paths over dead links stay until
    /// they expire.)
    pub(super) fn clear(&mut self) {
        self.sets.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_fabrics::fabric_from_spec;
    use std::collections::BTreeSet;

    fn view(fabric: &str) -> View {
        View::new(Arc::new(fabric_from_spec(fabric).unwrap()))
    }

    fn searched(view: &View, choice: Choice, most: usize, most_hops: Option<usize>, seed: u64) -> Vec<Path> {
        let tors = view.fabric.tors();
        let rule = PathRule { choice, most, most_hops };
        rule.search(view, tors[0], tors[tors.len() - 1], &mut draws::generator(seed, 0))
    }

    #[test]
    fn sets_have_as_many_paths_as_published_for_a_fat_tree() {
        let view = view("fat-tree:k=8");
        let count = |choice, most, hops| searched(&view, choice, most, hops, 1).len();
        assert_eq!((count(Choice::Shortest, 64, None), count(Choice::Shortest, 8, None)), (16, 8));
        assert_eq!((count(Choice::EdgeDisjoint, 8, None), count(Choice::EdgeDisjoint, 2, None)), (4, 2));
        assert_eq!((count(Choice::KShortest, 40, None), count(Choice::KShortest, 40, Some(4))), (40, 16));
        assert_eq!((count(Choice::EdgeDisjoint, 8, Some(3)), count(Choice::Shortest, 8, Some(3))), (0, 0));
    }

    #[test]
    fn first_paths_are_spread_over_all_shortest_paths() {
        let view = view("fat-tree:k=8");
        for choice in [Choice::Shortest, Choice::KShortest, Choice::EdgeDisjoint] {
            let first = |seed| searched(&view, choice, 16, None, seed).swap_remove(0);
            let firsts: BTreeSet<Path> = (0..200).map(first).collect();
            assert_eq!(firsts.len(), 16, "{choice:?}");
            assert_eq!(first(7), first(7));
        }
    }

    /// The definition in the paper: all simple paths in ascending order of hops, and of these each one that shares no
    /// cable with a path that was taken before.
    #[test]
    fn disjoint_paths_meet_the_published_definition() {
        for seed in 1..=10 {
            let fabric = format!("jellyfish:switches=10,ports=5,hosts=10,seed={seed}");
            let view = view(&fabric);
            let tors = view.fabric.tors();
            let found = searched(&view, Choice::EdgeDisjoint, 99, None, seed);
            assert!(found.len() > 1 && found.is_sorted_by_key(Path::hops), "{fabric}");
            let mut taken = BTreeSet::new();
            let all: Vec<Path> = k_shortest(&view.fabric, &view.links, tors[0], tors[9]).collect();
            let is_free =
                |path: &Path, taken: &BTreeSet<u32>| path.links().iter().all(|link| !taken.contains(&link.cable()));
            for path in &found {
                let least = all.iter().filter(|path| is_free(path, &taken)).map(Path::hops).min();
                assert!(is_free(path, &taken) && Some(path.hops()) == least, "{fabric}");
                taken.extend(path.links().iter().map(|link| link.cable()));
            }
            assert!(!all.iter().any(|path| is_free(path, &taken)), "{fabric}: one more is left");
        }
    }

    #[test]
    fn sets_are_kept_for_an_hour() {
        let view = view("fat-tree:k=4");
        let at = |host: usize| *view.fabric.host_attachments(view.fabric.hosts()[host])[0];
        let (from, to) = (at(0), at(15));
        let (src, dst) = (from.address, to.address);
        let five_tuple = pathloom_model::FiveTuple::new(pathloom_model::PROTO_TCP, (src, 1), (dst, 2));
        let flow = FlowView::new(five_tuple, &from, &to, Nanos::ZERO);
        let rule = PathRule { choice: Choice::EdgeDisjoint, most: 8, most_hops: None };
        let mut cache = PathCache::new(1);
        let [first, second, third] =
            [0, 3599, 3600].map(|at_s| cache.paths(Nanos::from_secs(at_s), &rule, &view, &flow));
        assert!(Arc::ptr_eq(&first, &second) && !Arc::ptr_eq(&second, &third));
        assert_eq!(first, third, "ties are broken in the same way");
    }
}
