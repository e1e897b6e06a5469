//! One message of each kind, with the bytes in `samples.json`. tshark, os-ken and c65of check these bytes
//! (`tests/python/test_openflow.py`). `PATHLOOM_BLESS=1 cargo test -p pathloom-openflow --test all samples` rewrites the
//! file.

use pathloom_model::rules::*;
use pathloom_model::{FiveTuple, PortNo, Prefix, PROTO_TCP};
use pathloom_openflow::action::Action;
use pathloom_openflow::flow_match::{FlowMatch, ETH_ARP, ETH_IPV4};
use pathloom_openflow::instruction::Instructions;
use pathloom_openflow::*;
use std::net::Ipv4Addr;

/// A UDP packet from 10.0.0.1:7 to 10.0.1.2:9.
const PACKET: &[u8] = &[
    2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 32, 0, 1, 0, 0, 64, 17, 0x65, 0xc9, 10, 0, 0, 1, 10, 0, 1, 2,
    0, 7, 0, 9, 0, 12, 0, 0, 1, 2, 3, 4,
];
/// A barrier request.
const BARRIER: &[u8] = &[4, 20, 0, 8, 0, 0, 0, 1];

/// An LLDP frame of switch 21, port 3, valid for 120 s.
const PROBE: &[u8] = &[
    1, 0x80, 0xc2, 0, 0, 0xe, 2, 0, 0, 0, 0, 3, 0x88, 0xcc, 2, 0x16, 7, 0x64, 0x70, 0x69, 0x64, 0x3a, 0x30, 0x30, 0x30,
    0x30, 0x30, 0x30, 0x30, 0x30, 0x30, 0x30, 0x30, 0x30, 0x30, 0x30, 0x32, 0x31, 4, 5, 7, 0, 0, 0, 3, 6, 2, 0, 0x78,
    0, 0,
];
/// An ARP reply: 10.0.0.2 is at 02:00:00:00:16:01.
const ANSWER: &[u8] = &[
    2, 0, 0, 0, 0x15, 1, 2, 0, 0, 0, 0x16, 1, 8, 6, 0, 1, 8, 0, 6, 4, 0, 2, 2, 0, 0, 0, 0x16, 1, 0xa, 0, 0, 2, 2, 0, 0,
    0, 0x15, 1, 0xa, 0, 0, 1,
];

fn rule() -> Rule {
    let (src, dst) = ([10, 0, 0, 1].into(), [10, 0, 1, 2].into());
    let five_tuple = FiveTuple::new(PROTO_TCP, (src, 1234), (dst, 80));
    Rule {
        table: 1,
        priority: 1000,
        matches: Match { in_port: Some(PortNo(3)), tag: Some(7), ..Match::five_tuple(five_tuple) },
        actions: [RuleAction::PopTag, RuleAction::SetTag(9), RuleAction::Copy, RuleAction::Output(PortNo(4))].into(),
        goto: Some(2),
        meter: Some(MeterId(5)),
        idle_timeout_s: 10,
        hard_timeout_s: 60,
        cookie: 0xa000_0000_0000_0001,
        notify_removal: true,
    }
}

fn first_packets() -> Rule {
    let src = Some(Prefix::new([10, 0, 1, 0].into(), 24));
    let matches = Match { src, proto: Some(6), dscp: Some(8), tcp_flags: Some((2, 0x12)), ..Match::default() };
    Rule { table: 0, priority: 200, matches, actions: [RuleAction::Copy].into(), goto: Some(1), meter: None, ..rule() }
}

/// ARP of a known host to a single station: 10.0.0.2 at port 3 is at 02:00:00:00:16:01.
fn arp_of_a_host() -> FlowMod<'static> {
    let mac = Some([2, 0, 0, 0, 0x16, 1]);
    let matches = FlowMatch {
        in_port: Some(3),
        to_station: true,
        eth_src: mac,
        eth_type: Some(ETH_ARP),
        arp_spa: Some(Ipv4Addr::new(10, 0, 0, 2)),
        arp_sha: mac,
        ..FlowMatch::default()
    };
    let instructions = Instructions { goto_table: Some(2), ..Instructions::default() };
    FlowMod { table: 1, priority: 0xfff1, matches, instructions, ..FlowMod::NOTHING }
}

/// ARP requests to one station.
fn arp_to_a_station() -> FlowMod<'static> {
    let eth_dst = Some([2, 0, 0, 0, 0, 1]);
    let matches = FlowMatch { eth_dst, eth_type: Some(ETH_ARP), arp_op: Some(1), ..FlowMatch::default() };
    let apply = vec![Action::Output { port: PORT_CONTROLLER, max_len: 0xffff }];
    let instructions = Instructions { apply: apply.into(), ..Instructions::default() };
    FlowMod { priority: 0xfff2, matches, instructions, ..FlowMod::NOTHING }
}

