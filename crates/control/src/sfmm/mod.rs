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
use crate::flows::Flow;
use crate::move_phase::{Cutover, InPlace, InPlacePhase, Move, Phase, Stage};
use crate::plan::{Step, Version};
use crate::routes::Routes;
use pathloom_model::{LinkId, NodeId, Path};
use pathloom_scheme::{FlowId, Migration, Rejection, RuleSharing};

impl Routes {
    /// Returns how a flow can move to `path` in place, and the tag that it keeps. `None` if it must be moved by tags.
    pub(crate) fn in_place(&mut self, cx: &mut Context, id: FlowId, path: &Path) -> Option<(InPlace, u16)> {
        if cx.needs.migration != Migration::Sfmm || cx.needs.rules != RuleSharing::PerFlow {
            return None;
        }
        let priorities = &cx.config.priorities;
        if priorities.hop(true) == priorities.hop(false) {
            // There is no priority below 0.
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
        // This comes last, because it examines all flows.
        let order = self.moves.cutover(cx, before, path)?;
        Some((InPlace { order, phase: InPlacePhase::AddHops { old: old.plan } }, old.tag))
    }

    /// Whether other rules of the flow with this tag exist at switches of a path. They would match before the low
    /// rules.
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

    /// All steps of a phase of a move in place are confirmed. Records which rules are gone, and prepares the next
    /// phase. Returns whether the move continues.
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
                return self.raise_priority(cx, id, next);
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

    /// The flow is on its new path. A path that was requested meanwhile is next; otherwise copies of its low rules
    /// are added with normal priority. Returns whether the move continues.
    fn raise_priority(&mut self, cx: &mut Context, id: FlowId, next: Option<Path>) -> bool {
        if let Some(next) = next {
            self.finish_quietly(cx, id);
            self.start_next_move(cx, id, next);
            return false;
        }
        let Some(flow) = self.flows.get(id) else { return false };
        let low = flow.current_move.as_deref().and_then(|current_move| flow.version(current_move.plan)).cloned();
        let path = low.as_ref().and_then(|version| version.path.as_ref());
        let roomy = path.is_some_and(|path| order::switches(&cx.fabric, path).iter().all(|&at| cx.has_room(at)));
        let plan = if roomy { self.flows.take_plan(id, &self.draining) } else { None };
        let (Some(low), Some(plan)) = (low, plan) else {
            // The low rules stay instead of copies.
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

    /// Records that the rules of a version at these switches are gone.
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

    /// The normal rules are confirmed and are the flow's version from now on. The low rules are deleted at once,
    /// because the normal rule at each switch has the same effect.
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

    /// Ends a move in place early. Before the cutover, the move is undone. During the cutover, the flow returns to
    /// the default routes, which only needs its source ToR. After the cutover, the flow is already on its new path
    /// and stays there with low rules. Returns the path that was to be set up next.
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

    /// Deletes the copies with normal priority, if the low rules are still there.
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

    /// Ends a move in place whose old or new path cannot be used any more, and reports the reason. If another path
    /// was requested meanwhile, it is set up next.
    pub(crate) fn abort_in_place(&mut self, cx: &mut Context, id: FlowId, why: Rejection) {
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
                    Some(next) => self.start_next_move(cx, id, next),
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

    /// Starts the move to the path that was requested while the flow was between two paths.
    fn start_next_move(&mut self, cx: &mut Context, id: FlowId, path: Path) {
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

    /// Whether a requested path must wait, because the flow is between two paths. If so, stores it.
    pub(crate) fn defer_path(&mut self, cx: &mut Context, id: FlowId, path: &Path) -> bool {
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

    /// Returns a link of the same cable as `dead` that the old or new path of a move in place uses.
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

    /// Whether an expired low rule at the source ToR is still needed, because the flow sent nothing while it moved.
    pub(crate) fn still_needed(&self, id: FlowId, plan: u8) -> bool {
        let Some(flow) = self.flows.get(id).filter(|flow| !flow.closed) else { return false };
        let Some(current_move) = flow.current_move.as_ref().filter(|current_move| current_move.plan == plan) else {
            return false;
        };
        matches!(current_move.stage(), Some(Stage::Before | Stage::Between))
    }
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
