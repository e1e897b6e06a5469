//! Seamless flow migration mechanism (SFMM: OFPT §5.3, Alg. 4), with the cases that the published algorithm leaves
//! open.
//!
//! A flow on a path moves in place. The rules of its new path match the same tag as those of the old path, but with a
//! lower priority. Therefore packets use the old path until its rules are deleted at the switches that both paths
//! have in common.
//!
//! 0. add the rules of the new path with low priority at all switches except the first;
//! 1. when all are confirmed, add the low rule at the source ToR;
//! 2. when this is confirmed, delete the old rule at the cutover switch before the bottleneck;
//! 3. then delete the old rules of the other cutover switches, which packets would match for ever (in the paper they
//!    expire);
//! 4. when all are confirmed, the old rules elsewhere drain, and copies of the new rules are added with normal
//!    priority;
//! 5. when all are confirmed, delete the low rules, so that the next migration has room below again.
//!
//! If a switch has no room for the copies, or rules of the flow drain under every plan, then the low rules stay. The
//! next move is by tags.
//!
//! The low rules are one version of the route, and their copies are another one. Therefore each has its own plan in
//! its cookies ([`crate::cookies`]), and a restarted controller can find out how far a migration had come
//! ([`crate::orphans`]). A flow is moved by tags instead ([`crate::plan`]) in four cases: it comes from the default
//! routes or returns to them; both paths visit two switches in opposite order; rules of an earlier path still drain
//! at switches of the new one; its rules are shared ([`crate::labels`]). A path that is requested between phases 2
//! and 4 is set up next. If a link dies then, or a session is lost, the flow returns to the default routes, which
//! only needs its source ToR.

mod order;

pub(crate) use order::bottleneck;
pub use order::{bottleneck_first, CutoverOrder};

use crate::context::Context;
use crate::flow_rules::FlowRules;
use crate::flows::Flow;
use crate::move_phase::{Cutover, Follows, InPlace, InPlacePhase, Move, Phase};
use crate::plan::{Step, Version};
use pathloom_model::rules::RuleKey;
use pathloom_model::{LinkId, NodeId, Path};
use pathloom_scheme::{FlowId, Migration, RuleSharing};

/// Returns the version of a flow that can be replaced in place by one for `path`. `None` if the flow must be moved by
/// tags. The cutover switches are not considered.
pub(crate) fn replaceable<'a>(cx: &Context, rules: &'a FlowRules, id: FlowId, path: &Path) -> Option<&'a Version> {
    if cx.needs.migration != Migration::Sfmm || cx.needs.rules != RuleSharing::PerFlow {
        return None;
    }
    let priorities = &cx.config.priorities;
    if priorities.hop(true) == priorities.hop(false) {
        // There is no priority below 0.
        return None;
    }
    let flow = rules.flows.get(id)?;
    let mut staying = flow.staying();
    let (source, None) = (staying.next()?, staying.next()) else { return None };
    let old = flow.version(source.plan).filter(|old| source.confirmed && !old.low && !old.is_shared())?;
    let usable = old.path.is_some() && old.cut.is_empty();
    let has_level = flow.level_below(source.level).is_some();
    (usable && has_level && !drains_on(cx, rules, flow, old.tag, path)).then_some(old)
}

/// Whether other rules of a flow with this tag exist at switches of a path. They would match before the low rules.
fn drains_on(cx: &Context, rules: &FlowRules, flow: &Flow, tag: u16, path: &Path) -> bool {
    let tuple = flow.key.five_tuple;
    let visited = order::switches(&cx.fabric, path);
    let blocks = |&(switch, key): &(NodeId, RuleKey)| key.matches.tag == Some(tag) && visited.contains(&switch);
    let more_versions = flow.versions.iter().filter(|version| version.tag == tag).count() > 1;
    let mut draining = rules.draining.range((tuple, 0)..=(tuple, u8::MAX));
    more_versions || draining.any(|(_, left)| left.rules.iter().any(blocks))
}

