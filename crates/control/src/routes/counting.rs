//! The rules that count flows on the default routes: when they are added, and what happens if a switch has no room for
//! them.

use super::room::Room;
use crate::context::Context;
use crate::flow_rules::FlowRules;
use crate::flows::Flow;
use crate::orphans::Orphans;
use crate::timers::Timer;
use pathloom_model::Nanos;
use pathloom_scheme::FlowId;

/// Base of the wait before a refused counting rule is sent again. It is doubled for each refusal.
const COUNT_AGAIN: Nanos = Nanos::from_secs(1);
/// Number of refusals of its counting rule after which a flow is ended, because it cannot be counted.
const MOST_REFUSALS: u8 = 4;

/// The counting rule of a flow was refused so often that the flow must end.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Uncountable;

/// Adds the rule that counts a flow on the default routes. If there is no room for it, it is sent again later.
pub(super) fn add_count(
    cx: &mut Context,
    rules: &mut FlowRules,
    (room, orphans): (&mut Room, &Orphans),
    id: FlowId,
) -> Result<(), Uncountable> {
    let level = rules.free_level(cx, id);
    if rules.flows.get(id).is_none() {
        return Ok(());
    }
    if room.has_room_to_count(cx, rules, orphans, id) && rules.add_count(cx, id, level) {
        return Ok(());
    }
    count_later(cx, rules, id)
}

/// A switch has no room for a counting rule.
pub(super) fn refused(cx: &mut Context, rules: &mut FlowRules, id: FlowId, plan: u8) -> Result<(), Uncountable> {
    let Some(flow) = rules.flows.get_mut(id) else { return Ok(()) };
    let before = flow.sources.len();
    flow.sources.retain(|source| source.plan != plan || source.leaving);
    let tor = flow.tor();
    if flow.sources.len() < before {
        cx.count_rules(tor, -1);
    }
    count_later(cx, rules, id)
}

/// Sends the counting rule of a flow again later, unless it was refused too often.
fn count_later(cx: &mut Context, rules: &mut FlowRules, id: FlowId) -> Result<(), Uncountable> {
    let Some(flow) = rules.flows.get_mut(id) else { return Ok(()) };
    flow.refusals = flow.refusals.saturating_add(1);
    let refusals = flow.refusals;
    if refusals >= MOST_REFUSALS {
        return Err(Uncountable);
    }
    let at = cx.now.saturating_add(Nanos(COUNT_AGAIN.0 << refusals));
    cx.timers.set(at, Timer::Count { flow: id });
    Ok(())
}

/// Whether a flow has no rule at its source ToR and no move in progress, so that it needs a counting rule.
pub(super) fn is_uncounted(flow: &Flow) -> bool {
    !flow.closed && flow.current_move.is_none() && flow.staying().next().is_none()
}
