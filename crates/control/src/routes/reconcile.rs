//! Compares the flow rules of a switch with those that it should have, after a lost session or a restart of the
//! controller.

use super::Routes;
use crate::context::Context;
use crate::cookies::{Cookie, RuleKind};
use crate::flows::Flow;
use crate::plan::Version;
use crate::switches::Purpose;
use pathloom_model::rules::{Rule, RuleKey};
use pathloom_model::{FiveTuple, NodeId};
use pathloom_scheme::{Event, FlowId, Rejection};
use std::collections::BTreeMap;

/// Rules of flows that were found in a switch.
type Found = BTreeMap<FlowId, Vec<(Cookie, Rule)>>;

impl Routes {
    /// Compares the flow rules of a switch with those that it should have.
    pub(crate) fn reconcile_flows(&mut self, cx: &mut Context, switch: NodeId, rules: Vec<Rule>) {
        let mut found = Found::new();
        let mut wiped = true;
        for rule in rules {
            let Some(cookie) = Cookie::decode(rule.cookie) else { continue };
            wiped = false;
            if matches!(cookie.kind, RuleKind::Source | RuleKind::Hop) {
                found.entry(cookie.flow).or_default().push((cookie, rule));
            }
        }
        let sourced: Vec<FlowId> =
            self.flows.iter().filter(|(_, flow)| flow.tor() == switch).map(|(id, _)| id).collect();
        for id in sourced {
            self.reconcile_sources(cx, id, found.get(&id).map_or(&[], Vec::as_slice), wiped);
            // Its counting rule may have been refused before.
            self.count_soon(id);
        }
        for id in self.routed().collect::<Vec<_>>() {
            self.reconcile_hops(cx, switch, id, found.get(&id).map_or(&[], Vec::as_slice));
        }
        for (id, rules) in found {
            for (cookie, rule) in rules {
                self.found_rule(cx, switch, id, cookie, rule);
            }
        }
        self.orphans_may_be_complete(cx, switch);
        self.handle_early_messages(cx, switch);
    }

