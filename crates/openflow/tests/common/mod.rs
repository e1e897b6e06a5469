//! Strategies that generate random messages.

use pathloom_openflow::action::Action;
use pathloom_openflow::flow_match::{FlowMatch, VLAN_PRESENT};
use pathloom_openflow::instruction::Instructions;
use pathloom_openflow::*;
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use std::borrow::Cow;
use std::net::Ipv4Addr;

fn address() -> impl Strategy<Value = (Ipv4Addr, Ipv4Addr)> {
    (any::<u32>(), any::<u32>()).prop_map(|(value, mask)| (Ipv4Addr::from(value & mask), Ipv4Addr::from(mask)))
}

pub fn flow_match() -> impl Strategy<Value = FlowMatch> {
    let frame = (of(any::<u32>()), of(any::<[u8; 6]>()), of(any::<[u8; 6]>()), of(any::<u16>()), of(0..4096u16));
    let ip = (of(0..64u8), of(any::<u8>()), of(address()), of(address()));
    let ports = proptest::array::uniform6(of(any::<u16>()));
    let rest = (of(any::<u16>()), of(any::<u32>()), of(address()), of(any::<(u16, u16)>()));
    (frame, ip, ports, rest).prop_map(|(frame, ip, ports, rest)| FlowMatch {
        in_port: frame.0,
        eth_dst: frame.1,
        to_station: frame.1.is_none() && frame.0.is_some_and(|port| port % 3 == 0),
        eth_src: frame.2,
        eth_type: frame.3,
        vlan_vid: frame.4.map(|vid| VLAN_PRESENT | vid),
        vlan_tagged: frame.4.is_none() && frame.0.is_some_and(|port| port % 2 == 0),
        ip_dscp: ip.0,
        ip_proto: ip.1,
        ipv4_src: ip.2,
        ipv4_dst: ip.3,
        tcp_src: ports[0],
        tcp_dst: ports[1],
        udp_src: ports[2],
        udp_dst: ports[3],
        sctp_src: ports[4],
        sctp_dst: ports[5],
        arp_op: rest.0,
        arp_spa: rest.1.map(Ipv4Addr::from),
        arp_tpa: rest.2,
        arp_sha: frame.1.filter(|mac| mac[5] % 2 == 0),
        tcp_flags: rest.3,
        has_unsupported: false,
    })
}

pub fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        (any::<u32>(), any::<u16>()).prop_map(|(port, max_len)| Action::Output { port, max_len }),
        any::<u32>().prop_map(Action::Group),
        any::<u16>().prop_map(Action::PushVlan),
        Just(Action::PopVlan),
        (0..4096u16).prop_map(|vid| Action::SetVlanVid(VLAN_PRESENT | vid)),
        (0..64u8).prop_map(Action::SetIpDscp),
        any::<[u8; 6]>().prop_map(Action::SetEthSrc),
        any::<[u8; 6]>().prop_map(Action::SetEthDst),
        any::<u32>().prop_map(Action::SetQueue),
    ]
}

fn instructions() -> impl Strategy<Value = Instructions<'static>> {
    (of(any::<u32>()), vec(action(), 0..5), of(any::<u8>())).prop_map(|(meter, apply, goto_table)| Instructions {
        meter,
        apply: Cow::Owned(apply),
        goto_table,
        has_unsupported: false,
    })
}

fn port() -> impl Strategy<Value = Port> {
    let numbers = (any::<u32>(), any::<u32>(), any::<u32>(), any::<[u32; 4]>(), any::<[u32; 2]>());
    (numbers, any::<[u8; 6]>(), "[a-z0-9-]{0,15}").prop_map(|(numbers, mac, name)| Port {
        number: numbers.0,
        mac,
        name,
        config: numbers.1,
        state: numbers.2,
        links: numbers.3,
        speed_kbps: numbers.4[0],
        top_speed_kbps: numbers.4[1],
    })
}

