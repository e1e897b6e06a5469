//! Putting flows on paths, moving them, and putting them back on the default routes.

use crate::controller::Controller;
use crate::cookies::is_bound;
use crate::flows::{Flow, How, Move, SourceRule};
use crate::plan::{Planner, Step, Version, LEVELS};
use crate::reasons::Decision;
use crate::sfmm::{self, source_step, Stage};
use crate::switches::{Purpose, Session};
use crate::timers::Timer;
use pathloom_model::rules::Refusal;
use pathloom_model::{FiveTuple, LinkId, Nanos, NodeId, Path, PathError};
use pathloom_scheme::{Event, FlowId, Migration, Rejection, RuleSharing};
use std::num::NonZeroU32;

/// The phase of a move in which the new version carries the flow, whatever happens.
const COMMITTED: u8 = 2;
/// Longest wait before a refused counting rule is tried again is this, doubled per refusal.
const COUNT_AGAIN: Nanos = Nanos::from_secs(1);
/// A flow whose counting rule was refused so often cannot be watched, and is let go.
const MOST_REFUSALS: u8 = 4;

impl Controller {
    /// Carries out [`pathloom_scheme::Action::Route`].
    pub(crate) fn route(&mut self, id: FlowId, path: Path, rate_bps: Option<u64>) {
        let settled = self.flows.get(id).is_some_and(|flow| !flow.closed && flow.moving.is_none());
        let there = self.context.view.flows.get(&id).is_some_and(|view| view.route.as_ref() == Some(&path));
        let fault = self.check_route(id, &path).err().filter(|_| !(settled && there));
        if let Some(why) = fault {
            return self.reject(id, why);
        }
        let pending = self.context.view.flows.get(&id).is_some_and(|view| view.pending.as_ref() == Some(&path));
        let asked = pending || self.comes_next(id, &path);
        // Before anything is undone for it.
        if !asked && !there && self.flows.free_plan(id, &self.draining).is_none() {
            return self.reject(id, Rejection::Draining);
        }
        let Some(view) = self.context.view.flows.get_mut(&id) else { return };
        view.allocated_bps = rate_bps.into();
        if asked {
            return;
        }
        self.supersede(id);
        let Some(view) = self.context.view.flows.get_mut(&id) else { return };
        if view.route.as_ref() == Some(&path) {
            return self.tell(Event::RouteConfirmed { flow: id });
        }
        view.pending = Some(path.clone());
        let decided = match is_bound(id) {
            true => Decision::Assigned { path: path.clone() },
            false => Decision::Route { path: path.clone(), rate_bps },
        };
        self.note(id, decided);
        self.start_move(id, path.clone());
        self.lead_back(id, &path);
    }

    pub(crate) fn check_route(&self, id: FlowId, path: &Path) -> Result<(), Rejection> {
        let flow = self.flows.get(id).filter(|flow| !flow.closed).ok_or(Rejection::UnknownFlow)?;
        match path.check(&self.context.fabric) {
            Ok(()) => {}
            Err(PathError::Broken { .. } | PathError::Loop { .. }) => return Err(Rejection::Malformed),
            Err(PathError::Host { .. } | PathError::Unknown { .. }) => return Err(Rejection::Malformed),
        }
        let ends = match (path.links().first(), path.links().last()) {
            (Some(&first), Some(&last)) => (self.context.fabric.link(first).from, self.context.fabric.link(last).to),
            _ => (flow.key.src.tor, flow.key.src.tor),
        };
        if ends != (flow.key.src.tor, flow.key.dst.tor) {
            return Err(Rejection::WrongEnds);
        }
        if let Some(&link) = path.links().iter().find(|&&link| !self.context.view.links.is_up(link)) {
            return Err(Rejection::LinkDown(link));
        }
        let later = path.links().iter().map(|&link| self.context.fabric.link(link).to);
        if let Some(switch) = std::iter::once(flow.tor()).chain(later).find(|&switch| !self.context.is_ready(switch)) {
            return Err(Rejection::SwitchGone(switch));
        }
        match self.full_switch(flow.tor(), path) {
            Some(switch) => Err(Rejection::Refused(switch, Refusal::TableFull)),
            None => Ok(()),
        }
    }

