//! The switches of a network, and the cache of what they have decided. The switches are authoritative: what they change
//! leaves the cache at once, and they are credited for the frames that were forwarded from it.

use super::destinations::Destinations;
use super::node::Node;
use super::walk::Change;
use crate::cache::{Cache, Credit, Entry, Rules};
use crate::lanes::Lanes;
use crate::time::{to_nanos, to_ps, Ps};
use pathloom_model::rules::Match;
use pathloom_model::{FiveTuple, NodeId};
use pathloom_switching::{Stale, Switch, Used};

/// The nodes by number, and the decisions of those that are switches.
pub(super) struct Switches {
    pub(super) nodes: Vec<Node>,
    pub(super) cache: Cache,
    /// Decisions about destinations, if packets of a flow take several paths.
    pub(super) destinations: Option<Destinations>,
    /// Changes that may alter the ways of flows, if they are noted.
    pub(super) changes: Option<Vec<Change>>,
}

impl Switches {
    /// Remembers a decision of a switch, made by these rules, at a place in the cache.
    pub(super) fn remember(&mut self, lanes: &Lanes, place: usize, switch: NodeId, (entry, rules): (Entry, Rules)) {
        self.evict(lanes, place);
        self.cache.store(place, switch, entry, rules);
    }

    /// Empties a cache entry and credits its frames.
    fn evict(&mut self, lanes: &Lanes, place: usize) {
        if let Some((switch, owed)) = self.cache.take(place) {
            credit_node(&mut self.nodes[switch.index()], lanes, &owed);
        }
    }

    /// Removes the decisions for both lanes of a slot.
    pub(super) fn forget_slot(&mut self, lanes: &Lanes, slot: usize) {
        for lane in [slot as u32 * 2, slot as u32 * 2 + 1] {
            for place in self.cache.lane_places(lane) {
                self.evict(lanes, place);
            }
            self.cache.release_row(lane);
        }
    }

    /// Credits a switch for the frames that were forwarded from the cache.
    pub(super) fn credit(&mut self, lanes: &Lanes, node: NodeId) {
        let of = &mut self.nodes[node.index()];
        self.cache.collect(node, |owed| credit_node(of, lanes, &owed));
    }

    /// Credits the rules of the cached decisions about a lane for frames that were not forwarded one by one.
    pub(super) fn credit_lane(&mut self, lanes: &Lanes, last: Ps, lane: u32, [packets, bytes]: [u64; 2]) {
        for place in self.cache.lane_places(lane) {
            if let Some((node, rules)) = self.cache.decided_by(place) {
                let owed = Credit { lane, rules, packets, bytes, last };
                credit_node(&mut self.nodes[node.index()], lanes, &owed);
            }
        }
    }

    /// Updates the counters of a switch, then reads or changes it by `act`. Changes take effect on the next packet.
    pub(super) fn with<R>(&mut self, lanes: &Lanes, node: NodeId, act: impl FnOnce(&mut Switch) -> R) -> Option<R> {
        self.credit(lanes, node);
        self.change(lanes, node, act)
    }

    /// Changes a rule with this match, after updating its counters.
    pub(super) fn change_rule<R>(
        &mut self,
        lanes: &Lanes,
        node: NodeId,
        matches: &Match,
        act: impl FnOnce(&mut Switch) -> R,
    ) -> Option<R> {
        let Some(flow) = matches.only_five_tuple() else { return self.with(lanes, node, act) };
        self.forget_flow(lanes, node, &flow);
        self.change(lanes, node, act)
    }

    /// Changes a switch without updating its counters, which nobody is about to read.
    pub(super) fn change<R>(&mut self, lanes: &Lanes, node: NodeId, act: impl FnOnce(&mut Switch) -> R) -> Option<R> {
        let rules = self.nodes[node.index()].rules_mut()?;
        let result = act(rules);
        let stale = rules.take_stale();
        if let Some(changes) = self.changes.as_mut().filter(|_| stale != Stale::Nothing) {
            changes.push(Change::Rules(node, stale.clone()));
        }
        self.forget(lanes, node, stale);
        Some(result)
    }

    /// Removes decisions of a switch from the cache.
    pub(super) fn forget(&mut self, lanes: &Lanes, node: NodeId, stale: Stale) {
        if let Some(destinations) = self.destinations.as_mut().filter(|_| stale != Stale::Nothing) {
            // A rule for one flow counts as well: now the switch looks at more than the destination.
            destinations.forget(node);
        }
        match stale {
            Stale::Nothing => {}
            Stale::Flows(flows) => flows.iter().for_each(|flow| self.forget_flow(lanes, node, flow)),
            Stale::Everything => {
                let of = &mut self.nodes[node.index()];
                self.cache.forget(node, |owed| credit_node(of, lanes, &owed));
            }
        }
    }

    /// Removes the decisions of a switch about the frames of a five-tuple.
    fn forget_flow(&mut self, lanes: &Lanes, node: NodeId, flow: &FiveTuple) {
        for lane in lanes.lanes(flow).into_iter().flatten() {
            for place in self.cache.lane_places(lane) {
                if self.cache.belongs_to(place, node) {
                    self.evict(lanes, place);
                }
            }
        }
    }

    /// Time when a rule of a switch may time out.
    pub(super) fn timeout(&self, node: NodeId) -> Option<Ps> {
        self.nodes[node.index()].rules()?.poll_timeout().map(to_ps)
    }

    /// Takes back the decisions of a part of a divided network, whose nodes are back already.
    pub(super) fn join(&mut self, lanes: &Lanes, part: Cache) {
        let Switches { nodes, cache, .. } = self;
        cache.join(part, |switch, owed| credit_node(&mut nodes[switch.index()], lanes, &owed));
    }
}

/// Credits a switch for frames that were forwarded from the cache.
fn credit_node(node: &mut Node, lanes: &Lanes, owed: &Credit) {
    let last = to_nanos(owed.last);
    match node {
        Node::Host => {}
        Node::Rules(rules) => {
            for rule in owed.rules.iter().flatten() {
                rules.credit(&[*rule], owed.packets, owed.bytes, last);
            }
        }
        Node::Program(program) => {
            program.credit(lanes.of_lane(owed.lane), Used { last, packets: owed.packets, bytes: owed.bytes });
        }
    }
}
