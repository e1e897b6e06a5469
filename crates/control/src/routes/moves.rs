//! Moves of flows, phase by phase. The phases are in [`crate::plan`], and those of moves in place in [`crate::sfmm`].

use super::Routes;
use crate::context::Context;
use crate::cookies::{Cookie, RuleKind};
use crate::flows::SourceRule;
use crate::move_phase::{InPlacePhase, Move, Phase, Stage, TagPhase};
use crate::plan::{Planner, Step, Version, LEVELS};
use crate::sfmm::{self, steps_in_place, CutoverOrder};
use crate::switches::Purpose;
use pathloom_model::rules::{Refusal, Rule, RuleKey};
use pathloom_model::{NodeId, Path};
use pathloom_scheme::{Event, FlowId, Rejection, RuleSharing};
use std::num::NonZeroU32;

/// State that all moves share.
pub(crate) struct Moves {
    /// Number of the last move.
    last: NonZeroU32,
    /// Order in which moves in place delete the old rules.
    pub order: CutoverOrder,
    /// Load of each link, if it was computed for the current input.
    loads: Option<Vec<u64>>,
}

impl Default for Moves {
    fn default() -> Moves {
        Moves { last: NonZeroU32::MIN, order: sfmm::bottleneck_first, loads: None }
    }
}

impl Moves {
    /// Discards the link loads, so that they are computed again.
    pub(crate) fn forget_loads(&mut self) {
        self.loads = None;
    }

    /// Returns the switches at which a flow is cut over from one path to another, in order. `None` if it cannot be
    /// moved in place.
    pub(crate) fn cutover(&mut self, cx: &Context, old: &Path, new: &Path) -> Option<Vec<NodeId>> {
        let loads = self.loads.get_or_insert_with(|| routed_loads(cx));
        let bottleneck = sfmm::bottleneck(&cx.fabric, old, new, loads)?;
        (self.order)(&cx.fabric, old, new, bottleneck)
    }

