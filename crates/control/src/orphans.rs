//! Rules of unknown flows, found after a restart. Complete paths are adopted. Other rules are deleted in a safe
//! order: first at the source ToR, and at later switches when no packet can be in transit any more.

use crate::context::Context;
use crate::labels::{Labels, Next};
use crate::plan::FlowKey;
use crate::tables::DEFAULTS;
use pathloom_model::rules::{Match, Rule, RuleAction, RuleKey};
use pathloom_model::{Address, FiveTuple, LinkId, NodeId, Path, Prefix};
use pathloom_scheme::{FlowId, FlowView};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// Rules of one unknown flow.
#[derive(Debug)]
pub(crate) struct Orphan {
    pub five_tuple: FiveTuple,
    /// Rules at its source ToR, each with its plan.
    pub sources: Vec<(u8, Rule)>,
    /// Rules at later switches, by plan and switch.
    pub hops: BTreeMap<(u8, NodeId), Rule>,
}

/// All unknown flows.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    flows: BTreeMap<FlowId, Orphan>,
    /// Number of these flows per five-tuple.
    tuples: FxHashMap<FiveTuple, u32>,
    /// Views from a snapshot, of flows that have moved since it was taken.
    remembered: BTreeMap<FlowId, FlowView>,
    /// Flows to examine when the rules of a switch become known, by switch.
    waiting: BTreeMap<NodeId, BTreeSet<FlowId>>,
}

impl Orphans {
    /// Whether there are no unknown flows.
    pub(crate) fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// Whether the rules of this flow are among them.
    pub(crate) fn holds(&self, id: FlowId) -> bool {
        self.flows.contains_key(&id)
    }

    /// Whether a flow has a rule with this key at a later switch.
    pub(crate) fn has_rule(&self, id: FlowId, switch: NodeId, key: &RuleKey) -> bool {
        let hops = self.flows.get(&id).into_iter().flat_map(|orphan| &orphan.hops);
        hops.into_iter().any(|(&(_, at), rule)| at == switch && rule.key() == *key)
    }

    /// Whether one of them has this five-tuple.
    pub(crate) fn has(&self, five_tuple: &FiveTuple) -> bool {
        self.tuples.contains_key(five_tuple)
    }

    /// The switches of all rules, each with the source address of its flow.
    pub(crate) fn rules<'a>(&'a self, cx: &'a Context) -> impl Iterator<Item = (Address, NodeId)> + 'a {
        self.flows.values().flat_map(|orphan| {
            let src = orphan.five_tuple.src();
            let tor = cx.attachment(src).map(|at| at.tor);
            let sources = orphan.sources.iter().filter_map(move |_| tor);
            sources.chain(orphan.hops.keys().map(|&(_, at)| at)).map(move |at| (src, at))
        })
    }

    /// Adds a rule that was found at a switch and belongs to a plan of a flow. `is_source`: the switch is the flow's
    /// source ToR.
    pub(crate) fn add(&mut self, switch: NodeId, key: &FlowKey, (is_source, plan): (bool, u8), rule: Rule) {
        self.wait_for(switch, key.id);
        let orphan = self.entry(key.id, key.five_tuple);
        if is_source {
            orphan.sources.push((plan, rule));
        } else {
            orphan.hops.insert((plan, switch), rule);
        }
    }

    /// Returns the entry of a flow; creates an empty one if necessary.
    fn entry(&mut self, id: FlowId, five_tuple: FiveTuple) -> &mut Orphan {
        self.flows.entry(id).or_insert_with(|| {
            *self.tuples.entry(five_tuple).or_insert(0) += 1;
            Orphan { five_tuple, sources: Vec::new(), hops: BTreeMap::new() }
        })
    }

    /// Marks a flow to be examined when the rules of a switch become known.
    fn wait_for(&mut self, switch: NodeId, id: FlowId) {
        self.waiting.entry(switch).or_default().insert(id);
    }

    /// The rules of a switch are known. Returns the flows that waited for them.
    pub(crate) fn take_waiting(&mut self, switch: NodeId) -> BTreeSet<FlowId> {
        self.waiting.remove(&switch).unwrap_or_default()
    }

    /// A rule at the source ToR expired. Removes and returns it.
    pub(crate) fn remove_source(&mut self, id: FlowId, plan: u8) -> Option<Rule> {
        let sources = &mut self.flows.get_mut(&id)?.sources;
        let index = sources.iter().position(|&(other, _)| other == plan)?;
        Some(sources.remove(index).1)
    }

    /// Keeps the view that a snapshot had of a flow, if the flow is not on the path of the snapshot any more.
    pub(crate) fn remember(&mut self, id: FlowId, view: FlowView) {
        self.remembered.insert(id, view);
    }

    /// Returns and removes the view that a snapshot had of a flow.
    pub(crate) fn take_remembered(&mut self, id: FlowId) -> Option<FlowView> {
        self.remembered.remove(&id)
    }

