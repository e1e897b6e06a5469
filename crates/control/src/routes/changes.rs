//! What switches and links report: confirmations and refusals, the rules that a switch has, lost sessions, dead links.

use super::moves::{After, Ended};
use super::reconcile::{compare_hops, compare_source, found_rule, verify, Finding, Found};
use super::{adoption, counting, rescue, room, Routes};
use crate::context::Context;
use crate::cookies::{is_bound, Cookie, RuleKind};
use crate::flow_rules::Lost;
use crate::flows::{note, Flow};
use crate::move_phase::{Move, Stage};
use crate::orphans;
use crate::reasons::Decision;
use crate::switches::Removed;
use crate::{assignments::SavedAssignments, sfmm};
use pathloom_model::rules::{Refusal, Rule};
use pathloom_model::{LinkId, NodeId, Path};
use pathloom_scheme::{Event, FlowId, Rejection};
use std::num::NonZeroU32;

impl Routes {
    /// A switch has confirmed a step of a move.
    pub(crate) fn step_confirmed(&mut self, cx: &mut Context, id: FlowId, number: NonZeroU32) {
        let after = self.moves.step_confirmed(cx, &mut self.rules, id, number);
        self.follow(cx, id, after);
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
        let after = self.moves.step_refused(cx, &mut self.rules, (id, number), (switch, why));
        self.follow(cx, id, after);
    }

    /// A switch has no room for a counting rule.
    pub(crate) fn count_refused(&mut self, cx: &mut Context, id: FlowId, plan: u8) {
        if counting::refused(cx, &mut self.rules, id, plan).is_err() {
            self.finish(cx, id);
        }
    }

    /// Handles a removal notice.
    pub(crate) fn rule_removed(&mut self, cx: &mut Context, switch: NodeId, removed: &Removed) {
        let &Removed { cookie, counters, why, .. } = removed;
        let Some(Cookie { kind: RuleKind::Source, flow: id, plan }) = Cookie::decode(cookie) else { return };
        if self.rules.flows.get(id).is_none_or(|flow| flow.tor() != switch) {
            return self.orphan_rule_removed(cx, switch, id, plan);
        }
        let counted = (counters.bytes, counters.packets > 0);
        let lost = self.rules.source_removed(cx, id, plan, counted, why);
        self.end_if_lost(cx, id, lost);
    }

    /// Ends a flow that has lost its last rule at the source ToR.
    pub(crate) fn end_if_lost(&mut self, cx: &mut Context, id: FlowId, lost: Lost) {
        if lost == Lost::Ended {
            self.finish(cx, id);
            self.retire(cx, id);
            self.rules.settle(cx, id);
        }
    }

    /// Moves flows whose path has a dead link back to the default routes, and ends moves to such paths.
    pub(crate) fn rescue_from(&mut self, cx: &mut Context, dead: LinkId) {
        for id in self.rules.routed().collect::<Vec<_>>() {
            let Some(flow) = self.rules.flows.get(id) else { continue };
            if let Some(link) = sfmm::cut_in_place(flow, dead) {
                self.abort_in_place(cx, id, Rejection::LinkDown(link));
            }
            let Some(flow) = self.rules.flows.get(id) else { continue };
            match rescue::dead_move(flow, dead) {
                None => {}
                Some((link, false)) => self.give_up(cx, id, Rejection::LinkDown(link)),
                Some((link, true)) => {
                    self.supersede(cx, id);
                    self.reject(cx, id, Rejection::LinkDown(link));
                }
            }
            let Some(flow) = self.rules.flows.get(id) else { continue };
            let cut = rescue::dead_plans(flow, dead);
            if cut.is_empty() {
                continue;
            }
            cx.counts.rescued += 1;
            let uncounted = flow.current_move.is_none() && !flow.closed && cut.len() == flow.staying().count();
            note(cx, &mut self.rules.flows, id, Decision::Rescued { link: dead });
            if uncounted {
                self.add_count(cx, id);
            }
            self.leave_plans(cx, id, cut);
        }
    }

    /// Ends a move in place whose old or new path cannot be used any more, and reports the reason. If another path
    /// was requested meanwhile, it is set up next.
    fn abort_in_place(&mut self, cx: &mut Context, id: FlowId, why: Rejection) {
        let stage = self.rules.flows.get(id).and_then(|flow| flow.current_move.as_deref()).and_then(Move::stage);
        match stage {
            None => {}
            Some(Stage::Before) => self.give_up(cx, id, why),
            Some(Stage::Between) => {
                let next = match self.moves.end_in_place(cx, &mut self.rules, id) {
                    Ended::Settled => None,
                    Ended::Between { next } => next,
                };
                self.leave_paths(cx, id);
                self.end_between(cx, id, next, why);
            }
            Some(Stage::After) => {
                let after = self.moves.keep_low(cx, &mut self.rules, id);
                self.follow(cx, id, after);
            }
        }
    }

