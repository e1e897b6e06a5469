//! Compares the flow rules of a switch with those that it should have, after a lost session or a restart of the
//! controller.

use super::adoption::{self, drop_orphan};
use crate::context::Context;
use crate::cookies::{Cookie, RuleKind};
use crate::flow_rules::{five_tuple, FlowRules};
use crate::flows::{Flow, SourceRule};
use crate::orphans::Orphans;
use crate::plan::Version;
use crate::switches::Purpose;
use pathloom_model::rules::Rule;
use pathloom_model::NodeId;
use pathloom_scheme::{Event, FlowId, Rejection};
use std::collections::BTreeMap;
use std::num::NonZeroU32;

/// Rules of flows that were found in a switch.
#[derive(Default)]
pub(super) struct Found {
    of_flows: BTreeMap<FlowId, Vec<(Cookie, Rule)>>,
    /// Whether the switch has no rule of the controller.
    pub wiped: bool,
}

/// What the comparison of a rule at the source ToR means for its flow.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Finding {
    /// The rule is as it should be, or will be.
    Right,
    /// The rule had to be deleted and is gone. This confirms a step of the move with this number.
    Gone(Option<NonZeroU32>),
    /// The rule stands. This confirms a step of the move with this number.
    Arrived(NonZeroU32),
    /// The rule expired while there was no session.
    Expired,
}

impl Found {
    /// Sorts the rules of a switch.
    pub(super) fn of(rules: Vec<Rule>) -> Found {
        let mut found = Found { wiped: true, ..Found::default() };
        for rule in rules {
            let Some(cookie) = Cookie::decode(rule.cookie) else { continue };
            found.wiped = false;
            if matches!(cookie.kind, RuleKind::Source | RuleKind::Hop) {
                found.of_flows.entry(cookie.flow).or_default().push((cookie, rule));
            }
        }
        found
    }

    /// The rules of a flow.
    pub(super) fn of_flow(&self, id: FlowId) -> &[(Cookie, Rule)] {
        self.of_flows.get(&id).map_or(&[], Vec::as_slice)
    }

    /// All rules, in the order of their flows.
    pub(super) fn into_rules(self) -> impl Iterator<Item = (FlowId, Cookie, Rule)> {
        let rules = |(id, rules): (FlowId, Vec<(Cookie, Rule)>)| rules.into_iter().map(move |(c, rule)| (id, c, rule));
        self.of_flows.into_iter().flat_map(rules)
    }
}

/// The source ToR of a flow from a snapshot has been read. Checks whether the snapshot is still right. Returns the
/// events for the scheme.
pub(super) fn verify(
    cx: &mut Context,
    (rules, orphans): (&mut FlowRules, &mut Orphans),
    id: FlowId,
    found: &[(Cookie, Rule)],
    wiped: bool,
) -> Vec<Event> {
    let Some(flow) = rules.flows.get_mut(id) else { return Vec::new() };
    let interrupted = std::mem::take(&mut flow.interrupted);
    flow.unverified = false;
    // An unsent rule was planned after the start. A found rule with its plan is an older one.
    let known = |cookie: &Cookie| flow.sources.iter().any(|source| source.plan == cookie.plan && source.sent);
    let sources = || found.iter().filter(|(cookie, _)| cookie.kind == RuleKind::Source);
    let leaving = |plan: u8| flow.sources.iter().any(|source| source.plan == plan && source.leaving);
    // The snapshot took a move in place for given up, but the move was completed: only its rule exists.
    let is_past = |(cookie, rule): &(Cookie, Rule)| {
        leaving(cookie.plan) && flow.version(cookie.plan).is_none() && !rule.actions.is_empty()
    };
    let moved_on = sources().any(is_past) && sources().all(|(cookie, _)| leaving(cookie.plan));
    if moved_on || sources().any(|(cookie, _)| !known(cookie)) {
        adoption::make_orphan(cx, rules, orphans, id, found);
        return Vec::new();
    }
    let (tor, closed) = (flow.tor(), flow.closed);
    drop_orphan(cx, rules, orphans, id);
    let stands = wiped || found.iter().any(|(cookie, _)| cookie.kind == RuleKind::Source);
    if !(stands && !closed && cx.is_long(id)) {
        return Vec::new();
    }
    let rejected = Event::RouteRejected { flow: id, why: Rejection::SwitchGone(tor) };
    std::iter::once(Event::FlowAdopted { flow: id }).chain(interrupted.then_some(rejected)).collect()
}

