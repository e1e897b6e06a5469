//! Conversion between the controller's rules and OpenFlow messages.
//!
//! A [`Match`] applies to IPv4 only. If it matches any IP field, its OpenFlow form requires IPv4 (`eth_type`). If it
//! matches no IP field, it applies to all packets. Copies to the controller are cut to [`COPY_BYTES`].

use crate::action::Action;
use crate::flow_match::{FlowMatch, ETH_ARP, ETH_IPV4, ETH_VLAN, VLAN_PRESENT};
use crate::header::{finish, start};
use crate::instruction::{self, Instructions};
use crate::message::{error, Kind};
use crate::rule_bytes;
use crate::{
    Band, BucketMod, ErrorMessage, FlowCommand, FlowMod, FlowRemoved, FlowStats, GroupCommand, GroupDesc, GroupMod,
    GroupType, Message, MeterCommand, MeterConfig, MeterMod, PacketIn, TooLong, PORT_CONTROLLER, PORT_MAX,
    SEND_FLOW_REMOVED,
};
use pathloom_model::rules::{
    Bucket, Group, GroupId, GroupKind, Match, Meter, MeterId, Refusal, Rule, RuleAction, RuleKey,
};
use pathloom_model::{PortNo, Prefix, PROTO_TCP, PROTO_UDP};
use std::borrow::Cow;
use std::net::Ipv4Addr;

/// Length of a packet copy to the controller: Ethernet with a tag, the longest IPv4 header and the longest TCP header.
pub const COPY_BYTES: u16 = 14 + 4 + 60 + 60;
const PROTO_SCTP: u8 = 132;

/// Reason why a rule cannot be expressed in OpenFlow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UnsupportedRule {
    /// The rule matches ports, but no protocol, or one without ports in OpenFlow.
    #[error("the rule matches ports without TCP, UDP or SCTP; OpenFlow needs one of them")]
    Ports,
    /// The rule matches TCP flags of another protocol.
    #[error("the rule matches TCP flags of a protocol that is not TCP")]
    Flags,
    /// The port number is reserved or 0.
    #[error("port {0} is not a port of a switch; OpenFlow numbers ports from 1 to {PORT_MAX}")]
    Port(u32),
    /// The rule matches IPv6 addresses.
    #[error("the rule matches the IPv6 prefix {}/{}; the controller routes IPv4 only", .0.address, .0.len)]
    Ipv6(Prefix),
    /// The message would be too long.
    #[error(transparent)]
    TooLong(#[from] TooLong),
}

/// Converts a match to OpenFlow.
///
/// # Errors
/// The match has ports without TCP, UDP or SCTP, TCP flags without TCP, or IPv6 addresses.
#[inline]
pub fn match_of(matches: &Match) -> Result<FlowMatch, UnsupportedRule> {
    let mut proto = matches.proto;
    if matches.tcp_flags.is_some() {
        match proto {
            None => proto = Some(PROTO_TCP),
            Some(PROTO_TCP) => {}
            Some(_) => return Err(UnsupportedRule::Flags),
        }
    }
    let ports = matches.src_port.is_some() || matches.dst_port.is_some();
    let ip = ports || proto.is_some() || matches.src.is_some() || matches.dst.is_some() || matches.dscp.is_some();
    let mut flow = FlowMatch {
        in_port: matches.in_port.map(port).transpose()?,
        eth_type: ip.then_some(ETH_IPV4),
        vlan_vid: matches.tag.map(|tag| VLAN_PRESENT | tag),
        ip_dscp: matches.dscp,
        ip_proto: proto,
        ipv4_src: matches.src.map_or(Ok(None), prefix)?,
        ipv4_dst: matches.dst.map_or(Ok(None), prefix)?,
        tcp_flags: matches.tcp_flags.map(|(value, mask)| (u16::from(value), u16::from(mask))),
        ..FlowMatch::default()
    };
    match proto {
        _ if !ports => {}
        Some(PROTO_TCP) => (flow.tcp_src, flow.tcp_dst) = (matches.src_port, matches.dst_port),
        Some(PROTO_UDP) => (flow.udp_src, flow.udp_dst) = (matches.src_port, matches.dst_port),
        Some(PROTO_SCTP) => (flow.sctp_src, flow.sctp_dst) = (matches.src_port, matches.dst_port),
        _ => return Err(UnsupportedRule::Ports),
    }
    Ok(flow)
}

