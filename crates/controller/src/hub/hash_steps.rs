//! Which part of a packet's hash decides at a switch.
//!
//! Every Open vSwitch selects the bucket of a group by the same hash of a packet: the remainder of its division by the
//! number of buckets, if that is a power of two. So all packets that a ToR sends to the same aggregation switch would
//! take the same bucket there, and half of the core of a k=4 FatTree, or three quarters at k=8, would be idle. Here the
//! groups of the switches above ToRs get each bucket several times in a row, so that the quotient decides instead. With
//! four links, for example, ToRs use the lowest two bits, and the switches above them the next two.
//!
//! The steps depend only on the tier of a switch, so they help where a path goes up through tiers. In fabrics whose
//! switches all have hosts, such as Jellyfish, groups stay as they are.

use pathloom_model::rules::{Bucket, Group, GroupKind};
use pathloom_model::{Fabric, NodeId};
use pathloom_openflow::Description;

/// Open vSwitch evaluates so many values of its hash. Groups with more buckets use another hash.
const HASH_VALUES: usize = 64;

/// The steps of all switches, by node.
#[derive(Clone, Debug, Default)]
pub(crate) struct HashSteps(Vec<HashStep>);

/// How many values of the hash in a row select the same bucket at a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HashStep(u16);

impl Default for HashStep {
    fn default() -> HashStep {
        HashStep(1)
    }
}

impl HashSteps {
    pub(crate) fn new(fabric: &Fabric) -> HashSteps {
        let tiers = tiers(fabric);
        let above = |node: NodeId| {
            let ports = fabric.switch_ports(node).iter();
            ports.filter(|port| tiers[port.to.index()] > tiers[node.index()]).count()
        };
        // The most links that lead from a switch of each tier to the next one.
        let mut most_links = Vec::new();
        for &switch in fabric.switches() {
            let tier = tiers[switch.index()];
            if tier < fabric.nodes().len() {
                most_links.resize(most_links.len().max(tier + 1), 1);
                most_links[tier] = above(switch).max(most_links[tier]);
            }
        }
        let step = |&tier: &usize| {
            let below = most_links.iter().take(tier).map(|links| links.next_power_of_two());
            HashStep(below.fold(1, |step, links| (step * links).min(HASH_VALUES)) as u16)
        };
        HashSteps(tiers.iter().map(step).collect())
    }

    /// Returns the step of a switch that describes itself so.
    pub(crate) fn of(&self, node: NodeId, about: &Description) -> HashStep {
        let is_known = about.hardware == "Open vSwitch";
        self.0.get(node.index()).copied().filter(|_| is_known).unwrap_or_default()
    }
}

/// Returns the number of links between each switch and the nearest ToR, by node.
fn tiers(fabric: &Fabric) -> Vec<usize> {
    let mut tiers = vec![usize::MAX; fabric.nodes().len()];
    let mut next: Vec<NodeId> = fabric.tors().to_vec();
    for tier in 0.. {
        next.retain(|node| {
            let known = &mut tiers[node.index()];
            let is_new = *known == usize::MAX;
            *known = tier.min(*known);
            is_new
        });
        if next.is_empty() {
            break;
        }
        next = next.iter().flat_map(|&node| fabric.switch_ports(node)).map(|port| port.to).collect();
    }
    tiers
}

impl HashStep {
    /// Returns a group as the switch gets it.
    pub(crate) fn to_switch(self, group: &Group) -> Group {
        let links = group.buckets.len();
        let step = usize::from(self.0).min(HASH_VALUES.checked_div(links.next_power_of_two()).unwrap_or(0));
        let is_even = group.kind == GroupKind::Select && group.buckets.iter().all(|bucket| bucket.weight == 1);
        if !is_even || links < 2 || step < 2 {
            return group.clone();
        }
        // With other numbers than powers of two, the shares of the links are as equal as the values of the hash permit.
        let values = if links.is_power_of_two() { links * step } else { HASH_VALUES };
        let bucket = |value: usize| group.buckets[value / step % links].clone();
        Group { buckets: (0..values).map(bucket).collect(), ..*group }
    }

