//! The rules of flows in switches: at their source ToRs, where a rule counts a flow, puts it on its path, and expires
//! when it has ended; and after them, where they stay until the packets in transit have passed.

use crate::context::Context;
use crate::flows::{Draining, DrainingRules, Flow, FlowTable, SourceRule};
use crate::io::Removal;
use crate::labels::{is_shared, Labels};
use crate::limits::Limits;
use crate::plan::{FlowKey, Version};
use crate::switches::{Purpose, Session};
use pathloom_model::rules::RuleKey;
use pathloom_model::{FiveTuple, LinkId, Nanos, NodeId, Path};
use pathloom_scheme::{FlowId, FlowView, Migration};
use std::collections::BTreeSet;

/// The flows, and what they have in switches.
pub(crate) struct FlowRules {
    pub flows: FlowTable,
    /// Rules of abandoned versions, which stay until the packets in transit have passed.
    pub draining: Draining,
    /// Rules that flows share.
    pub labels: Labels,
    /// Rate limits of flows, with the meters in their rules.
    pub limits: Limits,
}

/// What the loss of a rule at a source ToR means for its flow.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lost {
    /// The flow goes on.
    GoesOn,
    /// The flow has ended.
    Ended,
}

impl FlowRules {
    pub(crate) fn new(cx: &Context) -> FlowRules {
        let (epoch, nodes) = (cx.config.epoch, cx.fabric.nodes().len());
        FlowRules {
            flows: FlowTable::new(epoch, nodes),
            draining: Draining::new(),
            labels: Labels::default(),
            limits: Limits::new(nodes),
        }
    }

    /// Adds a flow to the view and the known flows.
    pub(crate) fn insert_flow(&mut self, cx: &mut Context, flow: Flow, long: bool) {
        let FlowKey { id, five_tuple, src, dst, .. } = flow.key;
        let view = FlowView { long, ..FlowView::new(five_tuple, &src, &dst, cx.now) };
        cx.counts.flows += 1;
        cx.view.flows.insert(id, view);
        self.flows.insert(flow);
    }

