//! While a session stands: all rules of a switch are read again and again, and compared with what it should have.
//!
//! A review starts when its switch's turn comes ([`crate::Config::reconcile`]), at once when the switch tells that a rule is
//! gone that the controller did not delete, and when an operator asks. A barrier goes before the request, so the answer
//! shows what every earlier message led to. What is sent after the request may be in the answer or not: those rules are
//! noted in [`Watch`] and left to the next review. All others are judged: what is missing or was changed is added again,
//! rules with a mark of the controller that it does not want are deleted. The rule that counts a flow has a time-out, and
//! the notice that it ran out may still be on its way: it is added again only when the switch told of its deletion, or when
//! a second review a little later does not find it either.
//!
//! The answer comes in parts, and the flows are gone through in slices, and only if rules are missing by their number: a
//! table of millions of rules never keeps anybody waiting.

use crate::controller::Controller;
use crate::cookies::{Cookie, RuleKind};
use crate::defaults::{Choice, DefaultTable};
use crate::flows::Flow;
use crate::io::{Output, Removal};
use crate::plan::Version;
use crate::switches::{Purpose, Session};
use crate::timers::Timer;
use pathloom_model::rules::{Group, GroupId, Meter, Rule, RuleKey};
use pathloom_model::{Nanos, NodeId, Prefix};
use pathloom_scheme::FlowId;
use rustc_hash::{FxHashMap, FxHashSet};

/// From the notice that a rule is gone to the review: others that went with it are told in this time.
const HINT: Nanos = Nanos::from_millis(20);
/// Between the starts of two reviews of a switch, whoever asks for them.
const GAP: Nanos = Nanos::from_millis(200);
/// Until a review is repeated that missed the rules of flows without having been told: a notice that they ran out has
/// arrived by then.
const NOTICE: Nanos = Nanos::from_secs(1);
/// Between two slices of the flows.
const PAUSE: Nanos = Nanos::from_micros(100);
/// Flows that are looked at without a pause.
const SLICE: usize = 4096;
/// A review is given up when this many rules were changed while it ran: its switch does not answer.
const MOST_TOUCHED: usize = 1 << 20;
/// Reviews in a row that may find rules missing of which the switch told nothing. After that, each one more doubles the
/// time to the next, up to 32 times: the switch confirms rules and does not keep them.
const BELIEVED: u32 = 3;

/// A rule of a flow at a switch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct FlowRule {
    flow: FlowId,
    plan: u8,
    source: bool,
}

/// Whose turn it is.
#[derive(Debug, Default)]
pub(crate) struct Reviews {
    next: usize,
    number: u32,
}

/// A review under way.
#[derive(Debug, Default)]
struct Review {
    number: u32,
    /// Rules that were sent (true) or whose deletion was sent (false) since it began.
    touched: FxHashMap<RuleKey, bool>,
    /// The same for rules and groups of no single flow, which are judged together.
    fixed_changed: bool,
    /// Whether the switch told of something since.
    again: bool,
    /// Whether a part came since it was last looked after.
    heard: bool,
    /// Rules of no single flow that were found.
    fixed: Vec<Rule>,
    labels: Vec<Rule>,
    /// Rules of flows that were found as they should be.
    found: FxHashSet<FlowRule>,
    /// Rules counted among [`crate::switches::Switch::flow_rules`] that were found.
    counted: u32,
    /// Rules of flows that were not found, and may have run out.
    suspects: FxHashSet<(FlowId, u8)>,
    restored: u64,
    surplus: u64,
    /// The first flow of the next slice, when all parts have come.
    scan: Option<FlowId>,
}

/// Reviews of one switch.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    review: Option<Box<Review>>,
    /// When the last one began.
    begun: Nanos,
    /// When a timer will start one.
    due: Option<Nanos>,
    /// Rules of flows that the last review missed, or that the switch told to be gone.
    suspects: FxHashSet<(FlowId, u8)>,
    /// Whether the switch told of something since the last review.
    told: bool,
    /// Reviews in a row that found rules missing without a word from the switch.
    untold: u32,
    /// Turns that it misses.
    skip: u32,
}

