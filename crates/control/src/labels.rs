//! Rules that flows share (OFPT §5.2: flow aggregation).
//!
//! The source ToR puts a label, which is a VLAN tag, on the packets of a flow. The switches after it match only the
//! label. The last switch removes it and continues with its default routes, which know its hosts. A label identifies
//! a tree towards one ToR. Two paths can have the same label if they have the same next hop at every common switch.
//! Therefore flows share the rules of a whole path or of its last part, and no label leads to a loop. A rule stays as
//! long as a version of a flow's route needs it, and until the packets of the last such version have drained. Two
//! trees can have the same label if they have no switch in common.

use crate::context::Context;
use crate::context::UNKNOWN_DRAIN;
use crate::cookies::{epoch_and_serial, Cookie, RuleKind};
use crate::plan::{FlowKey, Version};
use crate::switches::Purpose;
use crate::tables::{self, DEFAULTS, LONG_FLOWS};
use crate::timers::Timer;
use pathloom_model::rules::{Actions, Match, Rule, RuleAction, RuleKey};
use pathloom_model::{Fabric, NodeId, Path, PortNo};
use pathloom_scheme::FlowId;
use std::collections::BTreeMap;
use std::num::NonZeroU32;

/// The first tag that is a label. Lower tags belong to single flows ([`crate::plan::tag`]).
pub(crate) const FIRST_LABEL: u16 = 2 + crate::cookies::PLANS as u16;
/// The last possible tag (IEEE 802.1Q-2018 §9.6).
const LAST_LABEL: u16 = 4094;

/// Action of a switch for the packets of a label.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// Sends them out of this port.
    Port(PortNo),
    /// Removes the label, because they have reached their ToR.
    AtTor,
}

/// The rule of a label at a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct LabelRule {
    /// Its action; `None` if it is only known that the rule exists.
    next: Option<Next>,
    /// Number of versions of flows that need it, or whose packets drain.
    users: u32,
    /// Whether the switch has confirmed it.
    confirmed: bool,
    /// Number of the message that added it.
    xid: u32,
    /// Whether the switch does not have it: it was refused or not found. The entry stays for versions that still
    /// drain.
    absent: bool,
    /// Whether the switch had it from an earlier controller. Flows that are not known yet may use it too.
    inherited: bool,
    /// The host whose flow needed it first. The rule counts for this host as long as it exists.
    payer: Option<NodeId>,
}

impl LabelRule {
    fn new(next: Option<Next>) -> LabelRule {
        LabelRule { next, users: 0, confirmed: false, xid: 0, absent: false, inherited: false, payer: None }
    }
}

/// Result of the comparison of the rules of labels with a switch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Compared {
    /// Number of rules that exist, including those that were added again.
    pub found: u32,
    /// Number of rules that were added again.
    pub restored: u64,
    /// Number of rules that were deleted.
    pub surplus: u64,
}

/// All rules of labels, by switch and label.
#[derive(Debug, Default)]
pub(crate) struct Labels(BTreeMap<(NodeId, u16), LabelRule>);

impl Labels {
    /// Chooses a label for a path, one that already has rules at as many of its switches as possible. `None` if all
    /// labels are in use.
    fn choose(&self, hops: &[(NodeId, Next)]) -> Option<u16> {
        let &(home, _) = hops.last()?;
        let shared = |label: u16| {
            let mut shared = 0;
            for &(at, next) in hops {
                match self.0.get(&(at, label)) {
                    None => {}
                    Some(rule) if rule.next == Some(next) && !rule.absent => shared += 1,
                    Some(_) => return None,
                }
            }
            Some(shared)
        };
        let known = self.0.range((home, FIRST_LABEL)..=(home, LAST_LABEL)).map(|(&(_, label), _)| label);
        let best = known.filter_map(|label| Some((shared(label)?, std::cmp::Reverse(label)))).max();
        let free = |&label: &u16| hops.iter().all(|&(at, _)| !self.0.contains_key(&(at, label)));
        best.map(|(_, std::cmp::Reverse(label))| label).or_else(|| (FIRST_LABEL..=LAST_LABEL).find(free))
    }

