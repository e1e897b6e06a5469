use super::*;
use pathloom_model::rules::{Match, Rule, RuleAction};
use pathloom_model::{FiveTuple, Headers, PortNo, PROTO_UDP};
use pathloom_openflow::flow_match::ETH_LLDP;
use pathloom_openflow::instruction::Instructions;
use pathloom_openflow::{convert, frame, FlowStatsRequest, MultipartRequest, PORT_CONTROLLER, SEND_FLOW_REMOVED};

fn tell(device: &mut Device, message: &Message<'_>) -> Vec<u8> {
    let (bytes, mut out) = (bytes_of(message, 7), Vec::new());
    let (header, body, _) = frame(&bytes).unwrap().unwrap();
    device.handle(Nanos::ZERO, 0, (header, body), &mut out);
    out
}

fn read(mut bytes: &[u8]) -> Vec<Message<'_>> {
    let mut messages = Vec::new();
    while let Some((header, body, length)) = frame(bytes).unwrap() {
        messages.push(Message::parse(header, body).unwrap());
        bytes = &bytes[length..];
    }
    messages
}

fn packet() -> Frame {
    let (src, dst) = ([10, 0, 0, 1].into(), [10, 0, 1, 1].into());
    let five_tuple = FiveTuple::new(PROTO_UDP, (src, 5), (dst, 6));
    Frame::packet(0, Headers { tcp_flags: 0, ..Headers::plain(five_tuple) })
}

fn add(device: &mut Device, priority: u16, matches: FlowMatch, actions: Vec<Action>) -> Vec<u8> {
    let instructions = Instructions { apply: actions.into(), ..Instructions::default() };
    let flags = SEND_FLOW_REMOVED;
    tell(device, &Message::FlowMod(FlowMod { priority, matches, instructions, flags, cookie: 1, ..FlowMod::NOTHING }))
}

#[test]
fn answers_come_in_parts_and_refused_rules_are_errors() {
    let mut device = Device::new(1, 8, Faults { most_rules: Some(1), ..Faults::default() });
    let request = Message::MultipartRequest(MultipartRequest { more: false, request: Request::PortDesc });
    let answer = tell(&mut device, &request);
    let sizes = read(&answer).into_iter().map(|message| match message {
        Message::MultipartReply(MultipartReply { more, reply: Reply::PortDesc(ports) }) => (more, ports.len()),
        other => panic!("{other:?}"),
    });
    assert_eq!(sizes.collect::<Vec<_>>(), [(true, 3), (true, 3), (false, 2)]);
    let to = |port| vec![Action::Output { port, max_len: 0 }];
    assert!(add(&mut device, 1, FlowMatch::default(), to(2)).is_empty());
    let refused = |bytes: Vec<u8>| match read(&bytes)[..] {
        [Message::Error(error)] => convert::refusal(&error),
        ref other => panic!("{other:?}"),
    };
    assert_eq!(refused(add(&mut device, 1, FlowMatch::default(), to(9))), Refusal::BadPort);
    assert_eq!(refused(add(&mut device, 2, FlowMatch::default(), to(2))), Refusal::TableFull);
    assert_eq!(device.tables.rules().len(), 1);
}

#[test]
fn frames_meet_rules_for_ipv4_and_others_in_order_of_priority() {
    let mut device = Device::new(1, 4, Faults::default());
    let copy = vec![Action::Output { port: PORT_CONTROLLER, max_len: u16::MAX }];
    add(&mut device, 1, FlowMatch::default(), vec![Action::Output { port: 2, max_len: 0 }]);
    add(&mut device, 9, FlowMatch { eth_type: Some(ETH_LLDP), ..FlowMatch::default() }, copy);
    add(&mut device, 8, FlowMatch { in_port: Some(3), vlan_tagged: true, ..FlowMatch::default() }, Vec::new());
    let ports = |device: &mut Device, in_port, frame: &Frame| {
        device.forward(Nanos::ZERO, in_port, frame).0.iter().map(|&(port, _)| port).collect::<Vec<_>>()
    };
    let lldp = Frame::from_bytes(&[&[1; 12][..], &[0x88, 0xcc], &[7; 20]].concat()).unwrap();
    assert_eq!(ports(&mut device, 1, &packet()), [2]);
    assert_eq!(ports(&mut device, 1, &lldp), [0; 0]);
    assert_eq!(ports(&mut device, 3, &packet().tagged(Some(5))), [0; 0], "a tagged frame of a host");
    assert_eq!(ports(&mut device, 1, &packet().tagged(Some(5))), [2]);
    let (_, copied) = device.forward(Nanos::ZERO, 1, &lldp);
    match &read(&copied)[..] {
        [Message::PacketIn(packet)] => {
            assert_eq!((packet.matches.in_port, packet.data), (Some(1), &lldp.to_bytes()[..]));
        }
        other => panic!("{other:?}"),
    }
    // Two frames met the rule for IPv4, two that for LLDP, one was refused.
    let counts = device.tables.rows(&FlowStatsRequest::ALL).iter().map(|row| row.packets).collect::<Vec<_>>();
    assert_eq!(counts, [2, 2, 1]);
}

#[test]
fn a_rule_replaces_the_one_with_its_match_and_deletions_are_reported() {
    let mut device = Device::new(1, 4, Faults::default());
    let normal = vec![Action::Output { port: 0xffff_fffa, max_len: 0 }];
    let flow = FlowMatch { in_port: Some(1), ..FlowMatch::default() };
    add(&mut device, 1, flow, Vec::new());
    add(&mut device, 1, flow, normal);
    assert_eq!((device.tables.rules().len(), device.tables.rows(&FlowStatsRequest::ALL).len()), (0, 1));
    add(&mut device, 1, flow, Vec::new());
    let rule = Rule { actions: Vec::<RuleAction>::new().into(), ..device.tables.rules()[0].clone() };
    assert_eq!(rule.matches, Match { in_port: Some(PortNo(1)), ..Match::default() });
    let command = pathloom_openflow::FlowCommand::Delete;
    let table = pathloom_openflow::TABLE_ALL;
    let told = tell(&mut device, &Message::FlowMod(FlowMod { command, table, ..FlowMod::NOTHING }));
    assert!(matches!(read(&told)[..], [Message::FlowRemoved(_)]), "one rule was deleted");
    assert!(device.tables.rows(&FlowStatsRequest::ALL).is_empty());
}
