//! Writes the flow-mod of a rule directly from the rule: the most frequent work of a controller that sets up paths.
//!
//! The message is built in a buffer of fixed size, so that no growing buffer is checked for each byte. A rule with
//! many actions does not fit; it uses the general encoder ([`crate::convert`]). Both encoders give the same bytes.

use crate::convert::{prefix, UnsupportedRule, COPY_BYTES};
use crate::flow_match::{field, ETH_IPV4, ETH_VLAN, ONF, TCP_FLAGS, VLAN_PRESENT};
use crate::message::Kind;
use crate::{GROUP_ANY, NO_BUFFER, PORT_ANY, PORT_CONTROLLER, PORT_MAX, SEND_FLOW_REMOVED, VERSION};
use pathloom_model::rules::{Match, Rule, RuleAction, RuleKey};
use pathloom_model::{PortNo, PROTO_TCP, PROTO_UDP};
use std::net::Ipv4Addr;

/// Largest number of actions of a rule in this encoder.
const MOST_ACTIONS: usize = 4;
/// Bytes of the header and of the fixed part.
const HEAD_BYTES: usize = 48;
/// Space for the head, the longest match ([`Match`] has no further fields), meter, actions and next table.
const MAX_BYTES: usize = HEAD_BYTES + 88 + (8 + 8 + MOST_ACTIONS * 24 + 8);
const PROTO_SCTP: u8 = 132;

/// A message in a buffer that is always large enough.
struct FixedMessage {
    bytes: [u8; MAX_BYTES],
    len: usize,
}

impl FixedMessage {
    #[inline(always)]
    fn put<const N: usize>(&mut self, value: [u8; N]) {
        debug_assert!(self.len + N <= MAX_BYTES, "the longest message has room");
        if let Some(place) = self.bytes.get_mut(self.len..self.len + N) {
            place.copy_from_slice(&value);
            self.len += N;
        }
    }

    #[inline(always)]
    fn field1(&mut self, number: u8, value: u8) {
        self.put([0x80, 0, number << 1, 1, value]);
    }

    #[inline(always)]
    fn field2(&mut self, number: u8, value: u16) {
        let [a, b] = value.to_be_bytes();
        self.put([0x80, 0, number << 1, 2, a, b]);
    }

    #[inline(always)]
    fn field4(&mut self, number: u8, [a, b, c, d]: [u8; 4]) {
        self.put([0x80, 0, number << 1, 4, a, b, c, d]);
    }

    /// Writes the number of bytes since `start` into the length field there.
    #[inline(always)]
    fn patch_length(&mut self, start: usize) {
        let length = ((self.len - start) as u16).to_be_bytes();
        if let Some(place) = self.bytes.get_mut(start + 2..start + 4) {
            place.copy_from_slice(&length);
        }
    }
}

/// The part before the match (§A.3.4.1).
struct Head {
    cookie: u64,
    table: u8,
    command: u8,
    idle_timeout_s: u16,
    hard_timeout_s: u16,
    priority: u16,
    flags: u16,
}

/// Appends the flow-mod that adds `rule`, if it has few actions. Returns whether it did.
///
/// # Errors
/// OpenFlow cannot express the rule. Then nothing is appended.
#[inline]
pub(crate) fn add(rule: &Rule, xid: u32, out: &mut Vec<u8>) -> Result<bool, UnsupportedRule> {
    if rule.actions.len() > MOST_ACTIONS {
        return Ok(false);
    }
    let mut message = start(
        &Head {
            cookie: rule.cookie,
            table: rule.table,
            command: 0,
            idle_timeout_s: rule.idle_timeout_s,
            hard_timeout_s: rule.hard_timeout_s,
            priority: rule.priority,
            flags: if rule.notify_removal { SEND_FLOW_REMOVED } else { 0 },
        },
        xid,
    );
    put_match(&rule.matches, &mut message)?;
    if let Some(meter) = rule.meter {
        message.put([0, 6, 0, 8]);
        message.put(meter.0.to_be_bytes());
    }
    if !rule.actions.is_empty() {
        let at = message.len;
        message.put([0, 4, 0, 0, 0, 0, 0, 0]);
        for &action in &rule.actions {
            put_action(action, &mut message)?;
        }
        message.patch_length(at);
    }
    if let Some(table) = rule.goto {
        message.put([0, 1, 0, 8, table, 0, 0, 0]);
    }
    finish(message, out);
    Ok(true)
}

/// Appends the flow-mod that deletes exactly this rule.
///
/// # Errors
/// OpenFlow cannot express the rule. Then nothing is appended.
#[inline]
pub(crate) fn delete(key: &RuleKey, xid: u32, out: &mut Vec<u8>) -> Result<(), UnsupportedRule> {
    let (idle_timeout_s, hard_timeout_s) = (0, 0);
    let (table, priority) = (key.table, key.priority);
    let head = Head { cookie: 0, table, command: 4, idle_timeout_s, hard_timeout_s, priority, flags: 0 };
    let mut message = start(&head, xid);
    put_match(&key.matches, &mut message)?;
    finish(message, out);
    Ok(())
}