    /// The source ToR of a flow from a snapshot has been read. Checks whether the snapshot is still right.
    fn verify(&mut self, cx: &mut Context, id: FlowId, found: &[(Cookie, Rule)], wiped: bool) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        let interrupted = std::mem::take(&mut flow.interrupted);
        flow.unverified = false;
        // An unsent rule was planned after the start. A found rule with its plan is an older one.
        let known = |cookie: &Cookie| flow.sources.iter().any(|source| source.plan == cookie.plan && source.sent);
        let sources = || found.iter().filter(|(cookie, _)| cookie.kind == RuleKind::Source);
        let leaving = |plan: u8| flow.sources.iter().any(|source| source.plan == plan && source.leaving);
        // The snapshot took a move in place for given up, but the move was completed: only its rule exists.
        let is_past = |(cookie, rule): &(Cookie, Rule)| {
            leaving(cookie.plan) && flow.version(cookie.plan).is_none() && !rule.actions.is_empty()
        };
        let moved_on = sources().any(is_past) && sources().all(|(cookie, _)| leaving(cookie.plan));
        if moved_on || sources().any(|(cookie, _)| !known(cookie)) {
            return self.make_orphan(cx, id, found);
        }
        let (tor, closed) = (flow.tor(), flow.closed);
        self.drop_orphan(cx, id);
        let stands = wiped || found.iter().any(|(cookie, _)| cookie.kind == RuleKind::Source);
        if stands && !closed && cx.view.flows.get(&id).is_some_and(|view| view.long) {
            self.queue_event(cx, Event::FlowAdopted { flow: id });
            if interrupted {
                self.queue_event(cx, Event::RouteRejected { flow: id, why: Rejection::SwitchGone(tor) });
            }
        }
    }

    /// Compares the rules of a known flow at its source ToR.
    fn reconcile_sources(&mut self, cx: &mut Context, id: FlowId, found: &[(Cookie, Rule)], wiped: bool) {
        if self.flows.get(id).is_some_and(|flow| flow.unverified) {
            self.verify(cx, id, found, wiped);
        }
        let Some(flow) = self.flows.get(id) else { return };
        let (tor, key) = (flow.tor(), flow.key);
        let base = cx.config.priorities.flow;
        let sources = flow.sources.clone();
        for &source in sources.iter() {
            let there = found.iter().any(|(cookie, rule)| {
                (cookie.kind, cookie.plan) == (RuleKind::Source, source.plan)
                    && rule.priority == base + u16::from(source.level)
            });
            let Some(flow) = self.flows.get(id) else { return };
            // The rule exists, but with another meter or another port.
            let none = Version::new(source.plan, None);
            let version = flow.version(source.plan).unwrap_or(&none);
            let planned = cx.planner().source(&key, version, source.level);
            let outdated = found.iter().any(|(cookie, rule)| {
                (cookie.kind, cookie.plan) == (RuleKind::Source, source.plan)
                    && (rule.meter, &rule.actions, rule.goto) != (planned.meter, &planned.actions, planned.goto)
            });
            let current_move = flow.current_move.as_ref().filter(|current_move| !current_move.adds_hops());
            let number = current_move.map(|current_move| current_move.number);
            let step = number.map(|number| Purpose::Step { flow: id, number });
            let arriving =
                current_move.is_some_and(|current_move| current_move.adds_source() && current_move.plan == source.plan);
            match (source.leaving, there) {
                (true, true) => {
                    let rule = cx.planner().source_key(&key, source.level);
                    let xid = cx.delete_rule(tor, rule);
                    cx.await_answer(tor, xid, Purpose::Gone { flow: id, plan: source.plan });
                    if let Some(step) = step {
                        cx.await_answer(tor, xid, step);
                    }
                }
                (true, false) => {
                    self.gone(cx, id, source.plan);
                    number.into_iter().for_each(|number| self.step_confirmed(cx, id, number));
                }
                (false, true) if outdated => {
                    let version = flow.version(source.plan).cloned();
                    let version = version.unwrap_or_else(|| Version::new(source.plan, None));
                    let rule = cx.planner().source(&key, &version, source.level);
                    let purpose = step.filter(|_| arriving).unwrap_or(Purpose::Renewed { flow: id, plan: source.plan });
                    cx.add_rule(tor, rule, purpose);
                }
                (false, true) if arriving => number.into_iter().for_each(|number| self.step_confirmed(cx, id, number)),
                (false, true) => self.flows.get_mut(id).into_iter().for_each(|flow| flow.confirm(source.plan)),
                (false, false) if arriving || wiped || !source.confirmed => {
                    let version = flow.version(source.plan).cloned();
                    let version = version.unwrap_or_else(|| Version::new(source.plan, None));
                    let rule = cx.planner().source(&key, &version, source.level);
                    let purpose = step.filter(|_| arriving).unwrap_or(Purpose::Count { flow: id, plan: source.plan });
                    cx.add_rule(tor, rule, purpose);
                    self.mark_sent(id, source.plan);
                }
                // Its idle time-out expired while there was no session.
                (false, false) => self.source_lost(cx, id, source.plan, false),
            }
            if there && (source.leaving || outdated) {
                // The found rule may have been the last one to use its meter.
                let stood =
                    |(cookie, _): &&(Cookie, Rule)| (cookie.kind, cookie.plan) == (RuleKind::Source, source.plan);
                found.iter().filter(stood).for_each(|(_, rule)| self.limits.meter_unnamed(cx, &self.flows, tor, rule));
            }
        }
    }

    fn mark_sent(&mut self, id: FlowId, plan: u8) {
        let sources = self.flows.get_mut(id).map(|flow| &mut flow.sources);
        if let Some(source) = sources.and_then(|sources| sources.iter_mut().find(|source| source.plan == plan)) {
            source.sent = true;
        }
    }

    /// Adds the rules that a switch lacks for the paths of known flows.
    fn reconcile_hops(&mut self, cx: &mut Context, switch: NodeId, id: FlowId, found: &[(Cookie, Rule)]) {
        let Some(flow) = self.flows.get(id) else { return };
        let carries = |version: &&Version| flow.staying().any(|source| source.plan == version.plan);
        let mut missing: Vec<Rule> = Vec::new();
        for version in flow.versions.iter().filter(carries) {
            let planner = cx.planner();
            let rules = planner.hops(&flow.key, version).filter(|&(at, _)| at == switch).map(|(_, rule)| rule);
            missing.extend(rules.filter(|rule| found.iter().all(|(_, other)| other != rule)));
        }
        for rule in missing {
            cx.add_rule(switch, rule, Purpose::Hop { flow: id });
        }
    }

    /// Whether the version of a plan has a rule at a switch after the source ToR.
    fn has_hop(&self, cx: &Context, flow: &Flow, plan: u8, switch: NodeId) -> bool {
        flow.version(plan).is_some_and(|version| version.stands_at(&cx.fabric, switch))
    }

    /// Handles a found rule of a flow. If the flow is known and does not need the rule, it is deleted. If the flow is
    /// not known, the rule is stored in [`crate::orphans`].
    fn found_rule(&mut self, cx: &mut Context, switch: NodeId, id: FlowId, cookie: Cookie, rule: Rule) {
        let draining = self.is_draining(switch, &rule.key(), cookie.plan);
        let Some(flow) = self.flows.get(id) else {
            if !draining || cookie.kind == RuleKind::Source {
                self.add_orphan(cx, switch, id, cookie, rule);
            }
            return;
        };
        let wanted = match cookie.kind {
            RuleKind::Source => {
                let level = |level: u8| cx.config.priorities.flow + u16::from(level) == rule.priority;
                let same = |known: &crate::flows::SourceRule| known.plan == cookie.plan && level(known.level);
                flow.tor() == switch && flow.sources.iter().any(same)
            }
            _ if self.has_hop(cx, flow, cookie.plan, switch) || draining => true,
            _ if flow.unverified => return self.add_orphan(cx, switch, id, cookie, rule),
            _ => false,
        };
        match (wanted, cookie.kind, five_tuple(&rule.key())) {
            (true, ..) => {}
            // Packets that entered the path before may still be in transit.
            (false, RuleKind::Hop, Some(tuple)) => {
                cx.count_rules(switch, 1);
                self.drain_hops(cx, tuple, std::iter::once((cookie.plan, switch, rule.key())));
            }
            _ => self.limits.delete_found(cx, &self.flows, switch, &rule),
        }
    }
}

/// Returns the five-tuple of a flow's rule.
pub(crate) fn five_tuple(key: &RuleKey) -> Option<FiveTuple> {
    let matches = &key.matches;
    Some(FiveTuple {
        src: matches.src?.address,
        dst: matches.dst?.address,
        proto: matches.proto?,
        src_port: matches.src_port?,
        dst_port: matches.dst_port?,
    })
}