impl Watch {
    /// A rule is about to be sent, or its deletion.
    #[inline]
    pub(crate) fn touch(&mut self, key: impl FnOnce() -> RuleKey, added: bool) {
        if let Some(review) = &mut self.review {
            review.touched.insert(key(), added);
        }
    }

    /// Rules or groups of no single flow were sent, or their deletion.
    pub(crate) fn fixed_changed(&mut self) {
        if let Some(review) = &mut self.review {
            review.fixed_changed = true;
        }
    }

    /// The session ended.
    pub(crate) fn close(&mut self) {
        *self = Watch::default();
    }
}

impl Review {
    /// Whether what the answer says of a rule is out of date.
    fn is_touched(&self, key: &RuleKey) -> bool {
        self.touched.contains_key(key)
    }

    /// Rules of flows that were sent since it began.
    fn added(&self) -> u32 {
        let of_flow = |key: &RuleKey| key.matches.src_port.is_some() || key.matches.tag.is_some();
        self.touched.iter().filter(|&(key, &added)| added && of_flow(key)).count() as u32
    }
}

impl Controller {
    /// Sets the time of the next switch's turn.
    pub(crate) fn next_round(&mut self) {
        let switches = self.context.fabric.switches().len().max(1) as u64;
        if let Some(period) = self.context.config.reconcile {
            self.context.timers.set(self.context.now.saturating_add(Nanos((period.0 / switches).max(1))), Timer::Round);
        }
    }

    /// It is the turn of the next switch.
    pub(crate) fn round(&mut self) {
        self.next_round();
        let switch = self.context.fabric.switches()[self.reviews.next % self.context.fabric.switches().len()];
        self.reviews.next = self.reviews.next.wrapping_add(1);
        let watch = &mut self.context.switches[switch.index()].watch;
        if watch.skip > 0 {
            watch.skip -= 1;
            return;
        }
        match &mut watch.review {
            Some(review) if review.heard && review.touched.len() < MOST_TOUCHED => review.heard = false,
            _ => self.begin_review(switch),
        }
    }

    /// Carries out [`crate::Input::Resync`].
    pub(crate) fn resync(&mut self, switch: Option<NodeId>) {
        for at in
            self.context.fabric.clone().switches().iter().copied().filter(|&at| switch.is_none_or(|one| one == at))
        {
            self.hurry(at, Nanos::ZERO);
        }
    }

    /// The switch is to be reviewed soon.
    fn hurry(&mut self, switch: NodeId, wait: Nanos) {
        let watch = &mut self.context.switches[switch.index()].watch;
        if let Some(review) = &mut watch.review {
            review.again = true;
            return;
        }
        let at = self.context.now.saturating_add(wait).max(watch.begun.saturating_add(GAP));
        if watch.due.is_none_or(|due| at < due) {
            watch.due = Some(at);
            self.context.timers.set(at, Timer::Review { switch });
        }
    }

    /// The time has come that [`Controller::hurry`] set.
    pub(crate) fn review_if_due(&mut self, switch: NodeId) {
        let state = &mut self.context.switches[switch.index()];
        if state.watch.due.take_if(|due| *due <= self.context.now).is_none() || state.watch.review.is_some() {
            return;
        }
        match state.session {
            Session::Ready => self.begin_review(switch),
            Session::Reading => self.hurry(switch, GAP),
            Session::Down => {}
        }
    }

    fn begin_review(&mut self, switch: NodeId) {
        if !self.context.is_ready(switch) {
            return;
        }
        self.reviews.number = self.reviews.number.wrapping_add(1);
        let number = self.reviews.number;
        let xid = self.context.next_xid();
        self.context.put(Output::Barrier { switch, xid });
        self.context.put(Output::ReviewRequest { switch, number });
        let state = &mut self.context.switches[switch.index()];
        state.barriers.push_back(xid);
        state.watch.begun = self.context.now;
        state.watch.review = Some(Box::new(Review { number, heard: true, ..Review::default() }));
    }

