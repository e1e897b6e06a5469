//! ECMP next hops: for every switch, the outgoing links on shortest paths to a ToR.

use super::distances::ReverseBfs;
use crate::{Fabric, LinkId, LinkState, NodeId};
use std::collections::BTreeMap;

/// The outgoing links of every switch on shortest paths to one ToR.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NextHops {
    to: NodeId,
    /// Index where the links of each node begin, up to the last switch.
    starts: Vec<u32>,
    links: Vec<LinkId>,
}

/// Computes the next hops of every switch to the ToR `to`, over links that are up. Hosts never forward traffic.
pub fn next_hops(fabric: &Fabric, state: &LinkState, to: NodeId) -> NextHops {
    let mut bfs = ReverseBfs::default();
    bfs.run(fabric, state, to, &[], u32::MAX, None);
    let mut hops = NextHops { to, starts: vec![0], links: Vec::new() };
    let nodes = fabric.switches().last().map_or(0, |last| last.0 + 1);
    for node in (0..nodes).map(NodeId) {
        hops.links.extend(bfs.nearer(fabric, state, node));
        hops.starts.push(hops.links.len() as u32);
    }
    hops
}

impl NextHops {
    /// Returns the ToR that all next hops lead to.
    pub fn to(&self) -> NodeId {
        self.to
    }

    /// Returns the next hops of `switch`, in port order. Empty at the ToR itself, for a host, and if there is no path.
    pub fn at(&self, switch: NodeId) -> &[LinkId] {
        match self.starts.get(switch.index()..=switch.index() + 1) {
            Some(&[start, end]) => &self.links[start as usize..end as usize],
            _ => &[],
        }
    }
}

/// The next hops of every switch to every ToR. Equal sets of one switch are stored once, so that a set is what
/// OpenFlow calls a select group. A FatTree with k=32 has 655,360 (switch, ToR) pairs, but only 17,409 groups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteTable {
    version: u64,
    tors: usize,
    /// Group by switch (its index in [`Fabric::switches`]), then by ToR.
    groups: Vec<u32>,
    /// Index in [`Fabric::switches`] by node, `u32::MAX` for hosts.
    places: Vec<u32>,
    starts: Vec<u32>,
    links: Vec<LinkId>,
}

impl RouteTable {
    /// Computes all next hops on shortest paths over links that are up.
    pub fn new(fabric: &Fabric, state: &LinkState) -> RouteTable {
        RouteTable::of(fabric, state, |bfs, switch, _, set| set.extend(bfs.nearer(fabric, state, switch)))
    }

    /// Computes all next hops that are nearer or sideways ([`ReverseBfs::nearer_or_sideways`]).
    pub fn with_sideways(fabric: &Fabric, state: &LinkState) -> RouteTable {
        RouteTable::of(fabric, state, |bfs, switch, tor, set| {
            set.extend(bfs.nearer_or_sideways(fabric, state, switch, tor));
        })
    }

    /// Computes all next hops. `add` adds those of a switch to a ToR, to which the search has found all distances.
    fn of(
        fabric: &Fabric,
        state: &LinkState,
        add: impl Fn(&ReverseBfs, NodeId, NodeId, &mut Vec<LinkId>),
    ) -> RouteTable {
        let (switches, tors) = (fabric.switches(), fabric.tors());
        let mut table = RouteTable {
            version: state.version(),
            tors: tors.len(),
            groups: vec![0; switches.len() * tors.len()],
            places: vec![u32::MAX; fabric.nodes().len()],
            // Group 0 is empty.
            starts: vec![0, 0],
            links: Vec::new(),
        };
        for (place, switch) in switches.iter().enumerate() {
            table.places[switch.index()] = place as u32;
        }
        let mut known: Vec<BTreeMap<Vec<LinkId>, u32>> = vec![BTreeMap::new(); switches.len()];
        let mut bfs = ReverseBfs::default();
        let mut set: Vec<LinkId> = Vec::new();
        for (column, &tor) in tors.iter().enumerate() {
            bfs.run(fabric, state, tor, &[], u32::MAX, None);
            for (place, &switch) in switches.iter().enumerate() {
                set.clear();
                add(&bfs, switch, tor, &mut set);
                if set.is_empty() {
                    continue;
                }
                let group = match known[place].get(set.as_slice()) {
                    Some(&group) => group,
                    None => {
                        let group = table.add_group(&set);
                        known[place].insert(set.clone(), group);
                        group
                    }
                };
                table.groups[place * tors.len() + column] = group;
            }
        }
        table
    }

    fn add_group(&mut self, set: &[LinkId]) -> u32 {
        self.links.extend_from_slice(set);
        self.starts.push(self.links.len() as u32);
        self.starts.len() as u32 - 2
    }

    /// Returns the [`LinkState::version`] of the state that the table was computed for.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the number of groups. Groups are numbered from 0; group 0 has no members.
    pub fn group_count(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns the group of `switch` for the ToR at index `tor` in [`Fabric::tors`]. 0 at the ToR itself, for a host,
    /// and if there is no path.
    ///
    /// # Panics
    /// If the fabric has no such node or ToR.
    pub fn group(&self, switch: NodeId, tor: usize) -> u32 {
        assert!(tor < self.tors, "ToR {tor} of {}", self.tors);
        match self.places[switch.index()] {
            u32::MAX => 0,
            place => self.groups[place as usize * self.tors + tor],
        }
    }

    /// Returns the links of a group, in port order.
    pub fn members(&self, group: u32) -> &[LinkId] {
        &self.links[self.starts[group as usize] as usize..self.starts[group as usize + 1] as usize]
    }

    /// Returns the next hops of `switch` for the ToR at index `tor` in [`Fabric::tors`].
    ///
    /// # Panics
    /// As [`RouteTable::group`].
    pub fn next_hops(&self, switch: NodeId, tor: usize) -> &[LinkId] {
        self.members(self.group(switch, tor))
    }
}
