//! Finds the flows whose paths are interrupted: by dead links, lost sessions, and switches without room for shared rules.

use crate::context::Context;
use crate::flow_rules::FlowRules;
use crate::flows::Flow;
use crate::plan::Version;
use crate::sfmm;
use pathloom_model::{Attachment, LinkId, NodeId};
use pathloom_scheme::FlowId;

/// Returns a link of the same cable as `dead` that a version of a flow uses.
fn crossing(flow: &Flow, plan: u8, dead: LinkId) -> Option<LinkId> {
    let path = flow.version(plan)?.path.as_ref()?;
    path.links().iter().copied().find(|link| link.cable() == dead.cable())
}

/// If a flow moves to a path over a dead link, returns the link, and whether the move is committed.
pub(super) fn dead_move(flow: &Flow, dead: LinkId) -> Option<(LinkId, bool)> {
    let current_move = flow.current_move.as_ref()?;
    crossing(flow, current_move.plan, dead).map(|link| (link, current_move.is_committed()))
}

/// The plans of a flow whose rules at the source ToR lead to paths over a dead link.
pub(super) fn dead_plans(flow: &Flow, dead: LinkId) -> Vec<u8> {
    flow.staying().map(|source| source.plan).filter(|&plan| crossing(flow, plan, dead).is_some()).collect()
}

/// Flows whose moves end because the session to a switch was lost, which may or may not have received unconfirmed
/// messages: those that move in place over the switch, and those of other moves that have not reached their source
/// ToR. Others continue when the source ToR is back.
pub(super) fn broken_moves(cx: &Context, rules: &FlowRules, switch: NodeId) -> (Vec<FlowId>, Vec<FlowId>) {
    let hit = |&id: &FlowId| {
        let Some(flow) = rules.flows.get(id) else { return false };
        let Some(current_move) = flow.current_move.as_ref().filter(|current_move| current_move.adds_hops()) else {
            return false;
        };
        let path = flow.version(current_move.plan).and_then(|version| version.path.as_ref());
        let visits = |link: &LinkId| cx.fabric.link(*link).to == switch;
        flow.tor() == switch || path.is_some_and(|path| path.links().iter().any(visits))
    };
    let in_place = |&id: &FlowId| rules.flows.get(id).is_some_and(|flow| sfmm::moves_in_place_at(cx, flow, switch));
    let broken: Vec<FlowId> = rules.routed().filter(in_place).collect();
    let hit = rules.routed().filter(|id| !broken.contains(id) && hit(id)).collect();
    (broken, hit)
}

/// Flows with an end that has moved, so that their paths lead to its old place.
pub(super) fn of_old_places(cx: &Context, rules: &FlowRules) -> Vec<FlowId> {
    let gone = |at: &Attachment| cx.attachment(at.address).is_none_or(|now| now.uplink != at.uplink);
    let moved = |flow: &Flow| gone(&flow.key.src) || gone(&flow.key.dst);
    rules.flows.iter().filter(|(_, flow)| moved(flow)).map(|(id, _)| id).collect()
}

/// Flows on paths that need the rule of a label at a switch. Moves that wait for the rule are left out.
pub(super) fn users_of_label(cx: &Context, rules: &FlowRules, switch: NodeId, label: u16) -> Vec<FlowId> {
    let uses = |flow: &Flow| {
        let waits =
            |version: &Version| flow.current_move.as_ref().is_some_and(|m| m.plan == version.plan && m.adds_hops());
        let needs = |version: &Version| version.tag == label && version.stands_at(&cx.fabric, switch);
        flow.versions.iter().any(|version| needs(version) && !waits(version))
    };
    rules.routed().filter(|&id| rules.flows.get(id).is_some_and(uses)).collect()
}
