//! Rules of flows at their source ToRs. They count a flow, put it on its path, and expire when it has ended.

use super::Routes;
use crate::context::Context;
use crate::cookies::{Cookie, RuleKind};
use crate::flows::{DrainingRules, Flow, SourceRule};
use crate::io::Removal;
use crate::labels::is_shared;
use crate::plan::Version;
use crate::switches::{Purpose, Removed, Session};
use crate::timers::Timer;
use pathloom_model::rules::RuleKey;
use pathloom_model::{FiveTuple, Nanos, NodeId};
use pathloom_scheme::{FlowId, Migration};

/// Base of the wait before a refused counting rule is sent again. It is doubled for each refusal.
const COUNT_AGAIN: Nanos = Nanos::from_secs(1);
/// Number of refusals of its counting rule after which a flow is ended, because it cannot be counted.
const MOST_REFUSALS: u8 = 4;

impl Routes {
    /// Returns the level for the next rule of a flow at its source ToR. Flows that may move in place need free levels
    /// below.
    pub(super) fn free_level(&self, cx: &Context, id: FlowId) -> u8 {
        let in_place = cx.needs.migration == Migration::Sfmm;
        let level = |flow: &Flow| if in_place { flow.highest_free_level() } else { flow.free_level() };
        self.flows.get(id).map_or(0, level)
    }

    /// Adds the rule that counts a flow on the default routes.
    pub(crate) fn add_count(&mut self, cx: &mut Context, id: FlowId) {
        let level = self.free_level(cx, id);
        let Some(tor) = self.flows.get(id).map(Flow::tor) else { return };
        if !self.has_room_to_count(cx, id) {
            return self.count_later(cx, id);
        }
        let Some(plan) = self.flows.take_plan(id, &self.draining) else { return self.count_later(cx, id) };
        let Some(flow) = self.flows.get_mut(id) else { return };
        let sent = cx.switches[tor.index()].session == Session::Ready;
        flow.sources.push(SourceRule { plan, level, bytes: 0, sent, confirmed: false, leaving: false });
        let key = flow.key;
        cx.count_rules(tor, 1);
        if sent {
            let rule = cx.planner().source(&key, &Version::new(plan, None), level);
            cx.add_rule(tor, rule, Purpose::Count { flow: id, plan });
        }
    }

    /// Deletes the rule of a plan at the source ToR.
    pub(crate) fn leave(&mut self, cx: &mut Context, id: FlowId, plan: u8) {
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
        cx.count_rules(tor, -1);
        if cx.is_ready(tor) && !never_sent {
            let rule = cx.planner().source_key(&key, level);
            let xid = cx.delete_rule(tor, rule);
            cx.await_answer(tor, xid, Purpose::Gone { flow: id, plan });
        }
    }

