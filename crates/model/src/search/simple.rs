//! All simple paths up to a number of hops, depth first (the topology manager of MPTCP-aware SDN).

use super::distances::ReverseBfs;
use crate::{Fabric, LinkId, LinkState, NodeId, Path};

/// Returns all paths from `from` to `to` over links that are up, with at most `most_hops` hops, that visit no switch
/// twice. The order is depth first by port. Paths are computed one by one. Between two paths there are at most as
/// many breadth-first searches as hops, because a branch without a path is never entered.
pub fn simple_paths<'a>(
    fabric: &'a Fabric,
    state: &'a LinkState,
    from: NodeId,
    to: NodeId,
    most_hops: usize,
) -> SimplePaths<'a> {
    let mut paths = SimplePaths {
        fabric,
        state,
        to,
        most_hops: u32::try_from(most_hops).unwrap_or(u32::MAX),
        visited: vec![from],
        links: Vec::new(),
        choices: Vec::new(),
        bfs: ReverseBfs::default(),
        at_once: from == to,
    };
    if from != to {
        paths.enter();
    }
    paths
}

/// Iterates over simple paths; see [`simple_paths`].
#[derive(Clone, Debug)]
pub struct SimplePaths<'a> {
    fabric: &'a Fabric,
    state: &'a LinkState,
    to: NodeId,
    most_hops: u32,
    /// Switches on the current path, and the links between them.
    visited: Vec<NodeId>,
    links: Vec<LinkId>,
    /// Links that are still to be tried from each of these switches; the next one is last.
    choices: Vec<Vec<LinkId>>,
    bfs: ReverseBfs,
    /// Whether both ends are the same and the empty path is not returned yet.
    at_once: bool,
}

impl SimplePaths<'_> {
    /// Lists the links from the last switch by which the end can be reached within the limit and without a loop.
    fn enter(&mut self) {
        let node = self.visited[self.visited.len() - 1];
        let left = self.most_hops.saturating_sub(self.links.len() as u32);
        let mut choices = Vec::new();
        if left > 0 {
            self.bfs.run(self.fabric, self.state, self.to, &self.visited, left - 1, None);
            let ports = self.fabric.switch_ports(node).iter().rev();
            let fits = ports.filter(|port| self.bfs.hops(port.to).is_some() && self.state.is_up(port.link));
            choices.extend(fits.map(|port| port.link));
        }
        self.choices.push(choices);
    }
}

impl Iterator for SimplePaths<'_> {
    type Item = Path;

    fn next(&mut self) -> Option<Path> {
        if std::mem::replace(&mut self.at_once, false) {
            return Some(Path::empty());
        }
        loop {
            let Some(link) = self.choices.last_mut()?.pop() else {
                self.choices.pop();
                self.visited.pop();
                self.links.pop();
                continue;
            };
            let node = self.fabric.link(link).to;
            if node == self.to {
                let links: Vec<LinkId> = self.links.iter().copied().chain([link]).collect();
                return Some(Path::new(links));
            }
            self.links.push(link);
            self.visited.push(node);
            self.enter();
        }
    }
}