    /// Flows with rules for paths, which a dead link can affect.
    pub(crate) fn routed(&self) -> impl Iterator<Item = FlowId> + '_ {
        self.flows.iter().filter(|(_, flow)| !flow.versions.is_empty()).map(|(id, _)| id)
    }

    /// Number of flows with rules for a path over each link, by link. Flows that move away from a link are included.
    pub(crate) fn on_links(&self, cx: &Context) -> Vec<u32> {
        let mut flows = vec![0; cx.fabric.links().len()];
        for flow in self.routed().filter_map(|id| self.flows.get(id)) {
            let links = flow.versions.iter().filter_map(|version| version.path.as_ref()).flat_map(Path::links);
            let links: BTreeSet<LinkId> = links.copied().collect();
            links.into_iter().for_each(|link| flows[link.index()] += 1);
        }
        flows
    }

    /// Returns the level for the next rule of a flow at its source ToR. Flows that may move in place need free levels
    /// below.
    pub(crate) fn free_level(&self, cx: &Context, id: FlowId) -> u8 {
        let in_place = cx.needs.migration == Migration::Sfmm;
        let level = |flow: &Flow| if in_place { flow.highest_free_level() } else { flow.free_level() };
        self.flows.get(id).map_or(0, level)
    }

    /// Adds the rule that counts a flow on the default routes. Returns whether a plan was free for it.
    pub(crate) fn add_count(&mut self, cx: &mut Context, id: FlowId, level: u8) -> bool {
        let Some(plan) = self.flows.take_plan(id, &self.draining) else { return false };
        self.add_source(cx, id, SourceRule { plan, level, bytes: 0, sent: false, confirmed: false, leaving: false });
        true
    }

    /// Adds a rule at the source ToR, again or for the first time.
    pub(crate) fn add_source(&mut self, cx: &mut Context, id: FlowId, source: SourceRule) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        let (tor, key, plan) = (flow.tor(), flow.key, source.plan);
        let version = flow.version(plan).cloned().unwrap_or_else(|| Version::new(plan, None));
        let sent = cx.switches[tor.index()].session == Session::Ready;
        flow.sources.push(SourceRule { bytes: 0, sent, confirmed: false, leaving: false, ..source });
        cx.count_rules(tor, 1);
        if sent {
            let rule = cx.planner().source(&key, &version, source.level);
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

    /// Removes a flow that has ended and has no rule at its source ToR any more.
    pub(crate) fn forget_if_done(&mut self, cx: &mut Context, id: FlowId) {
        let done = |flow: &Flow| flow.closed && flow.sources.is_empty() && flow.current_move.is_none();
        if self.flows.get(id).is_some_and(done) {
            self.settle(cx, id);
            self.limits.forget(cx, &self.flows, id);
            self.flows.remove(id);
        }
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

    /// Deletes rules at later switches when no packet can be in transit to them any more.
    pub(crate) fn drain_hops(
        &mut self,
        cx: &mut Context,
        five_tuple: FiveTuple,
        hops: impl Iterator<Item = (u8, NodeId, RuleKey)>,
    ) {
        let until = cx.now.saturating_add(cx.unknown_drain(&five_tuple));
        for (plan, switch, key) in hops {
            let left = self.draining.entry((five_tuple, plan)).or_default();
            if left.rules.is_empty() || left.until < until {
                left.wait(&mut cx.timers, (five_tuple, plan), until);
            }
            left.rules.push((switch, key));
        }
    }

    /// A rule of a plan was found at a switch. A draining rule of another plan with the same key is not there any more:
    /// a move in place that a snapshot does not know has replaced it. To delete it would delete the found rule.
    pub(crate) fn replaced(&mut self, cx: &mut Context, switch: NodeId, key: &RuleKey, plan: u8) {
        let Some(tuple) = five_tuple(key) else { return };
        for (&(_, other), left) in self.draining.range_mut((tuple, 0)..=(tuple, u8::MAX)) {
            let before = left.rules.len();
            left.rules.retain(|rule| other == plan || *rule != (switch, *key));
            cx.count_rules(switch, -i32::from(left.rules.len() < before));
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

    /// Whether a found rule drains.
    pub(crate) fn is_draining(&self, switch: NodeId, key: &RuleKey, plan: u8) -> bool {
        let left = five_tuple(key).and_then(|tuple| self.draining.get(&(tuple, plan)));
        left.is_some_and(|left| left.rules.contains(&(switch, *key)))
    }

    /// A switch has confirmed a counting rule.
    pub(crate) fn count_confirmed(&mut self, id: FlowId, plan: u8) {
        if let Some(known) = self.flows.get_mut(id) {
            known.refusals = 0;
            known.confirm(plan);
        }
    }

    /// A switch has removed the rule of a plan at the source ToR of a flow, whose counter was `bytes`. `sent`: the rule
    /// matched a packet.
    pub(crate) fn source_removed(
        &mut self,
        cx: &mut Context,
        id: FlowId,
        plan: u8,
        (bytes, sent): (u64, bool),
        why: Removal,
    ) -> Lost {
        let source = self.flows.get_mut(id).and_then(|flow| flow.sources.iter_mut().find(|one| one.plan == plan));
        let Some(source) = source else { return Lost::GoesOn };
        source.bytes = bytes;
        if source.leaving {
            return Lost::GoesOn;
        }
        let goes_on = why == Removal::Idle && self.only_pauses(cx, id, plan, sent);
        self.source_lost(cx, id, plan, goes_on)
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
    pub(crate) fn source_lost(&mut self, cx: &mut Context, id: FlowId, plan: u8, goes_on: bool) -> Lost {
        let Some(flow) = self.flows.get_mut(id) else { return Lost::GoesOn };
        let Some(index) = flow.sources.iter().position(|source| source.plan == plan && !source.leaving) else {
            return Lost::GoesOn;
        };
        let lost = flow.sources.remove(index);
        flow.count_past(lost.bytes);
        let (tor, closed, last) = (flow.tor(), flow.closed, flow.staying().next().is_none());
        let (held, needed) = (flow.extras().held_until > cx.now, flow.needs_low_source(plan));
        cx.count_rules(tor, -1);
        match last {
            // The flow is held or may continue, so it has not ended.
            true if (held || goes_on) && !closed => self.add_source(cx, id, lost),
            true => return Lost::Ended,
            false if needed => self.add_source(cx, id, lost),
            false => self.settle(cx, id),
        }
        Lost::GoesOn
    }
}

/// Returns the five-tuple of a flow's rule.
pub(crate) fn five_tuple(key: &RuleKey) -> Option<FiveTuple> {
    let matches = &key.matches;
    Some(FiveTuple::new(
        matches.proto?,
        (matches.src?.address, matches.src_port?),
        (matches.dst?.address, matches.dst_port?),
    ))
}
