//! Budgets for rules: how many rules a switch may have, and how the hosts share them.
//!
//! A host may add a rule at a switch while it has no more rules there than are free (dynamic thresholds: Choudhury
//! and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998, with factor 1). One host alone gets half of the rules, n
//! hosts get 1/(n+1) each, and room is left for those that come next. A host that came when there was more room can
//! have more than that. If another host then finds no room, the rules of flows of the first one are deleted
//! ([`crate::routes`]) until all hosts have at most the same number of rules.
//!
//! Rules are counted by host only when a switch has fewer free rules than flow rules, because before that no host can
//! have more rules than are free. A count is renewed when it is older than [`RECOUNT`] and a rule would be refused.
//! Until then, rules that are added are included, but not rules that are deleted.

use crate::context::Context;
use crate::cookies::is_way_back;
use crate::flows::{Draining, Flow, FlowTable};
use crate::labels::Labels;
use crate::orphans::Orphans;
use crate::plan::FlowKey;
use crate::timers::Timer;
use pathloom_model::{Nanos, NodeId};
use pathloom_scheme::FlowId;
use std::collections::BTreeMap;

/// Shortest time between two counts, and between two searches for flows that must make room. Both examine all flows.
const RECOUNT: Nanos = Nanos::from_millis(250);
/// Longest time for which a count is used.
const LATEST: Nanos = Nanos::from_secs(1);

/// Where the rules of flows are.
#[derive(Clone, Copy)]
pub(crate) struct Holders<'a> {
    pub flows: &'a FlowTable,
    pub draining: &'a Draining,
    pub orphans: &'a Orphans,
    pub labels: &'a Labels,
}

/// The rules of the hosts at switches that are more than half full.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    /// Time of the last count.
    counted: Option<Nanos>,
    /// Number of rules by switch and host. Only switches that were more than half full at the last count are here.
    held: BTreeMap<NodeId, BTreeMap<NodeId, u32>>,
    /// Switches at which a host found no room since the last search for flows that must make room, with the lowest
    /// number of rules of such a host.
    wanted: BTreeMap<NodeId, u32>,
    /// Whether the timer for the next search is set.
    is_due: bool,
    last_search: Nanos,
}

/// The host that a flow's rules are counted for: its sender. For a way back it is the sender of the flow whose way
/// back it is.
pub(crate) fn payer(flow: &Flow) -> NodeId {
    payer_of(&flow.key)
}

/// Like [`payer`], for a flow that is not known yet.
pub(crate) fn payer_of(key: &FlowKey) -> NodeId {
    if is_way_back(key.id) {
        key.dst.host
    } else {
        key.src.host
    }
}

/// The rules of a flow that no other flow shares, as their switches. A switch with several of them is returned several
/// times. Rules that are being deleted are left out. The rule that a move will add at the source ToR is included.
pub(crate) fn rules_of<'a>(cx: &'a Context, flow: &'a Flow) -> impl Iterator<Item = NodeId> + 'a {
    let hops = flow.versions.iter().filter(|version| !version.is_shared()).flat_map(|version| {
        let links = version.path.iter().flat_map(pathloom_model::Path::links);
        links.map(|&link| cx.fabric.link(link).to).filter(|at| !version.cut.contains(at))
    });
    let planned = flow.current_move.iter().filter(|current_move| current_move.adds_hops()).map(|_| flow.tor());
    flow.staying().map(|_| flow.tor()).chain(planned).chain(hops)
}

/// Whether a switch is so full that a host could have more rules than are free.
fn is_tight(cx: &Context, switch: NodeId) -> bool {
    let state = &cx.switches[switch.index()];
    cx.free_rules(switch).is_some_and(|free| free < state.flow_rules + state.planned_rules)
}

/// Returns the largest number of rules that a host may have, if hosts want the given numbers and one more host wants
/// any number. `None` if no host wants more than its share.
fn fair_share(mut wanted: Vec<u32>, capacity: u32) -> Option<u32> {
    wanted.sort_unstable();
    let mut left = capacity;
    for (index, &rules) in wanted.iter().enumerate() {
        let share = left / (wanted.len() - index + 1) as u32;
        if rules > share {
            return Some(share);
        }
        left -= rules;
    }
    None
}

impl Budget {
    /// Whether a host may add a rule at a switch. If so, it does that now.
    pub(crate) fn take(&mut self, cx: &mut Context, holders: Holders<'_>, switch: NodeId, host: NodeId) -> bool {
        let has_room = self.has_room(cx, holders, switch, host);
        if has_room {
            self.add(switch, host);
        }
        has_room
    }

    /// Whether a host may add a rule at a switch.
    pub(crate) fn has_room(&mut self, cx: &mut Context, holders: Holders<'_>, switch: NodeId, host: NodeId) -> bool {
        let free = match cx.free_rules(switch) {
            None => return true,
            Some(free) if free > 0 && !is_tight(cx, switch) => return true,
            Some(free) => free,
        };
        if self.is_older(cx.now, LATEST) || !self.held.contains_key(&switch) {
            self.count(cx, holders);
        }
        let has_share = |budget: &Budget| free == 0 || budget.of_host(switch, host) > free;
        if has_share(self) && self.is_older(cx.now, RECOUNT) {
            self.count(cx, holders);
        }
        if has_share(self) {
            self.want(cx, switch, self.of_host(switch, host));
            return false;
        }
        true
    }

