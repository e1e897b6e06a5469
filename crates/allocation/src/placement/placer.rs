//! Placement with a state: flows arrive and depart, links fail and return, and each step starts from the present
//! paths.

use super::planes::Planes;
use super::search::Search;
use super::state::{FlowState, Ledger};
use super::walk::Walk;
use crate::fat_tree::FatTree;
use crate::network::Network;
use crate::routes::Routes;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Paths are equally light if they differ by less than a flow's demand divided by this number.
const SLACK: i64 = 2;

/// The demands of all flows on an access link are estimated again if their number has changed by more than one in
/// this many.
const UPDATE_DIVISOR: u64 = 32;
/// With more flows than this on an access link, all demands are estimated again only if their number has changed by
/// more than one in [`UPDATE_DIVISOR_OF_MANY`]. Otherwise an arrival would change dozens of other flows, whose shares
/// are small.
const MANY_FLOWS: u64 = 64;
const UPDATE_DIVISOR_OF_MANY: u64 = 8;

/// A flow that needs a path.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PlacedFlow {
    /// Node that the sending host is attached to, by its number in the network.
    pub src_tor: u32,
    /// Node that the receiving host is attached to.
    pub dst_tor: u32,
    /// Access link of the sender. Flows on the same access link share its capacity.
    pub src_access: Option<u32>,
    /// Access link of the receiver.
    pub dst_access: Option<u32>,
    /// Announced rate, if there is one. The demand is the natural demand (Hedera §4.2), but at most this rate. The
    /// natural demand is the rate of the flow if its access links were the only limits.
    pub announced_bps: Option<u64>,
    /// Bytes left to send, if known. Flows of unknown size come last in the order of remaining time.
    pub remaining_bytes: Option<u64>,
}

/// Settings of a [`Placer`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PlacerSettings {
    /// ε of the links' lengths, l(e) = (1 + ε)^(f(e)/c(e)).
    pub epsilon: f64,
    /// Whether a round improves the result of the papers' walk by local search.
    pub improve: bool,
    /// Maximum number of passes of negotiation over full links. A third of that many without a better state end it.
    /// Only rounds that leave links overfull need passes.
    pub passes: u32,
}

impl Default for PlacerSettings {
    fn default() -> PlacerSettings {
        PlacerSettings { epsilon: 0.05, improve: true, passes: 240 }
    }
}

/// The reason why a flow cannot be added or changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlaceError {
    /// The identifier is in use.
    #[error("flow {0} is placed already; let it depart first, or give the new one another identifier")]
    Known(u64),
    /// There is no such flow.
    #[error("there is no flow {0}; it never arrived or has departed")]
    Unknown(u64),
    /// The network does not have an access link of the flow.
    #[error("flow {flow} names access link {link}, but the network has {links} links only")]
    Link {
        /// The flow.
        flow: u64,
        /// Its access link.
        link: u32,
        /// Number of links of the network.
        links: usize,
    },
    /// Nothing limits the demand of the flow.
    #[error(
        "flow {0} has neither an announced rate nor an access link, so its demand has no bound; give it one of them"
    )]
    Unbounded(u64),
    /// The path to adopt does not lead from the flow's source ToR to its destination ToR.
    #[error("the path given for flow {0} does not lead from its source ToR to its destination ToR")]
    WrongPath(u64),
}

/// The changes of a round. Flows are in ascending order.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Round {
    /// Flows that had no path and have one now.
    pub placed: Vec<u64>,
    /// Flows that were moved from one path to another.
    pub moved: Vec<u64>,
    /// Flows for which no path is left.
    pub stranded: Vec<u64>,
    /// Number of links examined, as a measure of the work.
    pub operations: u64,
}

