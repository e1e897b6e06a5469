//! Moves of flows, phase by phase. The phases are in [`crate::plan`], and those of moves in place in [`crate::sfmm`].
//!
//! A step of a move changes the rules of its flow, and returns what must happen next ([`After`]).

use crate::context::Context;
use crate::cookies::{Cookie, RuleKind};
use crate::durations::DurationHistogram;
use crate::flow_rules::FlowRules;
use crate::flows::{Flow, SourceRule};
use crate::move_phase::{Follows, InPlace, InPlacePhase, Move, Phase, Stage, TagPhase};
use crate::plan::{Planner, Step, Version, LEVELS};
use crate::sfmm::{self, steps_in_place, CutoverOrder};
use crate::switches::Purpose;
use pathloom_model::rules::{Refusal, Rule, RuleKey};
use pathloom_model::{NodeId, Path};
use pathloom_scheme::{FlowId, Rejection, RuleSharing};
use std::num::NonZeroU32;
use std::ops::ControlFlow;

/// State that all moves share.
pub(crate) struct Moves {
    /// Number of the last move.
    last: NonZeroU32,
    /// Order in which moves in place delete the old rules.
    pub order: CutoverOrder,
    /// Load of each link, if it was computed for the current input.
    loads: Option<Vec<u64>>,
    /// Times from the request for a path to its confirmation.
    pub set_up: DurationHistogram,
}

/// What must happen after a step of a move.
#[must_use]
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum After {
    /// Nothing: the move waits for confirmations, or nobody waits for its end.
    Nothing,
    /// The flow is on its new path, and the path is confirmed.
    Confirm,
    /// The move is undone, and the path is rejected.
    Reject(Rejection),
    /// The flow is on its new path, and moves on to the path that was requested meanwhile.
    MoveTo(Path),
}

/// How a move that ended early left its flow.
#[must_use]
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    /// On one path or the default routes.
    Settled,
    /// Between two paths: the flow must return to the default routes. `next`: the path that was to be set up next.
    Between { next: Option<Path> },
}

impl Default for Moves {
    fn default() -> Moves {
        Moves {
            last: NonZeroU32::MIN,
            order: sfmm::bottleneck_first,
            loads: None,
            set_up: DurationHistogram::default(),
        }
    }
}

impl Moves {
    /// Discards the link loads, so that they are computed again.
    pub(crate) fn forget_loads(&mut self) {
        self.loads = None;
    }

    fn next_number(&mut self) -> NonZeroU32 {
        self.last = self.last.checked_add(1).unwrap_or(NonZeroU32::MIN);
        self.last
    }

    /// Returns how a flow can move to `path` in place, and the tag that it keeps. `None` if it must be moved by tags.
    fn in_place(&mut self, cx: &Context, rules: &FlowRules, id: FlowId, path: &Path) -> Option<(InPlace, u16)> {
        let old = sfmm::replaceable(cx, rules, id, path)?;
        let before = old.path.as_ref()?;
        // This comes last, because it examines all flows.
        let loads = self.loads.get_or_insert_with(|| routed_loads(cx));
        let bottleneck = sfmm::bottleneck(&cx.fabric, before, path, loads)?;
        let order = (self.order)(&cx.fabric, before, path, bottleneck)?;
        Some((InPlace { order, phase: InPlacePhase::AddHops { old: old.plan } }, old.tag))
    }

    /// Starts the move of a flow that does not move to a path.
    pub(super) fn start(&mut self, cx: &mut Context, rules: &mut FlowRules, id: FlowId, path: Path) -> After {
        let Some(plan) = rules.flows.take_plan(id, &rules.draining) else {
            return After::Reject(Rejection::Draining);
        };
        let number = self.next_number();
        let in_place = self.in_place(cx, rules, id, &path);
        let shares = cx.needs.rules == RuleSharing::PerPath;
        let payer = rules.flows.get(id).filter(|_| shares).map(crate::budget::payer);
        let label = payer.and_then(|payer| rules.labels.take(cx, &path, payer));
        let level = rules.free_level(cx, id);
        let Some(flow) = rules.flows.get_mut(id) else { return After::Nothing };
        let version = Version::new(plan, Some(path));
        let (version, level, phase) = match in_place {
            Some((way, tag)) => {
                let above = flow.staying().next().map_or(LEVELS - 1, |source| source.level);
                let below = flow.level_below(above).unwrap_or(level);
                (Version { tag, low: true, ..version }, below, Phase::InPlace(Box::new(way)))
            }
            None => {
                let tag = label.unwrap_or(version.tag);
                (Version { tag, ..version }, level, Phase::Tagged(TagPhase::AddHops))
            }
        };
        flow.versions.push(version);
        flow.current_move = Some(Box::new(Move { number, plan, level, phase, begun: cx.now, waiting: 0 }));
        cx.plan_rules(flow.tor(), 1);
        self.enter_phase(cx, rules, id)
    }

