//! Two trees for frames that must reach every host while no controller runs.

use pathloom_model::search::ReverseBfs;
use pathloom_model::{Fabric, LinkId, LinkState, NodeId};

/// Returns two sets of cables. Neither has a loop, and no cable is in both. So a switch knows from the port at which a
/// frame arrives in which set the frame travels. In the returned states, only the cables of the set are up; links to
/// hosts stay as in `state`.
///
/// The first set connects all ToRs that `state` connects. The second one connects those that the remaining cables
/// connect: if these are all, no failure of a single cable separates two ToRs. No cable leads only to switches without
/// hosts.
pub(crate) fn broadcast_trees(fabric: &Fabric, state: &LinkState) -> [LinkState; 2] {
    let roots = by_centrality(fabric, state);
    let first = tree(fabric, state, &roots);
    let mut rest = state.clone();
    for cable in fabric.switch_cables().filter(|&cable| first.is_up(cable)) {
        rest.set_cable(cable, false);
    }
    let second = tree(fabric, &rest, &by_centrality(fabric, &rest));
    [first, second]
}

/// The switches, those first that are closest to their farthest ToR.
fn by_centrality(fabric: &Fabric, state: &LinkState) -> Vec<NodeId> {
    // Number of reachable ToRs, hops to the farthest one, and the sum of hops to all.
    let mut places = vec![(0u32, 0u32, 0u64); fabric.nodes().len()];
    let mut bfs = ReverseBfs::default();
    for &tor in fabric.tors() {
        bfs.run(fabric, state, tor, &[], u32::MAX, None);
        for &switch in bfs.reached() {
            let (count, most, sum) = &mut places[switch.index()];
            let hops = bfs.hops(switch).unwrap_or(0);
            (*count, *most, *sum) = (*count + 1, (*most).max(hops), *sum + u64::from(hops));
        }
    }
    let mut order = fabric.switches().to_vec();
    let place = |switch: &NodeId| places[switch.index()];
    order.sort_by_key(|switch| (std::cmp::Reverse(place(switch).0), place(switch).1, place(switch).2, *switch));
    order
}

/// A tree of short paths in every connected part. A ToR gives at most half of its cables to it, so that others are left
/// for another tree, unless there is no other way to a switch.
fn tree(fabric: &Fabric, state: &LinkState, roots: &[NodeId]) -> LinkState {
    let mut tree = state.clone();
    for cable in fabric.switch_cables() {
        tree.set_cable(cable, false);
    }
    let mut grown = Grown { seen: vec![false; fabric.nodes().len()], degrees: vec![0; fabric.nodes().len()], tree };
    for &root in roots {
        if !grown.seen[root.index()] {
            grown.seen[root.index()] = true;
            let mut part = vec![root];
            grown.grow(fabric, state, &mut part, true);
            grown.grow(fabric, state, &mut part, false);
        }
    }
    pruned(fabric, grown.tree)
}

/// A tree that is not complete.
struct Grown {
    tree: LinkState,
    seen: Vec<bool>,
    /// Cables of each switch in the tree.
    degrees: Vec<usize>,
}

impl Grown {
    /// Adds what can be reached from the switches of a part.
    fn grow(&mut self, fabric: &Fabric, state: &LinkState, part: &mut Vec<NodeId>, limited: bool) {
        let most = |switch: NodeId| match fabric.tor_index(switch) {
            Some(_) if limited => (fabric.switch_ports(switch).len() / 2).max(1),
            _ => usize::MAX,
        };
        let mut next = 0;
        while let Some(&node) = part.get(next) {
            next += 1;
            for port in fabric.switch_ports(node).iter().filter(|port| state.is_up(port.link)) {
                if self.seen[port.to.index()] || self.degrees[node.index()] >= most(node) {
                    continue;
                }
                self.seen[port.to.index()] = true;
                self.tree.set_cable(port.link, true);
                self.degrees[node.index()] += 1;
                self.degrees[port.to.index()] += 1;
                part.push(port.to);
            }
        }
    }
}

/// Removes the cables of a tree that lead to no ToR.
fn pruned(fabric: &Fabric, mut tree: LinkState) -> LinkState {
    let cable_of_leaf = |tree: &LinkState, switch: NodeId| -> Option<LinkId> {
        let mut cables = fabric.switch_ports(switch).iter().map(|port| port.link).filter(|&link| tree.is_up(link));
        cables.next().filter(|_| cables.next().is_none() && fabric.tor_index(switch).is_none())
    };
    for &switch in fabric.switches() {
        let mut leaf = switch;
        while let Some(cable) = cable_of_leaf(&tree, leaf) {
            tree.set_cable(cable, false);
            leaf = fabric.link(cable).to;
        }
    }
    tree
}

#[cfg(test)]
#[path = "trees_tests.rs"]
mod tests;