    /// A switch that has no room for one rule more, of those that would need it for a path.
    fn full_switch(&self, tor: NodeId, path: &Path) -> Option<NodeId> {
        self.context.config.rule_limit?;
        let needing = match self.context.needs.rules {
            RuleSharing::PerFlow => path.links().iter().map(|&link| self.context.fabric.link(link).to).collect(),
            RuleSharing::PerPath => self.labels_missing(path),
        };
        std::iter::once(tor).chain(needing).find(|&switch| !self.context.has_room(switch))
    }

    pub(crate) fn reject(&mut self, id: FlowId, why: Rejection) {
        self.context.counts.rejected += 1;
        self.note(id, Decision::Rejected { why });
        self.tell(Event::RouteRejected { flow: id, why });
    }

    pub(crate) fn start_move(&mut self, id: FlowId, path: Path) {
        let Some(plan) = self.flows.take_plan(id, &self.draining) else {
            return self.give_up(id, Rejection::Draining);
        };
        self.moves = self.moves.checked_add(1).unwrap_or(NonZeroU32::MIN);
        let number = self.moves;
        let in_place = self.in_place(id, &path);
        let shares = self.context.needs.rules == RuleSharing::PerPath;
        let label = if shares { self.take_label(&path) } else { None };
        let level = self.free_level(id);
        let Some(flow) = self.flows.get_mut(id) else { return };
        let version = Version::new(plan, Some(path));
        let (version, level, how) = match in_place {
            Some((way, tag)) => {
                let above = flow.staying().next().map_or(LEVELS - 1, |source| source.level);
                let below = flow.level_below(above).unwrap_or(level);
                (Version { tag, low: true, ..version }, below, How::InPlace(Box::new(way)))
            }
            None => (Version { tag: label.unwrap_or(version.tag), ..version }, level, How::Tagged),
        };
        flow.versions.push(version);
        flow.moving = Some(Box::new(Move { number, plan, level, phase: 0, begun: self.context.now, waiting: 0, how }));
        self.enter_phase(id);
    }

    /// Sends the steps of the phase a move is in; goes on where there is nothing to send.
    pub(crate) fn enter_phase(&mut self, id: FlowId) {
        let mut steps = std::mem::take(&mut self.steps);
        while self.try_phase(id, &mut steps) {}
        self.steps = steps;
    }

    /// Sends the steps of the phase a move is in. If there are none, takes it to the next one and says so.
    fn try_phase(&mut self, id: FlowId, steps: &mut Vec<Step>) -> bool {
        let Some(flow) = self.flows.get(id) else { return false };
        let Some(moving) = &flow.moving else { return false };
        let (number, phase) = (moving.number, moving.phase);
        let version = flow.version(moving.plan).filter(|_| phase == 0);
        if let Some(version) = version.filter(|version| version.is_shared()).cloned() {
            let waiting = self.await_labels(id, number, &version);
            let Some(moving) = self.flows.get_mut(id).and_then(|flow| flow.moving.as_mut()) else { return false };
            moving.waiting = waiting;
            if waiting > 0 {
                return false;
            }
        }
        if let Some(count) = self.add_tagged(id).filter(|&count| count > 0) {
            if let Some(moving) = self.flows.get_mut(id).and_then(|flow| flow.moving.as_mut()) {
                moving.waiting = count;
            }
            return false;
        }
        let Some(flow) = self.flows.get(id) else { return false };
        let Some(moving) = &flow.moving else { return false };
        if !self.steps(flow, moving, steps) {
            self.finish_move(id);
            return false;
        }
        let count = steps.len() as u32;
        let Some(moving) = self.flows.get_mut(id).and_then(|flow| flow.moving.as_mut()) else { return false };
        if count > 0 {
            moving.waiting = count;
            steps.drain(..).for_each(|step| self.take_step(id, number, step));
            if phase == sfmm::LAST {
                self.forget_low(id);
            }
            return false;
        }
        moving.phase += 1;
        self.phase_over(id)
    }