    /// A rule at the source ToR that had to be deleted is gone.
    pub(crate) fn gone(&mut self, cx: &mut Context, id: FlowId, plan: u8) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        if let Some(index) = flow.sources.iter().position(|source| source.plan == plan && source.leaving) {
            let bytes = flow.sources.remove(index).bytes;
            flow.count_past(bytes);
        }
        self.settle(cx, id);
        self.forget_if_done(cx, id);
    }

    /// Starts to drain the versions that no packet enters any more.
    pub(crate) fn settle(&mut self, cx: &mut Context, id: FlowId) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        if flow.versions.iter().all(|version| flow.is_entered(version.plan)) {
            return;
        }
        let done = flow.abandoned(&cx.fabric);
        let (key, versions) = (flow.key, flow.versions.clone());
        flow.versions.retain(|version| !done.contains(&version.plan));
        for version in versions.iter().filter(|version| done.contains(&version.plan)) {
            let rules = self.labels.rules_of(cx, &key, version);
            let planner = cx.planner();
            // A packet may have used parts of all versions with this tag.
            let paths =
                versions.iter().filter(|other| other.tag == version.tag).filter_map(|other| other.path.as_ref());
            let worst = paths.map(|path| planner.worst_delay(&key, path)).fold(Nanos::ZERO, Nanos::saturating_add);
            let until = cx.now.saturating_add(cx.config.drain.unwrap_or(worst));
            let of = (key.five_tuple, version.plan);
            let left = self.draining.entry(of).or_default();
            left.wait(&mut cx.timers, of, until);
            let before = std::mem::replace(&mut left.rules, rules);
            self.keep_draining(cx, of, before);
        }
    }

    /// The rules of a plan already drained when its version was abandoned: a snapshot took its move for given up, but
    /// the move was completed. A shared rule that is in both lists is claimed once less. A rule that is only in the
    /// old list is added to the new one.
    fn keep_draining(&mut self, cx: &mut Context, of: (FiveTuple, u8), before: Vec<(NodeId, RuleKey)>) {
        for (switch, key) in before {
            let rules = &mut self.draining.entry(of).or_default().rules;
            if !rules.contains(&(switch, key)) {
                rules.push((switch, key));
            } else if is_shared(&key) {
                self.labels.take_rule(cx, switch, key);
            }
        }
    }

    /// No packet of an abandoned version is in transit any more.
    pub(crate) fn drained(&mut self, cx: &mut Context, five_tuple: FiveTuple, plan: u8) {
        let over = |left: &DrainingRules| left.until <= cx.now;
        if !self.draining.get(&(five_tuple, plan)).is_some_and(over) {
            // More rules have been added since then, for which another timer is set.
            return;
        }
        for (switch, key) in self.draining.remove(&(five_tuple, plan)).unwrap_or_default().rules {
            self.labels.take_rule(cx, switch, key);
        }
    }

    /// A switch has confirmed a counting rule.
    pub(crate) fn count_confirmed(&mut self, id: FlowId, plan: u8) {
        if let Some(known) = self.flows.get_mut(id) {
            known.refusals = 0;
            known.confirm(plan);
        }
    }

    /// A switch has no room for a counting rule.
    pub(crate) fn count_refused(&mut self, cx: &mut Context, id: FlowId, plan: u8) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        let before = flow.sources.len();
        flow.sources.retain(|source| source.plan != plan || source.leaving);
        let tor = flow.tor();
        if flow.sources.len() < before {
            cx.count_rules(tor, -1);
        }
        self.count_later(cx, id);
    }

    /// Sends the counting rule of a flow again later. Ends the flow after several attempts.
    fn count_later(&mut self, cx: &mut Context, id: FlowId) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        flow.refusals = flow.refusals.saturating_add(1);
        let refusals = flow.refusals;
        if refusals >= MOST_REFUSALS {
            return self.finish(cx, id);
        }
        let at = cx.now.saturating_add(Nanos(COUNT_AGAIN.0 << refusals));
        cx.timers.set(at, Timer::Count { flow: id });
    }

    /// Adds a counting rule for every flow that has no rule at its source ToR and no move in progress.
    pub(crate) fn count_fresh(&mut self, cx: &mut Context) {
        let mut fresh = std::mem::take(&mut self.fresh);
        for id in fresh.drain(..) {
            let Some(flow) = self.flows.get(id) else { continue };
            if !flow.closed && flow.current_move.is_none() && flow.staying().next().is_none() {
                self.add_count(cx, id);
            }
        }
        // Flows that were added meanwhile wait for the next input.
        std::mem::swap(&mut fresh, &mut self.fresh);
        self.fresh.append(&mut fresh);
    }

    /// Handles a removal notice.
    pub(crate) fn rule_removed(&mut self, cx: &mut Context, switch: NodeId, removed: &Removed) {
        let &Removed { cookie, counters, why, .. } = removed;
        let Some(Cookie { kind: RuleKind::Source, flow: id, plan }) = Cookie::decode(cookie) else { return };
        let Some(flow) = self.flows.get_mut(id).filter(|flow| flow.key.src.tor == switch) else {
            return self.orphan_rule_removed(cx, switch, id, plan);
        };
        let Some(source) = flow.sources.iter_mut().find(|source| source.plan == plan) else { return };
        source.bytes = counters.bytes;
        if !source.leaving {
            let goes_on = why == Removal::Idle && self.only_pauses(cx, id, plan, counters.packets > 0);
            self.source_lost(cx, id, plan, goes_on);
        }
    }

    /// Whether a flow whose rule expired only pauses: it has been idle for less than the time after which it is over.
    /// `sent` tells whether the rule matched a packet.
    fn only_pauses(&mut self, cx: &mut Context, id: FlowId, plan: u8, sent: bool) -> bool {
        let planner = cx.planner();
        let (patience_s, lasted_s) = (planner.idle_timeout_s, planner.path_idle_timeout_s);
        let Some(flow) = self.flows.get_mut(id) else { return false };
        let on_path = flow.version(plan).is_some_and(|version| version.path.is_some());
        if !on_path || flow.closed || lasted_s >= patience_s {
            return false;
        }
        let before_s = if sent { 0 } else { flow.extras().silent_s };
        let silent_s = before_s.saturating_add(lasted_s);
        flow.extras_mut().silent_s = silent_s;
        silent_s < patience_s
    }

    /// A rule at the source ToR was removed although it should stay, because no packet matched it for its idle
    /// time-out. If the flow `goes_on`, the rule is added again.
    pub(crate) fn source_lost(&mut self, cx: &mut Context, id: FlowId, plan: u8, goes_on: bool) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        let Some(index) = flow.sources.iter().position(|source| source.plan == plan && !source.leaving) else { return };
        let lost = flow.sources.remove(index);
        flow.count_past(lost.bytes);
        let tor = flow.tor();
        let (closed, last) = (flow.closed, flow.staying().next().is_none());
        let held = flow.extras().held_until > cx.now;
        cx.count_rules(tor, -1);
        if !last {
            return if self.still_needed(id, plan) { self.add_source(cx, id, lost) } else { self.settle(cx, id) };
        }
        if (held || goes_on) && !closed {
            // The flow is held or may continue, so it has not ended.
            return self.add_source(cx, id, lost);
        }
        self.finish(cx, id);
        self.retire(cx, id);
        self.settle(cx, id);
    }

    /// Adds a rule at the source ToR again.
    pub(crate) fn add_source(&mut self, cx: &mut Context, id: FlowId, lost: SourceRule) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        let (tor, key, plan) = (flow.tor(), flow.key, lost.plan);
        let version = flow.version(plan).cloned().unwrap_or_else(|| Version::new(plan, None));
        let sent = cx.switches[tor.index()].session == Session::Ready;
        flow.sources.push(SourceRule { bytes: 0, sent, confirmed: false, leaving: false, ..lost });
        cx.count_rules(tor, 1);
        if sent {
            let rule = cx.planner().source(&key, &version, lost.level);
            cx.add_rule(tor, rule, Purpose::Count { flow: id, plan });
        }
    }
}
