//! Shortest paths to each destination, as a graph of next hops and never as a list.

use crate::network::{Hop, Network};
use rustc_hash::FxHashMap;

/// The node cannot be reached.
const FAR: u16 = u16::MAX;
/// The group without members.
const NOWHERE: u32 = 0;

/// The next hops of every node to one destination.
#[derive(Clone, Debug)]
struct Row {
    hops: Vec<u16>,
    group: Vec<u32>,
}

/// Next hops over the links that are up, by destination. A row is computed when it is first needed, and kept until a
/// change of a link invalidates it. Equal sets of next hops are stored once: the nodes of a k=48 FatTree have three
/// million sets, but only some thousand different ones.
#[derive(Clone, Debug)]
pub(crate) struct Routes {
    up: Vec<bool>,
    rows: Vec<Option<Row>>,
    starts: Vec<u32>,
    members: Vec<Hop>,
    /// Groups by their links. Only for look-ups, never iterated.
    known: FxHashMap<Box<[u32]>, u32>,
    queue: Vec<u32>,
    /// Number of links examined since the creation.
    pub operations: u64,
}

impl Routes {
    /// All links of positive capacity are up.
    pub(crate) fn new(network: &Network) -> Routes {
        let up = network.links().iter().map(|link| link.capacity_bps > 0).collect();
        Routes {
            up,
            rows: vec![None; network.node_count()],
            starts: vec![0, 0],
            members: Vec::new(),
            known: FxHashMap::default(),
            queue: Vec::new(),
            operations: 0,
        }
    }

    /// Whether traffic can cross a link.
    pub(crate) fn is_up(&self, link: u32) -> bool {
        self.up.get(link as usize).copied().unwrap_or(false)
    }

    /// Sets the state of a link; returns whether that changed anything.
    pub(crate) fn set(&mut self, network: &Network, link: u32, up: bool) -> bool {
        let up = up && network.capacity_bps(link) > 0;
        match self.up.get_mut(link as usize) {
            Some(before) if *before != up => *before = up,
            _ => return false,
        }
        let Some((from, to)) = network.ends(link) else { return true };
        for to_node in 0..self.rows.len() {
            let Some(row) = &self.rows[to_node] else { continue };
            let (here, there) = (row.hops[from as usize], row.hops[to as usize]);
            let near = there < here;
            if near && (up || self.members(row.group[from as usize]).len() == 1) {
                self.rows[to_node] = None;
            } else if near && there + 1 == here {
                let left: Vec<Hop> =
                    self.members(row.group[from as usize]).iter().copied().filter(|hop| hop.link != link).collect();
                let group = self.group_of(&left);
                if let Some(row) = &mut self.rows[to_node] {
                    row.group[from as usize] = group;
                }
            }
        }
        true
    }

    /// Computes the row of a destination, unless it is there.
    pub(crate) fn prepare(&mut self, network: &Network, to: u32) {
        if self.rows[to as usize].is_some() {
            return;
        }
        let mut hops = vec![FAR; network.node_count()];
        hops[to as usize] = 0;
        let mut queue = std::mem::take(&mut self.queue);
        queue.clear();
        queue.push(to);
        let mut next = 0;
        while let Some(&node) = queue.get(next) {
            next += 1;
            let further = hops[node as usize] + 1;
            for hop in network.entering(node) {
                if hops[hop.node as usize] == FAR && self.is_up(hop.link) && further < FAR {
                    hops[hop.node as usize] = further;
                    queue.push(hop.node);
                }
            }
        }
        let mut group = vec![NOWHERE; hops.len()];
        let mut nearer = Vec::new();
        for &node in &queue[1..] {
            let wanted = hops[node as usize] - 1;
            nearer.clear();
            let leads = |hop: &&Hop| hops[hop.node as usize] == wanted && self.is_up(hop.link);
            nearer.extend(network.out(node).iter().filter(leads).copied());
            group[node as usize] = self.group_of(&nearer);
        }
        self.queue = queue;
        let looked_at = |&node: &u32| network.entering(node).len() + network.out(node).len();
        self.operations += self.queue.iter().map(looked_at).sum::<usize>() as u64;
        self.rows[to as usize] = Some(Row { hops, group });
    }

    /// Next hops to `to`, by node; `None` if the row was not prepared.
    pub(crate) fn to(&self, to: u32) -> Option<RoutesTo<'_>> {
        self.rows[to as usize].as_ref().map(|row| RoutesTo { routes: self, row })
    }

    fn members(&self, group: u32) -> &[Hop] {
        &self.members[self.starts[group as usize] as usize..self.starts[group as usize + 1] as usize]
    }

    fn group_of(&mut self, members: &[Hop]) -> u32 {
        if members.is_empty() {
            return NOWHERE;
        }
        let links: Vec<u32> = members.iter().map(|hop| hop.link).collect();
        if let Some(&group) = self.known.get(links.as_slice()) {
            return group;
        }
        self.members.extend_from_slice(members);
        self.starts.push(self.members.len() as u32);
        let group = self.starts.len() as u32 - 2;
        self.known.insert(links.into_boxed_slice(), group);
        group
    }
}

/// Next hops to one destination.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoutesTo<'a> {
    routes: &'a Routes,
    row: &'a Row,
}

impl<'a> RoutesTo<'a> {
    /// Next hops of a node, in order of its links.
    pub(crate) fn at(&self, node: u32) -> &'a [Hop] {
        self.routes.members(self.row.group[node as usize])
    }

    /// Number of links from a node to the destination; `None` if there is no path.
    pub(crate) fn hops(&self, node: u32) -> Option<u32> {
        Some(u32::from(self.row.hops[node as usize])).filter(|&hops| hops < u32::from(FAR))
    }
}