/// Compares a rule of a known flow at its source ToR with those that were found, and sends what it lacks.
pub(super) fn compare_source(
    cx: &mut Context,
    rules: &mut FlowRules,
    id: FlowId,
    source: SourceRule,
    (found, wiped): (&[(Cookie, Rule)], bool),
) -> Finding {
    let Some(flow) = rules.flows.get_mut(id) else { return Finding::Right };
    let (tor, key, plan) = (flow.tor(), flow.key, source.plan);
    let base = cx.config.priorities.flow;
    let same = || found.iter().filter(|(cookie, _)| (cookie.kind, cookie.plan) == (RuleKind::Source, plan));
    let there = same().any(|(_, rule)| rule.priority == base + u16::from(source.level));
    let version = flow.version(plan).cloned().unwrap_or_else(|| Version::new(plan, None));
    let planned = cx.planner().source(&key, &version, source.level);
    // The rule exists, but with another meter or another port.
    let outdated = same()
        .any(|(_, rule)| (rule.meter, &rule.actions, rule.goto) != (planned.meter, &planned.actions, planned.goto));
    let current_move = flow.current_move.as_ref().filter(|current_move| !current_move.adds_hops());
    let number = current_move.map(|current_move| current_move.number);
    let step = number.map(|number| Purpose::Step { flow: id, number });
    let arriving = current_move.is_some_and(|current_move| current_move.adds_source() && current_move.plan == plan);
    match (source.leaving, there) {
        (true, true) => {
            let xid = cx.delete_rule(tor, cx.planner().source_key(&key, source.level));
            cx.await_answer(tor, xid, Purpose::Gone { flow: id, plan });
            step.into_iter().for_each(|step| cx.await_answer(tor, xid, step));
        }
        (true, false) => return Finding::Gone(number),
        (false, true) if outdated => {
            cx.add_rule(tor, planned, step.filter(|_| arriving).unwrap_or(Purpose::Renewed { flow: id, plan }));
        }
        (false, true) if arriving => return number.map_or(Finding::Right, Finding::Arrived),
        (false, true) => flow.confirm(plan),
        (false, false) if arriving || wiped || !source.confirmed => {
            cx.add_rule(tor, planned, step.filter(|_| arriving).unwrap_or(Purpose::Count { flow: id, plan }));
            flow.mark_sent(plan);
        }
        (false, false) => return Finding::Expired,
    }
    if there && (source.leaving || outdated) {
        // The found rule may have been the last one to use its meter.
        same().for_each(|(_, rule)| rules.limits.meter_unnamed(cx, &rules.flows, tor, rule));
    }
    Finding::Right
}

/// Adds the rules that a switch lacks for the paths of a known flow. If the flow is of a snapshot that is not checked yet,
/// and the switch has a rule of another plan with the same tag, the flow was moved in place since, and the rule of the
/// snapshot would lead it back.
pub(super) fn compare_hops(cx: &mut Context, rules: &FlowRules, switch: NodeId, id: FlowId, found: &[(Cookie, Rule)]) {
    let Some(flow) = rules.flows.get(id) else { return };
    let carries = |version: &&Version| flow.staying().any(|source| source.plan == version.plan);
    let mut missing: Vec<Rule> = Vec::new();
    for version in flow.versions.iter().filter(carries) {
        let planner = cx.planner();
        let rules = planner.hops(&flow.key, version).filter(|&(at, _)| at == switch).map(|(_, rule)| rule);
        let moved_on =
            |(cookie, other): &(Cookie, Rule)| cookie.plan != version.plan && other.matches.tag == Some(version.tag);
        if flow.unverified && found.iter().any(moved_on) {
            continue;
        }
        missing.extend(rules.filter(|rule| found.iter().all(|(_, other)| other != rule)));
    }
    for rule in missing {
        cx.add_rule(switch, rule, Purpose::Hop { flow: id });
    }
}

/// Whether the version of a plan has a rule at a switch after the source ToR.
fn has_hop(cx: &Context, flow: &Flow, plan: u8, switch: NodeId) -> bool {
    flow.version(plan).is_some_and(|version| version.stands_at(&cx.fabric, switch))
}

/// Handles a found rule of a flow. If the flow is known and does not need the rule, it is deleted. If the flow is not
/// known, the rule is stored in [`crate::orphans`].
pub(super) fn found_rule(
    cx: &mut Context,
    (rules, orphans): (&mut FlowRules, &mut Orphans),
    switch: NodeId,
    (id, cookie, rule): (FlowId, Cookie, Rule),
) {
    let draining = rules.is_draining(switch, &rule.key(), cookie.plan);
    let Some(flow) = rules.flows.get(id) else {
        if !draining || cookie.kind == RuleKind::Source {
            adoption::add_orphan(cx, rules, orphans, switch, (id, cookie, rule));
        }
        return;
    };
    let wanted = match cookie.kind {
        RuleKind::Source => {
            let level = |level: u8| cx.config.priorities.flow + u16::from(level) == rule.priority;
            let same = |known: &SourceRule| known.plan == cookie.plan && level(known.level);
            flow.tor() == switch && flow.sources.iter().any(same)
        }
        _ if has_hop(cx, flow, cookie.plan, switch) || draining => true,
        _ if flow.unverified => return adoption::add_orphan(cx, rules, orphans, switch, (id, cookie, rule)),
        _ => false,
    };
    match (wanted, cookie.kind, five_tuple(&rule.key())) {
        (true, ..) => {}
        // Packets that entered the path before may still be in transit.
        (false, RuleKind::Hop, Some(tuple)) => {
            cx.count_rules(switch, 1);
            rules.drain_hops(cx, tuple, std::iter::once((cookie.plan, switch, rule.key())));
        }
        _ => rules.limits.delete_found(cx, &rules.flows, switch, &rule),
    }
}