    /// Returns the group of the controller for a group of a switch. A group that selects by another part of the hash,
    /// such as one of an earlier version, has no buckets, so that the controller replaces it.
    pub(crate) fn to_fabric(self, group: Group) -> Group {
        let mut different: Vec<Bucket> = Vec::new();
        for bucket in &group.buckets {
            if !different.contains(bucket) {
                different.push(bucket.clone());
            }
        }
        let read = Group { buckets: different, ..group };
        if self.to_switch(&read).buckets == group.buckets {
            return read;
        }
        Group { buckets: Vec::new(), ..group }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_fabrics::fabric_from_spec;
    use pathloom_model::rules::{GroupId, RuleAction};
    use pathloom_model::PortNo;
    use std::collections::BTreeSet;

    fn group(links: u32) -> Group {
        let bucket = |port: u32| {
            let port = PortNo(port);
            Bucket { weight: 1, watch_port: Some(port), actions: vec![RuleAction::Output(port)] }
        };
        Group { id: GroupId(0x5000_0000), kind: GroupKind::Select, buckets: (1..=links).map(bucket).collect() }
    }

    fn steps(spec: &str) -> (Fabric, HashSteps) {
        let fabric = fabric_from_spec(spec).unwrap();
        let steps = HashSteps::new(&fabric);
        (fabric, steps)
    }

    /// Which of its links a switch takes for a value of the hash: Open vSwitch deals values to buckets in turn.
    fn taken(group: &Group, value: usize) -> PortNo {
        group.buckets[value % group.buckets.len()].watch_port.unwrap()
    }

    #[test]
    fn packets_to_one_aggregation_switch_take_all_its_links() {
        for (k, half) in [(4, 2), (8, 4), (16, 8)] {
            let (fabric, steps) = steps(&format!("fat-tree:k={k}"));
            let about = Description { hardware: "Open vSwitch".into(), ..Description::default() };
            let step = |name: &str| steps.of(fabric.find(name).unwrap(), &about);
            assert_eq!((step("e0_0"), step("a0_0")), (HashStep(1), HashStep(half as u16)), "k={k}");
            let (below, above) = (step("e0_0").to_switch(&group(half)), step("a0_0").to_switch(&group(half)));
            assert_eq!(below, group(half));
            let pairs: BTreeSet<_> = (0..64).map(|value| (taken(&below, value), taken(&above, value))).collect();
            assert_eq!(pairs.len(), (half * half) as usize, "k={k}");
        }
    }

    #[test]
    fn other_switches_and_flat_fabrics_keep_their_groups() {
        let (fabric, steps) = steps("fat-tree:k=4");
        let other = Description { hardware: "a chip".into(), ..Description::default() };
        assert_eq!(steps.of(fabric.find("a0_0").unwrap(), &other), HashStep(1));
        let (flat, steps) = self::steps("jellyfish:switches=20,ports=8,hosts=40,homes=1,seed=1");
        let about = Description { hardware: "Open vSwitch".into(), ..Description::default() };
        assert!(flat.switches().iter().all(|&switch| steps.of(switch, &about) == HashStep(1)));
    }

    #[test]
    fn every_link_is_used_whatever_their_number() {
        for links in 2..=40 {
            for step in [1, 2, 4, 8, 16, 64] {
                let sent = HashStep(step).to_switch(&group(links));
                let used: BTreeSet<_> = sent.buckets.iter().map(|bucket| bucket.watch_port).collect();
                assert_eq!(used.len(), links as usize, "{links} links, step {step}");
                assert!(sent.buckets.len() <= HASH_VALUES);
                assert_eq!(HashStep(step).to_fabric(sent), group(links));
            }
        }
    }

    #[test]
    fn a_group_of_an_earlier_version_is_replaced() {
        assert_eq!(HashStep(2).to_fabric(group(2)).buckets, []);
        assert_eq!(HashStep(2).to_fabric(group(1)), group(1), "it has no choice");
        let mut weighted = group(2);
        weighted.buckets[0].weight = 3;
        assert_eq!(HashStep(2).to_switch(&weighted), weighted);
        assert_eq!(HashStep(2).to_fabric(weighted.clone()), weighted);
    }
}
