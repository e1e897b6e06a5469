//! The flows and their paths: what a scheme requests, what hosts send, and what happens to switches and links.
//!
//! [`Routes`] puts the parts together. A part changes the rules of flows ([`crate::flow_rules`]) and returns what must
//! happen next. This file has the requests of the scheme and what follows moves; `arrivals.rs` begins and ends flows;
//! `changes.rs` handles what switches and links report. The other files are the parts.

mod adoption;
mod arrivals;
mod bound;
mod changes;
mod counting;
mod early;
mod moves;
mod reconcile;
mod remember;
mod rescue;
mod returns;
mod room;

pub(crate) use remember::{Drain, FlowRecord};

use crate::assignments::Assignments;
use crate::context::Context;
use crate::cookies::is_bound;
use crate::flow_rules::FlowRules;
use crate::flows::note;
use crate::orphans::Orphans;
use crate::reasons::Decision;
use crate::sfmm;

use counting::Uncountable;
use early::EarlyMessages;
use moves::{After, Ended, Moves};
use pathloom_model::{Path, PathError};
use pathloom_scheme::{Event, FlowId, Rejection};
use room::Room;

/// All flows and their rules.
pub(crate) struct Routes {
    pub rules: FlowRules,
    pub moves: Moves,
    /// Rules of unknown flows.
    pub orphans: Orphans,
    /// Paths that are assigned to applications.
    pub assignments: Assignments,
    /// How the hosts share the rules of switches.
    room: Room,
    /// Flows that may need a counting rule after the current input.
    fresh: Vec<FlowId>,
    early_messages: EarlyMessages,
}

impl Routes {
    pub(crate) fn new(cx: &Context) -> Routes {
        Routes {
            rules: FlowRules::new(cx),
            moves: Moves::default(),
            orphans: Orphans::default(),
            assignments: Assignments::new(cx.config.epoch),
            room: Room::default(),
            fresh: Vec::new(),
            early_messages: EarlyMessages::default(),
        }
    }

    /// Queues an event for the scheme. It gets no events about paths of ways back, nor about connections on assigned
    /// paths.
    fn queue_event(&mut self, cx: &mut Context, event: Event) {
        match event {
            Event::RouteConfirmed { flow } if is_bound(flow) => self.assignments.forget_retry(flow),
            Event::RouteRejected { flow, .. } if is_bound(flow) => self.retry_later(cx, flow),
            Event::RouteConfirmed { flow } | Event::RouteRejected { flow, .. } if cx.is_way_back_only(flow) => {}
            event => cx.events.push_back(event),
        }
    }

    /// A flow of a connection left its path for another reason than a dead link, or could not be put there. Tries
    /// again later.
    fn retry_later(&mut self, cx: &Context, id: FlowId) {
        if is_bound(id) && self.rules.flows.get(id).is_some_and(|flow| !flow.closed) {
            self.assignments.try_later(cx.now, id);
        }
    }

    fn reject(&mut self, cx: &mut Context, id: FlowId, why: Rejection) {
        cx.counts.rejected += 1;
        note(cx, &mut self.rules.flows, id, Decision::Rejected { why });
        self.queue_event(cx, Event::RouteRejected { flow: id, why });
    }

    /// Gives a flow a counting rule after the current input, if it needs one.
    pub(crate) fn count_soon(&mut self, id: FlowId) {
        self.fresh.push(id);
    }

    /// Adds a counting rule for every flow that has no rule at its source ToR and no move in progress.
    pub(crate) fn count_fresh(&mut self, cx: &mut Context) {
        let mut fresh = std::mem::take(&mut self.fresh);
        for id in fresh.drain(..) {
            if self.rules.flows.get(id).is_some_and(counting::is_uncounted) {
                self.add_count(cx, id);
            }
        }
        // Flows that were added meanwhile wait for the next input.
        std::mem::swap(&mut fresh, &mut self.fresh);
        self.fresh.append(&mut fresh);
    }

    /// Adds the rule that counts a flow on the default routes. Ends the flow if it cannot be counted.
    fn add_count(&mut self, cx: &mut Context, id: FlowId) {
        let Routes { rules, room, orphans, .. } = self;
        if let Err(Uncountable) = counting::add_count(cx, rules, (room, orphans), id) {
            self.finish(cx, id);
        }
    }