    /// Sends the steps of the current phase of a move. If there are none, continues with the next phase.
    fn enter_phase(&mut self, cx: &mut Context, rules: &mut FlowRules, id: FlowId) -> After {
        loop {
            let sent = send_phase(cx, rules, id);
            match (sent, rules.flows.get_mut(id).and_then(|flow| flow.current_move.as_mut())) {
                (_, None) => return After::Nothing,
                (None, Some(_)) => return self.arrive(cx, rules, id),
                (Some(0), Some(_)) => {}
                (Some(count), Some(current_move)) => {
                    current_move.waiting = count;
                    return After::Nothing;
                }
            }
            if let ControlFlow::Break(after) = self.end_phase(cx, rules, id) {
                return after;
            }
        }
    }

    /// All steps of a phase are confirmed, or it had none. Breaks if the move has ended.
    fn end_phase(&mut self, cx: &mut Context, rules: &mut FlowRules, id: FlowId) -> ControlFlow<After> {
        match next_phase(cx, rules, id) {
            None => ControlFlow::Break(After::Nothing),
            Some(Follows::Phase) => ControlFlow::Continue(()),
            Some(Follows::Arrival) => ControlFlow::Break(self.arrive(cx, rules, id)),
            Some(Follows::MoveTo(next)) => {
                self.finish(cx, rules, id);
                ControlFlow::Break(After::MoveTo(next))
            }
        }
    }

    /// A switch has confirmed a step of a move.
    pub(super) fn step_confirmed(
        &mut self,
        cx: &mut Context,
        rules: &mut FlowRules,
        id: FlowId,
        number: NonZeroU32,
    ) -> After {
        let current_move = rules.flows.get_mut(id).and_then(|flow| flow.current_move.as_mut());
        let current_move = current_move.filter(|current_move| current_move.number == number);
        let Some(current_move) = current_move else { return After::Nothing };
        current_move.waiting = current_move.waiting.saturating_sub(1);
        if current_move.waiting > 0 {
            return After::Nothing;
        }
        match self.end_phase(cx, rules, id) {
            ControlFlow::Continue(()) => self.enter_phase(cx, rules, id),
            ControlFlow::Break(after) => after,
        }
    }

    /// A switch refused a step of a flow's move.
    pub(super) fn step_refused(
        &mut self,
        cx: &mut Context,
        rules: &mut FlowRules,
        (id, number): (FlowId, NonZeroU32),
        (switch, why): (NodeId, Refusal),
    ) -> After {
        let Some(flow) = rules.flows.get_mut(id) else { return After::Nothing };
        let current_move = flow.current_move.as_ref().filter(|current_move| current_move.number == number);
        let Some(current_move) = current_move else { return After::Nothing };
        if current_move.stage() == Some(Stage::After) {
            return self.keep_low(cx, rules, id);
        }
        if current_move.is_committed() {
            return self.step_confirmed(cx, rules, id, number);
        }
        let plan = current_move.plan;
        if current_move.adds_source() {
            flow.sources.retain(|source| source.plan != plan);
            cx.count_rules(switch, -1);
        }
        undo(cx, rules, id);
        After::Reject(Rejection::Refused(switch, why))
    }

    /// The copies of a move in place cannot be added or its low rules not deleted. The flow stays as it is: on its new
    /// path, with low rules.
    pub(super) fn keep_low(&mut self, cx: &mut Context, rules: &mut FlowRules, id: FlowId) -> After {
        sfmm::drop_copy(cx, rules, id);
        self.arrive(cx, rules, id)
    }

    fn arrive(&mut self, cx: &mut Context, rules: &mut FlowRules, id: FlowId) -> After {
        match self.finish(cx, rules, id) {
            true => After::Confirm,
            false => After::Nothing,
        }
    }

    /// The flow is on its new path. Returns whether the path must be confirmed.
    fn finish(&mut self, cx: &mut Context, rules: &mut FlowRules, id: FlowId) -> bool {
        let Some(flow) = rules.flows.get_mut(id) else { return false };
        let Some(current_move) = flow.current_move.take() else { return false };
        if current_move.adds_hops() {
            cx.plan_rules(flow.tor(), -1);
        }
        let closed = flow.closed;
        let path = flow.version(current_move.plan).and_then(|version| version.path.clone());
        let took = cx.now.saturating_sub(current_move.begun);
        let of_controller = cx.is_of_controller(id);
        let news = cx.view.flows.get_mut(&id).filter(|_| !closed).map(|view| {
            if of_controller {
                // The scheme did not request this route.
            } else if view.route.is_some() {
                cx.counts.reroutes += 1;
                cx.counts.reroutes_in_place += u64::from(matches!(current_move.phase, Phase::InPlace(_)));
                self.set_up.add(took);
            } else {
                cx.counts.routes += 1;
                self.set_up.add(took);
            }
            view.route = path;
        });
        rules.settle(cx, id);
        news.is_some()
    }