#[inline(always)]
fn start(head: &Head, xid: u32) -> FixedMessage {
    let mut message = FixedMessage { bytes: [0; MAX_BYTES], len: HEAD_BYTES };
    let fixed = &mut message.bytes;
    (fixed[0], fixed[1]) = (VERSION, Kind::FLOW_MOD);
    fixed[4..8].copy_from_slice(&xid.to_be_bytes());
    fixed[8..16].copy_from_slice(&head.cookie.to_be_bytes());
    (fixed[24], fixed[25]) = (head.table, head.command);
    fixed[26..28].copy_from_slice(&head.idle_timeout_s.to_be_bytes());
    fixed[28..30].copy_from_slice(&head.hard_timeout_s.to_be_bytes());
    fixed[30..32].copy_from_slice(&head.priority.to_be_bytes());
    fixed[32..36].copy_from_slice(&NO_BUFFER.to_be_bytes());
    fixed[36..40].copy_from_slice(&PORT_ANY.to_be_bytes());
    fixed[40..44].copy_from_slice(&GROUP_ANY.to_be_bytes());
    fixed[44..46].copy_from_slice(&head.flags.to_be_bytes());
    message
}

#[inline(always)]
fn finish(mut message: FixedMessage, out: &mut Vec<u8>) {
    message.patch_length(0);
    out.extend_from_slice(&message.bytes[..message.len]);
}

/// As [`crate::convert::match_of`]. Each field comes after the fields that it depends on (§A.2.3.6).
#[inline(always)]
fn put_match(matches: &Match, message: &mut FixedMessage) -> Result<(), UnsupportedRule> {
    let proto = match (matches.proto, matches.tcp_flags) {
        (None, Some(_)) => Some(PROTO_TCP),
        (Some(proto), Some(_)) if proto != PROTO_TCP => return Err(UnsupportedRule::Flags),
        (proto, _) => proto,
    };
    let in_port = matches.in_port.map(port).transpose()?;
    let ports = matches.src_port.is_some() || matches.dst_port.is_some();
    let (src_field, dst_field) = match proto {
        _ if !ports => (0, 0),
        Some(PROTO_TCP) => (field::TCP_SRC, field::TCP_DST),
        Some(PROTO_UDP) => (field::UDP_SRC, field::UDP_DST),
        Some(PROTO_SCTP) => (field::SCTP_SRC, field::SCTP_DST),
        _ => return Err(UnsupportedRule::Ports),
    };
    let at = message.len;
    message.put([0, 1, 0, 0]);
    if let Some(in_port) = in_port {
        message.field4(field::IN_PORT, in_port.to_be_bytes());
    }
    if ports || proto.is_some() || matches.src.is_some() || matches.dst.is_some() || matches.dscp.is_some() {
        message.field2(field::ETH_TYPE, ETH_IPV4);
    }
    if let Some(tag) = matches.tag {
        message.field2(field::VLAN_VID, VLAN_PRESENT | tag);
    }
    if let Some(dscp) = matches.dscp {
        message.field1(field::IP_DSCP, dscp);
    }
    if let Some(proto) = proto {
        message.field1(field::IP_PROTO, proto);
    }
    for (number, wanted) in [(field::IPV4_SRC, matches.src), (field::IPV4_DST, matches.dst)] {
        match wanted.map_or(Ok(None), prefix)? {
            Some((address, Ipv4Addr::BROADCAST)) => message.field4(number, address.octets()),
            Some((address, mask)) => {
                message.put([0x80, 0, number << 1 | 1, 8]);
                message.put(address.octets());
                message.put(mask.octets());
            }
            None => {}
        }
    }
    if let Some(port) = matches.src_port {
        message.field2(src_field, port);
    }
    if let Some(port) = matches.dst_port {
        message.field2(dst_field, port);
    }
    if let Some((value, mask)) = matches.tcp_flags {
        message.put([0xff, 0xff, TCP_FLAGS << 1 | 1, 8]);
        message.put(ONF.to_be_bytes());
        message.put([0, value, 0, mask]);
    }
    message.patch_length(at);
    // Bytes of the buffer that are not written yet are zero.
    message.len += (message.len - at).wrapping_neg() % 8;
    Ok(())
}

#[inline(always)]
fn put_action(action: RuleAction, message: &mut FixedMessage) -> Result<(), UnsupportedRule> {
    match action {
        RuleAction::Output(to) => put_output(port(to)?, 0, message),
        RuleAction::Copy => put_output(PORT_CONTROLLER, COPY_BYTES, message),
        RuleAction::Group(group) => {
            message.put([0, 22, 0, 8]);
            message.put(group.0.to_be_bytes());
        }
        RuleAction::SetTag(tag) => {
            let (kind, vid) = (ETH_VLAN.to_be_bytes(), (VLAN_PRESENT | tag).to_be_bytes());
            message.put([0, 17, 0, 8, kind[0], kind[1], 0, 0]);
            message.put([0, 25, 0, 16, 0x80, 0, field::VLAN_VID << 1, 2, vid[0], vid[1], 0, 0, 0, 0, 0, 0]);
        }
        RuleAction::PopTag => message.put([0, 18, 0, 8, 0, 0, 0, 0]),
    }
    Ok(())
}

