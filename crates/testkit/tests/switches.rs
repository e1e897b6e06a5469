//! The fake switch and the real one, written independently, must agree on every frame.

use pathloom_model::rules::{Bucket, Group, GroupId, GroupKind, Match, Rule, RuleAction};
use pathloom_model::{Address, FiveTuple, Headers, Nanos, PortNo, Prefix, PROTO_TCP, PROTO_UDP};
use pathloom_switching::{Switch, SwitchSettings};
use pathloom_testkit::FakeSwitch;
use proptest::prelude::*;
use std::collections::BTreeMap;

const PORTS: u32 = 4;

fn address() -> impl Strategy<Value = Address> {
    (0..4u8).prop_map(|last| Address::new(10, 0, 0, last))
}

fn prefix() -> impl Strategy<Value = Prefix> {
    (address(), prop::sample::select(vec![0u8, 8, 30, 31, 32])).prop_map(|(address, len)| Prefix::new(address, len))
}

fn port() -> impl Strategy<Value = PortNo> {
    (1..=PORTS).prop_map(PortNo)
}

fn proto() -> impl Strategy<Value = u8> {
    prop::sample::select(vec![PROTO_TCP, PROTO_UDP])
}

fn matches() -> impl Strategy<Value = Match> {
    use prop::option::of;
    let addresses = (of(port()), of(prefix()), of(prefix()), of(proto()));
    let rest = (of(0..3u16), of(0..3u16), of(0..2u8), of((0..4u8, 0..4u8)), of(2..4u16));
    (addresses, rest).prop_map(|((in_port, src, dst, proto), (src_port, dst_port, dscp, tcp_flags, tag))| Match {
        in_port,
        src,
        dst,
        proto,
        src_port,
        dst_port,
        dscp,
        tcp_flags,
        tag,
    })
}

fn action() -> impl Strategy<Value = RuleAction> {
    prop_oneof![
        4 => port().prop_map(RuleAction::Output),
        2 => (0..2u32).prop_map(|id| RuleAction::Group(GroupId(id))),
        1 => Just(RuleAction::Copy),
        1 => (2..4u16).prop_map(RuleAction::SetTag),
        1 => Just(RuleAction::PopTag),
    ]
}

fn rule() -> impl Strategy<Value = Rule> {
    let place = (0..3u8, 0..6u16);
    (place, matches(), prop::collection::vec(action(), 0..3), prop::option::of(1..3u8), any::<u64>()).prop_map(
        |((table, priority), matches, actions, goto, cookie)| Rule {
            table,
            priority,
            matches,
            actions: actions.into(),
            goto: goto.filter(|&next| next > table),
            meter: None,
            idle_timeout_s: 0,
            hard_timeout_s: 0,
            cookie,
            notify_removal: false,
        },
    )
}

fn headers() -> impl Strategy<Value = (PortNo, Headers)> {
    let tuple = (address(), address(), proto(), 0..3u16, 0..3u16);
    (port(), tuple, 0..2u8, 0..4u8, prop::option::of(2..4u16)).prop_map(|(port, tuple, dscp, tcp_flags, tag)| {
        let (src, dst, proto, src_port, dst_port) = tuple;
        let five_tuple = FiveTuple::new(proto, (src, src_port), (dst, dst_port));
        let tcp_flags = if proto == PROTO_TCP { tcp_flags } else { 0 };
        (port, Headers { five_tuple, dscp, tcp_flags, tag, mptcp: None })
    })
}

fn group(id: u32, kind: GroupKind, ports: &[PortNo]) -> Group {
    let bucket = |&port: &PortNo| Bucket { weight: 1, watch_port: Some(port), actions: vec![RuleAction::Output(port)] };
    Group { id: GroupId(id), kind, buckets: ports.iter().map(bucket).collect() }
}

proptest! {
    #[test]
    fn both_switches_treat_frames_alike(
        rules in prop::collection::vec(rule(), 0..40),
        members in prop::collection::vec(port(), 1..4),
        down in prop::option::of(port()),
        frames in prop::collection::vec(headers(), 1..40),
        deleted in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
    ) {
        let mut real = Switch::new(SwitchSettings { ports: PORTS, tables: 3, rule_limit: None, salt: 9 });
        let mut fake = FakeSwitch::new(PORTS, 9);
        // A switch may choose any member of a select group. So this group has one member, and the other takes the
        // first that is up.
        for group in [group(0, GroupKind::Select, &members[..1]), group(1, GroupKind::FastFailover, &members)] {
            prop_assert!(real.add_group(group.clone()).is_ok());
            fake.groups.insert(group.id, group);
        }
        // The result is undefined if two rules of the same priority match a frame, so the priorities are made
        // different.
        let mut priority = 0;
        let mut kept: BTreeMap<_, Rule> = BTreeMap::new();
        for rule in rules {
            priority += 1;
            let rule = Rule { priority: rule.priority * 100 + priority, ..rule };
            prop_assert_eq!(real.add_rule(Nanos::ZERO, rule.clone()), fake.add_rule(Nanos::ZERO, rule.clone()));
            kept.insert(rule.key(), rule);
        }
        let keys: Vec<_> = kept.keys().copied().collect();
        for index in deleted.iter().filter(|_| !keys.is_empty()) {
            let key = index.get(&keys);
            prop_assert_eq!(real.delete_rule(key).is_some(), fake.delete_rule(key).is_some());
        }
        if let Some(port) = down {
            real.set_port(port, false);
            fake.ports_down.insert(port);
        }
        prop_assert_eq!(real.rule_count(), fake.entries.len());
        for (in_port, headers) in frames {
            let decision = real.decide(in_port, &headers);
            let verdict = fake.peek(in_port, headers, &mut Vec::new());
            let mut emitted: Vec<_> = decision.emissions.iter().map(|out| (out.port, out.tag)).collect();
            // A frame sent to a port that is down is lost at the port: inside one switch, outside the other.
            emitted.retain(|(port, _)| Some(*port) != down);
            let sent: Vec<_> = verdict.out.iter().map(|(port, headers)| (*port, headers.tag)).collect();
            prop_assert_eq!(emitted, sent);
            prop_assert_eq!(decision.copied, !verdict.copies.is_empty());
        }
    }
}