fn buckets() -> impl Strategy<Value = Vec<BucketMod>> {
    let bucket = (any::<u16>(), of(0..PORT_ANY), of(0..GROUP_ANY), vec(action(), 0..4));
    let bucket = bucket.prop_map(|(weight, watch_port, watch_group, actions)| BucketMod {
        weight,
        watch_port,
        watch_group,
        actions,
    });
    vec(bucket, 0..4)
}

fn bands() -> impl Strategy<Value = Vec<Band>> {
    let band = any::<(u32, u32)>();
    vec(band.prop_map(|(rate_kbps, burst_kbit)| Band { rate_kbps, burst_kbit }), 0..3)
}

fn group_type() -> impl Strategy<Value = GroupType> {
    proptest::sample::select(vec![GroupType::All, GroupType::Select, GroupType::Indirect, GroupType::FastFailover])
}

fn flow_mod() -> impl Strategy<Value = FlowMod<'static>> {
    let commands = vec![
        FlowCommand::Add,
        FlowCommand::Modify,
        FlowCommand::ModifyStrict,
        FlowCommand::Delete,
        FlowCommand::DeleteStrict,
    ];
    let numbers = (any::<[u64; 2]>(), any::<u8>(), any::<[u16; 4]>(), any::<[u32; 3]>());
    (numbers, proptest::sample::select(commands), flow_match(), instructions()).prop_map(
        |((cookies, table, shorts, longs), command, matches, instructions)| FlowMod {
            cookie: cookies[0],
            cookie_mask: cookies[1],
            table,
            command,
            idle_timeout_s: shorts[0],
            hard_timeout_s: shorts[1],
            priority: shorts[2],
            flags: shorts[3],
            buffer: longs[0],
            out_port: longs[1],
            out_group: longs[2],
            matches,
            instructions,
        },
    )
}

fn flow_removed() -> impl Strategy<Value = FlowRemoved> {
    let reasons = vec![RemovedReason::Idle, RemovedReason::Hard, RemovedReason::Deleted, RemovedReason::GroupDeleted];
    let numbers = (any::<[u64; 3]>(), any::<[u16; 3]>(), any::<[u32; 2]>(), any::<u8>());
    (numbers, proptest::sample::select(reasons), flow_match()).prop_map(
        |((longs, shorts, times, table), reason, matches)| FlowRemoved {
            cookie: longs[0],
            packets: longs[1],
            bytes: longs[2],
            priority: shorts[0],
            idle_timeout_s: shorts[1],
            hard_timeout_s: shorts[2],
            duration_s: times[0],
            duration_ns: times[1],
            table,
            reason,
            matches,
        },
    )
}

fn flow_stats() -> impl Strategy<Value = FlowStats> {
    let numbers = (any::<[u64; 3]>(), any::<[u16; 4]>(), any::<[u32; 2]>(), any::<u8>());
    (numbers, flow_match(), instructions()).prop_map(|((longs, shorts, times, table), matches, instructions)| {
        FlowStats {
            cookie: longs[0],
            packets: longs[1],
            bytes: longs[2],
            priority: shorts[0],
            idle_timeout_s: shorts[1],
            hard_timeout_s: shorts[2],
            flags: shorts[3],
            duration_s: times[0],
            duration_ns: times[1],
            table,
            matches,
            instructions,
        }
    })
}

fn request() -> impl Strategy<Value = Request> {
    let flows = (any::<u8>(), any::<[u32; 2]>(), any::<[u64; 2]>(), flow_match());
    let flows = flows.prop_map(|(table, outs, cookies, matches)| {
        Request::Flows(FlowStatsRequest {
            table,
            out_port: outs[0],
            out_group: outs[1],
            cookie: cookies[0],
            cookie_mask: cookies[1],
            matches,
        })
    });
    prop_oneof![
        flows,
        proptest::sample::select(vec![
            Request::Description,
            Request::Tables,
            Request::Ports,
            Request::PortDesc,
            Request::Groups,
            Request::GroupDesc,
            Request::Meters,
            Request::MeterConfigs,
            Request::TableFeatures,
            Request::Unsupported(14),
        ]),
    ]
}

