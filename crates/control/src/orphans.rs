//! Rules of flows that nobody remembers, found after a restart: complete paths are adopted, the rest is taken away in a
//! safe order: at the source ToR first, and elsewhere when no packet can be under way any more.

use crate::controller::Controller;
use crate::cookies::{epoch_and_serial, is_bound, is_way_back, Cookie, RuleKind, PLANS};
use crate::flows::{Flow, SourceRule};
use crate::labels::Next;
use crate::plan::{tag, FlowKey, Version, LEVELS};
use crate::reasons::Decision;
use crate::tables::DEFAULTS;
use crate::timers::Timer;
use pathloom_model::rules::{Match, Rule, RuleAction, RuleKey};
use pathloom_model::{FiveTuple, LinkId, NodeId, Path};
use pathloom_scheme::{Event, FlowId, FlowView};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// Rules of one flow.
#[derive(Debug)]
struct Orphan {
    five_tuple: FiveTuple,
    /// At its source ToR: plan and rule.
    sources: Vec<(u8, Rule)>,
    /// At later switches, by plan.
    hops: BTreeMap<(u8, NodeId), Rule>,
}

/// All such flows.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    flows: BTreeMap<FlowId, Orphan>,
    /// How many of them have a five-tuple.
    tuples: FxHashMap<FiveTuple, u32>,
    /// What a snapshot said of flows that have moved since it was taken.
    remembered: BTreeMap<FlowId, FlowView>,
    /// Flows to be looked at when the rules of a switch become known.
    waiting: BTreeMap<NodeId, BTreeSet<FlowId>>,
}

impl Orphans {
    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// Whether rules of this flow are among them.
    pub(crate) fn holds(&self, id: FlowId) -> bool {
        self.flows.contains_key(&id)
    }

    /// Whether one of them has this five-tuple.
    pub(crate) fn has(&self, five_tuple: &FiveTuple) -> bool {
        self.tuples.contains_key(five_tuple)
    }

    /// The rules of a flow, none at first.
    fn entry(&mut self, id: FlowId, five_tuple: FiveTuple) -> &mut Orphan {
        self.flows.entry(id).or_insert_with(|| {
            *self.tuples.entry(five_tuple).or_insert(0) += 1;
            Orphan { five_tuple, sources: Vec::new(), hops: BTreeMap::new() }
        })
    }

    fn remove(&mut self, id: FlowId) -> Option<Orphan> {
        let orphan = self.flows.remove(&id)?;
        if let Some(count) = self.tuples.get_mut(&orphan.five_tuple) {
            *count -= 1;
            if *count == 0 {
                self.tuples.remove(&orphan.five_tuple);
            }
        }
        Some(orphan)
    }
}

/// What the rule at the source ToR that acts leads to.
enum Trace {
    /// The default routes.
    Defaults,
    /// A complete path.
    Path(Path),
    /// Nowhere.
    Broken,
    /// The rules of this switch are not known yet.
    Unknown(NodeId),
}

impl Controller {
    /// Takes note of a rule of a flow that is not known.
    pub(crate) fn add_orphan(&mut self, switch: NodeId, id: FlowId, cookie: Cookie, rule: Rule) {
        let (epoch, serial) = epoch_and_serial(id);
        if epoch == self.context.config.epoch {
            self.flows.skip_to(serial + 1);
        }
        let Some(key) = self.orphan_key(id, &rule.matches) else {
            // Its addresses are of another fabric.
            self.delete_found(switch, &rule);
            return;
        };
        let level =
            rule.priority.checked_sub(self.context.config.priorities.flow).filter(|&level| level < u16::from(LEVELS));
        let is_source = cookie.kind == RuleKind::Source;
        if is_source && (key.src.tor != switch || level.is_none()) {
            self.delete_found(switch, &rule);
            return;
        }
        self.orphans.waiting.entry(switch).or_default().insert(id);
        let orphan = self.orphans.entry(id, key.five_tuple);
        if is_source {
            orphan.sources.push((cookie.plan, rule));
        } else {
            orphan.hops.insert((cookie.plan, switch), rule);
        }
        self.context.count_rules(switch, 1);
    }

