//! One tree that carries all traffic.

use super::distances::ReverseBfs;
use crate::{Fabric, LinkState, NodeId};

/// Returns a copy of `state` in which only the switch links of a spanning tree stay up, as bridges build it (IEEE
/// 802.1D-2004, clause 17): shortest paths from a root to every switch. If some switches cannot reach each other,
/// every connected part has its own tree.
///
/// The root is the switch with the fewest hops to the farthest ToR, then the fewest hops to all ToRs together, then
/// the lowest number. An operator of bridges would place the root there. Ties between paths go to the switch that is
/// found first.
pub fn spanning_tree(fabric: &Fabric, state: &LinkState) -> LinkState {
    let mut tree = state.clone();
    for link in fabric.switch_cables() {
        tree.set_cable(link, false);
    }
    let mut seen = vec![false; fabric.nodes().len()];
    for root in by_centrality(fabric, state) {
        if std::mem::replace(&mut seen[root.index()], true) {
            continue;
        }
        let mut queue = vec![root];
        let mut next = 0;
        while let Some(&node) = queue.get(next) {
            next += 1;
            for port in fabric.switch_ports(node) {
                if state.is_up(port.link) && !std::mem::replace(&mut seen[port.to.index()], true) {
                    tree.set_cable(port.link, true);
                    queue.push(port.to);
                }
            }
        }
    }
    tree
}

/// Returns the switches, the best root first.
fn by_centrality(fabric: &Fabric, state: &LinkState) -> Vec<NodeId> {
    // Hops to the farthest reachable ToR, and the sum of hops to all reachable ToRs.
    let mut hops = vec![(0u32, 0u64); fabric.nodes().len()];
    let mut bfs = ReverseBfs::default();
    for &tor in fabric.tors() {
        bfs.run(fabric, state, tor, &[], u32::MAX, None);
        for &switch in bfs.reached() {
            let (most, sum) = &mut hops[switch.index()];
            let away = bfs.hops(switch).unwrap_or(0);
            (*most, *sum) = ((*most).max(away), *sum + u64::from(away));
        }
    }
    let mut order = fabric.switches().to_vec();
    order.sort_by_key(|switch| (hops[switch.index()], *switch));
    order
}