/// Puts each flow on one path (OFPT Algorithm 2 and LESSOR Algorithm 2, as a walk that terminates).
///
/// The papers' walk places the flows of a ToR pair with minimum remaining time first. Each takes the lightest path of
/// its pair: the one whose tightest link has the most bandwidth left, b = min c(e) − f(e). Among equally light paths,
/// it takes the shortest under the lengths l(e) = (1 + ε)^(f(e)/c(e)). This is the product of the papers' updates, in
/// a form that can be undone. Unlike in the papers, f(e) counts the demands of the flows on a link, not their shares.
/// So when all paths are full, b still distinguishes a path that is overfull twice from one that is overfull once.
///
/// Paths are the shortest ones over links that are up. If failures leave none of the usual length, they are the
/// shortest that are left. They are searched in the graph of next hops and never listed.
#[derive(Clone, Debug)]
pub struct Placer {
    pub(super) network: Network,
    pub(super) routes: Routes,
    pub(super) settings: PlacerSettings,
    pub(super) search: Search,
    walk: Walk,
    planes: Planes,
    /// Number of entries examined by colouring and by limiting demands since the creation.
    pub(super) extra_operations: u64,
    /// The FatTree on which flows are placed, if the network is one; the outer `None` until the first flow is placed.
    tree: Option<Option<Arc<FatTree>>>,
    /// The path found last.
    path: Vec<u32>,
    pub(super) ledger: Ledger,
    /// Flows by slot.
    pub(super) slots: Vec<Option<FlowState>>,
    free: Vec<u32>,
    /// Slots by identifier. Only for look-ups, never iterated.
    names: FxHashMap<u64, u32>,
}

impl Placer {
    /// Creates a placer without flows on this network.
    pub fn new(network: Network, settings: PlacerSettings) -> Placer {
        let (routes, search) = (Routes::new(&network), Search::new(network.node_count()));
        let walk = Walk::new(network.node_count());
        let ledger = Ledger::new(&network, settings.epsilon);
        Placer {
            network,
            routes,
            settings,
            search,
            walk,
            planes: Planes::default(),
            extra_operations: 0,
            tree: None,
            path: Vec::new(),
            ledger,
            slots: Vec::new(),
            free: Vec::new(),
            names: FxHashMap::default(),
        }
    }

    /// The network on which flows are placed.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Number of flows, with or without a path.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are no flows.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Adds a flow and gives it the lightest path; no other flow is moved. The demands of the flows on the same
    /// access links are estimated again, each as the smallest of its fair shares of its access links;
    /// [`Placer::round`] makes them exact. Returns the flow's links between the ToRs, or `None` if no path is left
    /// (or one of its nodes has no link).
    pub fn arrive(&mut self, id: u64, flow: PlacedFlow) -> Result<Option<&[u32]>, PlaceError> {
        let slot = self.enter(id, flow)?;
        self.update_access_demands(slot);
        self.place(slot);
        Ok(self.path(id))
    }

    /// Adds a flow without a path. The next round gives it one, in the order of remaining time.
    pub fn wait(&mut self, id: u64, flow: PlacedFlow) -> Result<(), PlaceError> {
        self.enter(id, flow).map(|_| ())
    }

    /// Adds a flow that is on a path already: links between its ToRs, in order. The path need not be a shortest one.
    /// If one of its links is down, the flow waits for a round instead.
    pub fn adopt(&mut self, id: u64, flow: PlacedFlow, path: &[u32]) -> Result<(), PlaceError> {
        let mut node = self.network.node_index(flow.src_tor);
        for &link in path {
            let ends = self.network.ends(link);
            node = ends.filter(|&(from, _)| Some(from) == node).map(|(_, to)| to);
        }
        let leads = if path.is_empty() {
            flow.src_tor == flow.dst_tor
        } else {
            node.is_some() && node == self.network.node_index(flow.dst_tor)
        };
        if !leads {
            return Err(PlaceError::WrongPath(id));
        }
        let slot = self.enter(id, flow)?;
        self.update_access_demands(slot);
        if path.iter().all(|&link| self.routes.is_up(link)) {
            self.put(slot, path);
        }
        Ok(())
    }