    /// Returns the action of a switch for the packets of a label.
    pub(crate) fn next(&self, switch: NodeId, label: u16) -> Option<Next> {
        self.0.get(&(switch, label))?.next
    }
}

impl Version {
    /// Whether its rules after the source ToR are shared.
    pub(crate) fn is_shared(&self) -> bool {
        self.tag >= FIRST_LABEL
    }
}

/// Returns the switches of a path after the source ToR, with their actions.
fn hops(fabric: &Fabric, path: &Path) -> Vec<(NodeId, Next)> {
    let links = path.links();
    let next = |index: usize| links.get(index + 1).map_or(Next::AtTor, |&link| Next::Port(fabric.link(link).from_port));
    links.iter().enumerate().map(|(index, &link)| (fabric.link(link).to, next(index))).collect()
}

/// Returns the key of the rule of a label.
fn label_key(priority: u16, label: u16) -> RuleKey {
    RuleKey { table: LONG_FLOWS, priority, matches: Match { tag: Some(label), ..Match::default() } }
}

/// Returns the label of a rule key, if it is the key of a label's rule.
fn label_of(key: &RuleKey) -> Option<u16> {
    let label = key.matches.tag.filter(|label| (FIRST_LABEL..=LAST_LABEL).contains(label))?;
    (*key == label_key(key.priority, label)).then_some(label)
}

/// Whether a rule belongs to a label, so that versions of several flows may need it.
pub(crate) fn is_shared(key: &RuleKey) -> bool {
    label_of(key).is_some()
}

/// Returns the label and the action of a found rule.
fn read(rule: &Rule) -> Option<(u16, Next)> {
    let label = label_of(&rule.key())?;
    match (rule.actions.as_slice(), rule.goto) {
        (&[RuleAction::Output(port)], None) => Some((label, Next::Port(port))),
        ([RuleAction::PopTag], Some(DEFAULTS)) => Some((label, Next::AtTor)),
        _ => None,
    }
}

impl Labels {
    /// Returns a label for a path on which flows share rules. One more version needs it from now on. New rules count for
    /// host `payer`. `None` if all labels are in use, so that the flow needs its own rules.
    pub(crate) fn take(&mut self, cx: &mut Context, path: &Path, payer: NodeId) -> Option<u16> {
        let hops = hops(&cx.fabric, path);
        let label = self.choose(&hops)?;
        self.claim(cx, &hops, label, payer);
        Some(label)
    }

