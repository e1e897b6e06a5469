//! Adoption of unknown flows whose rules are found in switches. Those with a complete path are adopted, and useless
//! rules are deleted.

use super::Routes;
use crate::context::Context;
use crate::cookies::{epoch_and_serial, is_bound, is_way_back, Cookie, RuleKind, PLANS};
use crate::flows::{note, Flow, SourceRule};
use crate::orphans::{key_of, Found};
use crate::plan::{tag, Version, LEVELS};
use crate::reasons::Decision;
use pathloom_model::rules::{Match, Rule, RuleAction, RuleKey};
use pathloom_model::{FiveTuple, NodeId, Path};
use pathloom_scheme::{Event, FlowId, FlowView};

impl Routes {
    /// Stores a found rule of a flow that is not known.
    pub(crate) fn add_orphan(&mut self, cx: &mut Context, switch: NodeId, id: FlowId, cookie: Cookie, rule: Rule) {
        let (epoch, serial) = epoch_and_serial(id);
        if epoch == cx.config.epoch {
            self.flows.skip_to(serial + 1);
        }
        let Some(key) = key_of(cx, id, &rule.matches) else {
            // Its addresses do not exist on this fabric.
            self.limits.delete_found(cx, &self.flows, switch, &rule);
            return;
        };
        let level = rule.priority.checked_sub(cx.config.priorities.flow).filter(|&level| level < u16::from(LEVELS));
        let is_source = cookie.kind == RuleKind::Source;
        if is_source && (key.src.tor != switch || level.is_none()) {
            self.limits.delete_found(cx, &self.flows, switch, &rule);
            return;
        }
        self.orphans.add(switch, &key, (is_source, cookie.plan), rule);
        cx.count_rules(switch, 1);
    }

    /// The rules of a switch are known now. Examines the flows that waited for them.
    pub(crate) fn orphans_may_be_complete(&mut self, cx: &mut Context, switch: NodeId) {
        for id in self.orphans.take_waiting(switch) {
            self.look_at_orphan(cx, id);
        }
    }

    /// A rule of an unknown flow expired.
    pub(crate) fn orphan_rule_removed(&mut self, cx: &mut Context, switch: NodeId, id: FlowId, plan: u8) {
        let Some(rule) = self.orphans.remove_source(id, plan) else { return };
        cx.count_rules(switch, -1);
        self.limits.meter_unnamed(cx, &self.flows, switch, &rule);
        self.look_at_orphan(cx, id);
    }

    fn look_at_orphan(&mut self, cx: &mut Context, id: FlowId) {
        match self.orphans.look_at(cx, &self.labels, id) {
            None => {}
            Some(Found::OnPath(plan, path)) => self.adopt(cx, id, plan, Some(path)),
            Some(Found::OnDefaults(plan)) => self.adopt(cx, id, plan, None),
            Some(Found::Broken(plan)) => {
                self.adopt(cx, id, plan, None);
                self.unroute_broken(cx, id, plan);
            }
            Some(Found::Gone) => {
                self.drop_orphan(cx, id);
                self.end_bound(cx, id);
                if let Some(view) = self.orphans.take_remembered(id).filter(|view| view.long) {
                    cx.view.flows.insert(id, view);
                    self.queue_event(cx, Event::FlowFinished { flow: id });
                }
            }
        }
    }