    fn orphan_key(&self, id: FlowId, matches: &Match) -> Option<FlowKey> {
        let whole = |prefix: Option<pathloom_model::Prefix>| prefix.filter(|p| p.len == 32).map(|p| p.address);
        let (src, dst) = (whole(matches.src)?, whole(matches.dst)?);
        let (src_port, dst_port) = (matches.src_port?, matches.dst_port?);
        let five_tuple = FiveTuple { src, dst, proto: matches.proto?, src_port, dst_port };
        let (src, dst) = (self.context.attachment(src)?, self.context.attachment(dst)?);
        Some(FlowKey { id, five_tuple, src, dst, meter: None })
    }

    /// The session to a switch was lost: what was found in it will be found again, or is gone by then.
    pub(crate) fn forget_orphan_rules(&mut self, switch: NodeId) {
        let mut forgotten = 0;
        for (&id, orphan) in &mut self.orphans.flows {
            let before = orphan.sources.len() + orphan.hops.len();
            orphan.hops.retain(|&(_, at), _| at != switch);
            if self.context.fabric.attachment(orphan.five_tuple.src).is_some_and(|at| at.tor == switch) {
                orphan.sources.clear();
            }
            let now = orphan.sources.len() + orphan.hops.len();
            if now < before {
                forgotten += before - now;
                self.orphans.waiting.entry(switch).or_default().insert(id);
            }
        }
        self.context.count_rules(switch, -(forgotten as i32));
    }

    /// The rules of a switch are known now: looks at the flows that waited for them.
    pub(crate) fn orphans_may_be_complete(&mut self, switch: NodeId) {
        for id in self.orphans.waiting.remove(&switch).unwrap_or_default() {
            self.look_at_orphan(id);
        }
    }

    /// The rule of a flow that is not known ran out.
    pub(crate) fn orphan_rule_removed(&mut self, switch: NodeId, id: FlowId, plan: u8) {
        let Some(orphan) = self.orphans.flows.get_mut(&id) else { return };
        let Some(index) = orphan.sources.iter().position(|&(other, _)| other == plan) else { return };
        let (_, rule) = orphan.sources.remove(index);
        self.context.count_rules(switch, -1);
        self.meter_unnamed(switch, &rule);
        self.look_at_orphan(id);
    }

    fn look_at_orphan(&mut self, id: FlowId) {
        let Some(orphan) = self.orphans.flows.get(&id) else { return };
        let Some(tor) = self.context.attachment(orphan.five_tuple.src).map(|at| at.tor) else { return };
        if !self.context.is_ready(tor) {
            self.orphans.waiting.entry(tor).or_default().insert(id);
            return;
        }
        match self.trace_best(orphan, tor) {
            Some((_, Trace::Unknown(switch))) => {
                self.orphans.waiting.entry(switch).or_default().insert(id);
            }
            Some((plan, Trace::Path(path))) => self.adopt(id, plan, Some(path)),
            Some((plan, Trace::Defaults)) => self.adopt(id, plan, None),
            Some((plan, Trace::Broken)) => {
                self.adopt(id, plan, None);
                self.unroute_broken(id, plan);
            }
            None => {
                self.drop_orphan(id);
                self.end_bound(id);
                if let Some(view) = self.orphans.remembered.remove(&id).filter(|view| view.long) {
                    self.context.view.flows.insert(id, view);
                    self.tell(Event::FlowFinished { flow: id });
                }
            }
        }
    }

    /// What the rule at the source ToR leads to that acts, or the next one below whose path is complete and up: so a move
    /// that was interrupted is finished, or taken back.
    fn trace_best(&self, orphan: &Orphan, tor: NodeId) -> Option<(u8, Trace)> {
        let mut sources: Vec<&(u8, Rule)> = orphan.sources.iter().collect();
        sources.sort_by_key(|(_, rule)| std::cmp::Reverse(rule.priority));
        for (plan, rule) in &sources {
            match self.trace(orphan, tor, *plan, rule) {
                Trace::Broken => {}
                Trace::Path(path) if !path.is_up(&self.context.view.links) => {}
                other => return Some((*plan, other)),
            }
        }
        sources.first().map(|(plan, _)| (*plan, Trace::Broken))
    }

