//! Keeps the rules of flows within the budgets of switches ([`crate::budget`]): asks for room, and takes flows off
//! their paths to make room for those of other hosts.
//!
//! A flow that makes room leaves its path in the same order as any other: first its rule at the source ToR is deleted,
//! and the rules after it when no packet can be in transit any more. Until then and afterwards, its packets use the
//! default routes.

use super::Routes;
use crate::budget::{self, Holders};
use crate::context::Context;
use crate::flows::{note, Flow};
use crate::reasons::Decision;
use pathloom_model::{Attachment, NodeId, Path};
use pathloom_scheme::{FlowId, Rejection, RuleSharing};
use std::collections::BTreeMap;

/// Largest number of flows that make room at one switch at a time.
const MOST_AT_ONCE: usize = 256;
/// Largest number of flows of a host that are known although its source ToR has no rule for them. Schemes request
/// their paths again.
const MOST_WAITING: u32 = 64;

impl Routes {
    fn take_room(&mut self, cx: &mut Context, switch: NodeId, host: NodeId) -> bool {
        let Routes { flows, draining, orphans, budget, .. } = self;
        budget.take(cx, Holders { flows, draining, orphans }, switch, host)
    }

    /// Asks the switches that would need one more rule to put a flow on a path.
    pub(super) fn ask_for_rules(&mut self, cx: &mut Context, id: FlowId, path: &Path) -> Result<(), Rejection> {
        let Some(flow) = self.flows.get(id) else { return Ok(()) };
        let (tor, host) = (flow.tor(), budget::payer(flow));
        let later: Vec<NodeId> = match cx.needs.rules {
            _ if cx.rule_limit(tor).is_none() => return Ok(()),
            RuleSharing::PerFlow => path.links().iter().map(|&link| cx.fabric.link(link).to).collect(),
            RuleSharing::PerPath => {
                // Flows of many hosts share these rules.
                match self.labels.missing(cx, path).into_iter().find(|&switch| !cx.has_room(switch)) {
                    Some(full) => return Err(Rejection::OverBudget(full)),
                    None => Vec::new(),
                }
            }
        };
        match std::iter::once(tor).chain(later).find(|&switch| !self.take_room(cx, switch, host)) {
            Some(full) => {
                cx.counts.over_budget += 1;
                Err(Rejection::OverBudget(full))
            }
            None => Ok(()),
        }
    }

    /// Whether a flow of a host may become known. If it may not, its packets use the default routes.
    pub(super) fn may_arrive(&mut self, cx: &mut Context, src: &Attachment) -> bool {
        let Routes { flows, draining, orphans, budget, .. } = self;
        let has_room = budget.has_room(cx, Holders { flows, draining, orphans }, src.tor, src.host);
        has_room || flows.of_host(src.host) < budget.of_host(src.tor, src.host).saturating_add(MOST_WAITING)
    }

    /// Whether the source ToR of a flow has room for a rule that counts the flow. If the rule replaces another one,
    /// the host gets no more rules.
    pub(super) fn has_room_to_count(&mut self, cx: &mut Context, id: FlowId) -> bool {
        let Some(flow) = self.flows.get(id) else { return false };
        let (tor, host) = (flow.tor(), budget::payer(flow));
        let replaces = flow.staying().next().is_some();
        if replaces {
            return cx.has_room(tor);
        }
        self.take_room(cx, tor, host)
    }

    /// The switch and the host with the largest number of rules of one host at one switch.
    pub(crate) fn largest_holder(&self) -> Option<(NodeId, NodeId, u32)> {
        self.budget.largest()
    }