    /// Removes a flow; returns whether it was there. Its bandwidth is free at once.
    pub fn depart(&mut self, id: u64) -> bool {
        let Some(slot) = self.names.remove(&id) else { return false };
        self.lift(slot);
        let access = self.flow_state(slot).flow.access();
        self.ledger.leave(slot, access);
        self.slots[slot as usize] = None;
        self.free.push(slot);
        access.into_iter().flatten().for_each(|link| self.update_link_demands(link, None));
        true
    }

    /// Changes (or removes, with `None`) the announced rate of a flow.
    pub fn set_announced(&mut self, id: u64, announced_bps: Option<u64>) -> Result<(), PlaceError> {
        let slot = self.slot(id)?;
        if announced_bps.is_none() && self.flow_state(slot).flow.access() == [None, None] {
            return Err(PlaceError::Unbounded(id));
        }
        self.flow_state_mut(slot).flow.announced_bps = announced_bps;
        self.update_access_demands(slot);
        Ok(())
    }

    /// Whether traffic can cross a link.
    pub fn is_up(&self, link: u32) -> bool {
        self.routes.is_up(link)
    }

    /// Sets the state of one directed link. When it goes down, the flows on it get another path at once, least
    /// remaining time first. When it comes up, flows without a path are tried again. Returns the flows whose path
    /// changed or was lost, ascending.
    pub fn set_link(&mut self, link: u32, up: bool) -> Vec<u64> {
        if !self.routes.set(&self.network, link, up) {
            return Vec::new();
        }
        self.walk.forget();
        self.planes.forget();
        let mut slots: Vec<u32> = if up {
            (0..self.slots.len() as u32).filter(|&slot| self.is_waiting(slot)).collect()
        } else {
            let on_link = self.ledger.on_link(link).to_vec();
            on_link
                .into_iter()
                .filter(|&slot| self.flow_state(slot).path.as_ref().is_some_and(|path| path.contains(&link)))
                .collect()
        };
        self.order(&mut slots);
        slots.iter().for_each(|&slot| self.lift(slot));
        let mut changed = Vec::new();
        for slot in slots {
            if self.place(slot) || !up {
                changed.push(self.flow_state(slot).id);
            }
        }
        changed.sort_unstable();
        changed
    }

    /// The links of a flow's path between its ToRs, in order; `None` if there is no such flow, or if it has no path.
    pub fn path(&self, id: u64) -> Option<&[u32]> {
        let slot = *self.names.get(&id)?;
        self.flow_state(slot).path.as_deref()
    }

    /// B_f, the demand of a flow: announced or estimated.
    pub fn demand_bps(&self, id: u64) -> Option<u64> {
        self.names.get(&id).map(|&slot| self.flow_state(slot).demand_bps)
    }

    /// f(e), the total demand of the flows on a link.
    pub fn load_bps(&self, link: u32) -> u64 {
        self.ledger.load_bps(link)
    }

    /// Number of links whose demand exceeds their capacity.
    pub fn overfull_links(&self) -> usize {
        self.ledger.overfull()
    }

    /// The flows in ascending order of identifiers.
    pub fn flows(&self) -> Vec<u64> {
        let mut ids: Vec<u64> = self.slots.iter().flatten().map(|state| state.id).collect();
        ids.sort_unstable();
        ids
    }

    /// Takes all flows off their paths, so that the next round places all of them again.
    pub fn lift_all(&mut self) {
        for slot in 0..self.slots.len() as u32 {
            if self.slots[slot as usize].is_some() {
                self.lift(slot);
            }
        }
    }

    fn slot(&self, id: u64) -> Result<u32, PlaceError> {
        self.names.get(&id).copied().ok_or(PlaceError::Unknown(id))
    }

    /// The flow of a slot in use.
    pub(super) fn flow_state(&self, slot: u32) -> &FlowState {
        self.slots[slot as usize].as_ref().expect("slots in use hold a flow")
    }