    /// Examines a flow. Returns `None` if it is not an orphan, or waits for the rules of a switch.
    ///
    /// The result is the target of the effective rule at the source ToR if that target is usable. Otherwise it is the
    /// target of the next lower rule whose path is complete and up. Therefore a move that was interrupted is
    /// completed or undone.
    pub(crate) fn look_at(&mut self, cx: &Context, labels: &Labels, id: FlowId) -> Option<Found> {
        let orphan = self.flows.get(&id)?;
        let tor = cx.attachment(orphan.five_tuple.src())?.tor;
        if !cx.is_ready(tor) {
            self.wait_for(tor, id);
            return None;
        }
        let mut sources: Vec<&(u8, Rule)> = orphan.sources.iter().collect();
        sources.sort_by_key(|(_, rule)| std::cmp::Reverse(rule.priority));
        for &&(plan, ref rule) in &sources {
            match trace(cx, labels, orphan, tor, plan, rule) {
                Trace::Broken => {}
                Trace::Path(path) if !path.is_up(&cx.view.links) => {}
                Trace::Path(path) => return Some(Found::OnPath(plan, path)),
                Trace::Defaults => return Some(Found::OnDefaults(plan)),
                Trace::Unknown(switch) => {
                    self.wait_for(switch, id);
                    return None;
                }
            }
        }
        Some(sources.first().map_or(Found::Gone, |&&(plan, _)| Found::Broken(plan)))
    }

    /// Removes and returns the rules of a flow.
    pub(crate) fn remove(&mut self, id: FlowId) -> Option<Orphan> {
        let orphan = self.flows.remove(&id)?;
        if let Some(count) = self.tuples.get_mut(&orphan.five_tuple) {
            *count -= 1;
            if *count == 0 {
                self.tuples.remove(&orphan.five_tuple);
            }
        }
        Some(orphan)
    }

    /// The session to a switch was lost. Its rules are forgotten; those that remain will be found again.
    pub(crate) fn forget(&mut self, cx: &mut Context, switch: NodeId) {
        let mut forgotten = 0;
        for (&id, orphan) in &mut self.flows {
            let before = orphan.sources.len() + orphan.hops.len();
            orphan.hops.retain(|&(_, at), _| at != switch);
            if cx.fabric.attachment(orphan.five_tuple.src()).is_some_and(|at| at.tor == switch) {
                orphan.sources.clear();
            }
            let now = orphan.sources.len() + orphan.hops.len();
            if now < before {
                forgotten += before - now;
                self.waiting.entry(switch).or_default().insert(id);
            }
        }
        cx.count_rules(switch, -(forgotten as i32));
    }
}

/// State of an orphan: the plan of its effective rule at the source ToR, and the target of that rule.
pub(crate) enum Found {
    /// The flow is on a complete path.
    OnPath(u8, Path),
    /// The flow is on the default routes.
    OnDefaults(u8),
    /// The rule leads to no complete path.
    Broken(u8),
    /// There is no rule at its source ToR.
    Gone,
}

/// Target of a rule at the source ToR.
enum Trace {
    /// The default routes.
    Defaults,
    /// A complete path.
    Path(Path),
    /// No complete path.
    Broken,
    /// The rules of this switch are not known yet.
    Unknown(NodeId),
}

/// Returns the key of the flow to which a found rule belongs; `None` if its addresses do not exist on this fabric.
pub(crate) fn key_of(cx: &Context, id: FlowId, matches: &Match) -> Option<FlowKey> {
    let whole = |prefix: Option<Prefix>| prefix.and_then(Prefix::only);
    let (src, dst) = (whole(matches.src)?, whole(matches.dst)?);
    let (src_port, dst_port) = (matches.src_port?, matches.dst_port?);
    let five_tuple = FiveTuple::new(matches.proto?, (src, src_port), (dst, dst_port));
    let (src, dst) = (cx.attachment(src)?, cx.attachment(dst)?);
    Some(FlowKey { id, five_tuple, src, dst, meter: None })
}

/// Follows the rules of a plan from the source ToR to the end.
fn trace(cx: &Context, labels: &Labels, orphan: &Orphan, tor: NodeId, plan: u8, source: &Rule) -> Trace {
    let Some(dst) = cx.attachment(orphan.five_tuple.dst()) else { return Trace::Broken };
    let host_port = cx.fabric.link(dst.uplink).to_port;
    let (tag, mut port) = match source.actions.as_slice() {
        [] if source.goto == Some(DEFAULTS) => return Trace::Defaults,
        &[RuleAction::Output(port)] if tor == dst.tor && port == host_port => return Trace::Path(Path::empty()),
        &[RuleAction::SetTag(with), RuleAction::Output(port)] => (with, port),
        _ => return Trace::Broken,
    };
    let whole = |links: Vec<LinkId>| match Path::new(links) {
        path if path.check(&cx.fabric).is_ok() => Trace::Path(path),
        _ => Trace::Broken,
    };
    let (mut here, mut links): (NodeId, Vec<LinkId>) = (tor, Vec::new());
    loop {
        let Some(link) = cx.fabric.out_link(here, port).filter(|&link| cx.fabric.is_switch_link(link)) else {
            return Trace::Broken;
        };
        links.push(link);
        here = cx.fabric.link(link).to;
        if links.len() > cx.fabric.switches().len() {
            return Trace::Broken;
        }
        if !cx.is_ready(here) {
            return Trace::Unknown(here);
        }
        match labels.next(here, tag) {
            Some(Next::Port(out)) => {
                port = out;
                continue;
            }
            Some(Next::AtTor) if here == dst.tor => return whole(links),
            Some(Next::AtTor) => return Trace::Broken,
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