    /// Rules that count for a host, as their switches and hosts.
    pub(crate) fn charged(&self) -> impl Iterator<Item = (NodeId, NodeId)> + '_ {
        let present = self.0.iter().filter(|(_, rule)| !rule.absent);
        present.filter_map(|(&(at, _), rule)| Some((at, rule.payer?)))
    }

    /// Returns the switches that would need one more rule for a path.
    pub(crate) fn missing(&self, cx: &Context, path: &Path) -> Vec<NodeId> {
        let hops = hops(&cx.fabric, path);
        let label = self.choose(&hops);
        let missing = |&at: &NodeId| label.is_none_or(|label| !self.0.contains_key(&(at, label)));
        hops.iter().map(|&(at, _)| at).filter(missing).collect()
    }

    /// Claims the rules of a version from a snapshot or a switch. Those that count for no host yet count for host `payer`.
    pub(crate) fn claim_version(&mut self, cx: &mut Context, version: &Version, payer: NodeId) {
        if let Some(path) = version.path.as_ref().filter(|_| version.is_shared()) {
            let hops = hops(&cx.fabric, path);
            self.claim(cx, &hops, version.tag, payer);
        }
    }

    fn claim(&mut self, cx: &mut Context, hops: &[(NodeId, Next)], label: u16, payer: NodeId) {
        for &(at, next) in hops {
            let fresh = LabelRule::new(Some(next));
            let known = self.0.contains_key(&(at, label));
            let rule = self.0.entry((at, label)).or_insert(fresh);
            rule.users += 1;
            rule.next = rule.next.or(Some(next));
            rule.payer = rule.payer.or(Some(payer));
            if !known {
                cx.count_rules(at, 1);
                self.send(cx, at, label);
            }
        }
    }

    /// Claims a rule of unknown action for one more version that drains. Returns whether the rule belongs to a label.
    pub(crate) fn claim_unknown(&mut self, cx: &mut Context, switch: NodeId, key: &RuleKey) -> bool {
        let Some(label) = label_of(key) else { return false };
        let fresh = LabelRule::new(None);
        if !self.0.contains_key(&(switch, label)) {
            cx.count_rules(switch, 1);
        }
        self.0.entry((switch, label)).or_insert(fresh).users += 1;
        true
    }

    /// Adds the rule of a label at a switch whose session is ready.
    fn send(&mut self, cx: &mut Context, switch: NodeId, label: u16) {
        let next = self.next(switch, label);
        let (true, Some(next)) = (cx.is_ready(switch), next) else { return };
        let (actions, goto) = match next {
            Next::Port(port) => ([RuleAction::Output(port)].into(), None),
            Next::AtTor => (Actions::from([RuleAction::PopTag]), Some(DEFAULTS)),
        };
        let key = label_key(cx.config.priorities.flow, label);
        let mut rule = tables::rule(key.table, key.priority, key.matches, actions, goto);
        rule.cookie = Cookie::of_no_flow(RuleKind::Label, cx.config.epoch).encode();
        rule.notify_removal = cx.config.is_watched();
        let xid = cx.next_xid();
        cx.switches[switch.index()].watch.touch(|| key, true);
        if let Some(known) = self.0.get_mut(&(switch, label)) {
            (known.xid, known.confirmed) = (xid, false);
        }
        cx.put(crate::io::Output::AddRule { switch, xid, rule });
        cx.await_answer(switch, xid, Purpose::Label { label });
    }

    /// Lets a move wait for the unconfirmed rules of its version. Returns their number.
    pub(crate) fn await_rules(&mut self, cx: &mut Context, flow: FlowId, number: NonZeroU32, version: &Version) -> u32 {
        let Some(path) = &version.path else { return 0 };
        let mut waiting = 0;
        for (at, _) in hops(&cx.fabric, path) {
            let rule = self.0.get(&(at, version.tag)).copied();
            if let Some(rule) = rule.filter(|rule| !rule.confirmed) {
                cx.await_answer(at, rule.xid, Purpose::Step { flow, number });
                waiting += 1;
            }
        }
        waiting
    }

    /// Returns the rules of a version after its source ToR.
    pub(crate) fn rules_of(&self, cx: &Context, key: &FlowKey, version: &Version) -> Vec<(NodeId, RuleKey)> {
        match &version.path {
            Some(path) if version.is_shared() => {
                let rule = label_key(cx.config.priorities.flow, version.tag);
                hops(&cx.fabric, path).into_iter().map(|(at, _)| (at, rule)).collect()
            }
            _ => cx.planner().hops(key, version).map(|(at, rule)| (at, rule.key())).collect(),
        }
    }

    /// Deletes a rule of a version that no packet matches any more, unless other versions need it too. The rule of an
    /// earlier controller waits longer, because versions that are not known yet may need it.
    pub(crate) fn take_rule(&mut self, cx: &mut Context, switch: NodeId, key: RuleKey) {
        let Some(label) = label_of(&key) else { return delete(cx, switch, key) };
        let Some(rule) = self.0.get_mut(&(switch, label)) else { return };
        rule.users = rule.users.saturating_sub(1);
        if rule.users > 0 {
            return;
        }
        if rule.inherited && !rule.absent {
            return await_claim(cx, switch, label);
        }
        self.remove(cx, switch, label);
    }

    /// Removes the rule of a label. Deletes it if the switch has it.
    fn remove(&mut self, cx: &mut Context, switch: NodeId, label: u16) {
        if self.0.remove(&(switch, label)).is_some_and(|rule| !rule.absent) {
            delete(cx, switch, label_key(cx.config.priorities.flow, label));
        }
    }

    /// A switch has confirmed the rule of a label.
    pub(crate) fn confirm(&mut self, switch: NodeId, label: u16) {
        if let Some(rule) = self.0.get_mut(&(switch, label)) {
            rule.confirmed = true;
        }
    }

    /// Records that a switch does not have the rule of a label. Returns whether this was not known before.
    pub(crate) fn note_absent(&mut self, cx: &mut Context, switch: NodeId, label: u16) -> bool {
        let Some(rule) = self.0.get_mut(&(switch, label)).filter(|rule| !rule.absent) else { return false };
        rule.absent = true;
        cx.count_rules(switch, -1);
        true
    }

    /// The session to a switch was lost. It is unknown whether it received the unconfirmed rules.
    pub(crate) fn session_lost(&mut self, switch: NodeId) {
        let all = (switch, 0)..=(switch, u16::MAX);
        self.0.range_mut(all).for_each(|(_, rule)| rule.confirmed = false);
    }

    /// Compares the rules of labels that a switch has with those that it should have.
    pub(crate) fn reconcile(&mut self, cx: &mut Context, switch: NodeId, rules: &[Rule]) {
        let kind = |rule: &&Rule| Cookie::decode(rule.cookie).is_some_and(|cookie| cookie.kind == RuleKind::Label);
        let epoch = cx.config.epoch;
        let is_old =
            |rule: &Rule| Cookie::decode(rule.cookie).is_some_and(|cookie| epoch_and_serial(cookie.flow).0 != epoch);
        let mut found: BTreeMap<u16, (Next, bool)> = BTreeMap::new();
        for rule in rules.iter().filter(kind) {
            match read(rule).filter(|_| rule.priority == cx.config.priorities.flow) {
                Some((label, next)) => drop(found.insert(label, (next, is_old(rule)))),
                None => drop(cx.delete_rule(switch, rule.key())),
            }
        }
        let all = (switch, 0)..=(switch, u16::MAX);
        let known: Vec<(u16, LabelRule)> = self.0.range(all).map(|(&(_, label), &rule)| (label, rule)).collect();
        for (label, rule) in known {
            match (found.remove(&label), rule.next) {
                (Some((there, inherited)), wanted) if wanted.is_none_or(|wanted| wanted == there) => {
                    let same = LabelRule { next: Some(there), confirmed: true, absent: false, inherited, ..rule };
                    self.0.insert((switch, label), same);
                    cx.count_rules(switch, i32::from(rule.absent));
                }
                (_, Some(_)) if !rule.absent => self.send(cx, switch, label),
                _ => drop(self.note_absent(cx, switch, label)),
            }
        }
        for (label, (next, inherited)) in found {
            let unclaimed = LabelRule { confirmed: true, inherited, ..LabelRule::new(Some(next)) };
            self.0.insert((switch, label), unclaimed);
            cx.count_rules(switch, 1);
            await_claim(cx, switch, label);
        }
    }

    /// Whether a rule belongs to a label and the switch should have it.
    pub(crate) fn wants(&self, switch: NodeId, key: &RuleKey) -> bool {
        let rule = label_of(key).and_then(|label| self.0.get(&(switch, label)));
        rule.is_some_and(|rule| !rule.absent)
    }

    /// Compares the rules of labels that a review found with those that a switch should have. Rules that were
    /// `touched` since the review began are left out.
    pub(crate) fn compare(
        &mut self,
        cx: &mut Context,
        switch: NodeId,
        rules: &[Rule],
        touched: impl Fn(&RuleKey) -> bool,
    ) -> Compared {
        let mut compared = Compared::default();
        let mut found: BTreeMap<u16, Next> = BTreeMap::new();
        for rule in rules.iter().filter(|rule| !touched(&rule.key())) {
            let label = read(rule).filter(|_| rule.priority == cx.config.priorities.flow);
            match label.filter(|_| self.wants(switch, &rule.key())) {
                Some((label, next)) => drop(found.insert(label, next)),
                // A changed rule is replaced, so it need not be deleted first.
                None if self.wants(switch, &rule.key()) => {}
                None => {
                    cx.delete_rule(switch, rule.key());
                    compared.surplus += 1;
                }
            }
        }
        let all = (switch, 0)..=(switch, u16::MAX);
        let known: Vec<(u16, LabelRule)> = self.0.range(all).map(|(&(_, label), &rule)| (label, rule)).collect();
        for (label, rule) in known {
            if rule.absent || touched(&label_key(cx.config.priorities.flow, label)) {
                continue;
            }
            match (found.get(&label), rule.next) {
                (Some(&there), wanted) if wanted.is_none_or(|wanted| wanted == there) => compared.found += 1,
                (_, Some(_)) => {
                    self.send(cx, switch, label);
                    compared.found += 1;
                    compared.restored += 1;
                }
                // Its action is unknown, and it only waits to be deleted.
                (_, None) => drop(self.note_absent(cx, switch, label)),
            }
        }
        compared
    }

    /// Deletes a rule that no flow has claimed for so long that no packet can match it. If some switch has no session,
    /// waits longer, because its unknown rules may lead to this one.
    pub(crate) fn delete_unclaimed(&mut self, cx: &mut Context, switch: NodeId, label: u16) {
        if self.0.get(&(switch, label)).is_none_or(|rule| rule.users > 0) {
            return;
        }
        let silent = |&other: &NodeId| !cx.is_ready(other);
        if cx.fabric.switches().iter().any(silent) {
            let at = cx.now.saturating_add(UNKNOWN_DRAIN);
            return cx.timers.set(at, Timer::Label { switch, label });
        }
        self.remove(cx, switch, label);
    }
}

