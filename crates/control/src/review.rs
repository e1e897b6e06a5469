//! Reviews: while a session is open, the rules of its switch are read periodically and compared with those that it
//! should have.
//!
//! A review starts when it is the switch's turn ([`crate::Config::reconcile`]) and when an operator requests it. It
//! also starts soon after the switch reports the deletion of a rule that the controller did not delete. A barrier is
//! sent before the request, so the answer shows the effect of every earlier message. The answer may or may not show
//! messages that are sent after the request. Their rules are stored in [`crate::watch::Watch`] and left to the next review. All
//! other rules are compared. Missing or changed rules are added again. Rules with the mark of the controller that it
//! does not want are deleted. The rule that counts a flow has a time-out, and the notice of its expiry may still be
//! in transit. Therefore it is added again only if the switch reported its deletion, or if a second review a little
//! later does not find it either.
//!
//! The answer comes in parts. Flows are searched in slices, and only if the number of rules shows that some are
//! missing. Therefore a table with millions of rules does not block the controller.

use crate::base_rules::BaseRules;
use crate::context::Context;
use crate::cookies::{Cookie, RuleKind};
use crate::defaults::{Choice, DefaultTable};
use crate::flows::Flow;
use crate::io::{Output, Removal};
use crate::plan::Version;
use crate::routes::Routes;
use crate::switches::{Purpose, Removed, Session};
use crate::timers::Timer;
use crate::watch::{FlowRule, Review};
use pathloom_model::rules::{Group, GroupId, Meter, Rule, RuleKey};
use pathloom_model::{Nanos, NodeId, Prefix};
use pathloom_scheme::FlowId;

/// From the notice that a rule is gone to the review. Notices for other rules arrive in this time.
const NOTICE_DELAY: Nanos = Nanos::from_millis(20);
/// Shortest time between the starts of two reviews of a switch.
const MIN_REVIEW_GAP: Nanos = Nanos::from_millis(200);
/// Time to the next review if one did not find some rules of flows that the switch did not report as deleted. If they
/// have expired, the notice arrives in this time.
const EXPIRY_NOTICE_WAIT: Nanos = Nanos::from_secs(1);
/// Pause between two slices of the flows.
const PAUSE: Nanos = Nanos::from_micros(100);
/// Number of flows in a slice.
const SLICE: usize = 4096;
/// A review ends without a result if this many rules were changed while it ran, because the switch does not answer.
const MOST_TOUCHED: usize = 1 << 20;
/// Number of reviews in a row that may find missing rules of which the switch reported nothing. Each further one
/// doubles the time to the next, up to 32 times, because the switch confirms rules without keeping them.
const UNREPORTED_LIMIT: u32 = 3;

/// Which switch is reviewed next, and the number of the last review.
#[derive(Debug, Default)]
pub(crate) struct Reviews {
    next: usize,
    number: u32,
}

/// A part of the answer to a review request.
pub(crate) struct Part {
    /// Number of the review.
    pub number: u32,
    /// Some of the switch's rules.
    pub rules: Vec<Rule>,
    /// All its groups and meters, with the last part.
    pub last: Option<(Vec<Group>, Vec<Meter>)>,
}

impl Reviews {
    /// Sets the timer for the turn of the next switch.
    pub(crate) fn next_round(&mut self, cx: &mut Context) {
        let switches = cx.fabric.switches().len().max(1) as u64;
        if let Some(period) = cx.config.reconcile {
            cx.timers.set(cx.now.saturating_add(Nanos((period.0 / switches).max(1))), Timer::Round);
        }
    }

    /// Handles the turn of the next switch.
    pub(crate) fn round(&mut self, cx: &mut Context) {
        self.next_round(cx);
        let switch = cx.fabric.switches()[self.next % cx.fabric.switches().len()];
        self.next = self.next.wrapping_add(1);
        let watch = &mut cx.switches[switch.index()].watch;
        if watch.skip > 0 {
            watch.skip -= 1;
            return;
        }
        match &mut watch.review {
            Some(review) if review.heard && review.touched.len() < MOST_TOUCHED => review.heard = false,
            _ => self.begin_review(cx, switch),
        }
    }

    /// Carries out [`crate::Input::Resync`].
    pub(crate) fn resync(&mut self, cx: &mut Context, switch: Option<NodeId>) {
        for at in cx.fabric.clone().switches().iter().copied().filter(|&at| switch.is_none_or(|one| one == at)) {
            self.schedule_soon(cx, at, Nanos::ZERO);
        }
    }

