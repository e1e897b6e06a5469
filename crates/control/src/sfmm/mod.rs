//! Seamless flow migration (OFPT §5.3, Alg. 4), and the gaps that its listing leaves.
//!
//! A flow on a path moves in place: the rules of its new path match the same tag as those of the old one, with a lower
//! priority, so that packets go on by the old path until its rules are deleted where both paths pass.
//!
//! 0. add the rules of the new path, low, at all switches but the first;
//! 1. when all are confirmed, add the low rule at the source ToR;
//! 2. when that is confirmed, delete the old rule at the cutover switch before the bottleneck;
//! 3. then the old rules of the other cutover switches, which would be hit for ever (the paper lets them run out);
//! 4. when all are confirmed, the old rules elsewhere drain, and copies of the new ones are added with normal priority;
//! 5. when all are confirmed, delete the low ones: the next migration finds room below again.
//!
//! Where a switch has no room for the copies, or rules of the flow drain under every plan there is, the low rules stay, and
//! the next move is by tags.
//!
//! The low rules are one version of the route and their copies another, so that each has a plan of its own in its cookies
//! ([`crate::cookies`]) and a controller that starts anew can tell how far a migration had come ([`crate::orphans`]).
//! A flow is moved by tags instead ([`crate::plan`]) when it comes from the default routes or goes back to them, when both
//! paths visit two switches in opposite order, when rules of an earlier path are still draining where the new one passes,
//! and when its rules are shared ([`crate::labels`]). A path that is asked for between phases 2 and 4 comes next. A link
//! that dies then, or a session that is lost, sends the flow back to the default routes, which takes its source ToR alone.

mod order;

pub(crate) use order::bottleneck;
pub use order::{bottleneck_first, CutoverOrder};

use crate::context::Context;
use crate::flows::Flow;
use crate::plan::{Step, Version};
use crate::routes::{Cutover, InPlace, InPlacePhase, Move, Phase, Routes, Stage};
use pathloom_model::{LinkId, NodeId, Path};
use pathloom_scheme::{FlowId, Migration, Rejection, RuleSharing};

impl Routes {
    /// How a flow could move to `path` in place, and the tag that it keeps; `None` if it must be moved by tags.
    pub(crate) fn in_place(&mut self, cx: &mut Context, id: FlowId, path: &Path) -> Option<(InPlace, u16)> {
        if cx.needs.migration != Migration::Sfmm || cx.needs.rules != RuleSharing::PerFlow {
            return None;
        }
        let priorities = &cx.config.priorities;
        if priorities.hop(true) == priorities.hop(false) {
            // There is nothing below priority 0.
            return None;
        }
        let flow = self.flows.get(id)?;
        let mut staying = flow.staying();
        let (source, None) = (staying.next()?, staying.next()) else { return None };
        let old = flow.version(source.plan).filter(|old| source.confirmed && !old.low && !old.is_shared())?;
        let before = old.path.as_ref().filter(|_| old.cut.is_empty())?;
        if flow.level_below(source.level).is_none() || self.drains_on(cx, flow, old.tag, path) {
            return None;
        }
        // Only now, and not for every new flow: all flows have to be looked at.
        let order = self.moves.cutover(cx, before, path)?;
        Some((InPlace { order, phase: InPlacePhase::AddHops { old: old.plan } }, old.tag))
    }

    /// Whether rules with this tag of the flow stand where a path passes that it has left: they would act before the low
    /// ones.
    fn drains_on(&self, cx: &Context, flow: &Flow, tag: u16, path: &Path) -> bool {
        let tuple = flow.key.five_tuple;
        let visited = order::switches(&cx.fabric, path);
        let blocks = |&(switch, key): &(NodeId, pathloom_model::rules::RuleKey)| {
            key.matches.tag == Some(tag) && visited.contains(&switch)
        };
        let more_versions = flow.versions.iter().filter(|version| version.tag == tag).count() > 1;
        more_versions
            || self.draining.range((tuple, 0)..=(tuple, u8::MAX)).any(|(_, left)| left.rules.iter().any(blocks))
    }

