//! The shortest loopless paths in ascending order: Yen's algorithm (Management Science, 1971). By Lawler's rule, no
//! path is found twice.

use super::distances::ReverseBfs;
use super::shortest::ShortestPaths;
use crate::{Fabric, LinkId, LinkState, NodeId, Path};
use std::collections::{BTreeMap, BTreeSet};

/// Returns an iterator over all loopless paths from `from` to `to` over links that are up, by hops and then by links.
/// Paths are computed one by one; `.take(k)` yields the k shortest.
pub fn k_shortest<'a>(fabric: &'a Fabric, state: &'a LinkState, from: NodeId, to: NodeId) -> KShortestPaths<'a> {
    let shortest = ShortestPaths::between(fabric, state, from, to);
    KShortestPaths { fabric, state, from, to, shortest, given: 0, detours: None }
}

/// Iterates over loopless paths in ascending order; see [`k_shortest`].
#[derive(Clone, Debug)]
pub struct KShortestPaths<'a> {
    fabric: &'a Fabric,
    state: &'a LinkState,
    from: NodeId,
    to: NodeId,
    /// The source of the paths with the fewest hops. One search finds all of them.
    shortest: ShortestPaths,
    given: u128,
    /// The source of longer paths, created when they are needed.
    detours: Option<Detours>,
}

/// The paths returned so far form a tree of prefixes. Each other path leaves the tree at one node, its branch, by a
/// link that no path of the tree takes there. The best such path of each branch is a candidate.
#[derive(Clone, Debug, Default)]
struct Detours {
    /// Links that are taken at the end of each prefix.
    branches: BTreeMap<Vec<LinkId>, BTreeSet<LinkId>>,
    /// Candidates: number of hops, links, and the number of these links that belong to the prefix of the branch.
    candidates: BTreeSet<(usize, Vec<LinkId>, usize)>,
    bfs: ReverseBfs,
}

impl Iterator for KShortestPaths<'_> {
    type Item = Path;

    fn next(&mut self) -> Option<Path> {
        if let Some(path) = self.shortest.nth(self.given) {
            self.given += 1;
            return Some(path);
        }
        if self.from == self.to {
            return None;
        }
        let mut detours = match self.detours.take() {
            Some(detours) => detours,
            None => self.first_detours(),
        };
        let next = detours.candidates.pop_first();
        if let Some((_, links, branch)) = &next {
            for end in *branch..links.len() {
                detours.branches.entry(links[..end].to_vec()).or_default().insert(links[end]);
                self.add_candidate(&mut detours, &links[..end]);
            }
        }
        self.detours = Some(detours);
        next.map(|(_, links, _)| Path::new(links))
    }
}

impl KShortestPaths<'_> {
    /// Returns the candidates of every branch of the tree of shortest paths.
    fn first_detours(&self) -> Detours {
        let mut detours = Detours::default();
        for path in &self.shortest {
            let links = path.links();
            for end in 0..links.len() {
                detours.branches.entry(links[..end].to_vec()).or_default().insert(links[end]);
            }
        }
        let prefixes: Vec<Vec<LinkId>> = detours.branches.keys().cloned().collect();
        for prefix in prefixes {
            self.add_candidate(&mut detours, &prefix);
        }
        detours
    }

    /// Adds the best path that begins with `prefix` and continues by a link that is not taken there yet, if there is
    /// one.
    fn add_candidate(&self, detours: &mut Detours, prefix: &[LinkId]) {
        let mut visited = vec![self.from];
        visited.extend(prefix.iter().map(|&link| self.fabric.link(link).to));
        let spur = visited[visited.len() - 1];
        let bfs = &mut detours.bfs;
        bfs.run(self.fabric, self.state, self.to, &visited, u32::MAX, None);
        let taken = &detours.branches[prefix];
        let open = self.fabric.switch_ports(spur).iter();
        let open = open.filter(|port| !taken.contains(&port.link) && self.state.is_up(port.link));
        let Some((_, first)) = open.filter_map(|port| Some((bfs.hops(port.to)?, port.link))).min() else { return };
        let mut links = prefix.to_vec();
        links.push(first);
        let mut node = self.fabric.link(first).to;
        while node != self.to {
            let Some(link) = bfs.nearer(self.fabric, self.state, node).next() else { return };
            links.push(link);
            node = self.fabric.link(link).to;
        }
        detours.candidates.insert((links.len(), links, prefix.len()));
    }
}