/// Deletes a rule that a switch should have.
fn delete(cx: &mut Context, switch: NodeId, key: RuleKey) {
    cx.count_rules(switch, -1);
    if cx.is_ready(switch) {
        cx.delete_rule(switch, key);
    }
}

/// Keeps a rule that no known version needs until the flows that may use it are known and their packets have drained.
fn await_claim(cx: &mut Context, switch: NodeId, label: u16) {
    let at = cx.now.saturating_add(cx.config.drain.unwrap_or(UNKNOWN_DRAIN));
    cx.timers.set(at, Timer::Label { switch, label });
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: fn(u32) -> Next = |port| Next::Port(PortNo(port));

    fn add(labels: &mut Labels, hops: &[(NodeId, Next)]) -> Option<u16> {
        let label = labels.choose(hops)?;
        for &(at, next) in hops {
            let fresh = LabelRule::new(Some(next));
            labels.0.entry((at, label)).or_insert(fresh).users += 1;
        }
        Some(label)
    }

    #[test]
    fn paths_with_the_same_next_hops_share_a_label() {
        let [a, b, c, d] = [0, 1, 2, 3].map(NodeId);
        let mut labels = Labels::default();
        let first = add(&mut labels, &[(a, PORT(1)), (b, Next::AtTor)]);
        assert_eq!(first, Some(FIRST_LABEL));
        assert_eq!(add(&mut labels, &[(c, PORT(7)), (b, Next::AtTor)]), first, "they share the last switch");
        assert_eq!(add(&mut labels, &[(d, PORT(2)), (a, PORT(1)), (b, Next::AtTor)]), first, "and earlier");
        let other = add(&mut labels, &[(a, PORT(2)), (b, Next::AtTor)]);
        assert_eq!(other, Some(FIRST_LABEL + 1), "they have different next hops at a");
        assert_eq!(add(&mut labels, &[(a, Next::AtTor)]), Some(FIRST_LABEL + 2), "b's labels pass through a");
        assert_eq!(add(&mut labels, &[(NodeId(9), Next::AtTor)]), Some(FIRST_LABEL), "no switch in common");
    }

    #[test]
    fn labels_can_be_used_up() {
        let mut labels = Labels::default();
        let (a, b) = (NodeId(0), NodeId(1));
        for port in 0..u32::from(LAST_LABEL - FIRST_LABEL) + 1 {
            assert!(add(&mut labels, &[(a, PORT(port)), (b, Next::AtTor)]).is_some());
        }
        assert_eq!(add(&mut labels, &[(a, PORT(9999)), (b, Next::AtTor)]), None);
    }
}