    /// Schedules a review of the switch soon.
    fn schedule_soon(&mut self, cx: &mut Context, switch: NodeId, wait: Nanos) {
        let watch = &mut cx.switches[switch.index()].watch;
        if let Some(review) = &mut watch.review {
            review.again = true;
            return;
        }
        let at = cx.now.saturating_add(wait).max(watch.begun.saturating_add(MIN_REVIEW_GAP));
        if watch.due.is_none_or(|due| at < due) {
            watch.due = Some(at);
            cx.timers.set(at, Timer::Review { switch });
        }
    }

    /// Handles the timer that [`Reviews::schedule_soon`] set.
    pub(crate) fn review_if_due(&mut self, cx: &mut Context, switch: NodeId) {
        let state = &mut cx.switches[switch.index()];
        if state.watch.due.take_if(|due| *due <= cx.now).is_none() || state.watch.review.is_some() {
            return;
        }
        match state.session {
            Session::Ready => self.begin_review(cx, switch),
            Session::Reading => self.schedule_soon(cx, switch, MIN_REVIEW_GAP),
            Session::Down => {}
        }
    }

    fn begin_review(&mut self, cx: &mut Context, switch: NodeId) {
        if !cx.is_ready(switch) {
            return;
        }
        self.number = self.number.wrapping_add(1);
        let number = self.number;
        let xid = cx.next_xid();
        cx.put(Output::Barrier { switch, xid });
        cx.put(Output::ReviewRequest { switch, number });
        let state = &mut cx.switches[switch.index()];
        state.barriers.push_back(xid);
        state.watch.begun = cx.now;
        state.watch.review = Some(Box::new(Review { number, heard: true, ..Review::default() }));
    }

    /// Whether a removal notice is about a rule that the switch should have and that the controller did not delete.
    /// The review that this starts adds the rule again.
    pub(crate) fn is_lost(
        &mut self,
        cx: &mut Context,
        routes: &Routes,
        base: &BaseRules,
        switch: NodeId,
        removed: &Removed,
    ) -> bool {
        let Removed { key, cookie, why, .. } = removed;
        let reported = *why == Removal::Deleted && cx.switches[switch.index()].session != Session::Down;
        let Some(cookie) = Cookie::decode(*cookie).filter(|_| reported && cx.config.is_watched()) else {
            return false;
        };
        let table = &base.tables[switch.index()];
        let flow = routes.rules.flows.get(cookie.flow);
        let lost = match cookie.kind {
            RuleKind::Default => table.defaults.routes.iter().any(|&(prefix, _)| key.matches.dst == Some(prefix)),
            RuleKind::Detection => table.others.contains_key(key),
            RuleKind::Label => routes.rules.labels.wants(switch, key),
            RuleKind::Source => {
                flow.is_some_and(|flow| flow.tor() == switch && flow.staying().any(|source| source.plan == cookie.plan))
            }
            RuleKind::Hop => flow.is_some_and(|flow| carries(cx, flow, cookie.plan, switch)),
        };
        if lost {
            let watch = &mut cx.switches[switch.index()].watch;
            watch.reported = true;
            if cookie.kind == RuleKind::Source {
                watch.suspects.insert((cookie.flow, cookie.plan));
            }
            self.schedule_soon(cx, switch, NOTICE_DELAY);
        }
        lost
    }

    /// Handles a part of the answer.
    pub(crate) fn reviewed(
        &mut self,
        cx: &mut Context,
        routes: &mut Routes,
        base: &mut BaseRules,
        switch: NodeId,
        part: Part,
    ) {
        let Part { number, rules, last } = part;
        let watch = &mut cx.switches[switch.index()].watch;
        let Some(mut review) = watch.review.take_if(|review| review.number == number && review.scan.is_none()) else {
            // The part belongs to a review that was given up.
            return;
        };
        review.heard = true;
        for rule in rules {
            review.meters.extend(rule.meter);
            self.found_again(cx, routes, switch, &mut review, rule);
        }
        let Some((groups, meters)) = last else {
            cx.switches[switch.index()].watch.review = Some(review);
            return;
        };
        self.review_base(cx, base, switch, &mut review, &groups);
        self.review_labels(cx, routes, switch, &mut review);
        routes.rules.limits.review(cx, &routes.rules.flows, switch, &meters, &review.meters);
        let expected = cx.switches[switch.index()].flow_rules.saturating_sub(review.added());
        if review.counted == expected {
            return self.end_review(cx, switch, *review);
        }
        review.scan = Some(FlowId(0));
        cx.switches[switch.index()].watch.review = Some(review);
        self.scan(cx, routes, switch, number);
    }