    pub(super) fn flow_state_mut(&mut self, slot: u32) -> &mut FlowState {
        self.slots[slot as usize].as_mut().expect("slots in use hold a flow")
    }

    /// Whether a slot holds a flow that has no path.
    pub(super) fn is_waiting(&self, slot: u32) -> bool {
        self.slots[slot as usize].as_ref().is_some_and(|state| state.path.is_none())
    }

    fn enter(&mut self, id: u64, flow: PlacedFlow) -> Result<u32, PlaceError> {
        let links = self.network.links().len();
        if let Some(&link) = flow.access().iter().flatten().find(|&&link| link as usize >= links) {
            return Err(PlaceError::Link { flow: id, link, links });
        }
        if flow.announced_bps.is_none() && flow.access() == [None, None] {
            return Err(PlaceError::Unbounded(id));
        }
        if self.names.contains_key(&id) {
            return Err(PlaceError::Known(id));
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        let tors = (self.network.node_index(flow.src_tor), self.network.node_index(flow.dst_tor));
        let ends = match tors {
            _ if flow.src_tor == flow.dst_tor => Some((0, 0)),
            (Some(from), Some(to)) => Some((from, to)),
            _ => None,
        };
        self.slots[slot as usize] = Some(FlowState { id, flow, ends, path: None, demand_bps: 0 });
        self.names.insert(id, slot);
        self.ledger.join(slot, flow.access());
        Ok(slot)
    }

    /// Puts a waiting flow on the lightest path; returns whether there is one.
    pub(super) fn place(&mut self, slot: u32) -> bool {
        let state = self.flow_state(slot);
        let Some((from, to)) = state.ends else { return false };
        if state.flow.src_tor == state.flow.dst_tor {
            self.put(slot, &[]);
            return true;
        }
        let slack_bps = state.demand_bps as i64 / SLACK;
        let mut path = std::mem::take(&mut self.path);
        let found = self.place_by_plane(slot, (from, to), slack_bps, &mut path)
            || self.place_by_walk(slot, (from, to), slack_bps, &mut path);
        self.path = path;
        found
    }

    /// Puts a flow on the lightest path that goes up and down once. Returns whether this is a FatTree with such a
    /// path.
    fn place_by_plane(&mut self, slot: u32, (from, to): (u32, u32), slack_bps: i64, path: &mut Vec<u32>) -> bool {
        let Some(tree) = self.tree(from) else { return false };
        let tors = tree.tor_at(from).zip(tree.tor_at(to));
        let found = tors.filter(|&tors| {
            let found = self.planes.lightest((&tree, &self.routes, &self.ledger), tors, slack_bps, path);
            if found {
                self.put(slot, path);
                self.planes.taken((&tree, &self.routes, &self.ledger), tors.0, tors.1);
            }
            found
        });
        found.is_some()
    }

    /// Finds the path with the lowest sum of costs among the shortest paths. Costs must not be negative. See
    /// [`Search::cheapest`].
    pub(super) fn cheapest(
        &mut self,
        (from, to): (u32, u32),
        cost: impl Fn(&Ledger, u32) -> f64,
        path: &mut Vec<u32>,
    ) -> Option<f64> {
        let tree = self.tree(from);
        let cost = |link: u32| cost(&self.ledger, link);
        let by_plane = tree.and_then(|tree| {
            let tors = tree.tor_at(from).zip(tree.tor_at(to))?;
            self.planes.cheapest((&tree, &self.routes), tors, cost, path)
        });
        if by_plane.is_some() {
            return by_plane;
        }
        self.routes.prepare(&self.network, to);
        self.routes.to(to).and_then(|routes| self.search.cheapest(routes, from, cost, path))
    }

    /// The FatTree on which flows are placed, if the network is one. It is searched for when the first flow is
    /// placed, from the flow's ToR.
    pub(super) fn tree(&mut self, tor: u32) -> Option<Arc<FatTree>> {
        self.tree.get_or_insert_with(|| FatTree::find(&self.network, tor).map(Arc::new)).clone()
    }

    /// Puts a flow on the lightest of its shortest paths.
    fn place_by_walk(&mut self, slot: u32, (from, to): (u32, u32), slack_bps: i64, path: &mut Vec<u32>) -> bool {
        self.routes.prepare(&self.network, to);
        let found = self.walk.lightest((&self.routes, &self.ledger), (from, to), slack_bps, path);
        if found {
            self.put(slot, path);
            self.walk.taken(&self.network, &self.ledger, path);
        }
        found
    }

    /// Number of links examined since the creation.
    pub(super) fn operations(&self) -> u64 {
        self.planes.operations
            + self.walk.operations
            + self.search.operations
            + self.routes.operations
            + self.extra_operations
    }

    /// Puts a waiting flow on this path.
    pub(super) fn put(&mut self, slot: u32, path: &[u32]) {
        let state = self.slots[slot as usize].as_mut().expect("slots in use hold a flow");
        state.path = Some(path.into());
        self.ledger.add(slot, path, state.demand_bps);
    }

    /// Takes a flow off its path, if it has one.
    pub(super) fn lift(&mut self, slot: u32) {
        let state = self.slots[slot as usize].as_mut().expect("slots in use hold a flow");
        if let Some(path) = state.path.take() {
            self.ledger.remove(slot, &path, state.demand_bps);
        }
    }

    /// By slot, the demand of each flow.
    pub(super) fn demands(&self) -> Vec<u64> {
        self.slots.iter().map(|state| state.as_ref().map_or(0, |state| state.demand_bps)).collect()
    }

    /// Sets the demand of each flow, by slot.
    pub(super) fn set_demands(&mut self, demands_bps: &[u64]) {
        for (slot, &demand_bps) in (0..).zip(demands_bps) {
            if self.slots[slot as usize].is_some() {
                self.set_demand(slot, demand_bps);
            }
        }
    }

    pub(super) fn set_demand(&mut self, slot: u32, demand_bps: u64) {
        let state = self.slots[slot as usize].as_mut().expect("slots in use hold a flow");
        let before = std::mem::replace(&mut state.demand_bps, demand_bps);
        if let Some(path) = state.path.as_ref().filter(|_| before != demand_bps) {
            self.ledger.change(path, before, demand_bps);
        }
    }

    /// Estimates the demands of the flows on the access links of a flow again.
    fn update_access_demands(&mut self, slot: u32) {
        let access = self.flow_state(slot).flow.access();
        if access == [None, None] {
            let announced_bps = self.flow_state(slot).flow.announced_bps;
            self.set_demand(slot, announced_bps.unwrap_or(0));
        }
        access.into_iter().flatten().for_each(|link| self.update_link_demands(link, Some(slot)));
    }

    /// If many flows share a link, one more or less changes little for each. Then not all of them are estimated again
    /// every time.
    fn update_link_demands(&mut self, link: u32, slot: Option<u32>) {
        let count = self.ledger.on_link(link).len() as u32;
        let before = self.ledger.shared_by(link);
        let one_in = if u64::from(before) > MANY_FLOWS { UPDATE_DIVISOR_OF_MANY } else { UPDATE_DIVISOR };
        if u64::from(count.abs_diff(before)) * one_in <= u64::from(before) {
            return slot.into_iter().for_each(|slot| self.update_demand(slot));
        }
        self.ledger.set_shared_by(link, count);
        for position in 0..self.ledger.on_link(link).len() {
            self.update_demand(self.ledger.on_link(link)[position]);
        }
    }

    /// Estimates the demand of a flow again.
    fn update_demand(&mut self, slot: u32) {
        let flow = self.flow_state(slot).flow;
        let share = |link: u32| self.network.capacity_bps(link) / (self.ledger.on_link(link).len() as u64).max(1);
        let shares = flow.access().into_iter().flatten().map(share);
        let demand_bps = shares.chain(flow.announced_bps).min().unwrap_or(0);
        self.set_demand(slot, demand_bps);
    }
}
