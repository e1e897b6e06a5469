//! Recognises FatTrees by their structure: pods of ToRs and aggregation switches, and planes of cores above them.

use crate::network::Network;

/// No node or no link.
const NONE: u32 = u32::MAX;

/// A folded Clos network of three tiers, or of two (one pod, no cores). Every ToR of a pod has one cable to every
/// aggregation switch of the pod. Aggregation switch number p of every pod has one cable to every core of plane p.
/// There are no other cables. So the aggregation switches of a path belong to one plane, and a plane and a core
/// determine the path. States and loads of links are not part of the structure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FatTree {
    pub pods: usize,
    /// Number of ToRs in a pod.
    pub tors: usize,
    /// Number of aggregation switches in a pod.
    pub planes: usize,
    /// Number of cores in a plane.
    pub cores: usize,
    /// Number of the ToR at each node index, or [`NONE`]. The ToRs of one pod have consecutive numbers.
    tor_at: Vec<u32>,
    /// Links by ToR and plane, up and down.
    tor_links: [Vec<u32>; 2],
    /// Links between aggregation switch and core by pod, plane and core, up and down.
    core_links: [Vec<u32>; 2],
}

/// Both directions of a cable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cable {
    pub up: u32,
    pub down: u32,
}

impl FatTree {
    /// Finds the FatTree in which the node with this index is a ToR; `None` if there is none.
    pub(crate) fn find(network: &Network, tor: u32) -> Option<FatTree> {
        let graph = Graph::new(network)?;
        let pod = graph.pod(tor)?;
        let planes: Vec<Vec<u32>> = pod.aggregation.iter().map(|&node| graph.without(node, &pod.tors)).collect();
        let cores = planes[0].len();
        if planes.iter().any(|plane| plane.len() != cores) {
            return None;
        }
        let pods = match planes[0].first() {
            Some(&core) => {
                let below = graph.around(core).iter().map(|&(node, _)| node);
                below.map(|node| graph.pod_below(node, &planes)).collect::<Option<Vec<Pod>>>()?
            }
            None => vec![pod],
        };
        let all_alike = pods.iter().all(|other| other.tors.len() == pods[0].tors.len());
        let reached = planes.iter().flatten().all(|&core| graph.around(core).len() == pods.len());
        if !all_alike || !reached {
            return None;
        }
        graph.tree(&pods, &planes)
    }

    /// Number of the ToR with a node index; `None` if the node is not a ToR.
    pub(crate) fn tor_at(&self, node_index: u32) -> Option<usize> {
        self.tor_at.get(node_index as usize).filter(|&&tor| tor != NONE).map(|&tor| tor as usize)
    }

    /// Pod of a ToR.
    pub(crate) fn pod_of(&self, tor: usize) -> usize {
        tor / self.tors
    }

    /// The cable of a ToR to the aggregation switch of a plane.
    pub(crate) fn tor_cable(&self, tor: usize, plane: usize) -> Cable {
        let index = tor * self.planes + plane;
        Cable { up: self.tor_links[0][index], down: self.tor_links[1][index] }
    }

    /// The cable of a pod's aggregation switch to a core.
    pub(crate) fn core_cable(&self, pod: usize, plane: usize, core: usize) -> Cable {
        let index = (pod * self.planes + plane) * self.cores + core;
        Cable { up: self.core_links[0][index], down: self.core_links[1][index] }
    }

    /// Writes the links from ToR to ToR over a plane and, between pods, over a core of the plane.
    pub(crate) fn write(&self, (src, dst): (usize, usize), plane: usize, core: usize, path: &mut Vec<u32>) {
        path.clear();
        path.push(self.tor_cable(src, plane).up);
        let (from, to) = (self.pod_of(src), self.pod_of(dst));
        if from != to {
            path.extend([self.core_cable(from, plane, core).up, self.core_cable(to, plane, core).down]);
        }
        path.push(self.tor_cable(dst, plane).down);
    }

    /// All links between ToRs and aggregation switches, and all links between aggregation switches and cores.
    pub(crate) fn tiers(&self) -> [impl Iterator<Item = u32> + '_; 2] {
        [&self.tor_links, &self.core_links].map(|[up, down]| up.iter().chain(down).copied())
    }
}

/// Nodes of one pod, by node index; aggregation switches in the order of planes.
struct Pod {
    tors: Vec<u32>,
    aggregation: Vec<u32>,
}

/// The neighbours of each node, ascending, with the link to each.
struct Graph {
    around: Vec<Vec<(u32, u32)>>,
}

impl Graph {
    /// `None` if there are parallel links or links without a reverse. A FatTree has neither.
    fn new(network: &Network) -> Option<Graph> {
        let mut around = Vec::with_capacity(network.node_count());
        for node_index in 0..network.node_count() as u32 {
            let mut hops: Vec<(u32, u32)> = network.out(node_index).iter().map(|hop| (hop.node, hop.link)).collect();
            hops.sort_unstable();
            let mut back: Vec<u32> = network.entering(node_index).iter().map(|hop| hop.node).collect();
            back.sort_unstable();
            let single = hops.windows(2).all(|pair| pair[0].0 != pair[1].0);
            if !single || !hops.iter().map(|&(node, _)| node).eq(back) {
                return None;
            }
            around.push(hops);
        }
        Some(Graph { around })
    }

    fn around(&self, node_index: u32) -> &[(u32, u32)] {
        &self.around[node_index as usize]
    }

    /// The neighbours of a node except the given ones (ascending).
    fn without(&self, node_index: u32, others: &[u32]) -> Vec<u32> {
        let all = self.around(node_index).iter().map(|&(node, _)| node);
        all.filter(|node| others.binary_search(node).is_err()).collect()
    }

