//! Breadth-first distances to a switch.

use crate::{split_mix, Fabric, LinkId, LinkState, NodeId, GOLDEN};

/// Marks a switch that is not reached (yet).
const UNREACHED: u32 = u32::MAX;
/// Marks a switch that the search must not enter.
const BLOCKED: u32 = u32::MAX - 1;

/// A breadth-first search from a switch against the direction of links. Its buffers are reused.
#[derive(Clone, Debug, Default)]
pub struct ReverseBfs {
    hops: Vec<u32>,
    queue: Vec<NodeId>,
}

impl ReverseBfs {
    /// Finds the hops from every switch to `to`, without a visit to `avoid`, and at most `most_hops` far. Stops when
    /// all switches at the distance of `until` are known.
    pub fn run(
        &mut self,
        fabric: &Fabric,
        state: &LinkState,
        to: NodeId,
        avoid: &[NodeId],
        most_hops: u32,
        until: Option<NodeId>,
    ) {
        self.hops.clear();
        self.hops.resize(fabric.nodes().len(), UNREACHED);
        self.queue.clear();
        for node in avoid {
            self.hops[node.index()] = BLOCKED;
        }
        if self.hops[to.index()] == BLOCKED {
            return;
        }
        self.hops[to.index()] = 0;
        self.queue.push(to);
        let mut most_hops = most_hops;
        let mut next = 0;
        while let Some(&node) = self.queue.get(next) {
            next += 1;
            let hops = self.hops[node.index()];
            if Some(node) == until {
                most_hops = most_hops.min(hops);
            }
            if hops >= most_hops {
                continue;
            }
            for port in fabric.switch_ports(node) {
                let seen = &mut self.hops[port.to.index()];
                if *seen == UNREACHED && state.is_up(port.link.reverse()) {
                    *seen = hops + 1;
                    self.queue.push(port.to);
                }
            }
        }
    }

    /// Returns the hops from a switch, if it was reached.
    pub fn hops(&self, node: NodeId) -> Option<u32> {
        Some(self.hops[node.index()]).filter(|&hops| hops < BLOCKED)
    }

    /// Returns the switches that were reached, nearest first.
    pub fn reached(&self) -> &[NodeId] {
        &self.queue
    }

    /// Returns the outgoing links of `node` that lead one hop nearer to the target, in port order.
    pub fn nearer<'a>(
        &'a self,
        fabric: &'a Fabric,
        state: &'a LinkState,
        node: NodeId,
    ) -> impl Iterator<Item = LinkId> + 'a {
        let wanted = self.hops(node).and_then(|hops| hops.checked_sub(1));
        let nearer = move |to: NodeId| wanted == Some(self.hops[to.index()]);
        let ports = fabric.switch_ports(node).iter();
        ports.filter(move |port| nearer(port.to) && state.is_up(port.link)).map(|port| port.link)
    }

    /// Returns the outgoing links of `node`, in port order, that lead one hop nearer to the target, or sideways: to a switch
    /// with the same distance and a lower [`rank`]. A packet that takes such links alone visits no switch twice.
    pub fn nearer_or_sideways<'a>(
        &'a self,
        fabric: &'a Fabric,
        state: &'a LinkState,
        node: NodeId,
        target: NodeId,
    ) -> impl Iterator<Item = LinkId> + 'a {
        let here = self.hops(node).filter(|&hops| hops > 0);
        let leads_on = move |to: NodeId| {
            here.zip(self.hops(to))
                .is_some_and(|(here, there)| there < here || there == here && rank(to, target) < rank(node, target))
        };
        let ports = fabric.switch_ports(node).iter();
        ports.filter(move |port| leads_on(port.to) && state.is_up(port.link)).map(|port| port.link)
    }
}

/// The rank of a switch among those with the same distance to a target. Another target has other ranks, so that no switch has
/// fewer ways than others everywhere. No two switches have the same rank.
pub fn rank(switch: NodeId, target: NodeId) -> u64 {
    split_mix((u64::from(target.0) << 32 | u64::from(switch.0)).wrapping_add(GOLDEN))
}

/// The hops from every switch to one switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Distances {
    to: NodeId,
    hops: Vec<u32>,
}

/// Returns the hops from every switch to `to`, over links that are up.
pub fn distances_to(fabric: &Fabric, state: &LinkState, to: NodeId) -> Distances {
    let mut bfs = ReverseBfs::default();
    bfs.run(fabric, state, to, &[], u32::MAX, None);
    Distances { to, hops: bfs.hops }
}

impl Distances {
    /// Returns the switch that all distances lead to.
    pub fn to(&self) -> NodeId {
        self.to
    }

    /// Returns the hops from `switch`. `None` if it has no path, or is a host.
    pub fn hops(&self, switch: NodeId) -> Option<u32> {
        Some(self.hops[switch.index()]).filter(|&hops| hops < BLOCKED)
    }
}