    /// Adds a flow whose rule of `plan` is effective to the known flows, and deletes rules that the flow does not
    /// need.
    fn adopt(&mut self, cx: &mut Context, id: FlowId, plan: u8, path: Option<Path>) {
        let Some(orphan) = self.orphans.remove(id) else { return };
        let Some(key) = key_of(cx, id, &Match::five_tuple(orphan.five_tuple)) else { return };
        let mut flow = Flow::new(key);
        let base = cx.config.priorities.flow;
        flow.sources.extend(orphan.sources.iter().map(|(plan, rule)| SourceRule {
            plan: *plan,
            level: (rule.priority - base) as u8,
            bytes: 0,
            sent: true,
            confirmed: true,
            leaving: false,
        }));
        // Keeps distance from the plans that the previous controller may have started, which switches may still
        // report.
        flow.plans = (plan + PLANS / 3) % PLANS;
        flow.measured_bytes = None.into();
        flow.key.meter = orphan.sources.iter().find_map(|(_, rule)| rule.meter);
        flow.key.meter.into_iter().for_each(|meter| self.limits.mark(key.src.tor, meter));
        let on_path = path.is_some();
        let source = orphan.sources.iter().find(|(other, _)| *other == plan).map(|(_, rule)| rule.actions.first());
        let tag = match source {
            Some(Some(&RuleAction::SetTag(tag))) => tag,
            _ => tag(plan),
        };
        let normal = cx.config.priorities.hop(false);
        let low = orphan.hops.iter().any(|(&(other, _), rule)| other == plan && rule.priority < normal);
        if on_path {
            let version = Version { tag, low, ..Version::new(plan, path.clone()) };
            self.labels.claim_version(cx, &version);
            flow.versions.push(version);
        }
        let measured = cx.needs.detection.nic_share().is_some();
        let long = (on_path || !measured) && !is_way_back(id) && !is_bound(id);
        self.insert_flow(cx, flow, long);
        cx.counts.adopted += 1;
        let remembered = self.orphans.take_remembered(id);
        if let Some(view) = cx.view.flows.get_mut(&id) {
            if let Some(old) = remembered {
                *view = FlowView { pending: None, bytes: 0, rate_bps: None.into(), ..old };
            }
            view.long |= long;
            view.route = path;
        }
        for &(other, _) in orphan.sources.iter().filter(|&&(other, _)| other != plan) {
            self.leave(cx, id, other);
        }
        let useless = orphan.hops.into_iter().filter(|&((other, _), _)| !on_path || other != plan);
        self.take_away(cx, id, plan, useless.collect());
        if is_bound(id) {
            self.assignments.adopted(cx.now, &key.five_tuple, id);
        }
        if let Some(path) = cx.view.flows.get(&id).and_then(|view| view.route.clone()) {
            note(cx, &mut self.flows, id, Decision::Adopted { path });
        }
        if cx.view.flows.get(&id).is_some_and(|view| view.long) {
            self.queue_event(
                cx,
                if on_path { Event::FlowAdopted { flow: id } } else { Event::FlowArrived { flow: id } },
            );
        }
    }

    /// Deletes rules of plans that an adopted flow does not need. If the flow's version has a rule with the same tag
    /// at a switch, that rule replaces the deleted one at once. This completes a cutover that was done in part. Other
    /// rules drain.
    fn take_away(&mut self, cx: &mut Context, id: FlowId, plan: u8, useless: Vec<((u8, NodeId), Rule)>) {
        let Some(flow) = self.flows.get(id) else { return };
        let (five_tuple, fabric) = (flow.key.five_tuple, &cx.fabric);
        let acts = |at: NodeId, rule: &Rule| {
            flow.version(plan).is_some_and(|on| rule.matches.tag == Some(on.tag) && on.stands_at(fabric, at))
        };
        let (replaced, left): (Vec<_>, Vec<_>) = useless.into_iter().partition(|((_, at), rule)| acts(*at, rule));
        for ((_, at), rule) in replaced {
            cx.count_rules(at, -1);
            if cx.is_ready(at) {
                cx.delete_rule(at, rule.key());
            }
        }
        self.drain_hops(cx, five_tuple, left.into_iter().map(|((plan, at), rule)| (plan, at, rule.key())));
    }

    /// The effective rule leads to no complete path. The flow returns to the default routes.
    fn unroute_broken(&mut self, cx: &mut Context, id: FlowId, plan: u8) {
        self.add_count(cx, id);
        self.leave(cx, id, plan);
    }

    /// The rules at the source ToR of a flow are newer than the snapshot. The routes in the snapshot are discarded.
    pub(crate) fn make_orphan(&mut self, cx: &mut Context, id: FlowId, found: &[(Cookie, Rule)]) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        let (tor, staying) = (flow.tor(), flow.staying().count());
        let meter = flow.key.meter;
        flow.sources.clear();
        cx.count_rules(tor, -(staying as i32));
        if flow.current_move.as_ref().is_some_and(|current_move| current_move.adds_hops()) {
            cx.plan_rules(tor, -1);
        }
        self.settle(cx, id);
        // The flow gets the meter that its rules use. Another meter is deleted, so that it does not remain.
        if !found.iter().any(|(_, rule)| rule.meter == meter) {
            self.limits.forget(cx, &self.flows, id);
        }
        self.flows.remove(id);
        if let Some(view) = cx.view.flows.remove(&id) {
            self.orphans.remember(id, view);
        }
    }

    /// Removes an orphan without a rule at its source ToR. Its rules at later switches are deleted when no packet can
    /// be in transit any more.
    pub(crate) fn drop_orphan(&mut self, cx: &mut Context, id: FlowId) {
        if let Some(orphan) = self.orphans.remove(id) {
            let hops = orphan.hops.into_iter();
            self.drain_hops(cx, orphan.five_tuple, hops.map(|((plan, at), rule)| (plan, at, rule.key())));
        }
    }

    /// Deletes rules at later switches when no packet can be in transit to them any more.
    pub(super) fn drain_hops(
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
}
