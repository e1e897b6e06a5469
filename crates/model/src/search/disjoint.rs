//! Paths that have no cable in common.

use super::distances::ReverseBfs;
use crate::{Fabric, LinkId, LinkState, NodeId, Path};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Returns up to `k` paths from `from` to `to`, in ascending order of hops, then of links. No two of them share a
/// cable; both directions of a cable count as one. There are `k` paths, or as many as the minimum cut allows. No
/// other set of as many disjoint paths has fewer hops in total (Suurballe's problem, solved by successive shortest
/// augmenting paths as Bhandari describes). The overall shortest path need not be among them.
pub fn edge_disjoint(fabric: &Fabric, state: &LinkState, from: NodeId, to: NodeId, k: usize) -> Vec<Path> {
    if from == to {
        return if k == 0 { Vec::new() } else { vec![Path::empty()] };
    }
    let mut flow = Flow::new(fabric, state, from, to);
    let mut count = 0;
    while count < k && flow.augment() {
        count += 1;
    }
    let mut paths: Vec<Path> = (0..count).map_while(|_| flow.take_shortest()).collect();
    paths.sort_by(|a, b| (a.hops(), a).cmp(&(b.hops(), b)));
    paths
}

/// A flow of one unit per path. A cable carries at most one unit, in either direction.
struct Flow<'a> {
    fabric: &'a Fabric,
    state: &'a LinkState,
    from: NodeId,
    to: NodeId,
    /// Whether a directed link carries a unit.
    used: Vec<bool>,
    /// A lower bound on the cost from each node to the end, such that no step has a negative reduced cost; `None` for
    /// nodes without a path.
    potential: Vec<Option<i64>>,
}

impl<'a> Flow<'a> {
    fn new(fabric: &'a Fabric, state: &'a LinkState, from: NodeId, to: NodeId) -> Flow<'a> {
        let mut bfs = ReverseBfs::default();
        bfs.run(fabric, state, to, &[], u32::MAX, None);
        let mut potential = vec![None; fabric.nodes().len()];
        for &node in bfs.reached() {
            potential[node.index()] = bfs.hops(node).map(i64::from);
        }
        Flow { fabric, state, from, to, used: vec![false; fabric.links().len()], potential }
    }

    /// Sends one more unit along the path that adds the fewest hops, and takes units back if that helps (Dijkstra's
    /// search over reduced costs). Returns whether such a path exists.
    fn augment(&mut self) -> bool {
        let mut cost: Vec<Option<(i64, LinkId)>> = vec![None; self.fabric.nodes().len()];
        let mut settled: Vec<(NodeId, i64)> = Vec::new();
        let mut done = vec![false; self.fabric.nodes().len()];
        let mut queue = BinaryHeap::from([Reverse((0i64, self.from))]);
        let mut total = None;
        while let Some(Reverse((so_far, node))) = queue.pop() {
            if std::mem::replace(&mut done[node.index()], true) {
                continue;
            }
            if node == self.to {
                total = Some(so_far);
                break;
            }
            settled.push((node, so_far));
            let Some(here) = self.potential[node.index()] else { continue };
            for port in self.fabric.switch_ports(node) {
                let Some(there) = self.potential[port.to.index()] else { continue };
                if self.used[port.link.index()] || done[port.to.index()] || !self.state.is_up(port.link) {
                    continue;
                }
                let hop = if self.used[port.link.reverse().index()] { -1 } else { 1 };
                let reached = so_far + hop - here + there;
                if cost[port.to.index()].is_none_or(|(known, _)| reached < known) {
                    cost[port.to.index()] = Some((reached, port.link));
                    queue.push(Reverse((reached, port.to)));
                }
            }
        }
        let Some(total) = total else { return false };
        for (node, so_far) in settled {
            self.potential[node.index()] = self.potential[node.index()].map(|bound| bound + total - so_far);
        }
        let mut node = self.to;
        while node != self.from {
            let Some((_, link)) = cost[node.index()] else { return false };
            if !std::mem::replace(&mut self.used[link.reverse().index()], false) {
                self.used[link.index()] = true;
            }
            node = self.fabric.link(link).from;
        }
        true
    }

    /// Removes the shortest path from the flow, and returns it. A flow of least cost has no cycle, so the rest
    /// consists of paths too.
    fn take_shortest(&mut self) -> Option<Path> {
        let mut towards: Vec<Option<LinkId>> = vec![None; self.fabric.nodes().len()];
        let mut queue = vec![self.to];
        let mut next = 0;
        while towards[self.from.index()].is_none() {
            let node = *queue.get(next)?;
            next += 1;
            for port in self.fabric.switch_ports(node) {
                let back = port.link.reverse();
                if self.used[back.index()] && port.to != self.to && towards[port.to.index()].is_none() {
                    towards[port.to.index()] = Some(back);
                    queue.push(port.to);
                }
            }
        }
        let mut links = Vec::new();
        let mut node = self.from;
        while node != self.to {
            let link = towards[node.index()]?;
            self.used[link.index()] = false;
            links.push(link);
            node = self.fabric.link(link).to;
        }
        Some(Path::new(links))
    }
}
