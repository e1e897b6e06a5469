//! Adoption of unknown flows whose rules are found in switches. Those with a complete path are adopted, and useless
//! rules are deleted.

use crate::budget::payer;
use crate::context::Context;
use crate::cookies::{epoch_and_serial, is_bound, is_way_back, Cookie, RuleKind, PLANS};
use crate::flow_rules::FlowRules;
use crate::flows::{note, Flow, SourceRule};
use crate::orphans::{key_of, Orphan, Orphans};
use crate::plan::{tag, FlowKey, Version, LEVELS};
use crate::reasons::Decision;
use pathloom_model::rules::{Match, Rule, RuleAction};
use pathloom_model::{NodeId, Path};
use pathloom_scheme::{FlowId, FlowView};

/// Stores a found rule of a flow that is not known.
pub(super) fn add_orphan(
    cx: &mut Context,
    rules: &mut FlowRules,
    orphans: &mut Orphans,
    switch: NodeId,
    (id, cookie, rule): (FlowId, Cookie, Rule),
) {
    let (epoch, serial) = epoch_and_serial(id);
    if epoch == cx.config.epoch {
        rules.flows.skip_to(serial + 1);
    }
    let Some(key) = key_of(cx, id, &rule.matches) else {
        // Its addresses do not exist on this fabric.
        rules.limits.delete_found(cx, &rules.flows, switch, &rule);
        return;
    };
    let level = rule.priority.checked_sub(cx.config.priorities.flow).filter(|&level| level < u16::from(LEVELS));
    let is_source = cookie.kind == RuleKind::Source;
    if is_source && (key.src.tor != switch || level.is_none()) {
        rules.limits.delete_found(cx, &rules.flows, switch, &rule);
        return;
    }
    if !is_source {
        rules.replaced(cx, switch, &rule.key(), cookie.plan);
    }
    orphans.add(switch, &key, (is_source, cookie.plan), rule);
    cx.count_rules(switch, 1);
}

/// Returns the flow of rules of which that of `plan` is effective, and its version if it is on a path.
fn flow_of(cx: &Context, orphan: &Orphan, key: FlowKey, (plan, path): (u8, Option<&Path>)) -> (Flow, Option<Version>) {
    let mut flow = Flow::new(key);
    let base = cx.config.priorities.flow;
    flow.sources.extend(orphan.sources.iter().map(|(plan, rule)| SourceRule {
        plan: *plan,
        level: (rule.priority - base) as u8,
        bytes: 0,
        sent: true,
        confirmed: true,
        leaving: false,
    }));
    // Keeps distance from the plans that the previous controller may have started, which switches may still report.
    flow.plans = (plan + PLANS / 3) % PLANS;
    flow.measured_bytes = None.into();
    flow.key.meter = orphan.sources.iter().find_map(|(_, rule)| rule.meter);
    let source = orphan.sources.iter().find(|(other, _)| *other == plan).map(|(_, rule)| rule.actions.first());
    let tag = match source {
        Some(Some(&RuleAction::SetTag(tag))) => tag,
        _ => tag(plan),
    };
    let normal = cx.config.priorities.hop(false);
    let low = orphan.hops.iter().any(|(&(other, _), rule)| other == plan && rule.priority < normal);
    let version = path.map(|path| Version { tag, low, ..Version::new(plan, Some(path.clone())) });
    (flow, version)
}

/// Adds a flow whose rule of `plan` is effective to the known flows, and deletes rules that the flow does not need.
/// Returns whether the flow was unknown.
pub(super) fn adopt(
    cx: &mut Context,
    rules: &mut FlowRules,
    orphans: &mut Orphans,
    id: FlowId,
    (plan, path): (u8, Option<Path>),
) -> bool {
    let Some(orphan) = orphans.remove(id) else { return false };
    let Some(key) = key_of(cx, id, &Match::five_tuple(orphan.five_tuple)) else { return false };
    let (mut flow, version) = flow_of(cx, &orphan, key, (plan, path.as_ref()));
    flow.key.meter.into_iter().for_each(|meter| rules.limits.adopted(cx, id, key.src.tor, meter));
    if let Some(version) = version {
        rules.labels.claim_version(cx, &version, payer(&flow));
        flow.versions.push(version);
    }
    let on_path = path.is_some();
    let measured = cx.needs.detection.nic_share().is_some();
    let long = (on_path || !measured) && !is_way_back(id) && !is_bound(id);
    rules.insert_flow(cx, flow, long);
    cx.counts.adopted += 1;
    let remembered = orphans.take_remembered(id);
    if let Some(view) = cx.view.flows.get_mut(&id) {
        if let Some(old) = remembered {
            *view = FlowView { pending: None, bytes: 0, rate_bps: None.into(), ..old };
        }
        view.long |= long;
        view.route = path;
    }
    for &(other, _) in orphan.sources.iter().filter(|&&(other, _)| other != plan) {
        rules.leave(cx, id, other);
    }
    let useless = orphan.hops.into_iter().filter(|&((other, _), _)| !on_path || other != plan);
    take_away(cx, rules, id, plan, useless.collect());
    if let Some(path) = cx.view.flows.get(&id).and_then(|view| view.route.clone()) {
        note(cx, &mut rules.flows, id, Decision::Adopted { path });
    }
    true
}

