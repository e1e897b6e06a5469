//! Number of ways over which earlier switches have already spread the packets to a ToR when they reach a switch. With
//! per-host routes, the switch spreads them further and does not repeat an earlier choice.

use pathloom_model::search::{distances_to, RouteTable};
use pathloom_model::{Fabric, LinkState, NodeId};

/// Number of ways that packets may have used before, for every switch and ToR.
pub(crate) struct FanOut {
    tors: usize,
    /// By node, then ToR.
    ways: Vec<u32>,
}

impl FanOut {
    /// Computes the numbers for the shortest paths of `routes`, which were computed for `links`.
    pub(crate) fn new(fabric: &Fabric, links: &LinkState, routes: &RouteTable) -> FanOut {
        let tors = fabric.tors().len();
        let mut fan_out = FanOut { tors, ways: vec![1; tors * fabric.nodes().len()] };
        for (index, &tor) in fabric.tors().iter().enumerate() {
            for switch in nearest_first(fabric, links, tor).into_iter().rev() {
                let hops = routes.next_hops(switch, index);
                let ways = fan_out.at(switch, index).saturating_mul(hops.len() as u32);
                for &link in hops {
                    let next = &mut fan_out.ways[fabric.link(link).to.index() * tors + index];
                    *next = ways.max(*next);
                }
            }
        }
        fan_out
    }

    /// Returns the number of ways for packets at `switch` to ToR number `tor`.
    pub(crate) fn at(&self, switch: NodeId, tor: usize) -> u32 {
        self.ways[switch.index() * self.tors + tor]
    }
}

/// Returns the switches that can reach a ToR, in order of their distance to it: the ToR itself is the first one.
pub(crate) fn nearest_first(fabric: &Fabric, links: &LinkState, tor: NodeId) -> Vec<NodeId> {
    let distances = distances_to(fabric, links, tor);
    let reached = |&switch: &NodeId| distances.hops(switch).map(|hops| (hops, switch));
    let mut order: Vec<(u32, NodeId)> = fabric.switches().iter().filter_map(reached).collect();
    order.sort_unstable();
    order.into_iter().map(|(_, switch)| switch).collect()
}
