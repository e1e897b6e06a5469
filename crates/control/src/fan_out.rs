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
        let mut order: Vec<(u32, NodeId)> = Vec::new();
        for (index, &tor) in fabric.tors().iter().enumerate() {
            let distances = distances_to(fabric, links, tor);
            order.clear();
            let reached = |&switch: &NodeId| distances.hops(switch).map(|hops| (hops, switch));
            order.extend(fabric.switches().iter().filter_map(reached));
            order.sort_unstable();
            for &(_, switch) in order.iter().rev() {
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
