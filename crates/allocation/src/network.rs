//! A network as numbers: directed links with a capacity. Most links join two nodes that forward traffic.

/// A directed link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NetworkLink {
    /// The nodes that the link leads from and to, by any numbers that the caller chooses. `None` for an access link
    /// (between a host and its switch): it limits flows, but no path is searched over it.
    pub ends: Option<(u32, u32)>,
    /// Capacity in bits per second. A link of capacity 0 is never used.
    pub capacity_bps: u64,
}

/// A link out of a node (or into it), and the index of the node at its other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hop {
    pub link: u32,
    pub node: u32,
}

/// Directed links with capacities. A link is identified by its index, a node by the number in [`NetworkLink::ends`].
/// Parallel links and links in only one direction are allowed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Network {
    links: Vec<NetworkLink>,
    /// Nodes that forward traffic, ascending. Inside this crate, a node is identified by its index here.
    nodes: Vec<u32>,
    out: Adjacency,
    into: Adjacency,
}

/// Hops by node.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Adjacency {
    starts: Vec<u32>,
    hops: Vec<Hop>,
}

impl Adjacency {
    fn of(&self, node: u32) -> &[Hop] {
        &self.hops[self.starts[node as usize] as usize..self.starts[node as usize + 1] as usize]
    }

    /// Groups `(node, hop)` by node; hops of one node stay in order.
    fn new(nodes: usize, hops: impl Iterator<Item = (u32, Hop)> + Clone) -> Adjacency {
        let mut starts = vec![0u32; nodes + 1];
        for (node, _) in hops.clone() {
            starts[node as usize + 1] += 1;
        }
        for node in 0..nodes {
            starts[node + 1] += starts[node];
        }
        let mut next = starts.clone();
        let mut grouped = vec![Hop { link: 0, node: 0 }; starts[nodes] as usize];
        for (node, hop) in hops {
            grouped[next[node as usize] as usize] = hop;
            next[node as usize] += 1;
        }
        Adjacency { starts, hops: grouped }
    }
}

impl Network {
    /// Creates the network of these links.
    pub fn new(links: Vec<NetworkLink>) -> Network {
        let mut nodes: Vec<u32> = links.iter().filter_map(|link| link.ends).flat_map(|(a, b)| [a, b]).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let node_index = |node: u32| nodes.partition_point(|&other| other < node) as u32;
        let indexed: Vec<(u32, u32, u32)> = links
            .iter()
            .enumerate()
            .filter_map(|(index, link)| link.ends.map(|(from, to)| (index as u32, node_index(from), node_index(to))))
            .collect();
        let out = indexed.iter().map(|&(link, from, to)| (from, Hop { link, node: to }));
        let into = indexed.iter().map(|&(link, from, to)| (to, Hop { link, node: from }));
        let (out, into) = (Adjacency::new(nodes.len(), out), Adjacency::new(nodes.len(), into));
        Network { links, nodes, out, into }
    }

    /// All links, by index.
    pub fn links(&self) -> &[NetworkLink] {
        &self.links
    }

    /// Capacity of a link; 0 if there is no such link.
    pub fn capacity_bps(&self, link: u32) -> u64 {
        self.links.get(link as usize).map_or(0, |link| link.capacity_bps)
    }

    /// Number of nodes that forward traffic.
    pub(crate) fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Index of a node; `None` if only access links touch it.
    pub(crate) fn node_index(&self, node: u32) -> Option<u32> {
        self.nodes.binary_search(&node).ok().map(|node_index| node_index as u32)
    }

    /// Links out of the node with an index.
    pub(crate) fn out(&self, node_index: u32) -> &[Hop] {
        self.out.of(node_index)
    }

    /// Links into the node with an index, with the nodes that they come from.
    pub(crate) fn entering(&self, node_index: u32) -> &[Hop] {
        self.into.of(node_index)
    }

    /// Node indices of the ends of a link.
    pub(crate) fn ends(&self, link: u32) -> Option<(u32, u32)> {
        let (from, to) = self.links.get(link as usize)?.ends?;
        Some((self.node_index(from)?, self.node_index(to)?))
    }
}