/// Returns address and mask. A prefix of no bits matches every address of IPv4, and so needs no field.
pub(crate) fn prefix(prefix: Prefix) -> Result<Option<(Ipv4Addr, Ipv4Addr)>, UnsupportedRule> {
    let address = u32::from(prefix.address.v4().ok_or(UnsupportedRule::Ipv6(prefix))?);
    let mask = u32::MAX.checked_shl(u32::from(prefix.host_bits())).unwrap_or(0);
    Ok((mask != 0).then(|| (Ipv4Addr::from(address & mask), Ipv4Addr::from(mask))))
}

fn port(port: PortNo) -> Result<u32, UnsupportedRule> {
    if (1..=PORT_MAX).contains(&port.0) {
        Ok(port.0)
    } else {
        Err(UnsupportedRule::Port(port.0))
    }
}

/// Converts a match of a switch; `None` if [`Match`] cannot express it.
pub fn read_match(flow: &FlowMatch) -> Option<Match> {
    let strange = flow.has_unsupported
        || flow.vlan_tagged
        || flow.eth_dst.is_some()
        || flow.to_station
        || flow.eth_src.is_some()
        || flow.arp_op.is_some()
        || flow.arp_spa.is_some()
        || flow.arp_tpa.is_some()
        || flow.arp_sha.is_some()
        || flow.eth_type.is_some_and(|kind| kind != ETH_IPV4);
    if strange {
        return None;
    }
    let tag = match flow.vlan_vid {
        None => None,
        Some(vid) if vid & VLAN_PRESENT != 0 => Some(vid & !VLAN_PRESENT),
        Some(_) => return None,
    };
    let read_prefix = |pair: Option<(Ipv4Addr, Ipv4Addr)>| match pair {
        None => Some(None),
        Some((address, mask)) => {
            let mask = u32::from(mask);
            (mask.leading_ones() == mask.count_ones())
                .then(|| Some(Prefix::new(address.into(), mask.count_ones() as u8)))
        }
    };
    let (mut src, dst) = (read_prefix(flow.ipv4_src)?, read_prefix(flow.ipv4_dst)?);
    let ports = (flow.tcp_src.or(flow.udp_src).or(flow.sctp_src), flow.tcp_dst.or(flow.udp_dst).or(flow.sctp_dst));
    let tcp_flags = match flow.tcp_flags {
        None => None,
        Some((value, mask)) => Some((value as u8, u8::try_from(mask).ok()?)),
    };
    if flow.eth_type.is_some() && src.is_none() && dst.is_none() && flow.ip_proto.is_none() && flow.ip_dscp.is_none() {
        // The match includes every IPv4 packet.
        src = Some(Prefix::ALL_V4);
    }
    Some(Match {
        in_port: flow.in_port.map(PortNo),
        src,
        dst,
        proto: flow.ip_proto,
        src_port: ports.0,
        dst_port: ports.1,
        dscp: flow.ip_dscp,
        tcp_flags,
        tag,
    })
}

#[inline]
fn emit_actions(actions: &[RuleAction], out: &mut Vec<u8>) -> Result<(), UnsupportedRule> {
    for action in actions {
        match *action {
            RuleAction::Output(to) => Action::Output { port: port(to)?, max_len: 0 }.emit(out),
            RuleAction::Group(GroupId(group)) => Action::Group(group).emit(out),
            RuleAction::Copy => Action::Output { port: PORT_CONTROLLER, max_len: COPY_BYTES }.emit(out),
            RuleAction::SetTag(tag) => {
                Action::PushVlan(ETH_VLAN).emit(out);
                Action::SetVlanVid(VLAN_PRESENT | tag).emit(out);
            }
            RuleAction::PopTag => Action::PopVlan.emit(out),
        }
    }
    Ok(())
}

fn actions_of(actions: &[RuleAction]) -> Result<Vec<Action>, UnsupportedRule> {
    let mut bytes = Vec::new();
    emit_actions(actions, &mut bytes)?;
    // The bytes were just written, so they can be parsed.
    Ok(Action::parse_all(&bytes).unwrap_or_default())
}

fn read_actions(actions: &[Action]) -> Option<Vec<RuleAction>> {
    let mut read = Vec::with_capacity(actions.len());
    let mut rest = actions.iter();
    while let Some(action) = rest.next() {
        read.push(match *action {
            Action::Output { port: PORT_CONTROLLER, .. } => RuleAction::Copy,
            Action::Output { port, .. } if (1..=PORT_MAX).contains(&port) => RuleAction::Output(PortNo(port)),
            Action::Group(group) => RuleAction::Group(GroupId(group)),
            Action::PushVlan(ETH_VLAN) => match rest.next() {
                Some(Action::SetVlanVid(vid)) => RuleAction::SetTag(vid & !VLAN_PRESENT),
                _ => return None,
            },
            Action::PopVlan => RuleAction::PopTag,
            _ => return None,
        });
    }
    Some(read)
}