    /// Makes room at the switches at which hosts found none. Flows that have ended go first, then flows of hosts with
    /// more than their share.
    pub(crate) fn make_room(&mut self, cx: &mut Context) {
        let wanted = self.budget.begin_search(cx.now);
        let mut left: BTreeMap<NodeId, usize> = wanted.keys().map(|&switch| (switch, MOST_AT_ONCE)).collect();
        for id in self.finished_at(cx, &mut left) {
            self.retire(cx, id);
        }
        for (&switch, &wants) in &wanted {
            let most = left.get(&switch).copied().unwrap_or(0);
            for id in self.over_share(cx, switch, wants).into_iter().take(most) {
                self.evict(cx, id, switch);
            }
        }
    }

    /// Flows that have ended and still have rules at switches, as many as `left` says.
    fn finished_at(&self, cx: &Context, left: &mut BTreeMap<NodeId, usize>) -> Vec<FlowId> {
        let mut finished = Vec::new();
        for (id, flow) in self.flows.iter().filter(|(_, flow)| flow.closed && flow.staying().next().is_some()) {
            let at = budget::rules_of(cx, flow).find(|at| left.get(at).is_some_and(|&left| left > 0));
            if let Some(left) = at.and_then(|at| left.get_mut(&at)) {
                *left -= 1;
                finished.push(id);
            }
        }
        finished
    }

    /// Flows that must make room at a switch for a host with `wants` rules there, in order.
    fn over_share(&self, cx: &Context, switch: NodeId, wants: u32) -> Vec<FlowId> {
        let mut holds: BTreeMap<NodeId, u32> = BTreeMap::new();
        let mut there: Vec<(FlowId, &Flow)> = Vec::new();
        let mut draining = 0;
        for (id, flow) in self.flows.iter() {
            let rules = budget::rules_of(cx, flow).filter(|&at| at == switch).count() as u32;
            if rules == 0 {
                continue;
            }
            // A flow that is leaving the switch keeps its rules there until they have drained.
            if stays_at(cx, flow, switch) {
                *holds.entry(budget::payer(flow)).or_insert(0) += rules;
                there.push((id, flow));
            } else {
                draining += rules;
            }
        }
        let left = self.draining.values().flat_map(|left| &left.rules);
        draining += left.filter(|&&(at, _)| at == switch).count() as u32;
        let mut surplus = budget::surplus(cx, switch, &holds, draining, wants);
        there.sort_by_cached_key(|&(id, flow)| budget::order(cx, id, flow));
        let gives = |&(_, flow): &(FlowId, &Flow)| match surplus.get_mut(&budget::payer(flow)) {
            Some(more) if *more > 0 => {
                *more -= 1;
                true
            }
            _ => false,
        };
        there.into_iter().filter(gives).map(|(id, _)| id).collect()
    }

    /// Puts a flow on the default routes to make room at a switch. At its source ToR it needs a rule even there, so the
    /// controller does not know it any more.
    fn evict(&mut self, cx: &mut Context, id: FlowId, switch: NodeId) {
        let Some(flow) = self.flows.get(id) else { return };
        let at_source = flow.tor() == switch;
        cx.counts.made_room += 1;
        note(cx, &mut self.flows, id, Decision::MadeRoom { switch });
        if at_source {
            self.limits.lift(cx, &mut self.flows, id);
            self.finish(cx, id);
            self.retire(cx, id);
            return;
        }
        self.unroute(cx, id);
        self.unroute_way_back(cx, id);
        if cx.view.flows.contains_key(&id) {
            self.reject(cx, id, Rejection::OverBudget(switch));
        }
    }
}

/// Whether a flow will keep its rules at a switch: at its source ToR, or because packets enter a path over the switch.
fn stays_at(cx: &Context, flow: &Flow, switch: NodeId) -> bool {
    let enters = |plan: u8| {
        let moves = flow.current_move.as_deref();
        flow.staying().any(|source| source.plan == plan)
            || moves.is_some_and(|current| current.plan == plan || current.old_plan() == Some(plan))
    };
    let mut versions = flow.versions.iter();
    flow.tor() == switch || versions.any(|version| enters(version.plan) && version.stands_at(&cx.fabric, switch))
}