    /// Whether a rule is gone that should not be: the controller did not delete it. It comes back with the review that this
    /// leads to.
    pub(crate) fn is_lost(&mut self, switch: NodeId, key: &RuleKey, cookie: u64, why: Removal) -> bool {
        let told = why == Removal::Deleted && self.context.switches[switch.index()].session != Session::Down;
        let Some(cookie) = Cookie::decode(cookie).filter(|_| told && self.context.config.is_watched()) else {
            return false;
        };
        let fixed = &self.context.switches[switch.index()].fixed;
        let flow = self.flows.get(cookie.flow);
        let lost = match cookie.kind {
            RuleKind::Default => fixed.defaults.routes.iter().any(|&(prefix, _)| key.matches.dst == Some(prefix)),
            RuleKind::Detection => fixed.others.contains_key(key),
            RuleKind::Label => self.wants_label(switch, key),
            RuleKind::Source => {
                flow.is_some_and(|flow| flow.tor() == switch && flow.staying().any(|source| source.plan == cookie.plan))
            }
            RuleKind::Hop => flow.is_some_and(|flow| self.carries(flow, cookie.plan, switch)),
        };
        if lost {
            let watch = &mut self.context.switches[switch.index()].watch;
            watch.told = true;
            if cookie.kind == RuleKind::Source {
                watch.suspects.insert((cookie.flow, cookie.plan));
            }
            self.hurry(switch, HINT);
        }
        lost
    }

    /// Whether a flow is on a version that has a rule of its own at a switch.
    fn carries(&self, flow: &Flow, plan: u8, switch: NodeId) -> bool {
        let stands = |version: &Version| !version.is_shared() && version.stands_at(&self.context.fabric, switch);
        flow.staying().any(|source| source.plan == plan) && flow.version(plan).is_some_and(stands)
    }

    /// A part of the answer, the last one with all groups and meters.
    pub(crate) fn reviewed(
        &mut self,
        switch: NodeId,
        number: u32,
        rules: Vec<Rule>,
        last: Option<(&Vec<Group>, &Vec<Meter>)>,
    ) {
        let watch = &mut self.context.switches[switch.index()].watch;
        let Some(mut review) = watch.review.take_if(|review| review.number == number && review.scan.is_none()) else {
            // Of one that was given up.
            return;
        };
        review.heard = true;
        for rule in rules {
            self.found_again(switch, &mut review, rule);
        }
        let Some((groups, meters)) = last else {
            self.context.switches[switch.index()].watch.review = Some(review);
            return;
        };
        self.review_fixed(switch, &mut review, groups);
        self.review_labels(switch, &mut review);
        self.review_meters(switch, meters);
        let expected = self.context.switches[switch.index()].flow_rules.saturating_sub(review.added());
        if review.counted == expected {
            return self.end_review(switch, *review);
        }
        review.scan = Some(FlowId(0));
        self.context.switches[switch.index()].watch.review = Some(review);
        self.scan(switch, number);
    }

    fn found_again(&mut self, switch: NodeId, review: &mut Review, rule: Rule) {
        let Some(cookie) = Cookie::decode(rule.cookie) else { return };
        match cookie.kind {
            // Of a sweep that is under way, or a moment ago was ([`crate::sweep`]).
            RuleKind::Detection if rule.hard_timeout_s > 0 => return,
            RuleKind::Default | RuleKind::Detection => return review.fixed.push(rule),
            RuleKind::Label => return review.labels.push(rule),
            RuleKind::Source | RuleKind::Hop => {}
        }
        if review.is_touched(&rule.key()) {
            return;
        }
        let wanted = match self.flows.get(cookie.flow) {
            Some(flow) if flow.unverified => true,
            Some(flow) => self.is_wanted(switch, flow, cookie, &rule),
            None => self.orphans.holds(cookie.flow),
        } || self.is_draining(switch, &rule.key(), cookie.plan);
        if !wanted {
            review.surplus += 1;
            self.delete_found(switch, &rule);
        } else if self.is_as_planned(switch, cookie, &rule) {
            review.counted += 1;
            let source = cookie.kind == RuleKind::Source;
            review.found.insert(FlowRule { flow: cookie.flow, plan: cookie.plan, source });
        }
    }