/// Appends the flow-mod that adds `rule`, without allocations.
///
/// # Errors
/// OpenFlow cannot express the rule. Then nothing is appended.
#[inline]
pub fn emit_add_rule(rule: &Rule, xid: u32, out: &mut Vec<u8>) -> Result<(), UnsupportedRule> {
    if rule_bytes::add(rule, xid, out)? {
        return Ok(());
    }
    emit_add_rule_long(rule, xid, out)
}

/// As [`emit_add_rule`], with [`FlowMatch`] and [`Action`] as intermediate forms.
pub(crate) fn emit_add_rule_long(rule: &Rule, xid: u32, out: &mut Vec<u8>) -> Result<(), UnsupportedRule> {
    let matches = match_of(&rule.matches)?;
    let at = start(Kind::FLOW_MOD, xid, out);
    FlowMod {
        cookie: rule.cookie,
        table: rule.table,
        idle_timeout_s: rule.idle_timeout_s,
        hard_timeout_s: rule.hard_timeout_s,
        priority: rule.priority,
        flags: if rule.notify_removal { SEND_FLOW_REMOVED } else { 0 },
        ..FlowMod::NOTHING
    }
    .emit_fixed(out);
    matches.emit(out);
    let mut done = Ok(());
    let meter = rule.meter.map(|meter| meter.0);
    instruction::emit(meter, rule.goto, !rule.actions.is_empty(), out, |out| done = emit_actions(&rule.actions, out));
    if done.is_err() {
        out.truncate(at);
        return done;
    }
    Ok(finish(at, out)?)
}

/// Appends the flow-mod that deletes exactly this rule.
///
/// # Errors
/// OpenFlow cannot express the rule. Then nothing is appended.
#[inline]
pub fn emit_delete_rule(key: &RuleKey, xid: u32, out: &mut Vec<u8>) -> Result<(), UnsupportedRule> {
    rule_bytes::delete(key, xid, out)
}

/// As [`emit_delete_rule`], with [`FlowMatch`] as an intermediate form.
#[cfg(test)]
pub(crate) fn emit_delete_rule_long(key: &RuleKey, xid: u32, out: &mut Vec<u8>) -> Result<(), UnsupportedRule> {
    let matches = match_of(&key.matches)?;
    let at = start(Kind::FLOW_MOD, xid, out);
    FlowMod { table: key.table, command: FlowCommand::DeleteStrict, priority: key.priority, ..FlowMod::NOTHING }
        .emit_fixed(out);
    matches.emit(out);
    Ok(finish(at, out)?)
}

/// Returns the rule that forwards ARP for the destination addresses of a route as the route forwards packets to them. It
/// has no cookie, and the switch does not report its removal.
///
/// # Errors
/// OpenFlow cannot express the actions.
pub fn arp_route(route: &Rule) -> Result<FlowMod<'static>, UnsupportedRule> {
    let instructions = Instructions { apply: Cow::Owned(actions_of(&route.actions)?), ..Instructions::default() };
    Ok(FlowMod { instructions, ..arp_route_key(&route.key())? })
}

/// Returns the message that deletes the rule of [`arp_route`].
///
/// # Errors
/// The route is of IPv6.
pub fn arp_route_delete(route: &RuleKey) -> Result<FlowMod<'static>, UnsupportedRule> {
    Ok(FlowMod { command: FlowCommand::DeleteStrict, ..arp_route_key(route)? })
}

fn arp_route_key(route: &RuleKey) -> Result<FlowMod<'static>, UnsupportedRule> {
    let arp_tpa = route.matches.dst.map_or(Ok(None), prefix)?;
    let matches = FlowMatch { eth_type: Some(ETH_ARP), arp_tpa, ..FlowMatch::default() };
    Ok(FlowMod { table: route.table, priority: route.priority, matches, ..FlowMod::NOTHING })
}