    /// Carries out [`pathloom_scheme::Action::Route`].
    pub(crate) fn route(&mut self, cx: &mut Context, id: FlowId, path: Path, rate_bps: Option<u64>) {
        let settled = self.rules.flows.get(id).is_some_and(|flow| !flow.closed && flow.current_move.is_none());
        let there = cx.view.flows.get(&id).is_some_and(|view| view.route.as_ref() == Some(&path));
        if !(settled && there) {
            if let Err(why) = self.check_route(cx, id, &path) {
                return self.reject(cx, id, why);
            }
        }
        let pending = cx.view.flows.get(&id).is_some_and(|view| view.pending.as_ref() == Some(&path));
        let asked = pending || sfmm::defer_path(cx, &mut self.rules, id, &path);
        // This is checked before anything is undone for the new path.
        if !asked && !there && self.rules.flows.free_plan(id, &self.rules.draining).is_none() {
            return self.reject(cx, id, Rejection::Draining);
        }
        let Some(view) = cx.view.flows.get_mut(&id) else { return };
        view.allocated_bps = rate_bps.into();
        if asked {
            return;
        }
        let moves = view.pending.is_some();
        self.supersede(cx, id);
        let decided = match is_bound(id) {
            true => Decision::Assigned { path: path.clone() },
            false => Decision::Route { path: path.clone(), rate_bps },
        };
        let Some(view) = cx.view.flows.get_mut(&id) else { return };
        if view.route.as_ref() == Some(&path) {
            if moves {
                note(cx, &mut self.rules.flows, id, decided);
            }
            return self.queue_event(cx, Event::RouteConfirmed { flow: id });
        }
        view.pending = Some(path.clone());
        note(cx, &mut self.rules.flows, id, decided);
        let after = self.moves.start(cx, &mut self.rules, id, path.clone());
        self.follow(cx, id, after);
        self.route_way_back(cx, id, &path);
    }

    /// Checks whether a flow can be put on a path now, and whether all its switches have room for the rules.
    pub(crate) fn check_route(&mut self, cx: &mut Context, id: FlowId, path: &Path) -> Result<(), Rejection> {
        let flow = self.rules.flows.get(id).filter(|flow| !flow.closed).ok_or(Rejection::UnknownFlow)?;
        match path.check(&cx.fabric) {
            Ok(()) => {}
            Err(PathError::Broken { .. } | PathError::Loop { .. }) => return Err(Rejection::Malformed),
            Err(PathError::Host { .. } | PathError::Unknown { .. }) => return Err(Rejection::Malformed),
        }
        let ends = match (path.links().first(), path.links().last()) {
            (Some(&first), Some(&last)) => (cx.fabric.link(first).from, cx.fabric.link(last).to),
            _ => (flow.key.src.tor, flow.key.src.tor),
        };
        if ends != (flow.key.src.tor, flow.key.dst.tor) {
            return Err(Rejection::WrongEnds);
        }
        if let Some(&link) = path.links().iter().find(|&&link| !cx.view.links.is_up(link)) {
            return Err(Rejection::LinkDown(link));
        }
        let later = path.links().iter().map(|&link| cx.fabric.link(link).to);
        if let Some(switch) = std::iter::once(flow.tor()).chain(later).find(|&switch| !cx.is_ready(switch)) {
            return Err(Rejection::SwitchGone(switch));
        }
        self.room.ask_for_rules(cx, &self.rules, &self.orphans, (id, path))
    }

    /// Carries out what follows a step of a flow's move.
    fn follow(&mut self, cx: &mut Context, id: FlowId, mut after: After) {
        loop {
            match after {
                After::Nothing => return,
                After::Confirm => {
                    if let Some(view) = cx.view.flows.get_mut(&id) {
                        view.pending = None;
                    }
                    return self.queue_event(cx, Event::RouteConfirmed { flow: id });
                }
                After::Reject(why) => {
                    if let Some(view) = cx.view.flows.get_mut(&id) {
                        view.pending = None;
                        view.allocated_bps = None.into();
                        self.reject(cx, id, why);
                    }
                    return self.count_soon(id);
                }
                After::MoveTo(path) => after = self.start_next(cx, id, path),
            }
        }
    }

    /// Starts the move to the path that was requested while the flow was between two paths.
    fn start_next(&mut self, cx: &mut Context, id: FlowId, path: Path) -> After {
        if self.rules.flows.get(id).is_none_or(|flow| flow.closed) {
            return After::Nothing;
        }
        let checked = self.check_route(cx, id, &path);
        if let Some(view) = cx.view.flows.get_mut(&id) {
            view.pending = checked.is_ok().then(|| path.clone());
        }
        match checked {
            Ok(()) => self.moves.start(cx, &mut self.rules, id, path),
            Err(why) => {
                self.reject(cx, id, why);
                After::Nothing
            }
        }
    }

