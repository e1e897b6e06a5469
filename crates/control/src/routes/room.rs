//! Keeps the rules of flows within the budgets of switches ([`crate::budget`]): asks for room, and finds the flows that
//! leave their paths to make room for those of other hosts.
//!
//! A flow that makes room leaves its path in the same order as any other: first its rule at the source ToR is deleted,
//! and the rules after it when no packet can be in transit any more. Until then and afterwards, its packets use the
//! default routes.

use crate::budget::{self, Budget, Holders};
use crate::context::Context;
use crate::flow_rules::FlowRules;
use crate::flows::Flow;
use crate::orphans::Orphans;
use pathloom_model::{Attachment, Nanos, NodeId, Path};
use pathloom_scheme::{FlowId, Rejection, RuleSharing};
use std::collections::BTreeMap;

/// Largest number of flows that make room at one switch at a time.
const MOST_AT_ONCE: usize = 256;
/// Largest number of flows of a host that are known although its source ToR has no rule for them. Schemes request
/// their paths again.
const MOST_WAITING: u32 = 64;

/// The budgets of hosts.
#[derive(Default)]
pub(super) struct Room {
    budget: Budget,
}

impl Room {
    fn take(&mut self, cx: &mut Context, rules: &FlowRules, orphans: &Orphans, switch: NodeId, host: NodeId) -> bool {
        self.budget.take(cx, holders(rules, orphans), switch, host)
    }

    /// Asks the switches that would need one more rule to put a flow on a path.
    pub(super) fn ask_for_rules(
        &mut self,
        cx: &mut Context,
        rules: &FlowRules,
        orphans: &Orphans,
        (id, path): (FlowId, &Path),
    ) -> Result<(), Rejection> {
        let Some(flow) = rules.flows.get(id) else { return Ok(()) };
        let (tor, host) = (flow.tor(), budget::payer(flow));
        let mut switches = std::iter::once(tor).chain(path.links().iter().map(|&link| cx.fabric.link(link).to));
        if !switches.any(|at| cx.rule_limit(at).is_some()) {
            return Ok(());
        }
        let later: Vec<NodeId> = match cx.needs.rules {
            RuleSharing::PerFlow => path.links().iter().map(|&link| cx.fabric.link(link).to).collect(),
            // Flows of many hosts share these rules. They count for the host that needs them first.
            RuleSharing::PerPath => rules.labels.missing(cx, path),
        };
        match std::iter::once(tor).chain(later).find(|&switch| !self.take(cx, rules, orphans, switch, host)) {
            Some(full) => {
                cx.counts.over_budget += 1;
                Err(Rejection::OverBudget(full))
            }
            None => Ok(()),
        }
    }

    /// Whether a flow of a host may become known. If it may not, its packets use the default routes.
    pub(super) fn may_arrive(
        &mut self,
        cx: &mut Context,
        rules: &FlowRules,
        orphans: &Orphans,
        src: &Attachment,
    ) -> bool {
        let most = |budget: &Budget| budget.of_host(src.tor, src.host).saturating_add(MOST_WAITING);
        let has_room = self.budget.has_room(cx, holders(rules, orphans), src.tor, src.host);
        has_room || rules.flows.of_host(src.host) < most(&self.budget)
    }

    /// Whether the source ToR of a flow has room for a rule that counts the flow. If the rule replaces another one,
    /// the host gets no more rules.
    pub(super) fn has_room_to_count(
        &mut self,
        cx: &mut Context,
        rules: &FlowRules,
        orphans: &Orphans,
        id: FlowId,
    ) -> bool {
        let Some(flow) = rules.flows.get(id) else { return false };
        let (tor, host) = (flow.tor(), budget::payer(flow));
        let replaces = flow.staying().next().is_some();
        if replaces {
            return cx.has_room(tor);
        }
        self.take(cx, rules, orphans, tor, host)
    }

    /// The switch and the host with the largest number of rules of one host at one switch.
    pub(super) fn largest_holder(&self) -> Option<(NodeId, NodeId, u32)> {
        self.budget.largest()
    }

    /// Begins to make room: the switches at which hosts found none, each with the lowest number of rules of such a
    /// host.
    pub(super) fn begin_search(&mut self, now: Nanos) -> BTreeMap<NodeId, u32> {
        self.budget.begin_search(now)
    }
}

fn holders<'a>(rules: &'a FlowRules, orphans: &'a Orphans) -> Holders<'a> {
    Holders { flows: &rules.flows, draining: &rules.draining, orphans, labels: &rules.labels }
}

/// Flows that have ended and still have rules at switches, at most [`MOST_AT_ONCE`] at each of these. Returns how many
/// more may make room at each.
pub(super) fn finished_at(
    cx: &Context,
    rules: &FlowRules,
    switches: impl Iterator<Item = NodeId>,
) -> (Vec<FlowId>, BTreeMap<NodeId, usize>) {
    let mut left: BTreeMap<NodeId, usize> = switches.map(|switch| (switch, MOST_AT_ONCE)).collect();
    let mut finished = Vec::new();
    for (id, flow) in rules.flows.iter().filter(|(_, flow)| flow.closed && flow.staying().next().is_some()) {
        let at = budget::rules_of(cx, flow).find(|at| left.get(at).is_some_and(|&left| left > 0));
        if let Some(left) = at.and_then(|at| left.get_mut(&at)) {
            *left -= 1;
            finished.push(id);
        }
    }
    (finished, left)
}

/// Flows that must make room at a switch for a host with `wants` rules there, in order.
pub(super) fn over_share(cx: &Context, rules: &FlowRules, switch: NodeId, wants: u32) -> Vec<FlowId> {
    let mut holds: BTreeMap<NodeId, u32> = BTreeMap::new();
    let mut there: Vec<(FlowId, &Flow)> = Vec::new();
    let mut draining = 0;
    for (id, flow) in rules.flows.iter() {
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
    let left = rules.draining.values().flat_map(|left| &left.rules);
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