/// Returns the message that adds a group to a switch, or replaces it if it `exists`.
///
/// # Errors
/// OpenFlow cannot express the group.
pub fn group_mod(group: &Group, exists: bool) -> Result<Message<'static>, UnsupportedRule> {
    let bucket = |bucket: &Bucket| {
        let watch_port = bucket.watch_port.map(port).transpose()?;
        // §5.6.1: only select groups have weights.
        let weight = if group.kind == GroupKind::Select { bucket.weight } else { 0 };
        Ok(BucketMod { weight, watch_port, watch_group: None, actions: actions_of(&bucket.actions)? })
    };
    let buckets = group.buckets.iter().map(bucket).collect::<Result<_, UnsupportedRule>>()?;
    let command = if exists { GroupCommand::Modify } else { GroupCommand::Add };
    let kind = match group.kind {
        GroupKind::Select => GroupType::Select,
        GroupKind::FastFailover => GroupType::FastFailover,
        GroupKind::All => GroupType::All,
    };
    Ok(Message::GroupMod(GroupMod { command, kind, id: group.id.0, buckets }))
}

/// Returns the message that deletes a group.
pub fn group_delete(group: GroupId) -> Message<'static> {
    let (command, kind) = (GroupCommand::Delete, GroupType::All);
    Message::GroupMod(GroupMod { command, kind, id: group.0, buckets: Vec::new() })
}

/// Returns the message that adds a meter, or replaces it if it `exists`. Rates are rounded up to whole kbit/s, bursts
/// to whole kbit.
pub fn meter_mod(meter: &Meter, exists: bool) -> Message<'static> {
    let kilo = |number: u64| u32::try_from(number.div_ceil(1000)).unwrap_or(u32::MAX).max(1);
    let band = Band { rate_kbps: kilo(meter.rate_bps), burst_kbit: kilo(meter.burst_bytes.saturating_mul(8)) };
    let command = if exists { MeterCommand::Modify } else { MeterCommand::Add };
    Message::MeterMod(MeterMod { command, id: meter.id.0, bands: vec![band] })
}

/// Returns the message that deletes a meter.
pub fn meter_delete(meter: MeterId) -> Message<'static> {
    Message::MeterMod(MeterMod { command: MeterCommand::Delete, id: meter.0, bands: Vec::new() })
}

/// Converts a rule of a switch; `None` if [`Rule`] cannot express it.
pub fn read_rule(stats: &FlowStats) -> Option<Rule> {
    if stats.instructions.has_unsupported {
        return None;
    }
    Some(Rule {
        table: stats.table,
        priority: stats.priority,
        matches: read_match(&stats.matches)?,
        actions: read_actions(&stats.instructions.apply)?.into(),
        goto: stats.instructions.goto_table,
        meter: stats.instructions.meter.map(MeterId),
        idle_timeout_s: stats.idle_timeout_s,
        hard_timeout_s: stats.hard_timeout_s,
        cookie: stats.cookie,
        notify_removal: stats.flags & SEND_FLOW_REMOVED != 0,
    })
}

/// Returns the key of the rule in a row or a notice; `None` if [`Match`] cannot express it.
pub fn read_key(table: u8, priority: u16, matches: &FlowMatch) -> Option<RuleKey> {
    Some(RuleKey { table, priority, matches: read_match(matches)? })
}

/// Returns the key of a removed rule.
pub fn removed_key(removed: &FlowRemoved) -> Option<RuleKey> {
    read_key(removed.table, removed.priority, &removed.matches)
}

/// Converts a group of a switch; `None` if [`Group`] cannot express it.
pub fn read_group(group: &GroupDesc) -> Option<Group> {
    let kind = match group.kind {
        GroupType::Select => GroupKind::Select,
        GroupType::FastFailover => GroupKind::FastFailover,
        GroupType::All => GroupKind::All,
        GroupType::Indirect => return None,
    };
    let bucket = |bucket: &BucketMod| {
        let watch_port = bucket.watch_port.map(PortNo);
        Some(Bucket { weight: bucket.weight, watch_port, actions: read_actions(&bucket.actions)? })
    };
    let buckets = group.buckets.iter().map(bucket).collect::<Option<_>>()?;
    Some(Group { id: GroupId(group.id), kind, buckets })
}

/// Converts a meter of a switch; `None` if [`Meter`] cannot express it.
pub fn read_meter(meter: &MeterConfig) -> Option<Meter> {
    let [band] = meter.bands[..] else { return None };
    let burst_bytes = u64::from(band.burst_kbit) * 125;
    Some(Meter { id: MeterId(meter.id), rate_bps: u64::from(band.rate_kbps) * 1000, burst_bytes })
}