/// Deletes rules of plans that an adopted flow does not need. If the flow's version has a rule with the same tag at a
/// switch, that rule replaces the deleted one at once. This completes a cutover that was done in part. Other rules
/// drain.
fn take_away(cx: &mut Context, rules: &mut FlowRules, id: FlowId, plan: u8, useless: Vec<((u8, NodeId), Rule)>) {
    let Some(flow) = rules.flows.get(id) else { return };
    let (five_tuple, fabric) = (flow.key.five_tuple, &cx.fabric);
    let acts = |at: NodeId, rule: &Rule| {
        flow.version(plan).is_some_and(|on| rule.matches.tag == Some(on.tag) && on.stands_at(fabric, at))
    };
    let (replaced, left): (Vec<_>, Vec<_>) = useless.into_iter().partition(|((_, at), rule)| acts(*at, rule));
    for ((_, at), rule) in replaced {
        cx.count_rules(at, -1);
        if cx.is_ready(at) {
            cx.delete_rule(at, rule.key());
        }
    }
    rules.drain_hops(cx, five_tuple, left.into_iter().map(|((plan, at), rule)| (plan, at, rule.key())));
}

/// The rules at the source ToR of a flow are newer than the snapshot. The routes in the snapshot are discarded.
pub(super) fn make_orphan(
    cx: &mut Context,
    rules: &mut FlowRules,
    orphans: &mut Orphans,
    id: FlowId,
    found: &[(Cookie, Rule)],
) {
    let Some(flow) = rules.flows.get_mut(id) else { return };
    let (tor, staying) = (flow.tor(), flow.staying().count());
    let meter = flow.key.meter;
    flow.sources.clear();
    cx.count_rules(tor, -(staying as i32));
    if flow.current_move.as_ref().is_some_and(|current_move| current_move.adds_hops()) {
        cx.plan_rules(tor, -1);
    }
    orphan_hops(cx, rules, orphans, id);
    rules.settle(cx, id);
    // The flow gets the meter that its rules use. Another meter is deleted, so that it does not remain.
    if !found.iter().any(|(_, rule)| rule.meter == meter) {
        rules.limits.forget(cx, &rules.flows, id);
    }
    rules.flows.remove(id);
    if let Some(view) = cx.view.flows.remove(&id) {
        orphans.remember(id, view);
    }
}

/// Makes the rules of a flow at later switches those of an orphan. They must not drain: a later move in place may still
/// use some of them, and may have put rules with the same keys in place of others. Switches that are not read yet will
/// show what they have.
fn orphan_hops(cx: &mut Context, rules: &mut FlowRules, orphans: &mut Orphans, id: FlowId) {
    let Some(flow) = rules.flows.get_mut(id) else { return };
    let key = flow.key;
    let own: Vec<Version> = flow.versions.iter().filter(|version| !version.is_shared()).cloned().collect();
    flow.versions.retain(Version::is_shared);
    for version in &own {
        let hops: Vec<(NodeId, Rule)> = cx.planner().hops(&key, version).collect();
        for (at, rule) in hops {
            if cx.is_ready(at) && !orphans.has_rule(id, at, &rule.key()) {
                orphans.add(at, &key, (false, version.plan), rule);
            } else {
                cx.count_rules(at, -1);
            }
        }
    }
}

/// Removes an orphan without a rule at its source ToR. Its rules at later switches are deleted when no packet can be in
/// transit any more.
pub(super) fn drop_orphan(cx: &mut Context, rules: &mut FlowRules, orphans: &mut Orphans, id: FlowId) {
    if let Some(orphan) = orphans.remove(id) {
        let hops = orphan.hops.into_iter();
        rules.drain_hops(cx, orphan.five_tuple, hops.map(|((plan, at), rule)| (plan, at, rule.key())));
    }
}
