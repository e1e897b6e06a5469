//! Path search for assignments.

use super::PathSearch;
use pathloom_model::search::{edge_disjoint, k_shortest};
use pathloom_model::{Fabric, LinkState, NodeId, Path};
use std::collections::BTreeMap;

/// Returns up to `count` different paths between two ToRs over links that are up, shortest first.
pub(super) fn find(
    fabric: &Fabric,
    links: &LinkState,
    (from, to): (NodeId, NodeId),
    search: PathSearch,
    count: usize,
) -> Vec<Path> {
    match search {
        PathSearch::BreadthFirst => k_shortest(fabric, links, from, to).take(count).collect(),
        PathSearch::EdgeDisjoint => edge_disjoint(fabric, links, from, to, count),
    }
}

/// Results of searches for one state of the links.
#[derive(Default)]
pub(super) struct Found(BTreeMap<(NodeId, NodeId, PathSearch, usize), Vec<Path>>);

impl Found {
    /// Like [`find`], but searches only once for equal arguments.
    fn find(
        &mut self,
        (fabric, links): (&Fabric, &LinkState),
        ends: (NodeId, NodeId),
        search: PathSearch,
        count: usize,
    ) -> &[Path] {
        let key = (ends.0, ends.1, search, count);
        self.0.entry(key).or_insert_with(|| find(fabric, links, ends, search, count))
    }

    /// Returns the new paths of an assignment of `count` paths that has the paths `present`: those of `present` that
    /// are up, and others instead of the rest. If paths must be disjoint, and those that are up leave room for fewer
    /// paths than possible, all paths are new. Empty if no path is up.
    pub(super) fn renew(
        &mut self,
        (fabric, links): (&Fabric, &LinkState),
        ends: (NodeId, NodeId),
        search: PathSearch,
        count: usize,
        present: &[Path],
    ) -> Vec<Path> {
        let mut paths: Vec<Path> = present.iter().filter(|path| path.is_up(links)).cloned().collect();
        if paths.len() >= count {
            return paths;
        }
        let fresh = self.find((fabric, links), ends, search, count);
        match search {
            PathSearch::BreadthFirst => {
                let others: Vec<Path> = fresh.iter().filter(|path| !paths.contains(path)).cloned().collect();
                paths.extend(others.into_iter().take(count - paths.len()));
            }
            PathSearch::EdgeDisjoint => {
                let mut left = links.clone();
                for link in paths.iter().flat_map(Path::links) {
                    left.set_cable(*link, false);
                }
                let others = find(fabric, &left, ends, search, count - paths.len());
                let others: Vec<Path> = others.into_iter().filter(|path| !paths.contains(path)).collect();
                paths.extend(others);
                if paths.len() < fresh.len() {
                    return fresh.to_vec();
                }
            }
        }
        paths
    }
}
