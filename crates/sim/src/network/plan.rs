//! Assigns each node of a network to a part, if one run is simulated on several threads.

use crate::link::LinkQueue;
use crate::time::{Ps, NEVER};
use pathloom_model::{Fabric, NodeId};

/// The part that contains all hosts and the agenda.
const HOSTS: u8 = 0;
/// Most parts. Further parts would have little to do.
const MOST_PARTS: usize = 64;
/// Cost of an arrival at a switch, and at a host, where TCP handles it (measured in instructions, rounded).
const AT_SWITCH: usize = 5;
const AT_HOST: usize = 10;

/// The part of every node.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    of: Vec<u8>,
    parts: usize,
}

impl Plan {
    /// Divides a fabric into at most `parts` parts with about the same work, assuming that all links carry the same
    /// load. The result depends only on the fabric and `parts`.
    pub(crate) fn new(fabric: &Fabric, parts: usize) -> Plan {
        let parts = parts.min(1 + fabric.switches().len()).clamp(1, MOST_PARTS);
        let arrivals = |node: &NodeId| fabric.node(*node).ports.len();
        let hosts: usize = fabric.hosts().iter().map(|host| AT_HOST * arrivals(host)).sum();
        let switches = |nodes: &[NodeId]| nodes.iter().map(|node| AT_SWITCH * arrivals(node)).sum::<usize>();
        let (tors, all) = (switches(fabric.tors()), hosts + switches(fabric.switches()));
        let mut of = vec![HOSTS; fabric.nodes().len()];
        // ToRs from the whole fabric are added to the part of the hosts, to give it its share of the work.
        let wanted = (all / parts).saturating_sub(hosts).min(tors);
        let (mut passed, mut taken) = (0, 0);
        let mut with_hosts = vec![parts == 1; fabric.nodes().len()];
        for tor in fabric.tors() {
            let weight = AT_SWITCH * arrivals(tor);
            passed += weight;
            if passed * wanted / tors >= taken + weight {
                taken += weight;
                with_hosts[tor.index()] = true;
            }
        }
        let rest: Vec<NodeId> = fabric.switches().iter().copied().filter(|node| !with_hosts[node.index()]).collect();
        let each = switches(&rest).div_ceil(parts.max(2) - 1).max(1);
        let mut before = 0;
        for node in rest {
            of[node.index()] = 1 + (before / each) as u8;
            before += AT_SWITCH * arrivals(&node);
        }
        Plan { of, parts }
    }

    /// Number of parts.
    pub(crate) fn parts(&self) -> usize {
        self.parts
    }

    /// The part of a node.
    pub(crate) fn of(&self, node: NodeId) -> u8 {
        self.of[node.index()]
    }

    /// Shortest time until a packet that is put on a link between two parts now arrives.
    pub(crate) fn look_ahead(&self, fabric: &Fabric, links: &[LinkQueue]) -> Ps {
        let between = fabric.links().iter().zip(links).filter(|(link, _)| self.of(link.from) != self.of(link.to));
        between.map(|(_, queue)| queue.least_transit()).min().unwrap_or(NEVER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_fabrics::fabric_from_spec;

    /// Arrivals per part, weighted as in the plan.
    fn weights(spec: &str, parts: usize) -> Vec<usize> {
        let fabric = fabric_from_spec(spec).unwrap();
        let plan = Plan::new(&fabric, parts);
        let mut weights = vec![0; plan.parts()];
        for link in fabric.links() {
            weights[usize::from(plan.of(link.to))] += if fabric.is_host(link.to) { AT_HOST } else { AT_SWITCH };
        }
        assert!(fabric.hosts().iter().all(|&host| plan.of(host) == HOSTS), "all hosts are in the first part");
        weights
    }

    #[test]
    fn parts_of_a_fat_tree_weigh_about_the_same() {
        for parts in 1..=3 {
            let weights = weights("fat-tree:k=8", parts);
            let mean = weights.iter().sum::<usize>() / parts;
            assert_eq!(weights.len(), parts);
            assert!(weights.iter().all(|&weight| weight.abs_diff(mean) * 20 <= mean), "{weights:?}");
        }
    }

    #[test]
    fn a_small_fabric_has_no_more_parts_than_it_can_fill() {
        assert_eq!(weights("leaf-spine:spines=1,leaves=1,hosts=2", 9).len(), 3);
    }
}
