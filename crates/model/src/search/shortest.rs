//! All shortest paths between two ToRs, counted and selected without listing them.

use super::distances::ReverseBfs;
use crate::{Fabric, LinkId, LinkState, NodeId, Path};

/// A link of the graph of shortest paths, and the index of the node that it leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Step {
    link: LinkId,
    node: u32,
}

/// A node of the graph of shortest paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct DagNode {
    /// Index of the first step of the node. Its last step is before the first step of the next node.
    first: u32,
    /// Number of paths from here to the end.
    count: u128,
}

/// The shortest paths from one ToR to another, as the graph that they form. Path number `i` is the `i`-th in
/// ascending order of links.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShortestPaths {
    hops: Option<usize>,
    /// Nodes from the first ToR to the last, by distance.
    nodes: Vec<DagNode>,
    steps: Vec<Step>,
}

impl ShortestPaths {
    /// Finds the shortest paths from switch `from` to switch `to` over links that are up. From a ToR to itself there
    /// is one path, the empty one.
    pub fn between(fabric: &Fabric, state: &LinkState, from: NodeId, to: NodeId) -> ShortestPaths {
        let mut bfs = ReverseBfs::default();
        bfs.run(fabric, state, to, &[], u32::MAX, Some(from));
        ShortestPaths::of_bfs(fabric, state, &bfs, from)
    }

    pub(super) fn of_bfs(fabric: &Fabric, state: &LinkState, bfs: &ReverseBfs, from: NodeId) -> ShortestPaths {
        let Some(hops) = bfs.hops(from) else {
            return ShortestPaths { hops: None, nodes: Vec::new(), steps: Vec::new() };
        };
        let mut order = vec![from];
        let mut place = vec![u32::MAX; fabric.nodes().len()];
        let (mut nodes, mut steps) = (Vec::new(), Vec::new());
        let mut next = 0;
        while let Some(&node) = order.get(next) {
            next += 1;
            nodes.push(DagNode { first: steps.len() as u32, count: 0 });
            for link in bfs.nearer(fabric, state, node) {
                let to = fabric.link(link).to;
                if place[to.index()] == u32::MAX {
                    place[to.index()] = order.len() as u32;
                    order.push(to);
                }
                steps.push(Step { link, node: place[to.index()] });
            }
        }
        let mut paths = ShortestPaths { hops: Some(hops as usize), nodes, steps };
        paths.count_up();
        paths
    }

    /// Counts the paths from the last node backwards: every step leads to a later node.
    fn count_up(&mut self) {
        let last = self.nodes.len() - 1;
        self.nodes[last].count = 1;
        for node in (0..last).rev() {
            let count = |step: &Step| self.nodes[step.node as usize].count;
            self.nodes[node].count = self.steps_of(node).iter().map(count).fold(0, u128::saturating_add);
        }
    }

    fn steps_of(&self, node: usize) -> &[Step] {
        let end = self.nodes.get(node + 1).map_or(self.steps.len(), |next| next.first as usize);
        &self.steps[self.nodes[node].first as usize..end]
    }

    /// Returns the hops of each path; `None` if there is no path.
    pub fn hops(&self) -> Option<usize> {
        self.hops
    }

    /// Returns the number of paths; `u128::MAX` means that many or more.
    pub fn count(&self) -> u128 {
        self.nodes.first().map_or(0, |node| node.count)
    }

    /// Whether there is no path.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns path number `index`, counted from 0.
    pub fn nth(&self, index: u128) -> Option<Path> {
        if index >= self.count() {
            return None;
        }
        let mut left = index;
        let mut links = Vec::with_capacity(self.hops?);
        let mut node = 0;
        while links.len() < self.hops? {
            let step = self.steps_of(node).iter().find(|step| {
                let count = self.nodes[step.node as usize].count;
                let here = left < count;
                left -= if here { 0 } else { count };
                here
            })?;
            links.push(step.link);
            node = step.node as usize;
        }
        Some(Path::new(links))
    }

    /// Iterates over all paths in order, computed one by one.
    pub fn iter(&self) -> ShortestIter<'_> {
        ShortestIter { paths: self, next: 0 }
    }
}

impl<'a> IntoIterator for &'a ShortestPaths {
    type Item = Path;
    type IntoIter = ShortestIter<'a>;

    fn into_iter(self) -> ShortestIter<'a> {
        self.iter()
    }
}

/// Iterates over [`ShortestPaths`].
#[derive(Clone, Debug)]
pub struct ShortestIter<'a> {
    paths: &'a ShortestPaths,
    next: u128,
}

impl Iterator for ShortestIter<'_> {
    type Item = Path;

    fn next(&mut self) -> Option<Path> {
        let path = self.paths.nth(self.next)?;
        self.next += 1;
        Some(path)
    }

    fn nth(&mut self, skip: usize) -> Option<Path> {
        self.next = self.next.saturating_add(skip as u128);
        self.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.paths.count().saturating_sub(self.next));
        (left.unwrap_or(usize::MAX), left.ok())
    }
}