    /// Whether a rule that was found is one that its flow has there, whatever it does.
    fn is_wanted(&self, switch: NodeId, flow: &Flow, cookie: Cookie, rule: &Rule) -> bool {
        if cookie.kind == RuleKind::Source {
            let base = self.context.config.priorities.flow;
            let same = |source: &crate::flows::SourceRule| {
                source.plan == cookie.plan && base + u16::from(source.level) == rule.priority
            };
            return flow.tor() == switch && flow.sources.iter().any(same);
        }
        flow.moving.is_some() || flow.version(cookie.plan).is_some_and(|at| at.stands_at(&self.context.fabric, switch))
    }

    /// Whether a rule that was found drains.
    fn is_draining(&self, switch: NodeId, key: &RuleKey, plan: u8) -> bool {
        let rules = crate::reconcile::five_tuple(key).and_then(|tuple| self.draining.get(&(tuple, plan)));
        rules.is_some_and(|rules| rules.contains(&(switch, *key)))
    }

    /// Whether a rule that is wanted does what it should. What drains or moves does as it did.
    fn is_as_planned(&self, switch: NodeId, cookie: Cookie, rule: &Rule) -> bool {
        let Some(flow) = self.flows.get(cookie.flow).filter(|flow| !flow.unverified) else { return true };
        let planner = self.context.planner();
        if cookie.kind == RuleKind::Source {
            let Some(source) = flow.staying().find(|source| source.plan == cookie.plan) else { return false };
            let none = Version::new(source.plan, None);
            let version = flow.version(source.plan).unwrap_or(&none);
            return planner.source(&flow.key, version, source.level) == *rule;
        }
        let Some(version) = flow.version(cookie.plan).filter(|_| flow.moving.is_none()) else { return true };
        let mut here = planner.hops(&flow.key, version).filter(|&(at, _)| at == switch);
        here.all(|(_, planned)| planned == *rule)
    }

    fn review_fixed(&mut self, switch: NodeId, review: &mut Review, groups: &[Group]) {
        let state = &self.context.switches[switch.index()];
        // What was refused is read and sent again by itself.
        if review.fixed_changed || state.reread {
            return;
        }
        let mut wanted = state.fixed.clone();
        let found = self.read_fixed(&review.fixed, groups);
        let DefaultTable { routes, groups } = &mut wanted.defaults;
        // A group that no rule names any more is about to go.
        let named = |id: &GroupId| routes.iter().any(|&(_, choice)| choice == Choice::Group(*id));
        groups.retain(|id, _| named(id) || found.defaults.groups.contains_key(id));
        let known = |prefix: Prefix| routes.binary_search_by_key(&prefix, |&(other, _)| other).is_ok();
        let routes_left = found.defaults.routes.iter().filter(|&&(prefix, _)| !known(prefix)).count();
        let others_left = found.others.keys().filter(|key| !wanted.others.contains_key(key)).count();
        review.surplus += (routes_left + others_left) as u64;
        review.restored += self.change_fixed(switch, found, wanted);
    }

    fn review_labels(&mut self, switch: NodeId, review: &mut Review) {
        let labels = std::mem::take(&mut review.labels);
        let touched = |key: &RuleKey| review.touched.contains_key(key);
        let result = self.compare_labels(switch, &labels, touched);
        review.counted += result.found;
        review.restored += result.restored;
        review.surplus += result.surplus;
    }