fn reply() -> impl Strategy<Value = Reply> {
    let pairs = || vec(any::<(u64, u64)>(), 0..3);
    let counted = || (any::<[u32; 4]>(), any::<[u64; 2]>(), pairs());
    let text = || "[a-zA-Z0-9 .]{0,31}";
    let description =
        (text(), text(), text(), text(), text()).prop_map(|(maker, hardware, software, serial, datapath)| {
            Reply::Description(Box::new(Description { maker, hardware, software, serial, datapath }))
        });
    let table = (any::<u8>(), any::<u32>(), any::<[u64; 2]>());
    let table = table.prop_map(|(table, active, n)| TableStats { table, active, lookups: n[0], matched: n[1] });
    let features = any::<(u8, u32)>();
    let features =
        features.prop_map(|(table, max_entries)| TableFeatures { table, max_entries, has_unsupported: false });
    let ports = (any::<[u32; 3]>(), any::<[u64; 12]>()).prop_map(|(n, counters)| {
        let [a, b, c, d, e, f, errors @ ..] = counters;
        let (packets, bytes, dropped) = ([a, b], [c, d], [e, f]);
        PortStats { port: n[0], packets, bytes, dropped, errors, duration_s: n[1], duration_ns: n[2] }
    });
    let group = counted().prop_map(|(n, c, buckets)| GroupStats {
        id: n[0],
        references: n[1],
        duration_s: n[2],
        duration_ns: n[3],
        packets: c[0],
        bytes: c[1],
        buckets,
    });
    let meter = counted().prop_map(|(n, c, bands)| MeterStats {
        id: n[0],
        flows: n[1],
        duration_s: n[2],
        duration_ns: n[3],
        packets: c[0],
        bytes: c[1],
        bands,
    });
    let desc = (group_type(), any::<u32>(), buckets()).prop_map(|(kind, id, buckets)| GroupDesc { kind, id, buckets });
    let config = (any::<u32>(), bands()).prop_map(|(id, bands)| MeterConfig { id, bands });
    prop_oneof![
        description,
        vec(flow_stats(), 0..3).prop_map(Reply::Flows),
        vec(table, 0..3).prop_map(Reply::Tables),
        vec(ports, 0..3).prop_map(Reply::Ports),
        vec(port(), 0..3).prop_map(Reply::PortDesc),
        vec(group, 0..3).prop_map(Reply::Groups),
        vec(desc, 0..3).prop_map(Reply::GroupDesc),
        vec(meter, 0..3).prop_map(Reply::Meters),
        vec(config, 0..3).prop_map(Reply::MeterConfigs),
        vec(features, 0..3).prop_map(Reply::TableFeatures),
    ]
}

/// Generates a message, and bytes that it can borrow.
pub fn message() -> impl Strategy<Value = (Message<'static>, Vec<u8>)> {
    let bytes = || vec(any::<u8>(), 0..200);
    (whole_message(), bytes())
}

