//! The shortest loopless paths in ascending order: Yen's algorithm (Management Science, 1971) with Lawler's rule that
//! no path is found twice.

use super::distances::Sweep;
use super::shortest::ShortestPaths;
use crate::{Fabric, LinkId, LinkState, NodeId, Path};
use std::collections::{BTreeMap, BTreeSet};

/// All loopless paths from `from` to `to` over links that are up, by hops and then by links, worked out one by one:
/// `.take(k)` are the k shortest.
pub fn k_shortest<'a>(fabric: &'a Fabric, state: &'a LinkState, from: NodeId, to: NodeId) -> KShortestPaths<'a> {
    let shortest = ShortestPaths::between(fabric, state, from, to);
    KShortestPaths { fabric, state, from, to, shortest, given: 0, detours: None }
}

/// Goes through loopless paths in ascending order; see [`k_shortest`].
#[derive(Clone, Debug)]
pub struct KShortestPaths<'a> {
    fabric: &'a Fabric,
    state: &'a LinkState,
    from: NodeId,
    to: NodeId,
    /// The paths of least hops come from here, which takes one search for all of them.
    shortest: ShortestPaths,
    given: u128,
    /// Where longer paths come from, once they are wanted.
    detours: Option<Detours>,
}

/// The paths given so far make up a tree of prefixes. A path not given yet leaves the tree at one node of it, its
/// branch, by a link that none of the tree's paths takes there. Each branch has its best such path as a candidate.
#[derive(Clone, Debug, Default)]
struct Detours {
    /// Links taken from the end of each prefix.
    branches: BTreeMap<Vec<LinkId>, BTreeSet<LinkId>>,
    /// Hops, links, and how many of these links are the branch's prefix.
    candidates: BTreeSet<(usize, Vec<LinkId>, usize)>,
    sweep: Sweep,
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
    /// Candidates of every branch of the tree of shortest paths.
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

    /// Adds the best path that begins with `prefix` and goes on by a link not taken there yet, if there is one.
    fn add_candidate(&self, detours: &mut Detours, prefix: &[LinkId]) {
        let mut visited = vec![self.from];
        visited.extend(prefix.iter().map(|&link| self.fabric.link(link).to));
        let spur = visited[visited.len() - 1];
        let sweep = &mut detours.sweep;
        sweep.run(self.fabric, self.state, self.to, &visited, u32::MAX, None);
        let taken = &detours.branches[prefix];
        let open = self.fabric.switch_ports(spur).iter();
        let open = open.filter(|port| !taken.contains(&port.link) && self.state.is_up(port.link));
        let Some((_, first)) = open.filter_map(|port| Some((sweep.hops(port.to)?, port.link))).min() else { return };
        let mut links = prefix.to_vec();
        links.push(first);
        let mut node = self.fabric.link(first).to;
        while node != self.to {
            let Some(link) = sweep.nearer(self.fabric, self.state, node).next() else { return };
            links.push(link);
            node = self.fabric.link(link).to;
        }
        detours.candidates.insert((links.len(), links, prefix.len()));
    }
}
