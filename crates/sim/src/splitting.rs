//! Transfers in parts, each on a path of its own: the fewest parts with which all paths carry the same (Addanki et al., Ethereal:
//! Divide and Conquer Network Load Balancing in Large-Scale Distributed Training, 2024).
//!
//! A host knows the transfers that it begins at the same time, as those of a step of a collective, and the number of paths of each. Of
//! *n* equal transfers over *k* paths, as many as fill the paths evenly stay whole. Each of the remaining *r* is divided into
//! *k* / gcd(*r*, *k*) parts. All take the paths in turn, each host from another one on.

use pathloom_model::search::distances_to;
use pathloom_model::{Fabric, LinkState, NodeId};
use pathloom_workload::{FlowSpec, Start, Workload};
use std::collections::BTreeMap;

/// How a transfer is divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Split {
    /// Number of parts, at least 1.
    pub(crate) parts: u32,
    /// Number of the path of the first part; the others take the next ones.
    first: u32,
    /// Number of paths. With one, nothing is chosen.
    paths: u32,
}

impl Split {
    /// A transfer that is not divided, and takes any path.
    pub(crate) const WHOLE: Split = Split { parts: 1, first: 0, paths: 1 };

    /// The entropy of a part: the number of its path plus one, or 0 if there is only one path.
    pub(crate) fn entropy(&self, part: u32) -> u32 {
        if self.paths > 1 {
            (self.first + part) % self.paths + 1
        } else {
            0
        }
    }
}

/// What transfers have in common that a host divides together: the host, the number of paths, the size, and the start.
type Group = (NodeId, u32, Option<u64>, (u32, u64));

/// How the transfers of a workload are divided, in their order.
pub(crate) fn splits_of(fabric: &Fabric, workload: &Workload) -> Vec<Split> {
    let mut paths = Paths::new(fabric);
    let mut groups: BTreeMap<Group, Vec<usize>> = BTreeMap::new();
    for (index, flow) in workload.flows.iter().enumerate() {
        let start = match &flow.start {
            Start::At(at) => (0, at.0),
            Start::After { flows, delay } => (1 + flows.first().copied().unwrap_or(0), delay.0),
        };
        groups.entry((flow.src, paths.of(flow), flow.size_bytes, start)).or_default().push(index);
    }
    let mut splits = vec![Split::WHOLE; workload.flows.len()];
    for ((src, paths, _, _), flows) in groups {
        let number = fabric.hosts().binary_search(&src).unwrap_or(0) as u32;
        for (place, split) in divide(flows.len() as u32, paths, number).into_iter().enumerate() {
            splits[flows[place]] = split;
        }
    }
    splits
}

/// Divides this many equal transfers over this many paths, from the path with this number on.
fn divide(transfers: u32, paths: u32, from: u32) -> Vec<Split> {
    let (paths, rest) = (paths.max(1), transfers % paths.max(1));
    let whole = transfers - rest;
    let parts = paths / gcd(rest, paths);
    let split = |place: u32| {
        let (parts, before) = match place.checked_sub(whole) {
            None => (1, place),
            Some(divided) => (parts, whole + divided * parts),
        };
        Split { parts, first: (from % paths + before % paths) % paths, paths }
    };
    (0..transfers).map(split).collect()
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 {
        a.max(1)
    } else {
        gcd(b, a % b)
    }
}

/// Numbers of shortest paths between ToRs, in a fabric in which all of them branch alike.
struct Paths<'a> {
    fabric: &'a Fabric,
    state: LinkState,
    known: BTreeMap<(NodeId, NodeId), u32>,
}

impl<'a> Paths<'a> {
    fn new(fabric: &'a Fabric) -> Paths<'a> {
        Paths { fabric, state: LinkState::of(fabric), known: BTreeMap::new() }
    }

    /// The number of paths of a flow, by the first interfaces of its hosts.
    fn of(&mut self, flow: &FlowSpec) -> u32 {
        let tor = |host| self.fabric.host_attachments(host).first().map(|attachment| attachment.tor);
        let (Some(from), Some(to)) = (tor(flow.src), tor(flow.dst)) else { return 1 };
        let Paths { fabric, state, known } = self;
        *known.entry((from, to)).or_insert_with(|| count(fabric, state, from, to))
    }
}

/// The product of the numbers of next hops along one of the shortest paths.
fn count(fabric: &Fabric, state: &LinkState, from: NodeId, to: NodeId) -> u32 {
    let distances = distances_to(fabric, state, to);
    let (mut at, mut product) = (from, 1u32);
    while at != to {
        let Some(left) = distances.hops(at) else { return 1 };
        let closer = |node: &NodeId| distances.hops(*node).is_some_and(|hops| hops < left);
        let ports = fabric.node(at).ports.iter().filter(|&&link| fabric.is_switch_link(link) && state.is_up(link));
        let next: Vec<NodeId> = ports.map(|&link| fabric.link(link).to).filter(closer).collect();
        let Some(&first) = next.first() else { return 1 };
        product = product.saturating_mul(next.len() as u32);
        at = first;
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_fabrics::fabric_from_spec;

    #[test]
    fn every_path_carries_the_same_with_the_fewest_parts() {
        for (transfers, paths, parts) in [(1, 4, 4), (4, 4, 1), (6, 4, 2), (7, 4, 4), (15, 4, 4), (3, 1, 1), (2, 3, 3)]
        {
            let splits = divide(transfers, paths, 5);
            assert_eq!(splits.len() as u32, transfers);
            assert_eq!(splits.iter().map(|split| split.parts).max(), Some(parts), "{transfers} over {paths}");
            let mut loads = vec![0.0; paths as usize];
            for split in &splits {
                for part in 0..split.parts {
                    let path = split.entropy(part).saturating_sub(1);
                    loads[path as usize] += 1.0 / f64::from(split.parts);
                }
            }
            let mean = f64::from(transfers) / f64::from(paths);
            assert!(loads.iter().all(|load| (load - mean).abs() < 1e-9), "{transfers} over {paths}: {loads:?}");
        }
        assert_eq!(divide(1, 4, 5)[0].entropy(0), 2, "the host begins with its own path");
    }

    #[test]
    fn paths_are_counted_between_the_switches_of_hosts() {
        for (spec, other, expected) in [
            ("fat-tree:k=4", 1, 1),
            ("fat-tree:k=4", 2, 2),
            ("fat-tree:k=4", 15, 4),
            ("fat-tree:k=8", 127, 16),
            ("leaf-spine:spines=3,leaves=2,hosts=2", 3, 3),
        ] {
            let fabric = fabric_from_spec(spec).unwrap();
            let tor = |host: usize| fabric.host_attachments(fabric.hosts()[host])[0].tor;
            assert_eq!(count(&fabric, &LinkState::of(&fabric), tor(0), tor(other)), expected, "{spec} {other}");
        }
    }
}