    fn next_number(&mut self) -> NonZeroU32 {
        self.last = self.last.checked_add(1).unwrap_or(NonZeroU32::MIN);
        self.last
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

impl Routes {
    /// Starts the move of a flow to a path.
    pub(crate) fn start_move(&mut self, cx: &mut Context, id: FlowId, path: Path) {
        let Some(plan) = self.flows.take_plan(id, &self.draining) else {
            return self.give_up(cx, id, Rejection::Draining);
        };
        let number = self.moves.next_number();
        let in_place = self.in_place(cx, id, &path);
        let shares = cx.needs.rules == RuleSharing::PerPath;
        let label = if shares { self.labels.take(cx, &path) } else { None };
        let level = self.free_level(cx, id);
        let Some(flow) = self.flows.get_mut(id) else { return };
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
        self.enter_phase(cx, id);
    }

    /// Sends the steps of the current phase of a move. If there are none, continues with the next phase.
    fn enter_phase(&mut self, cx: &mut Context, id: FlowId) {
        loop {
            let sent = self.send_phase(cx, id);
            match (sent, self.flows.get_mut(id).and_then(|flow| flow.current_move.as_mut())) {
                (_, None) => return,
                (None, Some(_)) => return self.finish_move(cx, id),
                (Some(0), Some(_)) => {}
                (Some(count), Some(current_move)) => {
                    current_move.waiting = count;
                    return;
                }
            }
            if !self.next_phase(cx, id) {
                return;
            }
        }
    }

    /// Sends the steps of the current phase of a move. Returns the number of confirmations that it waits for; `None`
    /// if the new version does not exist any more.
    fn send_phase(&mut self, cx: &mut Context, id: FlowId) -> Option<u32> {
        let flow = self.flows.get(id)?;
        let current_move = flow.current_move.as_deref()?;
        let (number, version) = (current_move.number, flow.version(current_move.plan)?);
        match &current_move.phase {
            Phase::Tagged(TagPhase::AddHops) if version.is_shared() => {
                Some(self.labels.await_rules(cx, id, number, version))
            }
            Phase::Tagged(TagPhase::AddHops) => Some(self.add_hops(cx, id)),
            Phase::Tagged(TagPhase::AddSource) => Some(self.add_new_source(cx, id)),
            Phase::Tagged(TagPhase::DeleteOld) => {
                let old = flow.staying().filter(|rule| rule.plan != current_move.plan).map(|rule| rule.level);
                let old: Vec<RuleKey> = old.map(|level| cx.planner().source_key(&flow.key, level)).collect();
                let (tor, count) = (flow.tor(), old.len() as u32);
                old.into_iter().for_each(|key| self.take_step(cx, id, number, Step::Delete(tor, key)));
                Some(count)
            }
            Phase::InPlace(way) => {
                let copy = match way.phase {
                    InPlacePhase::DeleteLow { copy } => Some(copy),
                    _ => None,
                };
                let steps = steps_in_place(cx, flow, current_move, way)?;
                let count = steps.len() as u32;
                steps.into_iter().for_each(|step| self.take_step(cx, id, number, step));
                if let Some(copy) = copy.filter(|_| count > 0) {
                    self.forget_low(cx, id, copy);
                }
                Some(count)
            }
        }
    }

    /// Adds the rules of the new version of a move by tags at the switches after the source ToR. Returns their
    /// number.
    fn add_hops(&mut self, cx: &mut Context, id: FlowId) -> u32 {
        let Some(flow) = self.flows.get(id) else { return 0 };
        let Some(current_move) = flow.current_move.as_deref() else { return 0 };
        let Some(version) = flow.version(current_move.plan) else { return 0 };
        let purpose = Purpose::Step { flow: id, number: current_move.number };
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
    fn add_new_source(&mut self, cx: &mut Context, id: FlowId) -> u32 {
        let Some(flow) = self.flows.get_mut(id) else { return 0 };
        let Some(current_move) = flow.current_move.as_deref() else { return 0 };
        let (plan, level, tor) = (current_move.plan, current_move.level, flow.key.src.tor);
        let purpose = Purpose::Step { flow: id, number: current_move.number };
        let Some(version) = flow.version(plan) else { return 0 };
        let rule = cx.planner().source(&flow.key, version, level);
        flow.sources.push(SourceRule { plan, level, bytes: 0, sent: true, confirmed: false, leaving: false });
        cx.add_rule(tor, rule, purpose);
        cx.count_rules(tor, 1);
        1
    }

    /// All steps of a phase are confirmed, or it had none. Starts the next phase. Returns whether there is one.
    fn next_phase(&mut self, cx: &mut Context, id: FlowId) -> bool {
        let Some(flow) = self.flows.get_mut(id) else { return false };
        let tor = flow.tor();
        let Some(current_move) = flow.current_move.as_deref_mut() else { return false };
        if current_move.adds_hops() {
            // The next phase adds the rule at the source ToR.
            cx.plan_rules(tor, -1);
        }
        let (plan, added) = (current_move.plan, current_move.adds_source());
        let goes_on = match &mut current_move.phase {
            Phase::InPlace(_) => None,
            Phase::Tagged(phase) => match phase.next() {
                Some(next) => {
                    *phase = next;
                    Some(true)
                }
                None => Some(false),
            },
        };
        if added {
            flow.confirm(plan);
        }
        match goes_on {
            None => self.next_phase_in_place(cx, id),
            Some(true) => true,
            Some(false) => {
                self.finish_move(cx, id);
                false
            }
        }
    }

    /// A switch has confirmed a step of a move.
    pub(crate) fn step_confirmed(&mut self, cx: &mut Context, id: FlowId, number: NonZeroU32) {
        let current_move = self.flows.get_mut(id).and_then(|flow| flow.current_move.as_mut());
        let Some(current_move) = current_move.filter(|current_move| current_move.number == number) else { return };
        current_move.waiting = current_move.waiting.saturating_sub(1);
        if current_move.waiting == 0 && self.next_phase(cx, id) {
            self.enter_phase(cx, id);
        }
    }

    fn take_step(&mut self, cx: &mut Context, id: FlowId, number: NonZeroU32, step: Step) {
        let purpose = Purpose::Step { flow: id, number };
        match step {
            Step::Add(switch, rule) => {
                if let Some((plan, level)) = source_step(&rule, cx.config.priorities.flow) {
                    let Some(flow) = self.flows.get_mut(id) else { return };
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
                let Some(flow) = self.flows.get_mut(id) else { return };
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

    pub(crate) fn finish_move(&mut self, cx: &mut Context, id: FlowId) {
        let told = self.finish_quietly(cx, id);
        if told {
            if let Some(view) = cx.view.flows.get_mut(&id) {
                view.pending = None;
            }
            self.queue_event(cx, Event::RouteConfirmed { flow: id });
        }
    }

    /// The flow is on its new path. Returns whether the scheme must be told.
    pub(crate) fn finish_quietly(&mut self, cx: &mut Context, id: FlowId) -> bool {
        let Some(flow) = self.flows.get_mut(id) else { return false };
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
        self.settle(cx, id);
        news.is_some()
    }

    /// Ends a move because the flow gets another route now. A committed move stays in effect; otherwise it is undone.
    pub(crate) fn supersede(&mut self, cx: &mut Context, id: FlowId) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        let Some(current_move) = &flow.current_move else { return };
        if current_move.stage().is_some() {
            self.end_in_place(cx, id);
        } else if !current_move.is_committed() {
            self.undo_move(cx, id);
        } else {
            let current_move = flow.current_move.take();
            let path = current_move
                .and_then(|current_move| flow.version(current_move.plan))
                .and_then(|version| version.path.clone());
            if let Some(view) = cx.view.flows.get_mut(&id) {
                view.route = path;
            }
        }
        if let Some(view) = cx.view.flows.get_mut(&id) {
            view.pending = None;
        }
    }

    /// Undoes the steps of a move that is not committed.
    pub(crate) fn undo_move(&mut self, cx: &mut Context, id: FlowId) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        let Some(current_move) = flow.current_move.take() else { return };
        if !current_move.adds_hops() {
            // Packets may already have the new tag. Therefore the rule at the source ToR is deleted first, and the
            // others after packets have drained.
            self.leave(cx, id, current_move.plan);
            return self.settle(cx, id);
        }
        cx.plan_rules(flow.tor(), -1);
        let Some(index) = flow.versions.iter().position(|version| version.plan == current_move.plan) else { return };
        let version = flow.versions.remove(index);
        let key = flow.key;
        for (switch, rule) in self.labels.rules_of(cx, &key, &version) {
            self.labels.take_rule(cx, switch, rule);
        }
    }

    /// Ends the current move without result, and reports the reason. The flow stays where it was.
    pub(crate) fn give_up(&mut self, cx: &mut Context, id: FlowId, why: Rejection) {
        self.undo_move(cx, id);
        if let Some(view) = cx.view.flows.get_mut(&id) {
            view.pending = None;
            view.allocated_bps = None.into();
            self.reject(cx, id, why);
        }
        self.count_soon(id);
    }

    /// A switch refused a step of a flow's move.
    pub(crate) fn step_refused(
        &mut self,
        cx: &mut Context,
        switch: NodeId,
        id: FlowId,
        number: NonZeroU32,
        why: Refusal,
    ) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        let Some(current_move) = flow.current_move.as_ref().filter(|current_move| current_move.number == number) else {
            return;
        };
        if current_move.stage() == Some(Stage::After) {
            // The flow stays as it is: on its new path, with low rules.
            return self.abort_in_place(cx, id, Rejection::Refused(switch, why));
        }
        if current_move.is_committed() {
            return self.step_confirmed(cx, id, number);
        }
        let plan = current_move.plan;
        if current_move.adds_source() {
            flow.sources.retain(|source| source.plan != plan);
            cx.count_rules(switch, -1);
        }
        self.give_up(cx, id, Rejection::Refused(switch, why));
    }
}

/// Returns the plan and the level (above `base`) of a rule of a flow at its source ToR; `None` for other rules.
fn source_step(rule: &Rule, base: u16) -> Option<(u8, u8)> {
    let cookie = Cookie::decode(rule.cookie).filter(|cookie| cookie.kind == RuleKind::Source)?;
    Some((cookie.plan, rule.priority.checked_sub(base)? as u8))
}