    fn link(&self, from: u32, to: u32) -> Option<u32> {
        let around = self.around(from);
        around.binary_search_by_key(&to, |&(node, _)| node).ok().map(|index| around[index].1)
    }

    /// The pod of a ToR: its neighbours, and all nodes with the same neighbours.
    fn pod(&self, tor: u32) -> Option<Pod> {
        let aggregation = self.without(tor, &[]);
        let alike = |&node: &u32| {
            let own = self.around(node);
            own.len() == aggregation.len() && own.iter().map(|&(node, _)| node).eq(aggregation.iter().copied())
        };
        let tors: Vec<u32> = self.without(*aggregation.first()?, &[]).into_iter().filter(alike).collect();
        Some(Pod { tors, aggregation })
    }

    /// The pod of an aggregation switch of plane 0; `None` unless it has one aggregation switch of each plane.
    fn pod_below(&self, aggregation: u32, planes: &[Vec<u32>]) -> Option<Pod> {
        let mut pod = self.pod(*self.without(aggregation, &planes[0]).first()?)?;
        let mut by_plane = vec![NONE; planes.len()];
        for &node in &pod.aggregation {
            let above = self.without(node, &pod.tors);
            let plane = planes.iter().position(|plane| *plane == above)?;
            if std::mem::replace(&mut by_plane[plane], node) != NONE {
                return None;
            }
        }
        pod.aggregation = by_plane;
        Some(pod).filter(|pod| pod.aggregation.iter().all(|&node| node != NONE))
    }

    fn tree(&self, pods: &[Pod], planes: &[Vec<u32>]) -> Option<FatTree> {
        let mut tor_at = vec![NONE; self.around.len()];
        let (mut tor_links, mut core_links) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        for (number, &tor) in pods.iter().flat_map(|pod| &pod.tors).enumerate() {
            // A node that occurs twice is in two pods.
            if std::mem::replace(&mut tor_at[tor as usize], number as u32) != NONE {
                return None;
            }
        }
        for pod in pods {
            for &tor in &pod.tors {
                for &above in &pod.aggregation {
                    tor_links[0].push(self.link(tor, above)?);
                    tor_links[1].push(self.link(above, tor)?);
                }
            }
            for (&node, plane) in pod.aggregation.iter().zip(planes) {
                for &core in plane {
                    core_links[0].push(self.link(node, core)?);
                    core_links[1].push(self.link(core, node)?);
                }
            }
        }
        let [tors, planes, cores] = [pods[0].tors.len(), planes.len(), planes[0].len()];
        Some(FatTree { pods: pods.len(), tors, planes, cores, tor_at, tor_links, core_links })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NetworkLink;

    /// Cables between the nodes of a FatTree: ToRs first, then aggregation switches, then cores.
    fn cables(pods: u32, tors: u32, planes: u32, cores: u32) -> Vec<(u32, u32)> {
        let mut cables = Vec::new();
        let (first_aggregation, first_core) = (pods * tors, pods * (tors + planes));
        for pod in 0..pods {
            for plane in 0..planes {
                let aggregation = first_aggregation + pod * planes + plane;
                cables.extend((0..tors).map(|tor| (pod * tors + tor, aggregation)));
                cables.extend((0..cores).map(|core| (aggregation, first_core + plane * cores + core)));
            }
        }
        cables
    }

    fn network(cables: &[(u32, u32)]) -> Network {
        let link = |from, to| NetworkLink { ends: Some((from, to)), capacity_bps: 1 };
        Network::new(cables.iter().flat_map(|&(a, b)| [link(a, b), link(b, a)]).collect())
    }

    #[test]
    fn a_fat_tree_is_recognised_with_its_links() {
        for (pods, tors, planes, cores) in [(4, 2, 2, 2), (3, 5, 2, 4), (1, 4, 3, 0), (2, 1, 3, 1)] {
            let network = network(&cables(pods, tors, planes, cores));
            let tree = FatTree::find(&network, 0).expect("a FatTree");
            let found = [tree.pods, tree.tors, tree.planes, tree.cores];
            assert_eq!(found, [pods, tors, planes, cores].map(|count| count as usize));
            let mut path = Vec::new();
            for src in 0..tree.pods * tree.tors {
                for dst in (0..tree.pods * tree.tors).filter(|&dst| dst != src) {
                    tree.write((src, dst), tree.planes - 1, tree.cores.saturating_sub(1), &mut path);
                    let ends: Vec<(u32, u32)> = path.iter().filter_map(|&link| network.ends(link)).collect();
                    assert!(ends.windows(2).all(|pair| pair[0].1 == pair[1].0));
                    let last = ends.last().expect("a path");
                    assert_eq!((tree.tor_at(ends[0].0), tree.tor_at(last.1)), (Some(src), Some(dst)));
                    assert_eq!(path.len(), if tree.pod_of(src) == tree.pod_of(dst) { 2 } else { 4 });
                }
            }
        }
    }

    #[test]
    fn other_networks_are_not_recognised() {
        let whole = cables(4, 2, 2, 2);
        for missing in 0..whole.len() {
            let mut fewer = whole.clone();
            fewer.remove(missing);
            assert_eq!(FatTree::find(&network(&fewer), 0), None, "without cable {missing}");
        }
        for extra in [(0, 2), (0, 1), (0, 10), (8, 9), (16, 17), (0, 8), (0, 19), (8, 19)] {
            let more: Vec<(u32, u32)> = whole.iter().copied().chain([extra]).collect();
            assert_eq!(FatTree::find(&network(&more), 0), None, "with a cable {extra:?}");
        }
        // A core or an aggregation switch is not a ToR, and neither is a node of a ring.
        assert_eq!(FatTree::find(&network(&whole), 8), None);
        assert_eq!(FatTree::find(&network(&[(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]), 0), None);
    }
}