    fn found_again(&mut self, cx: &mut Context, routes: &mut Routes, switch: NodeId, review: &mut Review, rule: Rule) {
        let Some(cookie) = Cookie::decode(rule.cookie) else { return };
        match cookie.kind {
            // Rule of a sweep that is in progress or ended a moment ago ([`crate::sweep`]).
            RuleKind::Detection if rule.hard_timeout_s > 0 => return,
            RuleKind::Default | RuleKind::Detection => return review.base.push(rule),
            RuleKind::Label => return review.labels.push(rule),
            RuleKind::Source | RuleKind::Hop => {}
        }
        if review.is_touched(&rule.key()) {
            return;
        }
        let wanted = match routes.rules.flows.get(cookie.flow) {
            Some(flow) if flow.unverified => true,
            Some(flow) => is_wanted(cx, switch, flow, cookie, &rule),
            None => routes.orphans.holds(cookie.flow),
        } || routes.rules.is_draining(switch, &rule.key(), cookie.plan);
        if !wanted {
            review.surplus += 1;
            routes.rules.limits.delete_found(cx, &routes.rules.flows, switch, &rule);
        } else if is_as_planned(cx, routes, switch, cookie, &rule) {
            review.counted += 1;
            let source = cookie.kind == RuleKind::Source;
            review.found.insert(FlowRule { flow: cookie.flow, plan: cookie.plan, source });
        }
    }

    fn review_base(
        &mut self,
        cx: &mut Context,
        base: &mut BaseRules,
        switch: NodeId,
        review: &mut Review,
        groups: &[Group],
    ) {
        let state = &cx.switches[switch.index()];
        // Refused rules are read and sent again in another way.
        if review.base_changed || state.reread {
            return;
        }
        let mut wanted = base.tables[switch.index()].clone();
        let found = base.read(cx, &review.base, groups);
        let DefaultTable { routes, groups } = &mut wanted.defaults;
        // A group that no rule uses will be deleted soon.
        let named = |id: &GroupId| routes.iter().any(|&(_, choice)| choice == Choice::Group(*id));
        groups.retain(|id, _| named(id) || found.defaults.groups.contains_key(id));
        let known = |prefix: Prefix| routes.binary_search_by_key(&prefix, |&(other, _)| other).is_ok();
        let routes_left = found.defaults.routes.iter().filter(|&&(prefix, _)| !known(prefix)).count();
        let others_left = found.others.keys().filter(|key| !wanted.others.contains_key(key)).count();
        review.surplus += (routes_left + others_left) as u64;
        review.restored += base.change(cx, switch, found, wanted);
    }

    fn review_labels(&mut self, cx: &mut Context, routes: &mut Routes, switch: NodeId, review: &mut Review) {
        let labels = std::mem::take(&mut review.labels);
        let touched = |key: &RuleKey| review.touched.contains_key(key);
        let result = routes.rules.labels.compare(cx, switch, &labels, touched);
        review.counted += result.found;
        review.restored += result.restored;
        review.surplus += result.surplus;
    }

    /// Searches a slice of the flows for rules that the switch lacks.
    pub(crate) fn scan(&mut self, cx: &mut Context, routes: &mut Routes, switch: NodeId, number: u32) {
        let watch = &mut cx.switches[switch.index()].watch;
        let Some(mut review) = watch.review.take_if(|review| review.number == number && review.scan.is_some()) else {
            return;
        };
        let first = review.scan.unwrap_or(FlowId(0));
        let mut missing: Vec<(FlowRule, Rule)> = Vec::new();
        let mut next = None;
        for (count, (id, flow)) in routes.rules.flows.range(first).enumerate() {
            if count == SLICE {
                next = Some(id);
                break;
            }
            missing_of(cx, switch, &review, (id, flow), &mut missing);
        }
        for (of, rule) in missing {
            self.put_back(cx, routes, switch, &mut review, of, rule);
        }
        match next {
            None => self.end_review(cx, switch, *review),
            Some(_) => {
                review.scan = next;
                review.heard = true;
                cx.switches[switch.index()].watch.review = Some(review);
                cx.timers.set(cx.now.saturating_add(PAUSE), Timer::Scan { switch, number });
            }
        }
    }

    fn put_back(
        &mut self,
        cx: &mut Context,
        routes: &mut Routes,
        switch: NodeId,
        review: &mut Review,
        of: FlowRule,
        rule: Rule,
    ) {
        let FlowRule { flow: id, plan, source } = of;
        if review.is_touched(&rule.key()) {
            return;
        }
        if !source {
            review.restored += 1;
            return cx.add_rule(switch, rule, Purpose::Hop { flow: id });
        }
        if !cx.switches[switch.index()].watch.suspects.contains(&(id, plan)) {
            review.suspects.insert((id, plan));
            return;
        }
        review.restored += 1;
        routes.rules.flows.count_anew(id, plan);
        cx.add_rule(switch, rule, Purpose::Count { flow: id, plan });
    }