    /// Looks through a slice of the flows for rules that the switch lacks.
    pub(crate) fn scan(&mut self, switch: NodeId, number: u32) {
        let watch = &mut self.context.switches[switch.index()].watch;
        let Some(mut review) = watch.review.take_if(|review| review.number == number && review.scan.is_some()) else {
            return;
        };
        let first = review.scan.unwrap_or(FlowId(0));
        let mut missing: Vec<(FlowRule, Rule)> = Vec::new();
        let mut next = None;
        for (count, (id, flow)) in self.flows.range(first).enumerate() {
            if count == SLICE {
                next = Some(id);
                break;
            }
            self.missing_of(switch, &review, (id, flow), &mut missing);
        }
        for (of, rule) in missing {
            self.put_back(switch, &mut review, of, rule);
        }
        match next {
            None => self.end_review(switch, *review),
            Some(_) => {
                review.scan = next;
                review.heard = true;
                self.context.switches[switch.index()].watch.review = Some(review);
                self.context.timers.set(self.context.now.saturating_add(PAUSE), Timer::Scan { switch, number });
            }
        }
    }

    /// Adds the rules of a flow that a review did not find.
    fn missing_of(&self, switch: NodeId, review: &Review, flow: (FlowId, &Flow), missing: &mut Vec<(FlowRule, Rule)>) {
        let (id, flow) = flow;
        if flow.unverified || (flow.tor() != switch && flow.versions.is_empty()) {
            return;
        }
        let planner = self.context.planner();
        for source in flow.staying() {
            let here = FlowRule { flow: id, plan: source.plan, source: true };
            if flow.tor() == switch && source.sent && !review.found.contains(&here) {
                let none = Version::new(source.plan, None);
                let version = flow.version(source.plan).unwrap_or(&none);
                missing.push((here, planner.source(&flow.key, version, source.level)));
            }
            let there = FlowRule { source: false, ..here };
            if flow.moving.is_some() || !self.carries(flow, source.plan, switch) || review.found.contains(&there) {
                continue;
            }
            let hops = flow.version(source.plan).map(|version| planner.hops(&flow.key, version));
            missing.extend(hops.into_iter().flatten().filter(|&(at, _)| at == switch).map(|(_, rule)| (there, rule)));
        }
    }

    fn put_back(&mut self, switch: NodeId, review: &mut Review, of: FlowRule, rule: Rule) {
        let FlowRule { flow: id, plan, source } = of;
        if review.is_touched(&rule.key()) {
            return;
        }
        if !source {
            review.restored += 1;
            return self.context.add_rule(switch, rule, Purpose::Hop { flow: id });
        }
        if !self.context.switches[switch.index()].watch.suspects.contains(&(id, plan)) {
            review.suspects.insert((id, plan));
            return;
        }
        review.restored += 1;
        if let Some(flow) = self.flows.get_mut(id) {
            let source = flow.sources.iter_mut().find(|source| source.plan == plan);
            // What it counts from now on comes on top.
            let bytes = source.map_or(0, |source| std::mem::take(&mut source.bytes));
            flow.count_past(bytes);
        }
        self.context.add_rule(switch, rule, Purpose::Count { flow: id, plan });
    }

    fn end_review(&mut self, switch: NodeId, review: Review) {
        let Review { restored, surplus, again, fixed_changed, suspects, .. } = review;
        self.context.counts.reviews += 1;
        self.context.counts.restored += restored;
        self.context.counts.surplus += surplus;
        if restored + surplus > 0 {
            self.context.put(Output::Repaired { at: switch, restored, surplus });
        }
        let watch = &mut self.context.switches[switch.index()].watch;
        let told = std::mem::take(&mut watch.told) || again;
        watch.untold = if told || restored == 0 { 0 } else { watch.untold.saturating_add(1) };
        watch.skip = (1u32 << watch.untold.saturating_sub(BELIEVED).min(5)) - 1;
        let suspicious = !suspects.is_empty();
        watch.suspects = suspects;
        if again || fixed_changed {
            self.hurry(switch, HINT);
        } else if suspicious {
            self.hurry(switch, NOTICE);
        }
    }
}