    /// A move in place ended between two paths, and the flow is on the default routes. Starts the move to the path that
    /// was requested meanwhile, or reports the reason.
    fn end_between(&mut self, cx: &mut Context, id: FlowId, next: Option<Path>, why: Rejection) {
        if let Some(view) = cx.view.flows.get_mut(&id) {
            view.pending = None;
        }
        match (next, cx.view.flows.get_mut(&id)) {
            (Some(next), _) => self.follow(cx, id, After::MoveTo(next)),
            (None, Some(view)) => {
                view.allocated_bps = None.into();
                self.reject(cx, id, why);
            }
            (None, None) => {}
        }
        self.count_soon(id);
    }

    /// The session to a switch was lost, and it may or may not have received unconfirmed messages.
    pub(crate) fn session_lost(&mut self, cx: &mut Context, switch: NodeId) {
        self.orphans.forget(cx, switch);
        self.rules.labels.session_lost(switch);
        let (in_place, by_tags) = rescue::broken_moves(cx, &self.rules, switch);
        for id in in_place {
            self.abort_in_place(cx, id, Rejection::SwitchGone(switch));
        }
        for id in by_tags {
            self.give_up(cx, id, Rejection::SwitchGone(switch));
        }
    }

    /// Ends flows with an end that has moved, because their paths lead to its old place. Their assignments change, too.
    pub(crate) fn places_moved(&mut self, cx: &mut Context) {
        for id in rescue::of_old_places(cx, &self.rules) {
            self.finish(cx, id);
            self.retire(cx, id);
        }
        if !self.assignments.is_empty() {
            self.assignments.addresses_changed(&super::bound::facts(cx));
        }
    }

    /// A switch has no room for the rule of a label. Flows that used it return to the default routes. Moves that wait
    /// for the rule handle the refusal themselves.
    pub(crate) fn label_refused(&mut self, cx: &mut Context, switch: NodeId, label: u16) {
        if self.rules.labels.note_absent(cx, switch, label) {
            let hit = rescue::users_of_label(cx, &self.rules, switch, label);
            hit.into_iter().for_each(|id| self.unroute_by(cx, id, Decision::Unroute));
        }
    }

    /// The switch and the host with the largest number of rules of one host at one switch.
    pub(crate) fn largest_holder(&self) -> Option<(NodeId, NodeId, u32)> {
        self.room.largest_holder()
    }

    /// Makes room at the switches at which hosts found none. Flows that have ended go first, then flows of hosts with
    /// more than their share.
    pub(crate) fn make_room(&mut self, cx: &mut Context) {
        let wanted = self.room.begin_search(cx.now);
        let (finished, left) = room::finished_at(cx, &self.rules, wanted.keys().copied());
        for id in finished {
            self.retire(cx, id);
        }
        for (&switch, &wants) in &wanted {
            let most = left.get(&switch).copied().unwrap_or(0);
            for id in room::over_share(cx, &self.rules, switch, wants).into_iter().take(most) {
                self.evict(cx, id, switch);
            }
        }
    }

    /// Puts a flow on the default routes to make room at a switch. At its source ToR it needs a rule even there, so the
    /// controller does not know it any more.
    fn evict(&mut self, cx: &mut Context, id: FlowId, switch: NodeId) {
        let Some(flow) = self.rules.flows.get(id) else { return };
        let at_source = flow.tor() == switch;
        cx.counts.made_room += 1;
        note(cx, &mut self.rules.flows, id, Decision::MadeRoom { switch });
        if at_source {
            self.rules.limits.lift(cx, &mut self.rules.flows, id);
            self.finish(cx, id);
            self.retire(cx, id);
            return;
        }
        self.unroute(cx, id);
        self.unroute_way_back(cx, id);
        if cx.view.flows.contains_key(&id) {
            self.reject(cx, id, Rejection::OverBudget(switch));
        }
    }