    fn end_review(&mut self, cx: &mut Context, switch: NodeId, review: Review) {
        let Review { restored, surplus, again, base_changed, suspects, .. } = review;
        cx.counts.reviews += 1;
        cx.counts.restored += restored;
        cx.counts.surplus += surplus;
        if restored + surplus > 0 {
            cx.put(Output::Repaired { at: switch, restored, surplus });
        }
        let watch = &mut cx.switches[switch.index()].watch;
        let reported = std::mem::take(&mut watch.reported) || again;
        watch.unreported = if reported || restored == 0 { 0 } else { watch.unreported.saturating_add(1) };
        watch.skip = (1u32 << watch.unreported.saturating_sub(UNREPORTED_LIMIT).min(5)) - 1;
        let suspicious = !suspects.is_empty();
        watch.suspects = suspects;
        if again || base_changed {
            self.schedule_soon(cx, switch, NOTICE_DELAY);
        } else if suspicious {
            self.schedule_soon(cx, switch, EXPIRY_NOTICE_WAIT);
        }
    }
}

/// Whether a flow is on a version that has a rule of its own at a switch.
fn carries(cx: &Context, flow: &Flow, plan: u8, switch: NodeId) -> bool {
    let stands = |version: &Version| !version.is_shared() && version.stands_at(&cx.fabric, switch);
    flow.staying().any(|source| source.plan == plan) && flow.version(plan).is_some_and(stands)
}

/// Whether a found rule has the place of one that its flow has there, whatever its actions.
fn is_wanted(cx: &Context, switch: NodeId, flow: &Flow, cookie: Cookie, rule: &Rule) -> bool {
    if cookie.kind == RuleKind::Source {
        let base = cx.config.priorities.flow;
        let same = |source: &crate::flows::SourceRule| {
            source.plan == cookie.plan && base + u16::from(source.level) == rule.priority
        };
        return flow.tor() == switch && flow.sources.iter().any(same);
    }
    flow.current_move.is_some() || flow.version(cookie.plan).is_some_and(|at| at.stands_at(&cx.fabric, switch))
}

/// Whether a wanted rule has the right content. Rules of flows that move or drain are not compared.
fn is_as_planned(cx: &Context, routes: &Routes, switch: NodeId, cookie: Cookie, rule: &Rule) -> bool {
    let Some(flow) = routes.rules.flows.get(cookie.flow).filter(|flow| !flow.unverified) else { return true };
    let planner = cx.planner();
    if cookie.kind == RuleKind::Source {
        let Some(source) = flow.staying().find(|source| source.plan == cookie.plan) else { return false };
        let none = Version::new(source.plan, None);
        let version = flow.version(source.plan).unwrap_or(&none);
        return planner.source(&flow.key, version, source.level) == *rule;
    }
    let Some(version) = flow.version(cookie.plan).filter(|_| flow.current_move.is_none()) else { return true };
    let mut here = planner.hops(&flow.key, version).filter(|&(at, _)| at == switch);
    here.all(|(_, planned)| planned == *rule)
}

/// Adds the rules of a flow that a review did not find to `missing`.
fn missing_of(
    cx: &Context,
    switch: NodeId,
    review: &Review,
    flow: (FlowId, &Flow),
    missing: &mut Vec<(FlowRule, Rule)>,
) {
    let (id, flow) = flow;
    if flow.unverified || (flow.tor() != switch && flow.versions.is_empty()) {
        return;
    }
    let planner = cx.planner();
    for source in flow.staying() {
        let here = FlowRule { flow: id, plan: source.plan, source: true };
        if flow.tor() == switch && source.sent && !review.found.contains(&here) {
            let none = Version::new(source.plan, None);
            let version = flow.version(source.plan).unwrap_or(&none);
            missing.push((here, planner.source(&flow.key, version, source.level)));
        }
        let there = FlowRule { source: false, ..here };
        if flow.current_move.is_some() || !carries(cx, flow, source.plan, switch) || review.found.contains(&there) {
            continue;
        }
        let hops = flow.version(source.plan).map(|version| planner.hops(&flow.key, version));
        missing.extend(hops.into_iter().flatten().filter(|&(at, _)| at == switch).map(|(_, rule)| (there, rule)));
    }
}