#[inline(always)]
fn put_output(port: u32, max_len: u16, message: &mut FixedMessage) {
    let (p, m) = (port.to_be_bytes(), max_len.to_be_bytes());
    message.put([0, 0, 0, 16, p[0], p[1], p[2], p[3], m[0], m[1], 0, 0, 0, 0, 0, 0]);
}

fn port(port: PortNo) -> Result<u32, UnsupportedRule> {
    if (1..=PORT_MAX).contains(&port.0) {
        Ok(port.0)
    } else {
        Err(UnsupportedRule::Port(port.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::{emit_add_rule_long, emit_delete_rule_long};
    use pathloom_model::rules::{GroupId, MeterId};
    use pathloom_model::Prefix;
    use proptest::prelude::*;

    fn some<T: std::fmt::Debug + Clone>(values: impl Strategy<Value = T>) -> impl Strategy<Value = Option<T>> {
        prop::option::of(values)
    }

    fn prefixes() -> impl Strategy<Value = Option<Prefix>> {
        some((any::<u32>(), 0..=32u8).prop_map(|(address, len)| Prefix::new(address.into(), len)))
    }

    fn actions() -> impl Strategy<Value = RuleAction> {
        prop_oneof![
            (0..5u32).prop_map(|port| RuleAction::Output(PortNo(port))),
            any::<u32>().prop_map(|port| RuleAction::Output(PortNo(port))),
            any::<u32>().prop_map(|group| RuleAction::Group(GroupId(group))),
            Just(RuleAction::Copy),
            (0..4095u16).prop_map(RuleAction::SetTag),
            Just(RuleAction::PopTag),
        ]
    }

    prop_compose! {
        fn rules()(
            (table, priority, in_port, src, dst) in (0..4u8, any::<u16>(), some(0..4u32), prefixes(), prefixes()),
            proto in some(prop_oneof![Just(6u8), Just(17), Just(132), Just(1)]),
            (src_port, dst_port, dscp) in (some(any::<u16>()), some(any::<u16>()), some(0..64u8)),
            (tcp_flags, tag) in (some((any::<u8>(), any::<u8>())), some(0..4095u16)),
            actions in prop::collection::vec(actions(), 0..=MOST_ACTIONS),
            (goto, meter, idle, hard) in (some(any::<u8>()), some(any::<u32>()), any::<u16>(), any::<u16>()),
            (cookie, notify_removal) in (any::<u64>(), any::<bool>()),
        ) -> Rule {
            let in_port = in_port.map(PortNo);
            Rule {
                table,
                priority,
                matches: Match { in_port, src, dst, proto, src_port, dst_port, dscp, tcp_flags, tag },
                actions: actions.into(),
                goto,
                meter: meter.map(MeterId),
                idle_timeout_s: idle,
                hard_timeout_s: hard,
                cookie,
                notify_removal,
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn short_and_long_encoding_are_equal(rule in rules(), xid: u32) {
            let (mut short, mut long) = (vec![7], vec![7]);
            let done = add(&rule, xid, &mut short);
            prop_assert_eq!(emit_add_rule_long(&rule, xid, &mut long), done.map(|done| assert!(done)));
            prop_assert_eq!(&short, &long);
            let done = delete(&rule.key(), xid, &mut short);
            prop_assert_eq!(emit_delete_rule_long(&rule.key(), xid, &mut long), done);
            prop_assert_eq!(&short, &long);
        }
    }

    #[test]
    fn the_longest_rule_fits() {
        let part = Some(Prefix::new([10, 0, 0, 0].into(), 8));
        let matches = Match {
            in_port: Some(PortNo(1)),
            src: part,
            dst: part,
            proto: Some(PROTO_TCP),
            src_port: Some(1),
            dst_port: Some(2),
            dscp: Some(8),
            tcp_flags: Some((2, 18)),
            tag: Some(7),
        };
        let rule = Rule {
            table: 0,
            priority: 1,
            matches,
            actions: vec![RuleAction::SetTag(1); MOST_ACTIONS].into(),
            goto: Some(1),
            meter: Some(MeterId(1)),
            idle_timeout_s: 0,
            hard_timeout_s: 0,
            cookie: 0,
            notify_removal: true,
        };
        let mut out = Vec::new();
        assert_eq!(add(&rule, 1, &mut out), Ok(true));
        assert!(out.len() <= MAX_BYTES && out.len() + 16 > MAX_BYTES, "{} of {MAX_BYTES}", out.len());
        let more = Rule { actions: vec![RuleAction::PopTag; MOST_ACTIONS + 1].into(), ..rule };
        assert_eq!(add(&more, 1, &mut out), Ok(false));
    }
}