/// The default route to 10.0.1.0/24, or to 10.0.1.2.
fn default_route(length: u8) -> Rule {
    let address = if length == 32 { [10, 0, 1, 2] } else { [10, 0, 1, 0] };
    let matches = Match { dst: Some(Prefix::new(address.into(), length)), ..Match::default() };
    let actions = [RuleAction::Output(PortNo(4))].into();
    Rule { table: 2, priority: 100, matches, actions, goto: None, meter: None, ..rule() }
}

fn group(kind: GroupKind) -> Group {
    let bucket = |port: u32| {
        let actions = vec![RuleAction::Output(PortNo(port))];
        Bucket { weight: 1, watch_port: Some(PortNo(port)), actions }
    };
    Group { id: GroupId(0x5000_0000), kind, buckets: vec![bucket(1), bucket(2)] }
}

fn port() -> Port {
    Port {
        number: 3,
        mac: [2, 0, 0, 0, 0, 3],
        name: "s1-eth3".into(),
        config: 0,
        state: 1,
        links: [0x840, 0x840, 0x840, 0],
        speed_kbps: 10_000_000,
        top_speed_kbps: 10_000_000,
    }
}

fn parsed(emit: impl FnOnce(&mut Vec<u8>)) -> FlowMod<'static> {
    let mut bytes = Vec::new();
    emit(&mut bytes);
    let (header, body, _) = frame(&bytes).unwrap().unwrap();
    match Message::parse(header, body).unwrap() {
        Message::FlowMod(flow) => flow.into_owned(),
        other => panic!("{other:?}"),
    }
}

fn statistics() -> FlowStats {
    let add = parsed(|out| convert::emit_add_rule(&rule(), 1, out).unwrap());
    FlowStats {
        table: add.table,
        duration_s: 12,
        duration_ns: 345,
        priority: add.priority,
        idle_timeout_s: add.idle_timeout_s,
        hard_timeout_s: add.hard_timeout_s,
        flags: add.flags,
        cookie: add.cookie,
        packets: 678,
        bytes: 91_011,
        matches: add.matches,
        instructions: add.instructions,
    }
}

fn multiparts() -> Vec<(&'static str, Message<'static>)> {
    let request = |request| Message::MultipartRequest(MultipartRequest { more: false, request });
    let reply = |reply| Message::MultipartReply(MultipartReply { more: false, reply });
    let description = Description {
        maker: "Pathloom".into(),
        hardware: "none".into(),
        software: "0.1".into(),
        serial: "7".into(),
        datapath: "s1".into(),
    };
    let ours = FlowStatsRequest { cookie: 0xa000_0000_0000_0000, cookie_mask: 0xfc00 << 48, ..FlowStatsRequest::ALL };
    let ports = PortStats {
        port: 3,
        packets: [1, 2],
        bytes: [3, 4],
        dropped: [5, 6],
        errors: [7, 8, 9, 10, 11, 12],
        duration_s: 13,
        duration_ns: 14,
    };
    let group_stats =
        GroupStats { id: 1, references: 2, packets: 3, bytes: 4, duration_s: 5, duration_ns: 6, buckets: vec![(7, 8)] };
    let meter_stats =
        MeterStats { id: 1, flows: 2, packets: 3, bytes: 4, duration_s: 5, duration_ns: 6, bands: vec![(7, 8)] };
    let Message::GroupMod(select) = convert::group_mod(&group(GroupKind::Select), false).unwrap() else { panic!() };
    let desc = GroupDesc { kind: select.kind, id: select.id, buckets: select.buckets };
    let band = Band { rate_kbps: 10_000, burst_kbit: 120 };
    vec![
        ("desc_request", request(Request::Description)),
        ("desc_reply", reply(Reply::Description(Box::new(description)))),
        ("flow_stats_request", request(Request::Flows(ours))),
        ("flow_stats_reply", reply(Reply::Flows(vec![statistics(), statistics()]))),
        ("table_stats_request", request(Request::Tables)),
        ("table_stats_reply", reply(Reply::Tables(vec![TableStats { table: 1, active: 2, lookups: 3, matched: 4 }]))),
        ("port_stats_request", request(Request::Ports)),
        ("port_stats_reply", reply(Reply::Ports(vec![ports]))),
        ("port_desc_request", request(Request::PortDesc)),
        ("port_desc_reply", reply(Reply::PortDesc(vec![port()]))),
        ("group_stats_request", request(Request::Groups)),
        ("group_stats_reply", reply(Reply::Groups(vec![group_stats]))),
        ("group_desc_request", request(Request::GroupDesc)),
        ("group_desc_reply", reply(Reply::GroupDesc(vec![desc]))),
        ("meter_stats_request", request(Request::Meters)),
        ("meter_stats_reply", reply(Reply::Meters(vec![meter_stats]))),
        ("meter_config_request", request(Request::MeterConfigs)),
        ("meter_config_reply", reply(Reply::MeterConfigs(vec![MeterConfig { id: 5, bands: vec![band] }]))),
    ]
}

