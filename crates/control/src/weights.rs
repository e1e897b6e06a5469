//! Weights of next hops by the capacity behind them (WCMP: Zhou et al. 2014, EuroSys, §3).
//!
//! The capacity of a switch for a destination is the sum over its next hops of what each can take: at most the rate of the
//! link to it, and at most its own capacity. Other switches send to a next hop as well, so only the ratios between the
//! capacities of next hops count for their weights. A weight is the lower one of two ratios: of the link's rate to the highest
//! rate among the next hops, and of the next hop's capacity to the largest one among them.

use crate::fan_out::nearest_first;
use pathloom_model::search::RouteTable;
use pathloom_model::{Fabric, LinkId, LinkState, NodeId};
use rustc_hash::FxHashMap;

/// Largest weight of a next hop. Many ratios of rates are exact with it: tenths, quarters, thirds. A next hop with a smaller
/// part of the capacity of the largest one has the weight 1.
pub(crate) const MOST_WEIGHT: u16 = 60;

/// A next hop: the rate of the link to it, and its own capacity, in bit/s.
struct Hop {
    rate: f64,
    capacity: f64,
}

/// Weights of the next hops of every switch to every ToR, in the order of the next hops.
pub(crate) struct Weights {
    /// Only those that differ among the next hops of a switch.
    unequal: FxHashMap<(NodeId, usize), Vec<u16>>,
}

impl Weights {
    /// Computes the weights for the shortest paths of `routes`, which were computed for `links`.
    pub(crate) fn new(fabric: &Fabric, links: &LinkState, routes: &RouteTable) -> Weights {
        let mut unequal = FxHashMap::default();
        // By node.
        let mut capacity = vec![0.0; fabric.nodes().len()];
        for (index, &tor) in fabric.tors().iter().enumerate() {
            capacity[tor.index()] = f64::MAX;
            for switch in nearest_first(fabric, links, tor).into_iter().filter(|&switch| switch != tor) {
                let hop = |&link: &LinkId| {
                    let link = fabric.link(link);
                    Hop { rate: link.settings.rate_bps as f64, capacity: capacity[link.to.index()] }
                };
                let hops: Vec<Hop> = routes.next_hops(switch, index).iter().map(hop).collect();
                capacity[switch.index()] = hops.iter().map(|hop| hop.rate.min(hop.capacity)).sum();
                unequal.extend(unequal_weights(&hops).map(|weights| ((switch, index), weights)));
            }
        }
        Weights { unequal }
    }

    /// Weights of the next hops of `switch` to ToR number `tor`; `None` if they are equal.
    pub(crate) fn of(&self, switch: NodeId, tor: usize) -> Option<&[u16]> {
        self.unequal.get(&(switch, tor)).map(Vec::as_slice)
    }
}

/// Small weights of next hops; `None` if they are equal.
fn unequal_weights(hops: &[Hop]) -> Option<Vec<u16>> {
    let most = |of: fn(&Hop) -> f64| hops.iter().map(of).fold(0.0, f64::max);
    let (rate, capacity) = (most(|hop| hop.rate), most(|hop| hop.capacity));
    let weight = |hop: &Hop| {
        let part = (hop.rate / rate).min(hop.capacity / capacity);
        (part * f64::from(MOST_WEIGHT)).round().max(1.0) as u16
    };
    let weights: Vec<u16> = hops.iter().map(weight).collect();
    if weights.windows(2).all(|pair| pair[0] == pair[1]) {
        return None;
    }
    let divisor = weights.iter().copied().fold(0, common_divisor);
    Some(weights.iter().map(|weight| weight / divisor).collect())
}

/// Greatest common divisor.
fn common_divisor(one: u16, other: u16) -> u16 {
    if other == 0 {
        one
    } else {
        common_divisor(other, one % other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_fabrics::fabric_from_spec;

    /// Weights of a switch for a ToR, by their names.
    fn weights(fabric: &str, failed: &[&str], (switch, tor): (&str, &str)) -> Option<Vec<u16>> {
        let fabric = fabric_from_spec(fabric).unwrap();
        let mut state = LinkState::of(&fabric);
        for link in fabric.links() {
            let ends = [link.from, link.to].map(|node| fabric.node(node).name.as_str());
            if failed.contains(&format!("{}-{}", ends[0], ends[1]).as_str()) {
                state.set_cable(fabric.out_link(link.from, link.from_port).unwrap(), false);
            }
        }
        let routes = RouteTable::new(&fabric, &state);
        let node = |name: &str| fabric.switches().iter().copied().find(|&at| fabric.node(at).name == name).unwrap();
        let tor = fabric.tor_index(node(tor)).unwrap();
        Weights::new(&fabric, &state, &routes).of(node(switch), tor).map(<[u16]>::to_vec)
    }

    #[test]
    fn weights_follow_the_capacity_behind_each_next_hop() {
        let tree = "fat-tree:k=4,rate=1Gbps";
        assert_eq!(weights(tree, &[], ("e0_0", "e2_0")), None);
        let slow = "fat-tree:k=4,rate=1Gbps,degrade=a0_0-c0:100Mbps";
        assert_eq!(weights(slow, &[], ("a0_0", "e2_0")), Some(vec![1, 10]), "the slow link");
        assert_eq!(weights(slow, &[], ("e2_0", "e0_0")), Some(vec![11, 20]), "a slow link two hops further");
        assert_eq!(weights(slow, &[], ("e2_0", "e3_0")), None, "no slow link");
        assert_eq!(weights(tree, &["a0_0-c0"], ("e2_0", "e0_0")), Some(vec![1, 2]), "half of the paths have failed");
        let both = "fat-tree:k=4,rate=1Gbps,degrade=a0_0-c0:100Mbps/a0_0-c1:100Mbps";
        assert_eq!(weights(both, &[], ("e2_0", "e0_0")), Some(vec![1, 10]), "all links behind the next hop");
        assert_eq!(weights(both, &[], ("a0_0", "e2_0")), None, "equally slow");
        let spine = "leaf-spine:spines=3,leaves=2,hosts=1,rate=1Gbps,degrade=e0-c1:100Mbps/e1-c1:100Mbps";
        assert_eq!(weights(spine, &[], ("e0", "e1")), Some(vec![10, 1, 10]), "slow links are not counted twice");
        let tiny = "fat-tree:k=4,rate=1Gbps,degrade=a0_0-c0:1Mbps";
        assert_eq!(weights(tiny, &[], ("a0_0", "e2_0")), Some(vec![1, 60]), "no next hop is left out");
    }
}