/// All steps of a phase of a move in place are confirmed. Records which rules are gone, and prepares the next phase.
/// `None` if the flow does not move in place.
pub(crate) fn next_phase(cx: &mut Context, rules: &mut FlowRules, id: FlowId) -> Option<Follows> {
    let flow = rules.flows.get_mut(id)?;
    let Phase::InPlace(way) = &mut flow.current_move.as_deref_mut()?.phase else { return None };
    let first = way.order.len().min(1);
    match way.phase.clone() {
        InPlacePhase::AddHops { old } => way.phase = InPlacePhase::AddSource { old },
        InPlacePhase::AddSource { old } => way.phase = InPlacePhase::CutFirst(Cutover { old, next: None }),
        InPlacePhase::CutFirst(cutover) => {
            let (old, gone) = (cutover.old, way.order[..first].to_vec());
            way.phase = InPlacePhase::CutRest(cutover);
            note_cut(cx, flow, old, &gone);
        }
        InPlacePhase::CutRest(Cutover { old, next }) => {
            let gone = way.order[first..].to_vec();
            note_cut(cx, flow, old, &gone);
            return Some(match next {
                Some(next) => Follows::MoveTo(next),
                None => raise_priority(cx, rules, id),
            });
        }
        InPlacePhase::AddCopies { plan: copy, .. } => {
            way.phase = InPlacePhase::DeleteLow { copy };
            flow.confirm(copy);
        }
        InPlacePhase::DeleteLow { .. } => return Some(Follows::Arrival),
    }
    Some(Follows::Phase)
}

/// The flow is on its new path. Prepares the phase that adds copies of its low rules with normal priority, if they have
/// room. Otherwise the low rules stay.
fn raise_priority(cx: &mut Context, rules: &mut FlowRules, id: FlowId) -> Follows {
    let Some(flow) = rules.flows.get(id) else { return Follows::Arrival };
    let low = flow.current_move.as_deref().and_then(|current_move| flow.version(current_move.plan)).cloned();
    let path = low.as_ref().and_then(|version| version.path.as_ref());
    let roomy = path.is_some_and(|path| order::switches(&cx.fabric, path).iter().all(|&at| cx.has_room(at)));
    let plan = if roomy { rules.flows.take_plan(id, &rules.draining) } else { None };
    let (Some(low), Some(plan)) = (low, plan) else { return Follows::Arrival };
    let Some(flow) = rules.flows.get_mut(id) else { return Follows::Arrival };
    let level = flow.highest_free_level();
    if let Some(Phase::InPlace(way)) = flow.current_move.as_deref_mut().map(|current_move| &mut current_move.phase) {
        way.phase = InPlacePhase::AddCopies { plan, level };
        flow.versions.push(Version { plan, low: false, ..low });
    }
    rules.settle(cx, id);
    Follows::Phase
}

/// Records that the rules of a version at these switches are gone.
fn note_cut(cx: &mut Context, flow: &mut Flow, plan: u8, switches: &[NodeId]) {
    let tor = flow.tor();
    let Some(old) = flow.versions.iter_mut().find(|version| version.plan == plan) else { return };
    let gone: Vec<NodeId> = switches.iter().copied().filter(|&at| at != tor && !old.cut.contains(&at)).collect();
    old.cut = old.cut.iter().chain(&gone).copied().collect();
    for at in gone {
        cx.count_rules(at, -1);
    }
}

/// The normal rules are confirmed and are the flow's version from now on. The low rules are deleted at once, because
/// the normal rule at each switch has the same effect.
pub(crate) fn forget_low(cx: &mut Context, flow: &mut Flow, copy: u8) {
    let Some(current_move) = flow.current_move.as_mut() else { return };
    let low = std::mem::replace(&mut current_move.plan, copy);
    let Some(index) = flow.versions.iter().position(|version| version.plan == low) else { return };
    let version = flow.versions.remove(index);
    let hops: Vec<NodeId> = cx.planner().hops(&flow.key, &version).map(|(at, _)| at).collect();
    hops.into_iter().for_each(|at| cx.count_rules(at, -1));
}

/// Deletes the copies with normal priority, if the low rules are still there.
pub(crate) fn drop_copy(cx: &mut Context, rules: &mut FlowRules, id: FlowId) {
    let Some(flow) = rules.flows.get_mut(id) else { return };
    let Some(plan) = flow.current_move.as_ref().and_then(|current_move| current_move.added_copy()) else { return };
    let Some(index) = flow.versions.iter().position(|version| version.plan == plan) else { return };
    let copy = flow.versions.remove(index);
    let key = flow.key;
    rules.leave(cx, id, plan);
    let hop = cx.planner().hop_key(key.five_tuple, &copy);
    let hops: Vec<NodeId> = cx.planner().hops(&key, &copy).map(|(at, _)| at).collect();
    for at in hops {
        cx.count_rules(at, -1);
        if cx.is_ready(at) {
            cx.delete_rule(at, hop);
        }
    }
}