    /// Ends the move of a flow because it gets another route now. A committed move stays in effect; otherwise it is
    /// undone. `None` if the flow does not move.
    pub(super) fn supersede(&mut self, cx: &mut Context, rules: &mut FlowRules, id: FlowId) -> Option<Ended> {
        let flow = rules.flows.get_mut(id)?;
        let current_move = flow.current_move.as_deref()?;
        if current_move.stage().is_some() {
            return Some(self.end_in_place(cx, rules, id));
        }
        if !current_move.is_committed() {
            undo(cx, rules, id);
        } else {
            let current_move = flow.current_move.take();
            let path = current_move
                .and_then(|current_move| flow.version(current_move.plan))
                .and_then(|version| version.path.clone());
            if let Some(view) = cx.view.flows.get_mut(&id) {
                view.route = path;
            }
        }
        Some(Ended::Settled)
    }

    /// Ends a move in place early. Before the cutover, the move is undone. During the cutover, the flow must return to
    /// the default routes, which only needs its source ToR. After the cutover, the flow is already on its new path and
    /// stays there with low rules.
    pub(super) fn end_in_place(&mut self, cx: &mut Context, rules: &mut FlowRules, id: FlowId) -> Ended {
        let Some(flow) = rules.flows.get_mut(id) else { return Ended::Settled };
        match flow.current_move.as_deref().and_then(Move::stage) {
            None => {}
            Some(Stage::Before) => undo(cx, rules, id),
            Some(Stage::Between) => {
                let next = flow.current_move.take().and_then(|current_move| current_move.into_next());
                return Ended::Between { next };
            }
            Some(Stage::After) => {
                sfmm::drop_copy(cx, rules, id);
                self.finish(cx, rules, id);
            }
        }
        Ended::Settled
    }
}

/// Undoes the steps of a move that is not committed.
pub(super) fn undo(cx: &mut Context, rules: &mut FlowRules, id: FlowId) {
    let Some(flow) = rules.flows.get_mut(id) else { return };
    let Some(current_move) = flow.current_move.take() else { return };
    if !current_move.adds_hops() {
        // Packets may already have the new tag. Therefore the rule at the source ToR is deleted first, and the others
        // after packets have drained.
        rules.leave(cx, id, current_move.plan);
        return rules.settle(cx, id);
    }
    cx.plan_rules(flow.tor(), -1);
    let Some(index) = flow.versions.iter().position(|version| version.plan == current_move.plan) else { return };
    let version = flow.versions.remove(index);
    let key = flow.key;
    for (switch, rule) in rules.labels.rules_of(cx, &key, &version) {
        rules.labels.take_rule(cx, switch, rule);
    }
}

/// Returns the load of each link from the flows routed over it, as far as it is known, in bit/s.
fn routed_loads(cx: &Context) -> Vec<u64> {
    let mut loads = vec![0u64; cx.fabric.links().len()];
    for flow in cx.view.flows.values() {
        let rate_bps = flow.load_bps();
        for link in flow.route.iter().flat_map(Path::links) {
            loads[link.index()] = loads[link.index()].saturating_add(rate_bps);
        }
    }
    loads
}

/// Sends the steps of the current phase of a move. Returns the number of confirmations that it waits for; `None` if the
/// new version does not exist any more.
fn send_phase(cx: &mut Context, rules: &mut FlowRules, id: FlowId) -> Option<u32> {
    let flow = rules.flows.get_mut(id)?;
    let current_move = flow.current_move.as_deref()?;
    let (number, version) = (current_move.number, flow.version(current_move.plan)?);
    match &current_move.phase {
        Phase::Tagged(TagPhase::AddHops) if version.is_shared() => {
            Some(rules.labels.await_rules(cx, id, number, version))
        }
        Phase::Tagged(TagPhase::AddHops) => Some(add_hops(cx, flow, version, number)),
        Phase::Tagged(TagPhase::AddSource) => Some(add_new_source(cx, flow)),
        Phase::Tagged(TagPhase::DeleteOld) => {
            let old = flow.staying().filter(|rule| rule.plan != current_move.plan).map(|rule| rule.level);
            let old: Vec<RuleKey> = old.map(|level| cx.planner().source_key(&flow.key, level)).collect();
            let (tor, count) = (flow.tor(), old.len() as u32);
            old.into_iter().for_each(|key| take_step(cx, flow, number, Step::Delete(tor, key)));
            Some(count)
        }
        Phase::InPlace(way) => {
            let copy = match way.phase {
                InPlacePhase::DeleteLow { copy } => Some(copy),
                _ => None,
            };
            let steps = steps_in_place(cx, flow, current_move, way)?;
            let count = steps.len() as u32;
            steps.into_iter().for_each(|step| take_step(cx, flow, number, step));
            if let Some(copy) = copy.filter(|_| count > 0) {
                sfmm::forget_low(cx, flow, copy);
            }
            Some(count)
        }
    }
}