    /// Sends the rules of a phase of a move by tags that only adds some, which is nearly all there is to do. Returns how
    /// many; `None` for another phase or move.
    fn add_tagged(&mut self, id: FlowId) -> Option<u32> {
        let flow = self.flows.get_mut(id)?;
        let moving = flow.moving.as_ref().filter(|moving| moving.stage().is_none() && moving.phase < COMMITTED)?;
        let (key, plan, level, phase) = (flow.key, moving.plan, moving.level, moving.phase);
        let purpose = Purpose::Step { flow: id, number: moving.number };
        let version = flow.version(plan)?.clone();
        if phase == 1 {
            flow.sources.push(SourceRule { plan, level, bytes: 0, sent: true, confirmed: false, leaving: false });
            let rule = self.context.planner().source(&key, &version, level);
            self.context.add_rule(key.src.tor, rule, purpose);
            self.context.count_rules(key.src.tor, 1);
            return Some(1);
        }
        let fabric = self.context.fabric.clone();
        let planner = Planner { fabric: &fabric, ..self.context.planner() };
        let mut count = 0;
        for (switch, rule) in planner.hops(&key, &version) {
            self.context.add_rule(switch, rule, purpose);
            self.context.count_rules(switch, 1);
            count += 1;
        }
        Some(count)
    }

    /// Appends what the phase of a move takes; false when the move is over.
    fn steps(&self, flow: &Flow, moving: &Move, steps: &mut Vec<Step>) -> bool {
        if let How::InPlace(way) = &moving.how {
            return self.steps_in_place(flow, moving, way).map(|all| steps.extend(all)).is_some();
        }
        let Some(version) = flow.version(moving.plan) else { return false };
        let old = flow.staying().filter(|rule| rule.plan != moving.plan).map(|rule| rule.level);
        self.context.planner().phase(moving.phase, &flow.key, (version, moving.level), old, steps)
    }

    fn take_step(&mut self, id: FlowId, number: NonZeroU32, step: Step) {
        let purpose = Purpose::Step { flow: id, number };
        match step {
            Step::Add(switch, rule) => {
                if let Some((plan, level)) = source_step(&rule, self.context.config.priorities.flow) {
                    let Some(flow) = self.flows.get_mut(id) else { return };
                    let (bytes, sent, confirmed, leaving) = (0, true, false, false);
                    flow.sources.push(SourceRule { plan, level, bytes, sent, confirmed, leaving });
                }
                self.context.add_rule(switch, rule, purpose);
                self.context.count_rules(switch, 1);
            }
            Step::Delete(switch, key) if key.matches.tag.is_some() => {
                let xid = self.context.delete_rule(switch, key);
                self.context.await_answer(switch, xid, purpose);
            }
            Step::Delete(switch, key) => {
                let base = self.context.config.priorities.flow;
                let Some(flow) = self.flows.get_mut(id) else { return };
                let acts = |source: &&mut SourceRule| base + u16::from(source.level) == key.priority;
                let leaving = flow.sources.iter_mut().find(|source| !source.leaving && acts(source));
                let Some(leaving) = leaving else { return };
                leaving.leaving = true;
                let gone = Purpose::Gone { flow: id, plan: leaving.plan };
                let xid = self.context.delete_rule(switch, key);
                self.context.await_answer(switch, xid, gone);
                self.context.await_answer(switch, xid, purpose);
                self.context.count_rules(switch, -1);
            }
        }
    }

    pub(crate) fn finish_move(&mut self, id: FlowId) {
        let told = self.finish_quietly(id);
        if told {
            if let Some(view) = self.context.view.flows.get_mut(&id) {
                view.pending = None;
            }
            self.tell(Event::RouteConfirmed { flow: id });
        }
    }

    /// The flow is on its new path; returns whether that is news for the scheme.
    pub(crate) fn finish_quietly(&mut self, id: FlowId) -> bool {
        let Some(flow) = self.flows.get_mut(id) else { return false };
        let Some(moving) = flow.moving.take() else { return false };
        let closed = flow.closed;
        let path = flow.version(moving.plan).and_then(|version| version.path.clone());
        let took = self.context.now.saturating_sub(moving.begun);
        let of_controller = self.context.is_of_controller(id);
        let news = self.context.view.flows.get_mut(&id).filter(|_| !closed).map(|view| {
            if of_controller {
                // No route of the scheme's.
            } else if view.route.is_some() {
                self.context.counts.reroutes += 1;
                self.context.counts.reroutes_in_place += u64::from(matches!(moving.how, How::InPlace(_)));
                self.set_up.add(took);
            } else {
                self.context.counts.routes += 1;
                self.set_up.add(took);
            }
            view.route = path;
        });
        self.settle(id);
        news.is_some()
    }