    /// Follows the rules of a plan from the source ToR on.
    fn trace(&self, orphan: &Orphan, tor: NodeId, plan: u8, source: &Rule) -> Trace {
        let Some(dst) = self.context.attachment(orphan.five_tuple.dst) else { return Trace::Broken };
        let host_port = self.context.fabric.link(dst.uplink).to_port;
        let (tag, mut port) = match source.actions.as_slice() {
            [] if source.goto == Some(DEFAULTS) => return Trace::Defaults,
            &[RuleAction::Output(port)] if tor == dst.tor && port == host_port => return Trace::Path(Path::empty()),
            &[RuleAction::SetTag(with), RuleAction::Output(port)] => (with, port),
            _ => return Trace::Broken,
        };
        let whole = |links: Vec<LinkId>| match Path::new(links) {
            path if path.check(&self.context.fabric).is_ok() => Trace::Path(path),
            _ => Trace::Broken,
        };
        let (mut here, mut links): (NodeId, Vec<LinkId>) = (tor, Vec::new());
        loop {
            let Some(link) =
                self.context.fabric.out_link(here, port).filter(|&link| self.context.fabric.is_switch_link(link))
            else {
                return Trace::Broken;
            };
            links.push(link);
            here = self.context.fabric.link(link).to;
            if links.len() > self.context.fabric.switches().len() {
                return Trace::Broken;
            }
            if !self.context.is_ready(here) {
                return Trace::Unknown(here);
            }
            match self.labels.next(here, tag) {
                Some(Next::Port(out)) => {
                    port = out;
                    continue;
                }
                Some(Next::Home) if here == dst.tor => return whole(links),
                Some(Next::Home) => return Trace::Broken,
                None => {}
            }
            let hop = orphan.hops.get(&(plan, here)).filter(|rule| rule.matches.tag == Some(tag));
            match hop.map(|rule| rule.actions.as_slice()) {
                Some(&[RuleAction::PopTag, RuleAction::Output(out)]) if here == dst.tor && out == host_port => {
                    return whole(links);
                }
                Some(&[RuleAction::Output(out)]) => port = out,
                _ => return Trace::Broken,
            }
        }
    }

    /// Makes a flow known whose rule of `plan` acts, and takes away what the flow has no use for.
    fn adopt(&mut self, id: FlowId, plan: u8, path: Option<Path>) {
        let Some(orphan) = self.orphans.remove(id) else { return };
        let Some(key) = self.orphan_key(id, &Match::five_tuple(orphan.five_tuple)) else { return };
        let mut flow = Flow::new(key);
        let base = self.context.config.priorities.flow;
        flow.sources.extend(orphan.sources.iter().map(|(plan, rule)| SourceRule {
            plan: *plan,
            level: (rule.priority - base) as u8,
            bytes: 0,
            sent: true,
            confirmed: true,
            leaving: false,
        }));
        // Away from the plans that the controller before may have begun, of which some switch may still tell.
        flow.plans = (plan + PLANS / 3) % PLANS;
        flow.measured_bytes = None.into();
        flow.key.meter = orphan.sources.iter().find_map(|(_, rule)| rule.meter);
        flow.key.meter.into_iter().for_each(|meter| self.context.switches[key.src.tor.index()].meters.mark(meter));
        let on_path = path.is_some();
        let source = orphan.sources.iter().find(|(other, _)| *other == plan).map(|(_, rule)| rule.actions.first());
        let tag = match source {
            Some(Some(&RuleAction::SetTag(tag))) => tag,
            _ => tag(plan),
        };
        let normal = self.context.config.priorities.hop(false);
        let low = orphan.hops.iter().any(|(&(other, _), rule)| other == plan && rule.priority < normal);
        if on_path {
            let version = Version { tag, low, ..Version::new(plan, path.clone()) };
            self.claim_version(&version);
            flow.versions.push(version);
        }
        let measured = self.context.needs.detection.nic_share().is_some();
        let long = (on_path || !measured) && !is_way_back(id) && !is_bound(id);
        self.insert_flow(flow, long);
        self.context.counts.adopted += 1;
        let remembered = self.orphans.remembered.remove(&id);
        if let Some(view) = self.context.view.flows.get_mut(&id) {
            if let Some(old) = remembered {
                *view = FlowView { pending: None, bytes: 0, rate_bps: None.into(), ..old };
            }
            view.long |= long;
            view.route = path;
        }
        for &(other, _) in orphan.sources.iter().filter(|&&(other, _)| other != plan) {
            self.leave(id, other);
        }
        let useless = orphan.hops.into_iter().filter(|&((other, _), _)| !on_path || other != plan);
        self.take_away(id, plan, useless.collect());
        if is_bound(id) {
            self.assignments.adopted(self.context.now, &key.five_tuple, id);
        }
        if let Some(path) = self.context.view.flows.get(&id).and_then(|view| view.route.clone()) {
            self.note(id, Decision::Adopted { path });
        }
        if self.context.view.flows.get(&id).is_some_and(|view| view.long) {
            self.tell(if on_path { Event::FlowAdopted { flow: id } } else { Event::FlowArrived { flow: id } });
        }
    }

