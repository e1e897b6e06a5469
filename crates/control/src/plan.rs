//! Makes rules from paths, and the steps from an old path to a new one without lost or looping packets.
//!
//! A path has a version: the number of its plan, and a VLAN tag of its own. The source ToR sets the tag. The switches
//! after it match five-tuple and tag, and the last switch removes the tag. Therefore a packet never matches rules of
//! two versions of one flow. It uses one version from end to end, whichever switches both versions have in common and
//! in whatever order (two-phase update: Reitblatt et al., SIGCOMM 2012, §5). A flow is moved as follows:
//!
//! 1. add the rules of the new version at all switches except the first, because no packet has its tag yet;
//! 2. when all are confirmed, add the new rule at the source ToR, beside the old rule;
//! 3. when this is confirmed, delete the old rule there;
//! 4. when this is confirmed and the packets in transit have drained, delete the other rules of the old version.
//!
//! A flow can also be moved in place, with one tag for both versions: see [`crate::sfmm`].
//!
//! Packets on the default routes have no tag, so a move from or to the default routes needs the same steps. At the
//! source ToR, the rules of a flow differ in priority ("level"). The new level can be higher, so that the flow
//! moves at step 2, or lower, so that it moves at step 3. For packets this makes no difference, so levels are reused
//! and never run out.

use crate::config::Priorities;
use crate::cookies::{Cookie, RuleKind, PLANS};
use crate::tables::{self, DEFAULTS, LONG_FLOWS};
use pathloom_model::rules::{Actions, Match, MeterId, Rule, RuleAction, RuleKey};
use pathloom_model::units::PS_PER_NS;
use pathloom_model::{Attachment, Fabric, FiveTuple, LinkId, LinkSettings, Nanos, NodeId, Path};
use pathloom_scheme::FlowId;
use serde::{Deserialize, Serialize};

/// Number of levels: priorities for the rules of one flow at its source ToR.
pub const LEVELS: u8 = 4;

/// Data from which the rules of one flow are made.
#[derive(Clone, Copy, Debug)]
pub struct FlowKey {
    /// The flow.
    pub id: FlowId,
    /// Its five-tuple.
    pub five_tuple: FiveTuple,
    /// Place of the sender.
    pub src: Attachment,
    /// Place of the receiver.
    pub dst: Attachment,
    /// Meter that its packets pass at the source ToR.
    pub meter: Option<MeterId>,
}

/// One version of a flow's route.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Version {
    /// Number of its plan, modulo [`PLANS`].
    pub plan: u8,
    /// Its path; `None` for the default routes.
    pub path: Option<Path>,
    /// Tag of its packets after the source ToR. It is the [`tag`] of its plan, the tag of the version from which it
    /// was moved in place ([`crate::sfmm`]), or a label that it shares with other flows ([`crate::labels`]).
    pub tag: u16,
    /// Whether its rules after the source ToR have the priority below the normal one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub low: bool,
    /// Switches of its path whose rules have already been deleted.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub cut: Box<[NodeId]>,
}

impl Version {
    /// Creates a version with its own tag.
    pub fn new(plan: u8, path: Option<Path>) -> Version {
        Version { plan, path, tag: tag(plan), low: false, cut: Box::default() }
    }

    /// Whether it has a rule at a switch after the source ToR.
    pub(crate) fn stands_at(&self, fabric: &Fabric, switch: NodeId) -> bool {
        let links = self.path.as_ref().map_or(&[][..], Path::links);
        !self.cut.contains(&switch) && links.iter().any(|&link| fabric.link(link).to == switch)
    }
}

/// A rule to add or to delete.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Add the rule.
    Add(NodeId, Rule),
    /// Delete the rule.
    Delete(NodeId, RuleKey),
}

/// Makes the rules of flows on a fabric.
#[derive(Clone, Copy)]
pub struct Planner<'a> {
    /// The fabric.
    pub fabric: &'a Fabric,
    /// Priorities of the rules.
    pub priorities: Priorities,
    /// Idle time-out, in seconds, of the source ToR's rule for a flow on the default routes.
    pub idle_timeout_s: u16,
    /// Idle time-out, in seconds, of the source ToR's rule for a flow on a path.
    pub path_idle_timeout_s: u16,
    /// Whether switches report the removal of rules without a time-out.
    pub watched: bool,
}