fn changes() -> Vec<(&'static str, Message<'static>)> {
    let meter = Meter { id: MeterId(5), rate_bps: 10_000_000, burst_bytes: 15_000 };
    let group = |kind| convert::group_mod(&group(kind), false).unwrap();
    vec![
        ("flow_add", Message::FlowMod(parsed(|out| convert::emit_add_rule(&rule(), 1, out).unwrap()))),
        ("flow_add_first", Message::FlowMod(parsed(|out| convert::emit_add_rule(&first_packets(), 1, out).unwrap()))),
        ("flow_delete", Message::FlowMod(parsed(|out| convert::emit_delete_rule(&rule().key(), 1, out).unwrap()))),
        ("flow_add_arp_of_host", Message::FlowMod(arp_of_a_host())),
        ("flow_add_arp_to_station", Message::FlowMod(arp_to_a_station())),
        ("flow_add_arp_route", Message::FlowMod(convert::arp_route(&default_route(24)).unwrap())),
        ("flow_add_arp_route_to_host", Message::FlowMod(convert::arp_route(&default_route(32)).unwrap())),
        ("flow_delete_arp_route", Message::FlowMod(convert::arp_route_delete(&default_route(24).key()).unwrap())),
        ("group_select", group(GroupKind::Select)),
        ("group_failover", group(GroupKind::FastFailover)),
        ("group_all", group(GroupKind::All)),
        ("group_delete", convert::group_delete(GroupId(1))),
        ("meter_add", convert::meter_mod(&meter, false)),
        ("meter_delete", convert::meter_delete(MeterId(5))),
        ("barrier_request", Message::BarrierRequest),
        ("barrier_reply", Message::BarrierReply),
    ]
}

fn session() -> Vec<(&'static str, Message<'static>)> {
    let matches = FlowMatch { in_port: Some(3), ..FlowMatch::default() };
    let packet_in = PacketIn {
        buffer: NO_BUFFER,
        total_len: PACKET.len() as u16,
        reason: PacketInReason::Action,
        table: 1,
        cookie: 0xa0,
        matches,
        data: PACKET,
    };
    let out = |data| {
        let actions = vec![Action::Output { port: 3, max_len: 0 }].into();
        Message::PacketOut(PacketOut { buffer: NO_BUFFER, in_port: PORT_CONTROLLER, actions, data })
    };
    let removed = FlowRemoved {
        cookie: 0xa000_0000_0000_0001,
        priority: 1000,
        reason: RemovedReason::Idle,
        table: 1,
        duration_s: 12,
        duration_ns: 345,
        idle_timeout_s: 10,
        hard_timeout_s: 0,
        packets: 6,
        bytes: 7,
        matches: FlowMatch { eth_type: Some(ETH_IPV4), ..statistics().matches },
    };
    let status = PortStatus { reason: PortReason::Modified, port: port() };
    let features = Features { datapath_id: 0x21, buffers: 0, tables: 254, auxiliary: 0, capabilities: 0x4f };
    let config = SwitchConfig { flags: 0, miss_send_len: 128 };
    let role = RoleMessage { role: Role::Master, generation: 3 };
    let flags = ATOMIC | ORDERED;
    vec![
        ("hello", Message::Hello(Hello::OPENFLOW_1_3)),
        ("error", Message::Error(ErrorMessage { kind: FLOW_MOD_FAILED, code: 1, data: BARRIER })),
        ("echo_request", Message::EchoRequest(b"are you there")),
        ("echo_reply", Message::EchoReply(b"are you there")),
        ("features_request", Message::FeaturesRequest),
        ("features_reply", Message::FeaturesReply(features)),
        ("get_config_request", Message::GetConfigRequest),
        ("get_config_reply", Message::GetConfigReply(config)),
        ("set_config", Message::SetConfig(config)),
        ("packet_in", Message::PacketIn(packet_in)),
        ("flow_removed", Message::FlowRemoved(removed)),
        ("port_status", Message::PortStatus(status)),
        ("packet_out_lldp", out(PROBE)),
        ("packet_out_arp", out(ANSWER)),
        ("role_request", Message::RoleRequest(role)),
        ("role_reply", Message::RoleReply(role)),
        ("bundle_open", Message::BundleControl(BundleControl { id: 1, step: BundleStep::OpenRequest, flags })),
        ("bundle_add", Message::BundleAdd(BundleAdd { id: 1, flags, message: BARRIER })),
    ]
}