    /// All steps of a phase of a move in place are confirmed: takes note of what is gone, and prepares what comes next. Returns
    /// whether the move goes on.
    pub(crate) fn next_phase_in_place(&mut self, cx: &mut Context, id: FlowId) -> bool {
        let Some(flow) = self.flows.get_mut(id) else { return false };
        let Some(Phase::InPlace(way)) = flow.current_move.as_deref_mut().map(|current_move| &mut current_move.phase)
        else {
            return false;
        };
        let first = way.order.len().min(1);
        match way.phase.clone() {
            InPlacePhase::AddHops { old } => way.phase = InPlacePhase::AddSource { old },
            InPlacePhase::AddSource { old } => way.phase = InPlacePhase::CutFirst(Cutover { old, next: None }),
            InPlacePhase::CutFirst(cutover) => {
                let (old, gone) = (cutover.old, way.order[..first].to_vec());
                way.phase = InPlacePhase::CutRest(cutover);
                self.note_cut(cx, id, old, &gone);
            }
            InPlacePhase::CutRest(Cutover { old, next }) => {
                let gone = way.order[first..].to_vec();
                self.note_cut(cx, id, old, &gone);
                return self.lift(cx, id, next);
            }
            InPlacePhase::AddCopies { plan: copy, .. } => {
                way.phase = InPlacePhase::DeleteLow { copy };
                flow.confirm(copy);
            }
            InPlacePhase::DeleteLow { .. } => {
                self.finish_move(cx, id);
                return false;
            }
        }
        true
    }

    /// The flow is on its new path: what was asked for meanwhile is next, or else copies of its low rules with normal
    /// priority. Returns whether the move goes on.
    fn lift(&mut self, cx: &mut Context, id: FlowId, next: Option<Path>) -> bool {
        if let Some(next) = next {
            self.finish_quietly(cx, id);
            self.go_on_to(cx, id, next);
            return false;
        }
        let Some(flow) = self.flows.get(id) else { return false };
        let low = flow.current_move.as_deref().and_then(|current_move| flow.version(current_move.plan)).cloned();
        let path = low.as_ref().and_then(|version| version.path.as_ref());
        let roomy = path.is_some_and(|path| order::switches(&cx.fabric, path).iter().all(|&at| cx.has_room(at)));
        let plan = if roomy { self.flows.take_plan(id, &self.draining) } else { None };
        let (Some(low), Some(plan)) = (low, plan) else {
            // The low rules have to do.
            self.finish_move(cx, id);
            return false;
        };
        let Some(flow) = self.flows.get_mut(id) else { return false };
        let level = flow.highest_free_level();
        if let Some(Phase::InPlace(way)) = flow.current_move.as_deref_mut().map(|current_move| &mut current_move.phase)
        {
            way.phase = InPlacePhase::AddCopies { plan, level };
            flow.versions.push(Version { plan, low: false, ..low });
        }
        self.settle(cx, id);
        true
    }