impl Planner<'_> {
    /// Returns the rule of a version at the source ToR. It counts the flow, and its idle time-out shows when the flow
    /// is over.
    pub fn source(&self, flow: &FlowKey, version: &Version, level: u8) -> Rule {
        let out = |path: &Path| match path.links().first() {
            Some(&link) => {
                [RuleAction::SetTag(version.tag), RuleAction::Output(self.fabric.link(link).from_port)].into()
            }
            None => [RuleAction::Output(self.fabric.link(flow.dst.uplink).to_port)].into(),
        };
        let (actions, goto) = version.path.as_ref().map_or((Actions::NONE, Some(DEFAULTS)), |path| (out(path), None));
        let priority = self.priorities.flow + u16::from(level);
        let mut rule = tables::rule(LONG_FLOWS, priority, Match::five_tuple(flow.five_tuple), actions, goto);
        rule.cookie = Cookie { kind: RuleKind::Source, flow: flow.id, plan: version.plan }.encode();
        rule.idle_timeout_s = if version.path.is_some() { self.path_idle_timeout_s } else { self.idle_timeout_s };
        rule.meter = flow.meter;
        rule.notify_removal = true;
        rule
    }

    /// Returns the key of the rule that [`Planner::source`] makes.
    pub fn source_key(&self, flow: &FlowKey, level: u8) -> RuleKey {
        let priority = self.priorities.flow + u16::from(level);
        RuleKey { table: LONG_FLOWS, priority, matches: Match::five_tuple(flow.five_tuple) }
    }

    /// Returns the rules of a version at the switches after the source ToR, unless they are shared
    /// ([`crate::labels`]). They have no idle time-out: a switch after a queue with losses sees fewer packets of the
    /// flow than the source ToR, and must not delete its rule earlier.
    pub fn hops<'b>(&'b self, flow: &'b FlowKey, version: &'b Version) -> impl Iterator<Item = (NodeId, Rule)> + 'b {
        let links = version.path.as_ref().filter(|_| !version.is_shared()).map_or(&[][..], Path::links);
        let cookie = Cookie { kind: RuleKind::Hop, flow: flow.id, plan: version.plan }.encode();
        let key = self.hop_key(flow.five_tuple, version);
        let standing = move |&(_, link): &(usize, &LinkId)| !version.cut.contains(&self.fabric.link(*link).to);
        links.iter().enumerate().filter(standing).map(move |(index, &link)| {
            let actions = match links.get(index + 1) {
                Some(&next) => [RuleAction::Output(self.fabric.link(next).from_port)].into(),
                None => [RuleAction::PopTag, RuleAction::Output(self.fabric.link(flow.dst.uplink).to_port)].into(),
            };
            let mut rule = tables::rule(key.table, key.priority, key.matches, actions, None);
            (rule.cookie, rule.notify_removal) = (cookie, self.watched);
            (self.fabric.link(link).to, rule)
        })
    }

    /// Returns the key of the rules that [`Planner::hops`] makes.
    pub fn hop_key(&self, five_tuple: FiveTuple, version: &Version) -> RuleKey {
        let matches = Match { tag: Some(version.tag), ..Match::five_tuple(five_tuple) };
        RuleKey { table: LONG_FLOWS, priority: self.priorities.hop(version.low), matches }
    }

    /// Longest time that packets of a version can be in transit, if all queues on the path are full.
    pub fn worst_delay(&self, flow: &FlowKey, path: &Path) -> Nanos {
        let access = [flow.src.uplink, flow.dst.uplink.reverse()];
        let delay_ps = path.links().iter().chain(&access).map(|&link| worst_ps(&self.fabric.link(link).settings));
        Nanos(delay_ps.fold(0, u64::saturating_add) / PS_PER_NS)
    }
}

/// Longest time that a packet needs on any link of a fabric, if the queue before the link is full.
pub(crate) fn slowest_link(fabric: &Fabric) -> Nanos {
    let used = fabric.links().iter().filter(|link| link.settings.rate_bps > 0);
    Nanos(used.map(|link| worst_ps(&link.settings)).max().unwrap_or(0) / PS_PER_NS + 1)
}