#[test]
fn messages_equal_the_recorded_bytes() {
    let mut rows = Vec::new();
    for (name, message) in session().into_iter().chain(changes()).chain(multiparts()) {
        let mut bytes = Vec::new();
        message.emit(1, &mut bytes).unwrap();
        let (header, body, length) = frame(&bytes).unwrap().unwrap();
        assert_eq!(length, bytes.len(), "{name}");
        assert_eq!(Message::parse(header, body).unwrap(), message, "{name}");
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        rows.push(format!("  {{\"name\": \"{name}\", \"hex\": \"{hex}\"}}"));
    }
    let today = format!("[\n{}\n]\n", rows.join(",\n"));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/samples.json");
    if std::env::var_os("PATHLOOM_BLESS").is_some() {
        std::fs::write(path, &today).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), today, "see the top of this file");
}

/// Codes of §A.4.4, as Open vSwitch and hardware switches send them.
#[test]
fn each_refusal_has_its_own_cause() {
    use pathloom_model::rules::Refusal;
    const RULE: &[u8] = &[4, 14, 0, 56, 0, 0, 0, 1];
    const GROUP: &[u8] = &[4, 15, 0, 16, 0, 0, 0, 1];
    const METER: &[u8] = &[4, 29, 0, 16, 0, 0, 0, 1];
    for (kind, code, data, why) in [
        (5, 1, RULE, Refusal::TableFull),
        (5, 2, RULE, Refusal::BadTable),
        (5, 4, RULE, Refusal::NotPermitted),
        (1, 10, RULE, Refusal::NotPermitted),
        (1, 1, RULE, Refusal::Unsupported),
        (1, 1, GROUP, Refusal::GroupUnsupported),
        (2, 4, GROUP, Refusal::BadPort),
        (2, 9, RULE, Refusal::UnknownGroup),
        (2, 10, RULE, Refusal::Unsupported),
        (2, 10, GROUP, Refusal::GroupUnsupported),
        (1, 5, GROUP, Refusal::NotPermitted),
        (1, 1, METER, Refusal::MeterUnsupported),
        (1, 5, METER, Refusal::NotPermitted),
        (6, 0, GROUP, Refusal::Exists),
        (6, 1, GROUP, Refusal::GroupUnsupported),
        (6, 2, GROUP, Refusal::GroupUnsupported),
        (6, 3, GROUP, Refusal::GroupsFull),
        (6, 4, GROUP, Refusal::GroupUnsupported),
        (6, 5, GROUP, Refusal::GroupUnsupported),
        (6, 6, GROUP, Refusal::GroupUnsupported),
        (6, 8, GROUP, Refusal::UnknownGroup),
        (6, 10, GROUP, Refusal::GroupUnsupported),
        (6, 12, GROUP, Refusal::GroupUnsupported),
        (6, 13, GROUP, Refusal::BadPort),
        (6, 14, GROUP, Refusal::NotPermitted),
        (12, 1, &[], Refusal::Exists),
        (12, 2, RULE, Refusal::UnknownMeter),
        (12, 2, METER, Refusal::MeterUnsupported),
        (12, 6, METER, Refusal::MeterUnsupported),
        (12, 8, METER, Refusal::MeterUnsupported),
        (12, 11, METER, Refusal::MeterUnsupported),
        (12, 3, &[], Refusal::UnknownMeter),
        (12, 10, &[], Refusal::MetersFull),
        (77, 7, &[], Refusal::Unsupported),
    ] {
        assert_eq!(pathloom_openflow::convert::refusal(&ErrorMessage { kind, code, data }), why, "{kind} {code}");
    }
}

#[test]
fn a_refused_group_is_absent_unless_it_exists_already() {
    use pathloom_openflow::convert::{absent, Absent};
    const MODIFY: u8 = 1;
    let message = |kind: u8, command: u8| [4, kind, 0, 16, 0, 0, 0, 1, 0, command, 1, 0, 0, 0, 0, 7];
    for (kind, code, data, what) in [
        (6, 3, message(15, 0), Some(Absent::Group(7))),
        (1, 1, message(15, 0), Some(Absent::Group(7))),
        (6, 0, message(15, 0), None),
        // The old group is still there.
        (6, 4, message(15, MODIFY), None),
        (6, 8, message(15, MODIFY), Some(Absent::Group(7))),
        (12, 10, message(29, 0), Some(Absent::Meter(7))),
        (12, 1, message(29, 0), None),
        (12, 3, message(29, MODIFY), Some(Absent::Meter(7))),
        (5, 1, message(14, 0), None),
    ] {
        assert_eq!(absent(&ErrorMessage { kind, code, data: &data }), what, "{kind} {code} {data:?}");
    }
    assert_eq!(absent(&ErrorMessage { kind: 6, code: 3, data: &message(15, 0)[..15] }), None);
}