    /// Takes away the rules of plans that an adopted flow has no use for. Where the version that it is on has a rule for the
    /// same tag, that one acts instead, at once: what was cut over in part is cut over. Others drain.
    fn take_away(&mut self, id: FlowId, plan: u8, useless: Vec<((u8, NodeId), Rule)>) {
        let Some(flow) = self.flows.get(id) else { return };
        let (five_tuple, fabric) = (flow.key.five_tuple, &self.context.fabric);
        let acts = |at: NodeId, rule: &Rule| {
            flow.version(plan).is_some_and(|on| rule.matches.tag == Some(on.tag) && on.stands_at(fabric, at))
        };
        let (replaced, left): (Vec<_>, Vec<_>) = useless.into_iter().partition(|((_, at), rule)| acts(*at, rule));
        for ((_, at), rule) in replaced {
            self.context.count_rules(at, -1);
            if self.context.is_ready(at) {
                self.context.delete_rule(at, rule.key());
            }
        }
        self.drain_hops(five_tuple, left.into_iter().map(|((plan, at), rule)| (plan, at, rule.key())));
    }

    /// The rule that acts leads nowhere: the flow goes back to the default routes.
    fn unroute_broken(&mut self, id: FlowId, plan: u8) {
        self.add_count(id);
        self.leave(id, plan);
    }

    /// A snapshot is older than what its source ToR shows of a flow: what was remembered of its routes is void.
    pub(crate) fn make_orphan(&mut self, id: FlowId) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        let (tor, staying) = (flow.tor(), flow.staying().count());
        flow.sources.clear();
        self.context.count_rules(tor, -(staying as i32));
        self.settle(id);
        self.flows.remove(id);
        if let Some(view) = self.context.view.flows.remove(&id) {
            self.orphans.remembered.insert(id, view);
        }
    }

    /// Nothing leads to the rules that were found at later switches: they go when no packet can be under way any more.
    pub(crate) fn drop_orphan(&mut self, id: FlowId) {
        if let Some(orphan) = self.orphans.remove(id) {
            let hops = orphan.hops.into_iter();
            self.drain_hops(orphan.five_tuple, hops.map(|((plan, at), rule)| (plan, at, rule.key())));
        }
    }

    fn drain_hops(&mut self, five_tuple: FiveTuple, hops: impl Iterator<Item = (u8, NodeId, RuleKey)>) {
        let at = self.context.now.saturating_add(self.context.unknown_drain(&five_tuple));
        for (plan, switch, key) in hops {
            let rules = self.draining.entry((five_tuple, plan)).or_default();
            if rules.is_empty() {
                self.context.timers.set(at, Timer::Drained { five_tuple, plan });
            }
            rules.push((switch, key));
        }
    }
}