    /// Ends the current move without result, and reports the reason. The flow stays where it was.
    fn give_up(&mut self, cx: &mut Context, id: FlowId, why: Rejection) {
        moves::undo(cx, &mut self.rules, id);
        self.follow(cx, id, After::Reject(why));
    }

    /// Ends the current move because the flow gets another route now.
    fn supersede(&mut self, cx: &mut Context, id: FlowId) {
        let Some(ended) = self.moves.supersede(cx, &mut self.rules, id) else { return };
        if let Ended::Between { .. } = ended {
            self.leave_paths(cx, id);
        }
        if let Some(view) = cx.view.flows.get_mut(&id) {
            view.pending = None;
        }
    }

    /// Puts a flow back on the default routes, and stores the decision that led to it.
    pub(crate) fn unroute_by(&mut self, cx: &mut Context, id: FlowId, decision: Decision) {
        note(cx, &mut self.rules.flows, id, decision);
        self.unroute(cx, id);
    }

    /// Puts a flow back on the default routes.
    fn unroute(&mut self, cx: &mut Context, id: FlowId) {
        self.supersede(cx, id);
        if self.rules.flows.get(id).is_none_or(|flow| flow.closed) {
            return;
        }
        self.leave_paths(cx, id);
        self.retry_later(cx, id);
        if let Some(view) = cx.view.flows.get_mut(&id) {
            view.allocated_bps = None.into();
        }
        self.count_soon(id);
    }

    /// Puts a flow back on the default routes, which only needs its source ToR.
    fn leave_paths(&mut self, cx: &mut Context, id: FlowId) {
        let Some(flow) = self.rules.flows.get(id) else { return };
        let on_paths: Vec<u8> =
            flow.staying().map(|source| source.plan).filter(|&plan| flow.version(plan).is_some()).collect();
        if !flow.closed && !on_paths.is_empty() && on_paths.len() == flow.staying().count() {
            self.add_count(cx, id);
        }
        self.leave_plans(cx, id, on_paths);
    }

    /// Deletes the rules of plans at the source ToR of a flow, which has no route any more.
    fn leave_plans(&mut self, cx: &mut Context, id: FlowId, plans: Vec<u8>) {
        for plan in plans {
            self.rules.leave(cx, id, plan);
        }
        if let Some(view) = cx.view.flows.get_mut(&id) {
            view.route = None;
        }
    }

    /// Puts the reverse direction of a long flow on its path, reversed.
    fn route_way_back(&mut self, cx: &mut Context, id: FlowId, path: &Path) {
        if !cx.needs.both_directions || !cx.is_long(id) {
            return;
        }
        if let Some(back) = returns::way_back(cx, &self.rules.flows, id).or_else(|| self.make_way_back(cx, id)) {
            self.route(cx, back, path.reverse(), None);
        }
    }

    /// The flow returns to the default routes, and its way back too.
    pub(crate) fn unroute_way_back(&mut self, cx: &mut Context, id: FlowId) {
        if let Some(back) = returns::way_back(cx, &self.rules.flows, id) {
            self.unroute(cx, back);
        }
    }

    /// Puts all ways back on the default routes, because the new scheme does not need them.
    pub(crate) fn unroute_all_ways_back(&mut self, cx: &mut Context) {
        for id in returns::all(cx, &self.rules.flows) {
            self.unroute(cx, id);
        }
    }

    /// Puts a flow of a connection on its path, if that is up. Does nothing if it is already there.
    fn put_on_path(&mut self, cx: &mut Context, id: FlowId) {
        if self.rules.flows.get(id).is_none_or(|flow| flow.closed) {
            return;
        }
        match self.assignments.path_of(id) {
            Some(path) if path.is_up(&cx.view.links) => self.route(cx, id, path, None),
            Some(_) => self.assignments.await_link(cx.now, id),
            None => {}
        }
    }

    /// Links came up or went down. Moves connections to the paths that replace dead ones.
    pub(crate) fn reassign(&mut self, cx: &mut Context) {
        if !self.assignments.is_empty() {
            for id in self.assignments.links_changed(&bound::facts(cx)) {
                self.put_on_path(cx, id);
            }
        }
    }
}