/// Whether a requested path must wait, because the flow is between two paths. If so, stores it.
pub(crate) fn defer_path(cx: &mut Context, rules: &mut FlowRules, id: FlowId, path: &Path) -> bool {
    let Some(flow) = rules.flows.get_mut(id) else { return false };
    let Some(current_move) = flow.current_move.as_deref_mut() else { return false };
    let plan = current_move.plan;
    let Some(cutover) = current_move.cutover_mut() else { return false };
    let there = flow.versions.iter().any(|version| version.plan == plan && version.path.as_ref() == Some(path));
    cutover.next = Some(path.clone()).filter(|_| !there);
    if let Some(view) = cx.view.flows.get_mut(&id) {
        view.pending = Some(path.clone());
    }
    true
}

/// The old and the new path of a flow that moves in place.
fn paths_in_place(flow: &Flow) -> impl Iterator<Item = &Path> {
    let current_move = flow.current_move.as_ref().filter(|current_move| current_move.stage().is_some());
    let plans = current_move.map(|current_move| [Some(current_move.plan), current_move.old_plan()]);
    plans.into_iter().flatten().flatten().filter_map(|plan| flow.version(plan)?.path.as_ref())
}

/// Returns a link of the same cable as `dead` that the old or new path of a move in place uses.
pub(crate) fn cut_in_place(flow: &Flow, dead: LinkId) -> Option<LinkId> {
    let on_cable = |path: &Path| path.links().iter().copied().find(|link| link.cable() == dead.cable());
    paths_in_place(flow).find_map(on_cable)
}

/// Whether a move in place needs a switch.
pub(crate) fn moves_in_place_at(cx: &Context, flow: &Flow, switch: NodeId) -> bool {
    paths_in_place(flow).any(|path| order::switches(&cx.fabric, path).contains(&switch))
}

/// Returns the steps of the current phase of a move in place; `None` if a version that it needs is gone.
pub(crate) fn steps_in_place(cx: &Context, flow: &Flow, current_move: &Move, way: &InPlace) -> Option<Vec<Step>> {
    let planner = cx.planner();
    let (key, tor) = (&flow.key, flow.tor());
    let adds = |version: &Version| planner.hops(key, version).map(|(at, rule)| Step::Add(at, rule)).collect();
    let source_of = |plan: u8| flow.staying().find(|source| source.plan == plan);
    let delete_source =
        |plan: u8| source_of(plan).map(|source| Step::Delete(tor, planner.source_key(key, source.level)));
    let new = flow.version(current_move.plan)?;
    match way.phase {
        InPlacePhase::AddHops { .. } => Some(adds(new)),
        InPlacePhase::AddSource { .. } => Some(vec![Step::Add(tor, planner.source(key, new, current_move.level))]),
        InPlacePhase::CutFirst(ref cutover) | InPlacePhase::CutRest(ref cutover) => {
            let old = flow.version(cutover.old)?;
            let (first, rest) = way.order.split_at(way.order.len().min(1));
            let now = if matches!(way.phase, InPlacePhase::CutFirst(_)) { first } else { rest };
            let hop = planner.hop_key(key.five_tuple, old);
            let stands = |&&at: &&NodeId| planner.hops(key, old).any(|(other, _)| other == at);
            let hops = now.iter().filter(stands).map(|&at| Step::Delete(at, hop));
            let source = now.contains(&tor).then(|| delete_source(old.plan)).flatten();
            Some(source.into_iter().chain(hops).collect())
        }
        InPlacePhase::AddCopies { plan, level } => {
            let copy = flow.version(plan)?;
            let mut steps: Vec<Step> = adds(copy);
            steps.push(Step::Add(tor, planner.source(key, copy, level)));
            Some(steps)
        }
        InPlacePhase::DeleteLow { .. } => {
            let low = planner.hop_key(key.five_tuple, new);
            let hops = planner.hops(key, new).map(|(at, _)| Step::Delete(at, low));
            Some(delete_source(new.plan).into_iter().chain(hops).collect())
        }
    }
}
