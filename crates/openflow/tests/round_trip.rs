//! Messages are read back as written, alone and in a stream. No bytes make the parser panic.

use crate::common::{message, with_bytes};
use pathloom_model::rules::*;
use pathloom_model::{PortNo, Prefix};
use pathloom_openflow::packet::Ethernet;
use pathloom_openflow::{convert, frame, FlowMod, FlowStats, Message, TooLong};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};

proptest! {
    #[test]
    fn messages_round_trip((message, bytes) in message(), xid: u32, before in vec(any::<u8>(), 0..9)) {
        let message = with_bytes(message, &bytes);
        let mut out = before.clone();
        message.emit(xid, &mut out).unwrap();
        let (header, body, length) = frame(&out[before.len()..]).unwrap().unwrap();
        prop_assert_eq!(length, out.len() - before.len());
        prop_assert_eq!(header.xid, xid);
        prop_assert_eq!(Message::parse(header, body).unwrap(), message);
    }

    #[test]
    fn changed_bytes_are_read_or_refused(
        (message, bytes) in message(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut out = Vec::new();
        with_bytes(message, &bytes).emit(1, &mut out).unwrap();
        for (index, value) in changes {
            let at = index.index(out.len());
            out[at] = value;
        }
        read(&out);
        read(&out[..cut.index(out.len())]);
    }

    #[test]
    fn random_bytes_are_read_or_refused(kind in 0..32u8, body in vec(any::<u8>(), 0..300)) {
        let length = (8 + body.len()) as u16;
        let mut bytes = vec![4, kind, (length >> 8) as u8, length as u8, 0, 0, 0, 1];
        bytes.extend(&body);
        read(&bytes);
        let frame = Ethernet::parse(&body);
        if let Ok(frame) = frame {
            let _ = pathloom_openflow::packet::headers(&frame);
        }
    }

    #[test]
    fn rules_round_trip(rule in rule()) {
        let mut out = Vec::new();
        convert::emit_add_rule(&rule, 9, &mut out).unwrap();
        let (header, body, _) = frame(&out).unwrap().unwrap();
        let Message::FlowMod(add) = Message::parse(header, body).unwrap() else { panic!("no flow-mod") };
        prop_assert_eq!(convert::read_rule(&standing(add.into_owned())), Some(rule.clone()));
        out.clear();
        convert::emit_delete_rule(&rule.key(), 10, &mut out).unwrap();
        let (header, body, _) = frame(&out).unwrap().unwrap();
        let Message::FlowMod(delete) = Message::parse(header, body).unwrap() else { panic!("no flow-mod") };
        prop_assert_eq!(convert::read_key(delete.table, delete.priority, &delete.matches), Some(rule.key()));
    }

    #[test]
    fn groups_round_trip(ports in vec(1..48u32, 0..9), kind in 0..3usize, exists: bool) {
        let kind = [GroupKind::Select, GroupKind::FastFailover, GroupKind::All][kind];
        let weight = u16::from(kind == GroupKind::Select);
        let bucket = |&port: &u32| {
            let actions = vec![RuleAction::Output(PortNo(port))];
            Bucket { weight, watch_port: Some(PortNo(port)), actions }
        };
        let group = Group { id: GroupId(7), kind, buckets: ports.iter().map(bucket).collect() };
        let mut out = Vec::new();
        convert::group_mod(&group, exists).unwrap().emit(1, &mut out).unwrap();
        let (header, body, _) = frame(&out).unwrap().unwrap();
        let Message::GroupMod(change) = Message::parse(header, body).unwrap() else { panic!("no group-mod") };
        let desc = pathloom_openflow::GroupDesc { kind: change.kind, id: change.id, buckets: change.buckets };
        prop_assert_eq!(convert::read_group(&desc), Some(group));
    }
}

/// Returns the statistics that a switch with this rule would report.
fn standing(add: FlowMod<'static>) -> FlowStats {
    FlowStats {
        table: add.table,
        duration_s: 1,
        duration_ns: 2,
        priority: add.priority,
        idle_timeout_s: add.idle_timeout_s,
        hard_timeout_s: add.hard_timeout_s,
        flags: add.flags,
        cookie: add.cookie,
        packets: 3,
        bytes: 4,
        matches: add.matches,
        instructions: add.instructions,
    }
}

fn prefix() -> impl Strategy<Value = Prefix> {
    (any::<u32>(), 1..=32u8).prop_map(|(address, len)| Prefix::new(address.into(), len))
}

fn rule() -> impl Strategy<Value = Rule> {
    let ports = (of(any::<u16>()), of(any::<u16>()));
    let rest = (of(1..100u32), of(0..64u8), of(2..4095u16), any::<(u8, u8)>());
    let matches = (of(prefix()), of(prefix()), proptest::sample::select(vec![6u8, 17, 132]), ports, rest, 0..3u8);
    let matches = matches.prop_map(|(src, dst, proto, ports, (in_port, dscp, tag, flags), detail)| {
        let matches = Match { in_port: in_port.map(PortNo), tag, ..Match::default() };
        match detail {
            0 => matches,
            1 => Match { src: Some(src.unwrap_or(Prefix::ALL_V4)), dst: None, ..matches },
            _ => Match {
                src,
                dst,
                proto: Some(proto),
                src_port: ports.0,
                dst_port: ports.1,
                dscp,
                tcp_flags: (proto == 6).then_some(flags),
                ..matches
            },
        }
    });
    let action = prop_oneof![
        (1..100u32).prop_map(|port| RuleAction::Output(PortNo(port))),
        any::<u32>().prop_map(|id| RuleAction::Group(GroupId(id))),
        Just(RuleAction::Copy),
        (0..4096u16).prop_map(RuleAction::SetTag),
        Just(RuleAction::PopTag),
    ];
    let meter = of(any::<u32>().prop_map(MeterId));
    let numbers = (any::<u8>(), any::<[u16; 3]>(), of(any::<u8>()), any::<u64>(), any::<bool>());
    (matches, vec(action, 0..4), meter, numbers).prop_map(
        |(matches, actions, meter, (table, n, goto, cookie, notify))| Rule {
            table,
            priority: n[0],
            matches,
            actions: actions.into(),
            goto,
            meter,
            idle_timeout_s: n[1],
            hard_timeout_s: n[2],
            cookie,
            notify_removal: notify,
        },
    )
}

/// Reads a stream in the same way as a session.
fn read(mut bytes: &[u8]) {
    while let Ok(Some((header, body, length))) = frame(bytes) {
        if let Ok(message) = Message::parse(header, body) {
            // A parsed message can be written, except for unsupported parts.
            let mut out = Vec::new();
            let _: Result<(), TooLong> = message.emit(header.xid, &mut out);
        }
        bytes = &bytes[length..];
    }
}

#[test]
fn a_million_mutated_messages_cause_no_panic() {
    let mut random = rand_pcg::Pcg64::seed_from_u64(7);
    let samples = include_str!("samples.json");
    let samples: Vec<serde_json::Value> = serde_json::from_str(samples).unwrap();
    let samples: Vec<Vec<u8>> = samples.iter().map(|sample| hex(sample["hex"].as_str().unwrap())).collect();
    let mut bytes = Vec::new();
    for _ in 0..1_000_000 {
        bytes.clone_from(&samples[random.random_range(0..samples.len())]);
        for _ in 0..random.random_range(1..5) {
            let at = random.random_range(0..bytes.len());
            match random.random_range(0..4) {
                0 => bytes[at] = random.random(),
                1 => bytes[at] ^= 1 << random.random_range(0..8),
                2 => bytes.truncate(at.max(1)),
                _ => bytes.insert(at, random.random()),
            }
        }
        if let Some(length) = bytes.get_mut(2..4).filter(|_| random.random()) {
            length.copy_from_slice(&[0, 0]);
            let whole = (bytes.len() as u16).to_be_bytes();
            bytes[2..4].copy_from_slice(&whole);
        }
        read(&bytes);
    }
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn unsupported_rules_are_refused_and_append_nothing() {
    let key = |matches| RuleKey { table: 0, priority: 0, matches };
    let mut out = vec![1, 2, 3];
    let ports = Match { src_port: Some(1), proto: Some(1), ..Match::default() };
    assert_eq!(convert::emit_delete_rule(&key(ports), 1, &mut out), Err(convert::UnsupportedRule::Ports));
    let flags = Match { tcp_flags: Some((1, 1)), proto: Some(17), ..Match::default() };
    assert_eq!(convert::emit_delete_rule(&key(flags), 1, &mut out), Err(convert::UnsupportedRule::Flags));
    let v6 = Prefix::new("fd00::".parse().unwrap(), 64);
    for matches in [Match { src: Some(v6), ..Match::default() }, Match { dst: Some(v6), ..Match::default() }] {
        let problem = convert::emit_delete_rule(&key(matches), 1, &mut out).unwrap_err();
        assert_eq!(problem, convert::UnsupportedRule::Ipv6(v6));
        assert!(problem.to_string().contains("fd00::/64"), "{problem}");
        assert_eq!(convert::match_of(&matches), Err(problem));
    }
    let mut rule = Rule {
        table: 0,
        priority: 0,
        matches: Match::default(),
        actions: [RuleAction::Output(PortNo(0))].into(),
        goto: None,
        meter: None,
        idle_timeout_s: 0,
        hard_timeout_s: 0,
        cookie: 0,
        notify_removal: false,
    };
    assert_eq!(convert::emit_add_rule(&rule, 1, &mut out), Err(convert::UnsupportedRule::Port(0)));
    rule.actions = vec![RuleAction::PopTag; 9000].into();
    assert!(matches!(convert::emit_add_rule(&rule, 1, &mut out), Err(convert::UnsupportedRule::TooLong(_))));
    assert_eq!(out, [1, 2, 3]);
}