    /// Compares the flow rules of a switch with those that it should have.
    pub(crate) fn reconcile_flows(&mut self, cx: &mut Context, switch: NodeId, rules: Vec<Rule>) {
        let found = Found::of(rules);
        let sourced = self.rules.flows.iter().filter(|(_, flow)| flow.tor() == switch).map(|(id, _)| id);
        for id in sourced.collect::<Vec<_>>() {
            self.reconcile_sources(cx, id, found.of_flow(id), found.wiped);
            // Its counting rule may have been refused before.
            self.count_soon(id);
        }
        for id in self.rules.routed().collect::<Vec<_>>() {
            compare_hops(cx, &self.rules, switch, id, found.of_flow(id));
        }
        for rule in found.into_rules() {
            found_rule(cx, (&mut self.rules, &mut self.orphans), switch, rule);
        }
        for id in self.orphans.take_waiting(switch) {
            self.look_at_orphan(cx, id);
        }
        self.handle_early_messages(cx, switch);
    }

    /// Compares the rules of a known flow at its source ToR.
    fn reconcile_sources(&mut self, cx: &mut Context, id: FlowId, found: &[(Cookie, Rule)], wiped: bool) {
        if self.rules.flows.get(id).is_some_and(|flow| flow.unverified) {
            for event in verify(cx, (&mut self.rules, &mut self.orphans), id, found, wiped) {
                self.queue_event(cx, event);
            }
        }
        let Some(flow) = self.rules.flows.get(id) else { return };
        for source in flow.sources.clone().iter().copied() {
            match compare_source(cx, &mut self.rules, id, source, (found, wiped)) {
                Finding::Right => {}
                Finding::Gone(step) => {
                    self.rules.gone(cx, id, source.plan);
                    step.into_iter().for_each(|number| self.step_confirmed(cx, id, number));
                }
                Finding::Arrived(number) => self.step_confirmed(cx, id, number),
                Finding::Expired => {
                    let lost = self.rules.source_lost(cx, id, source.plan, false);
                    self.end_if_lost(cx, id, lost);
                }
            }
        }
    }

    /// A rule of an unknown flow expired.
    fn orphan_rule_removed(&mut self, cx: &mut Context, switch: NodeId, id: FlowId, plan: u8) {
        let Some(rule) = self.orphans.remove_source(id, plan) else { return };
        cx.count_rules(switch, -1);
        self.rules.limits.meter_unnamed(cx, &self.rules.flows, switch, &rule);
        self.look_at_orphan(cx, id);
    }

    fn look_at_orphan(&mut self, cx: &mut Context, id: FlowId) {
        match self.orphans.look_at(cx, &self.rules.labels, id) {
            None => {}
            Some(orphans::Found::OnPath(plan, path)) => self.adopt(cx, id, plan, Some(path)),
            Some(orphans::Found::OnDefaults(plan)) => self.adopt(cx, id, plan, None),
            Some(orphans::Found::Broken(plan)) => {
                // The effective rule leads to no complete path. The flow returns to the default routes.
                self.adopt(cx, id, plan, None);
                self.add_count(cx, id);
                self.rules.leave(cx, id, plan);
            }
            Some(orphans::Found::Gone) => {
                adoption::drop_orphan(cx, &mut self.rules, &mut self.orphans, id);
                self.end_bound(cx, id);
                if let Some(view) = self.orphans.take_remembered(id).filter(|view| view.long) {
                    cx.view.flows.insert(id, view);
                    self.queue_event(cx, Event::FlowFinished { flow: id });
                }
            }
        }
    }

    /// Adds a flow whose rule of `plan` is effective to the known flows.
    fn adopt(&mut self, cx: &mut Context, id: FlowId, plan: u8, path: Option<Path>) {
        let on_path = path.is_some();
        if !adoption::adopt(cx, &mut self.rules, &mut self.orphans, id, (plan, path)) {
            return;
        }
        if let Some(five_tuple) = self.rules.flows.get(id).filter(|_| is_bound(id)).map(|flow| flow.key.five_tuple) {
            self.assignments.adopted(cx.now, &five_tuple, id);
        }
        if cx.is_long(id) {
            let event = if on_path { Event::FlowAdopted { flow: id } } else { Event::FlowArrived { flow: id } };
            self.queue_event(cx, event);
        }
    }

    /// Restores the assignments of a snapshot. Its flows must already be known.
    pub(crate) fn restore_assignments(&mut self, cx: &Context, saved: SavedAssignments) {
        let stands = |id: FlowId| self.rules.flows.get(id).is_some_and(|flow: &Flow| !flow.closed);
        self.assignments.restore(&super::bound::facts(cx), saved, stands);
    }
}