/// Adds the rules of the new version of a move by tags at the switches after the source ToR. Returns their number.
fn add_hops(cx: &mut Context, flow: &Flow, version: &Version, number: NonZeroU32) -> u32 {
    let purpose = Purpose::Step { flow: flow.key.id, number };
    let fabric = cx.fabric.clone();
    let planner = Planner { fabric: &fabric, ..cx.planner() };
    let mut count = 0;
    for (switch, rule) in planner.hops(&flow.key, version) {
        cx.add_rule(switch, rule, purpose);
        cx.count_rules(switch, 1);
        count += 1;
    }
    count
}

/// Adds the rule of the new version of a move by tags at the source ToR. Returns the number of rules.
fn add_new_source(cx: &mut Context, flow: &mut Flow) -> u32 {
    let Some(current_move) = flow.current_move.as_deref() else { return 0 };
    let (plan, level, tor) = (current_move.plan, current_move.level, flow.key.src.tor);
    let purpose = Purpose::Step { flow: flow.key.id, number: current_move.number };
    let Some(version) = flow.version(plan) else { return 0 };
    let rule = cx.planner().source(&flow.key, version, level);
    flow.sources.push(SourceRule { plan, level, bytes: 0, sent: true, confirmed: false, leaving: false });
    cx.add_rule(tor, rule, purpose);
    cx.count_rules(tor, 1);
    1
}

/// Prepares the phase that follows one of which all steps are confirmed. `None` if the flow does not move.
fn next_phase(cx: &mut Context, rules: &mut FlowRules, id: FlowId) -> Option<Follows> {
    let flow = rules.flows.get_mut(id)?;
    let tor = flow.tor();
    let current_move = flow.current_move.as_deref_mut()?;
    if current_move.adds_hops() {
        // The next phase adds the rule at the source ToR.
        cx.plan_rules(tor, -1);
    }
    let (plan, added) = (current_move.plan, current_move.adds_source());
    let follows = match &mut current_move.phase {
        Phase::InPlace(_) => None,
        Phase::Tagged(phase) => Some(match phase.next() {
            Some(next) => {
                *phase = next;
                Follows::Phase
            }
            None => Follows::Arrival,
        }),
    };
    if added {
        flow.confirm(plan);
    }
    follows.or_else(|| sfmm::next_phase(cx, rules, id))
}

fn take_step(cx: &mut Context, flow: &mut Flow, number: NonZeroU32, step: Step) {
    let id = flow.key.id;
    let purpose = Purpose::Step { flow: id, number };
    match step {
        Step::Add(switch, rule) => {
            if let Some((plan, level)) = source_step(&rule, cx.config.priorities.flow) {
                let (bytes, sent, confirmed, leaving) = (0, true, false, false);
                flow.sources.push(SourceRule { plan, level, bytes, sent, confirmed, leaving });
            }
            cx.add_rule(switch, rule, purpose);
            cx.count_rules(switch, 1);
        }
        Step::Delete(switch, key) if key.matches.tag.is_some() => {
            let xid = cx.delete_rule(switch, key);
            cx.await_answer(switch, xid, purpose);
        }
        Step::Delete(switch, key) => {
            let base = cx.config.priorities.flow;
            let acts = |source: &&mut SourceRule| base + u16::from(source.level) == key.priority;
            let leaving = flow.sources.iter_mut().find(|source| !source.leaving && acts(source));
            let Some(leaving) = leaving else { return };
            leaving.leaving = true;
            let gone = Purpose::Gone { flow: id, plan: leaving.plan };
            let xid = cx.delete_rule(switch, key);
            cx.await_answer(switch, xid, gone);
            cx.await_answer(switch, xid, purpose);
            cx.count_rules(switch, -1);
        }
    }
}

/// Returns the plan and the level (above `base`) of a rule of a flow at its source ToR; `None` for other rules.
fn source_step(rule: &Rule, base: u16) -> Option<(u8, u8)> {
    let cookie = Cookie::decode(rule.cookie).filter(|cookie| cookie.kind == RuleKind::Source)?;
    Some((cookie.plan, rule.priority.checked_sub(base)? as u8))
}