    /// A host with this number of rules finds no room for another one.
    fn want(&mut self, cx: &mut Context, switch: NodeId, has: u32) {
        let least = self.wanted.entry(switch).or_insert(has);
        *least = has.min(*least);
        if !std::mem::replace(&mut self.is_due, true) {
            cx.timers.set(cx.now.max(self.last_search.saturating_add(RECOUNT)), Timer::MakeRoom);
        }
    }

    /// Number of rules of a host at a switch, as far as they are counted.
    pub(crate) fn of_host(&self, switch: NodeId, host: NodeId) -> u32 {
        self.held.get(&switch).and_then(|hosts| hosts.get(&host)).copied().unwrap_or(0)
    }

    fn is_older(&self, now: Nanos, than: Nanos) -> bool {
        self.counted.is_none_or(|at| now.saturating_sub(at) >= than)
    }

    fn add(&mut self, switch: NodeId, host: NodeId) {
        if let Some(hosts) = self.held.get_mut(&switch) {
            *hosts.entry(host).or_insert(0) += 1;
        }
    }

    /// Counts the rules of each host at the switches that are more than half full.
    fn count(&mut self, cx: &Context, Holders { flows, draining, orphans, labels }: Holders<'_>) {
        self.counted = Some(cx.now);
        self.held =
            cx.fabric.switches().iter().filter(|&&at| is_tight(cx, at)).map(|&at| (at, BTreeMap::new())).collect();
        for (_, flow) in flows.iter() {
            let host = payer(flow);
            rules_of(cx, flow).for_each(|at| self.add(at, host));
        }
        labels.charged().for_each(|(at, host)| self.add(at, host));
        // It is not known whether these are rules of a way back.
        let left = draining.iter().flat_map(|((tuple, _), left)| left.rules.iter().map(|&(at, _)| (tuple.src(), at)));
        for (address, at) in left.chain(orphans.rules(cx)) {
            if let Some(place) = cx.attachment(address) {
                self.add(at, place.host);
            }
        }
    }

    /// The switch and the host with the largest number of rules of one host at one switch, at the last count.
    pub(crate) fn largest(&self) -> Option<(NodeId, NodeId, u32)> {
        let all = self.held.iter().flat_map(|(&at, hosts)| hosts.iter().map(move |(&host, &rules)| (at, host, rules)));
        all.max_by_key(|&(at, host, rules)| (rules, std::cmp::Reverse((at, host))))
    }

    /// Starts a search for flows that must make room: returns the switches at which hosts found no room since the last
    /// search, each with the lowest number of rules of such a host.
    pub(crate) fn begin_search(&mut self, now: Nanos) -> BTreeMap<NodeId, u32> {
        self.is_due = false;
        self.last_search = now;
        // The search deletes rules, so that its result needs a new count.
        self.counted = None;
        std::mem::take(&mut self.wanted)
    }
}

/// Hosts that have more than their share of the rules of one switch, each with the number of rules above it. `holds`:
/// the rules of each host, without those that drain. `draining`: those that drain. `wants`: the number of rules of a
/// host that found no room.
pub(crate) fn surplus(
    cx: &Context,
    switch: NodeId,
    holds: &BTreeMap<NodeId, u32>,
    draining: u32,
    wants: u32,
) -> BTreeMap<NodeId, u32> {
    let state = &cx.switches[switch.index()];
    let Some(limit) = cx.rule_limit(switch) else { return BTreeMap::new() };
    // Rules that hosts share cannot be deleted for one of them. Rules that drain will be gone soon.
    let standing: u32 = holds.values().sum();
    let all = state.flow_rules + state.planned_rules;
    let shared = all.saturating_sub(standing).saturating_sub(draining);
    let capacity = limit.saturating_sub(state.base_rules).saturating_sub(shared);
    let Some(share) = fair_share(holds.values().copied().collect(), capacity).filter(|&share| wants < share) else {
        return BTreeMap::new();
    };
    holds.iter().filter(|&(_, &rules)| rules > share).map(|(&host, &rules)| (host, rules - share)).collect()
}

/// Order in which the flows of a host make room: first those that have ended, then those that sent nothing in the last
/// measuring period, those on assigned paths last, and the oldest first.
pub(crate) fn order(cx: &Context, id: FlowId, flow: &Flow) -> (u8, Nanos, FlowId) {
    let view = cx.view.flows.get(&id);
    let class = match view.and_then(|view| view.rate_bps.get()) {
        _ if flow.closed => 0,
        _ if crate::cookies::is_bound(id) => 3,
        Some(0) => 1,
        _ => 2,
    };
    (class, view.map_or(Nanos::ZERO, |view| view.arrived), id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_leaves_room_for_one_more_host() {
        assert_eq!(fair_share(vec![100], 100), Some(50));
        assert_eq!(fair_share(vec![50], 100), None);
        assert_eq!(fair_share(vec![90, 10], 100), Some(45));
        assert_eq!(fair_share(vec![60, 40], 100), Some(33));
        assert_eq!(fair_share(vec![1, 1, 1], 2), Some(0));
        assert_eq!(fair_share(vec![], 0), None);
    }
}