fn session_message() -> impl Strategy<Value = Message<'static>> {
    let roles = proptest::sample::select(vec![Role::NoChange, Role::Equal, Role::Master, Role::Slave]);
    let steps = vec![BundleStep::OpenRequest, BundleStep::CommitReply, BundleStep::DiscardRequest];
    let config = any::<(u16, u16)>().prop_map(|(flags, miss_send_len)| SwitchConfig { flags, miss_send_len });
    let features = (any::<u64>(), any::<[u32; 2]>(), any::<[u8; 2]>());
    prop_oneof![
        (4..9u8, of(any::<u32>())).prop_map(|(highest, versions)| Message::Hello(Hello { highest, versions })),
        Just(Message::FeaturesRequest),
        features.prop_map(|(datapath_id, [buffers, capabilities], [tables, auxiliary])| {
            Message::FeaturesReply(Features { datapath_id, buffers, tables, auxiliary, capabilities })
        }),
        Just(Message::GetConfigRequest),
        config.prop_map(Message::SetConfig),
        any::<(u16, u16)>()
            .prop_map(|(flags, miss_send_len)| { Message::GetConfigReply(SwitchConfig { flags, miss_send_len }) }),
        Just(Message::BarrierRequest),
        Just(Message::BarrierReply),
        (roles.clone(), any::<u64>())
            .prop_map(|(role, generation)| Message::RoleRequest(RoleMessage { role, generation })),
        (roles, any::<u64>()).prop_map(|(role, generation)| Message::RoleReply(RoleMessage { role, generation })),
        (any::<u32>(), proptest::sample::select(steps), any::<u16>())
            .prop_map(|(id, step, flags)| Message::BundleControl(BundleControl { id, step, flags })),
    ]
}

fn whole_message() -> impl Strategy<Value = Message<'static>> {
    let reasons = proptest::sample::select(vec![PortReason::Added, PortReason::Deleted, PortReason::Modified]);
    let group_commands = proptest::sample::select(vec![GroupCommand::Add, GroupCommand::Modify, GroupCommand::Delete]);
    let meter_commands = proptest::sample::select(vec![MeterCommand::Add, MeterCommand::Modify, MeterCommand::Delete]);
    prop_oneof![
        session_message(),
        flow_mod().prop_map(Message::FlowMod),
        flow_removed().prop_map(Message::FlowRemoved),
        (reasons, port()).prop_map(|(reason, port)| Message::PortStatus(PortStatus { reason, port })),
        (group_commands, group_type(), any::<u32>(), buckets())
            .prop_map(|(command, kind, id, buckets)| Message::GroupMod(GroupMod { command, kind, id, buckets })),
        (meter_commands, any::<u32>(), bands()).prop_map(|(command, id, bands)| Message::MeterMod(MeterMod {
            command,
            id,
            bands
        })),
        (any::<bool>(), request())
            .prop_map(|(more, request)| Message::MultipartRequest(MultipartRequest { more, request })),
        (any::<bool>(), reply()).prop_map(|(more, reply)| Message::MultipartReply(MultipartReply { more, reply })),
        (any::<[u32; 2]>(), vec(action(), 0..4)).prop_map(|([buffer, in_port], actions)| {
            Message::PacketOut(PacketOut { buffer, in_port, actions: Cow::Owned(actions), data: &[] })
        }),
        (any::<u32>(), any::<u16>(), any::<u8>(), any::<u64>(), flow_match()).prop_map(
            |(buffer, total_len, table, cookie, matches)| {
                let reason = PacketInReason::Action;
                Message::PacketIn(PacketIn { buffer, total_len, reason, table, cookie, matches, data: &[] })
            }
        ),
        Just(Message::EchoRequest(&[])),
        Just(Message::EchoReply(&[])),
        (0..13u16, 0..20u16).prop_map(|(kind, code)| Message::Error(ErrorMessage { kind, code, data: &[] })),
    ]
}

/// Returns the message with `bytes` as its data, if it has data.
pub fn with_bytes<'a>(message: Message<'a>, bytes: &'a [u8]) -> Message<'a> {
    match message {
        Message::PacketOut(packet) => Message::PacketOut(PacketOut { data: bytes, ..packet }),
        Message::PacketIn(packet) => Message::PacketIn(PacketIn { data: bytes, ..packet }),
        Message::EchoRequest(_) => Message::EchoRequest(bytes),
        Message::EchoReply(_) => Message::EchoReply(bytes),
        Message::Error(error) => Message::Error(ErrorMessage { data: bytes, ..error }),
        other => other,
    }
}