fn worst_ps(settings: &LinkSettings) -> u64 {
    let bits = (u64::from(settings.buffer_packets) + 2) * FRAME_BITS;
    let queue_ps = u128::from(bits) * 1_000_000_000_000 / u128::from(settings.rate_bps.max(1));
    settings.delay_ps.saturating_add(u64::try_from(queue_ps).unwrap_or(u64::MAX))
}

/// Bits of the longest frame.
const FRAME_BITS: u64 = 1518 * 8;

/// Returns the tag of a plan. Tags 0 and 1 are not used: 0 means no tag, and switches use 1 by default (IEEE
/// 802.1Q-2018 §9.6).
pub fn tag(plan: u8) -> u16 {
    2 + u16::from(plan % PLANS)
}

/// Returns the plan of a tag, if the tag belongs to a plan.
pub fn plan_of_tag(tag: u16) -> Option<u8> {
    tag.checked_sub(2).filter(|&plan| plan < u16::from(PLANS)).map(|plan| plan as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_fabrics::fabric_from_spec;
    use pathloom_model::PROTO_TCP;

    fn planner(fabric: &Fabric) -> Planner<'_> {
        let (priorities, idle_timeout_s) = (Priorities::default(), 10);
        Planner { fabric, priorities, idle_timeout_s, path_idle_timeout_s: idle_timeout_s, watched: false }
    }

    #[test]
    fn a_version_has_a_tag_from_its_source_tor_to_the_last_switch() {
        let fabric = fabric_from_spec("leaf-spine:spines=2,leaves=2,hosts=1").unwrap();
        let (src, dst) = (fabric.attachments()[0], fabric.attachments()[1]);
        let five_tuple = FiveTuple::new(PROTO_TCP, (src.address, 1), (dst.address, 2));
        let flow = FlowKey { id: FlowId(1), five_tuple, src, dst, meter: None };
        let planner = planner(&fabric);
        let spine = *fabric.switches().last().unwrap();
        let up = fabric.link_between(src.tor, spine).unwrap();
        let path = Path::new([up, fabric.link_between(spine, dst.tor).unwrap()]);
        let new = Version::new(5, Some(path));
        let hops: Vec<_> = planner.hops(&flow, &new).map(|(switch, rule)| (switch, rule.matches.tag)).collect();
        assert_eq!(hops, [(spine, Some(7)), (dst.tor, Some(7))]);
        let source = planner.source(&flow, &new, 1);
        assert_eq!(source.actions, [RuleAction::SetTag(7), RuleAction::Output(fabric.link(up).from_port)]);
        assert_eq!(source.key(), planner.source_key(&flow, 1));
        let (last, rule) = planner.hops(&flow, &new).last().unwrap();
        assert_eq!(
            (last, rule.actions[0], rule.key()),
            (dst.tor, RuleAction::PopTag, planner.hop_key(five_tuple, &new))
        );
    }

    #[test]
    fn tags_of_plans_have_no_other_meaning() {
        for plan in 0..PLANS {
            assert!((2..=4094).contains(&tag(plan)));
            assert_eq!(plan_of_tag(tag(plan)), Some(plan));
        }
        assert_eq!([0, 1, 2 + u16::from(PLANS)].map(plan_of_tag), [None; 3]);
    }

    #[test]
    fn the_worst_delay_is_that_of_full_queues() {
        let spec = "leaf-spine:spines=1,leaves=2,hosts=1,rate=10Mbps,buffer=98,delay=1ms";
        let fabric = fabric_from_spec(spec).unwrap();
        let (src, dst) = (fabric.attachments()[0], fabric.attachments()[1]);
        let five_tuple = FiveTuple::new(PROTO_TCP, (src.address, 1), (dst.address, 2));
        let flow = FlowKey { id: FlowId(1), five_tuple, src, dst, meter: None };
        let planner = planner(&fabric);
        let spine = *fabric.switches().last().unwrap();
        let links = [(src.tor, spine), (spine, dst.tor)].map(|(a, b)| fabric.link_between(a, b).unwrap());
        // Four links of 1 ms, each with 100 frames of 1518 bytes at 10 Mbit/s in its queue.
        let expected = Nanos(4 * (100 * 1518 * 800 + 1_000_000));
        assert_eq!(planner.worst_delay(&flow, &Path::new(links)), expected);
    }
}
