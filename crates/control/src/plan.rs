//! From a path to rules, and from an old path to a new one without a packet lost or sent round.
//!
//! A path has a version: the number of the plan that made it, and a VLAN tag of its own. Its source ToR puts the tag
//! on, the switches after it match five-tuple and tag, and the last one takes it off. So rules of two versions of one
//! flow never meet: a packet takes one version from end to end, whichever switches both of them visit and in whatever
//! order (two-phase update: Reitblatt et al., SIGCOMM 2012, §5). Moving a flow is then
//!
//! 1. add the rules of the new version at all switches but the first: no packet bears its tag yet;
//! 2. when all are confirmed, add the new rule at the source ToR, beside the old one;
//! 3. when that is confirmed, delete the old rule there;
//! 4. when that is confirmed and the packets under way have drained, delete the rest of the old version.
//!
//! A flow may also be moved in place, with one tag for both versions: see [`crate::sfmm`].
//!
//! Packets on the default routes bear no tag, so moving from or to the defaults is the same. At the source ToR, rules
//! of a flow differ in priority ("level"). Whether the new level is higher (the flow moves at step 2) or lower (it
//! moves at step 3) makes no difference to a packet, and so levels are used again and never run out.

use crate::config::Priorities;
use crate::cookies::{Cookie, RuleKind, PLANS};
use crate::tables::{self, DEFAULTS, LONG_FLOWS};
use pathloom_model::rules::{Actions, Match, MeterId, Rule, RuleAction, RuleKey};
use pathloom_model::units::PS_PER_NS;
use pathloom_model::{Attachment, Fabric, FiveTuple, LinkId, LinkSettings, Nanos, NodeId, Path};
use pathloom_scheme::FlowId;
use serde::{Deserialize, Serialize};

/// Number of levels, that is of priorities in use for the rules of one flow at its source ToR.
pub const LEVELS: u8 = 4;

/// What the rules of one flow are made of.
#[derive(Clone, Copy, Debug)]
pub struct FlowKey {
    /// The flow.
    pub id: FlowId,
    /// Its five-tuple.
    pub five_tuple: FiveTuple,
    /// Where it comes from.
    pub src: Attachment,
    /// Where it goes.
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
    /// Tag that its packets bear after the source ToR: [`tag`] of its plan, or of that of the version it was migrated from
    /// in place ([`crate::sfmm`]), or a label that it shares with others ([`crate::labels`]).
    pub tag: u16,
    /// Whether its rules after the source ToR have the priority below the normal one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub low: bool,
    /// Switches of its path where its rules have been deleted already.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub cut: Box<[NodeId]>,
}

impl Version {
    /// A version with a tag of its own.
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

/// How rules are made in this fabric.
#[derive(Clone, Copy)]
pub struct Planner<'a> {
    /// The fabric.
    pub fabric: &'a Fabric,
    /// Priorities of the rules.
    pub priorities: Priorities,
    /// Idle time-out of the rule at the source ToR that counts a flow on the default routes.
    pub idle_timeout_s: u16,
    /// Idle time-out of the one that leads it onto a path.
    pub path_idle_timeout_s: u16,
    /// Whether switches tell when a rule without a time-out is gone.
    pub watched: bool,
}

impl Planner<'_> {
    /// The rule of a version at the source ToR: it counts the flow, and its idle time-out says when the flow is over.
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

    /// What names [`Planner::source`].
    pub fn source_key(&self, flow: &FlowKey, level: u8) -> RuleKey {
        let priority = self.priorities.flow + u16::from(level);
        RuleKey { table: LONG_FLOWS, priority, matches: Match::five_tuple(flow.five_tuple) }
    }

    /// The rules of a version at the switches after the source ToR, if it does not share them ([`crate::labels`]). They have
    /// no idle time-out: a switch beyond a lossy queue sees less of the flow than the source does, and must not forget it
    /// first.
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

    /// What names each of [`Planner::hops`].
    pub fn hop_key(&self, five_tuple: FiveTuple, version: &Version) -> RuleKey {
        let matches = Match { tag: Some(version.tag), ..Match::five_tuple(five_tuple) };
        RuleKey { table: LONG_FLOWS, priority: self.priorities.hop(version.low), matches }
    }

    /// How long packets of a version may be under way, if every queue before them is full.
    pub fn worst_delay(&self, flow: &FlowKey, path: &Path) -> Nanos {
        let access = [flow.src.uplink, flow.dst.uplink.reverse()];
        let delay_ps = path.links().iter().chain(&access).map(|&link| worst_ps(&self.fabric.link(link).settings));
        Nanos(delay_ps.fold(0, u64::saturating_add) / PS_PER_NS)
    }
}

/// How long a packet may take over any link of a fabric, if the queue before it is full.
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

/// The tag of a plan. 0 means no tag and 1 is what switches use by themselves (IEEE 802.1Q-2018 §9.6), so both are left
/// out.
pub fn tag(plan: u8) -> u16 {
    2 + u16::from(plan % PLANS)
}

/// The plan of a tag, if it is one of ours.
pub fn plan_of_tag(tag: u16) -> Option<u8> {
    tag.checked_sub(2).filter(|&plan| plan < u16::from(PLANS)).map(|plan| plan as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_model::{fabric_from_spec, PROTO_TCP};

    fn planner(fabric: &Fabric) -> Planner<'_> {
        let (priorities, idle_timeout_s) = (Priorities::default(), 10);
        Planner { fabric, priorities, idle_timeout_s, path_idle_timeout_s: idle_timeout_s, watched: false }
    }

    #[test]
    fn a_version_has_a_tag_from_its_source_tor_to_the_last_switch() {
        let fabric = fabric_from_spec("leaf-spine:spines=2,leaves=2,hosts=1").unwrap();
        let (src, dst) = (fabric.attachments()[0], fabric.attachments()[1]);
        let five_tuple = FiveTuple { src: src.address, dst: dst.address, proto: PROTO_TCP, src_port: 1, dst_port: 2 };
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
    fn tags_are_never_those_with_a_meaning_of_their_own() {
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
        let five_tuple = FiveTuple { src: src.address, dst: dst.address, proto: PROTO_TCP, src_port: 1, dst_port: 2 };
        let flow = FlowKey { id: FlowId(1), five_tuple, src, dst, meter: None };
        let planner = planner(&fabric);
        let spine = *fabric.switches().last().unwrap();
        let links = [(src.tor, spine), (spine, dst.tor)].map(|(a, b)| fabric.link_between(a, b).unwrap());
        // Four links, each with 100 frames of 1518 bytes at 10 Mbit/s before it, and 1 ms long.
        let expected = Nanos(4 * (100 * 1518 * 800 + 1_000_000));
        assert_eq!(planner.worst_delay(&flow, &Path::new(links)), expected);
    }
}