    /// The rules of a version at these switches are gone.
    fn note_cut(&mut self, cx: &mut Context, id: FlowId, plan: u8, switches: &[NodeId]) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        let tor = flow.tor();
        let Some(old) = flow.versions.iter_mut().find(|version| version.plan == plan) else { return };
        let gone: Vec<NodeId> = switches.iter().copied().filter(|&at| at != tor && !old.cut.contains(&at)).collect();
        old.cut = old.cut.iter().chain(&gone).copied().collect();
        for at in gone {
            cx.count_rules(at, -1);
        }
    }

    /// The normal rules are confirmed: from now on they are the flow's version, and the low ones go at once, for at each
    /// switch the normal one does what the low one did.
    pub(crate) fn forget_low(&mut self, cx: &mut Context, id: FlowId, copy: u8) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        let Some(current_move) = flow.current_move.as_mut() else { return };
        let low = std::mem::replace(&mut current_move.plan, copy);
        let Some(index) = flow.versions.iter().position(|version| version.plan == low) else { return };
        let version = flow.versions.remove(index);
        let key = flow.key;
        let hops: Vec<NodeId> = cx.planner().hops(&key, &version).map(|(at, _)| at).collect();
        hops.into_iter().for_each(|at| cx.count_rules(at, -1));
    }

    /// Ends a move in place early. Before it cuts over, it is undone. In between, the flow goes back to the default
    /// routes, which needs no more than its source ToR. Afterwards, it is on its new path already, and stays there with
    /// low rules. Returns the path that was to come next.
    pub(crate) fn end_in_place(&mut self, cx: &mut Context, id: FlowId) -> Option<Path> {
        let stage = self.flows.get(id)?.current_move.as_ref()?.stage()?;
        match stage {
            Stage::Before => self.undo_move(cx, id),
            Stage::Between => {
                let current_move = self.flows.get_mut(id)?.current_move.take();
                self.leave_paths(cx, id);
                return current_move.and_then(|current_move| current_move.into_next());
            }
            Stage::After => {
                self.drop_copy(cx, id);
                self.finish_quietly(cx, id);
            }
        }
        None
    }

    /// Takes back the copies with normal priority, if the low rules are still there.
    fn drop_copy(&mut self, cx: &mut Context, id: FlowId) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        let Some(plan) = flow.current_move.as_ref().and_then(|current_move| current_move.added_copy()) else { return };
        let Some(index) = flow.versions.iter().position(|version| version.plan == plan) else { return };
        let copy = flow.versions.remove(index);
        let key = flow.key;
        self.leave(cx, id, plan);
        let hop = cx.planner().hop_key(key.five_tuple, &copy);
        let hops: Vec<NodeId> = cx.planner().hops(&key, &copy).map(|(at, _)| at).collect();
        for at in hops {
            cx.count_rules(at, -1);
            if cx.is_ready(at) {
                cx.delete_rule(at, hop);
            }
        }
    }

    /// Ends a move in place whose path, old or new, cannot be used any more, and says why. What was to come next comes.
    pub(crate) fn break_off(&mut self, cx: &mut Context, id: FlowId, why: Rejection) {
        let stage = self.flows.get(id).and_then(|flow| flow.current_move.as_deref()).and_then(Move::stage);
        match stage {
            None => {}
            Some(Stage::Before) => self.give_up(cx, id, why),
            Some(Stage::Between) => {
                let next = self.end_in_place(cx, id);
                if let Some(view) = cx.view.flows.get_mut(&id) {
                    view.pending = None;
                }
                match next {
                    Some(next) => self.go_on_to(cx, id, next),
                    None if cx.view.flows.contains_key(&id) => {
                        if let Some(view) = cx.view.flows.get_mut(&id) {
                            view.allocated_bps = None.into();
                        }
                        self.reject(cx, id, why);
                    }
                    None => {}
                }
                self.count_soon(id);
            }
            Some(Stage::After) => {
                self.drop_copy(cx, id);
                self.finish_move(cx, id);
            }
        }
    }

    /// The path that was asked for while a flow was between two others.
    fn go_on_to(&mut self, cx: &mut Context, id: FlowId, path: Path) {
        if self.flows.get(id).is_none_or(|flow| flow.closed) {
            return;
        }
        match self.check_route(cx, id, &path) {
            Ok(()) => {
                if let Some(view) = cx.view.flows.get_mut(&id) {
                    view.pending = Some(path.clone());
                }
                self.start_move(cx, id, path);
            }
            Err(why) => {
                if let Some(view) = cx.view.flows.get_mut(&id) {
                    view.pending = None;
                }
                self.reject(cx, id, why);
            }
        }
    }

    /// Whether a path that is asked for now has to wait, because the flow is between two others; if so, it is noted.
    pub(crate) fn comes_next(&mut self, cx: &mut Context, id: FlowId, path: &Path) -> bool {
        let Some(flow) = self.flows.get_mut(id) else { return false };
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

    /// The link of `dead`'s cable that the paths of a move in place use, old or new.
    pub(crate) fn cut_in_place(&self, flow: &Flow, dead: LinkId) -> Option<LinkId> {
        let current_move = flow.current_move.as_ref().filter(|current_move| current_move.stage().is_some())?;
        let plans = [Some(current_move.plan), current_move.old_plan()];
        let mut paths = plans.into_iter().flatten().filter_map(|plan| flow.version(plan)?.path.as_ref());
        paths.find_map(|path| path.links().iter().copied().find(|link| link.cable() == dead.cable()))
    }

    /// Whether a move in place needs a switch.
    pub(crate) fn moves_in_place_at(&self, cx: &Context, flow: &Flow, switch: NodeId) -> bool {
        let Some(current_move) = flow.current_move.as_ref().filter(|current_move| current_move.stage().is_some())
        else {
            return false;
        };
        let plans = [Some(current_move.plan), current_move.old_plan()];
        let mut paths = plans.into_iter().flatten().filter_map(|plan| flow.version(plan)?.path.as_ref());
        paths.any(|path| order::switches(&cx.fabric, path).contains(&switch))
    }

    /// Whether the low rule at the source ToR that ran out is still needed: its flow was silent while it moved.
    pub(crate) fn still_needed(&self, id: FlowId, plan: u8) -> bool {
        let Some(flow) = self.flows.get(id).filter(|flow| !flow.closed) else { return false };
        let Some(current_move) = flow.current_move.as_ref().filter(|current_move| current_move.plan == plan) else {
            return false;
        };
        matches!(current_move.stage(), Some(Stage::Before | Stage::Between))
    }
}

/// The steps of the phase that a move in place is in; `None` if a version is gone that it needs.
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