    /// Ends a move because something else is wanted now: what is committed stays, the rest is undone.
    fn supersede(&mut self, id: FlowId) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        let Some(moving) = &flow.moving else { return };
        if moving.stage().is_some() {
            self.end_in_place(id);
        } else if moving.phase < COMMITTED {
            self.undo_move(id);
        } else {
            let moving = flow.moving.take();
            let path = moving.and_then(|moving| flow.version(moving.plan)).and_then(|version| version.path.clone());
            if let Some(view) = self.context.view.flows.get_mut(&id) {
                view.route = path;
            }
        }
        if let Some(view) = self.context.view.flows.get_mut(&id) {
            view.pending = None;
        }
    }

    /// Takes back what a move that is not committed has done so far.
    pub(crate) fn undo_move(&mut self, id: FlowId) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        let Some(moving) = flow.moving.take() else { return };
        if moving.phase > 0 {
            // Packets may bear the new tag already: first the source, then, when they have drained, the rest.
            self.leave(id, moving.plan);
            return self.settle(id);
        }
        let Some(index) = flow.versions.iter().position(|version| version.plan == moving.plan) else { return };
        let version = flow.versions.remove(index);
        let key = flow.key;
        for (switch, rule) in self.rules_of(&key, &version) {
            self.take_rule(switch, rule);
        }
    }

    /// Gives up the move under way and says why. The flow stays where it was.
    pub(crate) fn give_up(&mut self, id: FlowId, why: Rejection) {
        self.undo_move(id);
        if let Some(view) = self.context.view.flows.get_mut(&id) {
            view.pending = None;
            view.allocated_bps = None.into();
            self.reject(id, why);
        }
        self.fresh.push(id);
    }

    /// Carries out [`pathloom_scheme::Action::Unroute`].
    pub(crate) fn unroute(&mut self, id: FlowId) {
        self.supersede(id);
        if self.flows.get(id).is_none_or(|flow| flow.closed) {
            return;
        }
        self.leave_paths(id);
        self.lead_later(id);
        if let Some(view) = self.context.view.flows.get_mut(&id) {
            view.allocated_bps = None.into();
        }
        self.fresh.push(id);
    }

    /// Puts a flow back on the default routes: they need no more than its source ToR.
    pub(crate) fn leave_paths(&mut self, id: FlowId) {
        let Some(flow) = self.flows.get(id) else { return };
        let on_paths: Vec<u8> =
            flow.staying().map(|source| source.plan).filter(|&plan| flow.version(plan).is_some()).collect();
        if !flow.closed && !on_paths.is_empty() && on_paths.len() == flow.staying().count() {
            self.add_count(id);
        }
        for plan in on_paths {
            self.leave(id, plan);
        }
        if let Some(view) = self.context.view.flows.get_mut(&id) {
            view.route = None;
        }
    }

    /// The level of the next rule of a flow at its source ToR. Flows that may move in place need room below.
    fn free_level(&self, id: FlowId) -> u8 {
        let in_place = self.context.needs.migration == Migration::Sfmm;
        let level = |flow: &Flow| if in_place { flow.highest_free_level() } else { flow.free_level() };
        self.flows.get(id).map_or(0, level)
    }

    /// Adds the rule that counts a flow on the default routes.
    pub(crate) fn add_count(&mut self, id: FlowId) {
        let level = self.free_level(id);
        let Some(tor) = self.flows.get(id).map(Flow::tor) else { return };
        if !self.context.has_room(tor) {
            return self.count_later(id);
        }
        let Some(plan) = self.flows.take_plan(id, &self.draining) else { return self.count_later(id) };
        let Some(flow) = self.flows.get_mut(id) else { return };
        let sent = self.context.switches[tor.index()].session == Session::Ready;
        flow.sources.push(SourceRule { plan, level, bytes: 0, sent, confirmed: false, leaving: false });
        let key = flow.key;
        self.context.count_rules(tor, 1);
        if sent {
            let rule = self.context.planner().source(&key, &Version::new(plan, None), level);
            self.context.add_rule(tor, rule, Purpose::Count { flow: id, plan });
        }
    }

    /// Takes away the rule of a plan at the source ToR.
    pub(crate) fn leave(&mut self, id: FlowId, plan: u8) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        let Some(index) = flow.sources.iter().position(|source| source.plan == plan && !source.leaving) else { return };
        let (tor, key) = (flow.tor(), flow.key);
        let source = &mut flow.sources[index];
        source.leaving = true;
        let level = source.level;
        let never_sent = !source.sent;
        if never_sent {
            flow.sources.remove(index);
        }
        self.context.count_rules(tor, -1);
        if self.context.is_ready(tor) && !never_sent {
            let rule = self.context.planner().source_key(&key, level);
            let xid = self.context.delete_rule(tor, rule);
            self.context.await_answer(tor, xid, Purpose::Gone { flow: id, plan });
        }
    }

    /// The switch has carried out what had this purpose.
    pub(crate) fn confirmed(&mut self, switch: NodeId, purpose: Purpose) {
        match purpose {
            Purpose::Step { flow, number } => {
                let Some(known) = self.flows.get_mut(flow) else { return };
                let Some(moving) = known.moving.as_mut().filter(|moving| moving.number == number) else { return };
                moving.waiting = moving.waiting.saturating_sub(1);
                if moving.waiting == 0 {
                    moving.phase += 1;
                    let (plan, added) = (moving.plan, moving.phase == COMMITTED);
                    if added {
                        known.confirm(plan);
                    }
                    if self.phase_over(flow) {
                        self.enter_phase(flow);
                    }
                }
            }
            Purpose::Gone { flow, plan } => self.gone(flow, plan),
            Purpose::Count { flow, plan } => {
                if let Some(known) = self.flows.get_mut(flow) {
                    known.refusals = 0;
                    known.confirm(plan);
                }
            }
            Purpose::Fixed => {
                let state = &mut self.context.switches[switch.index()];
                state.refusals = if state.reread { state.refusals } else { 0 };
            }
            Purpose::Label { label } => self.label_confirmed(switch, label),
            Purpose::Renewed { flow, plan } => self.renewed(flow, plan),
            Purpose::Stage { number } => self.staged(switch, number),
            Purpose::Hop { .. } | Purpose::Meter { .. } => {}
        }
    }

    /// A rule at the source ToR is not there any more, as was wanted.
    pub(crate) fn gone(&mut self, id: FlowId, plan: u8) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        if let Some(index) = flow.sources.iter().position(|source| source.plan == plan && source.leaving) {
            let bytes = flow.sources.remove(index).bytes;
            flow.count_past(bytes);
        }
        self.settle(id);
        self.forget_if_done(id);
    }

    /// Lets the versions drain that no packet enters any more.
    pub(crate) fn settle(&mut self, id: FlowId) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        if flow.versions.iter().all(|version| flow.is_entered(version.plan)) {
            return;
        }
        let done = flow.abandoned(&self.context.fabric);
        let (key, versions) = (flow.key, flow.versions.clone());
        flow.versions.retain(|version| !done.contains(&version.plan));
        for version in versions.iter().filter(|version| done.contains(&version.plan)) {
            let rules = self.rules_of(&key, version);
            let planner = self.context.planner();
            // A packet may have gone by parts of all versions with its tag.
            let paths =
                versions.iter().filter(|other| other.tag == version.tag).filter_map(|other| other.path.as_ref());
            let worst = paths.map(|path| planner.worst_delay(&key, path)).fold(Nanos::ZERO, Nanos::saturating_add);
            let at = self.context.now.saturating_add(self.context.config.drain.unwrap_or(worst));
            let (five_tuple, plan) = (key.five_tuple, version.plan);
            self.draining.insert((five_tuple, plan), rules);
            self.context.timers.set(at, Timer::Drained { five_tuple, plan });
        }
    }

    /// No packet of an abandoned version is under way any more.
    pub(crate) fn drained(&mut self, five_tuple: FiveTuple, plan: u8) {
        for (switch, key) in self.draining.remove(&(five_tuple, plan)).unwrap_or_default() {
            self.take_rule(switch, key);
        }
    }

    /// A switch refused something of a flow's move.
    pub(crate) fn step_refused(&mut self, switch: NodeId, id: FlowId, number: NonZeroU32, why: Refusal) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        let Some(moving) = flow.moving.as_ref().filter(|moving| moving.number == number) else { return };
        if moving.stage() == Some(Stage::After) {
            // It stays as it is: on its new path, with low rules.
            return self.break_off(id, Rejection::Refused(switch, why));
        }
        if moving.phase >= COMMITTED {
            return self.confirmed(switch, Purpose::Step { flow: id, number });
        }
        let plan = moving.plan;
        if moving.phase > 0 {
            flow.sources.retain(|source| source.plan != plan);
            self.context.count_rules(switch, -1);
        }
        self.give_up(id, Rejection::Refused(switch, why));
    }

    /// A switch has no room for a counting rule.
    pub(crate) fn count_refused(&mut self, id: FlowId, plan: u8) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        let before = flow.sources.len();
        flow.sources.retain(|source| source.plan != plan || source.leaving);
        let tor = flow.tor();
        if flow.sources.len() < before {
            self.context.count_rules(tor, -1);
        }
        self.count_later(id);
    }

    /// Tries again to have a flow counted; lets it go after some times.
    fn count_later(&mut self, id: FlowId) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        flow.refusals = flow.refusals.saturating_add(1);
        let refusals = flow.refusals;
        if refusals >= MOST_REFUSALS {
            return self.finish(id);
        }
        let at = self.context.now.saturating_add(Nanos(COUNT_AGAIN.0 << refusals));
        self.context.timers.set(at, Timer::Count { flow: id });
    }

    /// Gives every flow that has no rule at its source ToR, and none under way, a counting rule.
    pub(crate) fn count_fresh(&mut self) {
        let mut fresh = std::mem::take(&mut self.fresh);
        for id in fresh.drain(..) {
            let Some(flow) = self.flows.get(id) else { continue };
            if !flow.closed && flow.moving.is_none() && flow.staying().next().is_none() {
                self.add_count(id);
            }
        }
        // What that led to waits for the next input.
        std::mem::swap(&mut fresh, &mut self.fresh);
        self.fresh.append(&mut fresh);
    }

    /// Flows with rules for paths: those that a dead link can hit.
    pub(crate) fn routed(&self) -> impl Iterator<Item = FlowId> + '_ {
        self.flows.iter().filter(|(_, flow)| !flow.versions.is_empty()).map(|(id, _)| id)
    }

    /// Puts flows back on the default routes whose path a dead link has cut, and gives up moves onto it.
    pub(crate) fn rescue_from(&mut self, dead: LinkId) {
        let crosses = |path: &Path| path.links().iter().copied().find(|link| link.cable() == dead.cable());
        for id in self.routed().collect::<Vec<_>>() {
            let Some(flow) = self.flows.get(id) else { continue };
            if let Some(link) = self.cut_in_place(flow, dead) {
                self.break_off(id, Rejection::LinkDown(link));
            }
            let Some(flow) = self.flows.get(id) else { continue };
            let hit = |plan: u8| flow.version(plan).and_then(|version| version.path.as_ref()).and_then(crosses);
            if let Some((link, phase)) = flow.moving.as_ref().and_then(|m| hit(m.plan).map(|link| (link, m.phase))) {
                if phase < COMMITTED {
                    self.give_up(id, Rejection::LinkDown(link));
                } else {
                    self.supersede(id);
                    self.reject(id, Rejection::LinkDown(link));
                }
            }
            let Some(flow) = self.flows.get(id) else { continue };
            let hit = |plan: &u8| flow.version(*plan).and_then(|v| v.path.as_ref()).and_then(crosses).is_some();
            let cut: Vec<u8> = flow.staying().map(|source| source.plan).filter(hit).collect();
            if cut.is_empty() {
                continue;
            }
            self.context.counts.rescued += 1;
            let uncounted = flow.moving.is_none() && !flow.closed && cut.len() == flow.staying().count();
            self.note(id, Decision::Rescued { link: dead });
            if uncounted {
                self.add_count(id);
            }
            for plan in cut {
                self.leave(id, plan);
            }
            if let Some(view) = self.context.view.flows.get_mut(&id) {
                view.route = None;
            }
        }
    }
}