/// Returns the port where the packet of a packet-in arrived.
#[inline]
pub fn in_port(packet: &PacketIn<'_>) -> Option<PortNo> {
    packet.matches.in_port.filter(|port| (1..=PORT_MAX).contains(port)).map(PortNo)
}

/// Whether a refused request may succeed later: the controller lacks the permission or the role, or the answer did not fit the
/// switch's memory now (§A.4.4: OFPBRC_EPERM, OFPBRC_IS_SLAVE, OFPBRC_MULTIPART_BUFFER_OVERFLOW). Other refusals of a list
/// say that the switch has nothing to list, such as one without meters.
pub fn may_succeed_later(error: &ErrorMessage<'_>) -> bool {
    refusal(error) == Refusal::NotPermitted || (error.kind, error.code) == (error::BAD_REQUEST, 13)
}

/// Returns the meaning of an error for a controller (§A.4.4). Errors without a specific meaning are
/// [`Refusal::Unsupported`]. The data of the error, which begins with the header of the refused message, distinguishes
/// a refused group or meter from a refused rule where the code does not.
pub fn refusal(error: &ErrorMessage<'_>) -> Refusal {
    let refused = error.data.get(1).copied();
    match (error.kind, error.code) {
        (error::FLOW_MOD_FAILED, 1) => Refusal::TableFull,
        (error::BAD_REQUEST, 5 | 10)
        | (error::BAD_ACTION, 6)
        | (error::BAD_INSTRUCTION, 8)
        | (error::BAD_MATCH, 11)
        | (error::FLOW_MOD_FAILED, 4)
        | (error::GROUP_MOD_FAILED, 14) => Refusal::NotPermitted,
        (error::FLOW_MOD_FAILED, 2) | (error::BAD_INSTRUCTION, 2) | (error::BAD_REQUEST, 9) => Refusal::BadTable,
        (error::BAD_ACTION, 4) | (error::GROUP_MOD_FAILED, 13) => Refusal::BadPort,
        (error::BAD_ACTION, 9) | (error::GROUP_MOD_FAILED, 8) => Refusal::UnknownGroup,
        (error::GROUP_MOD_FAILED, 0) | (error::METER_MOD_FAILED, 1) => Refusal::Exists,
        (error::GROUP_MOD_FAILED, 3) => Refusal::GroupsFull,
        // The identifier, the type, the weights, the number or the actions of buckets, or a loop of groups.
        (error::GROUP_MOD_FAILED, _) => Refusal::GroupUnsupported,
        (error::METER_MOD_FAILED, 3) => Refusal::UnknownMeter,
        // Open vSwitch answers a rule with an unknown meter with OFPMMFC_INVALID_METER.
        (error::METER_MOD_FAILED, 2) if refused == Some(Kind::FLOW_MOD) => Refusal::UnknownMeter,
        (error::METER_MOD_FAILED, 10) => Refusal::MetersFull,
        // The identifier, the flags, the rate, the burst or the bands.
        (error::METER_MOD_FAILED, _) => Refusal::MeterUnsupported,
        // A switch without groups or meters does not know the message; one with them may not know an action of a bucket.
        (error::BAD_REQUEST | error::BAD_ACTION, _) if refused == Some(Kind::GROUP_MOD) => Refusal::GroupUnsupported,
        (error::BAD_REQUEST, _) if refused == Some(Kind::METER_MOD) => Refusal::MeterUnsupported,
        _ => Refusal::Unsupported,
    }
}

/// Something that a switch does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Absent {
    /// A group with this identifier.
    Group(u32),
    /// A meter with this identifier.
    Meter(u32),
}

/// Returns the group or meter that a switch does not have, because it refused to add it, or to modify it as unknown. The
/// data of an error begins with the refused message (§7.4.4).
pub fn absent(error: &ErrorMessage<'_>) -> Option<Absent> {
    const ADD: u16 = 0;
    // The header, the command, two other bytes and the identifier.
    let head = error.data.first_chunk::<16>()?;
    let is_addition = u16::from_be_bytes([head[8], head[9]]) == ADD;
    let id = u32::from_be_bytes([head[12], head[13], head[14], head[15]]);
    let (unknown, absent) = match head[1] {
        Kind::GROUP_MOD => (Refusal::UnknownGroup, Absent::Group(id)),
        Kind::METER_MOD => (Refusal::UnknownMeter, Absent::Meter(id)),
        _ => return None,
    };
    let why = refusal(error);
    (why == unknown || is_addition && why != Refusal::Exists).then_some(absent)
}
