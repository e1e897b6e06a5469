//! Malicious switches and hosts. The offender is limited and named in the log, and everyone else is served.

use super::lab::{ms, s, Lab, K4, QUIET};
use pathloom_controller::config::Limits;
use pathloom_model::{Headers, Nanos, NodeId};
use pathloom_openflow::flow_match::FlowMatch;
use pathloom_openflow::{Kind, Message, MultipartReply, PacketIn, PacketInReason, Port, Reply, NO_BUFFER};
use pathloom_testnet::{Faults, Frame, Timing};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// A fabric in which another switch has taken the place of the first ToR, and the number of its connection.
fn with_rogue(more: &str, seed: u64) -> (Lab, NodeId, usize) {
    let mut lab = Lab::with(K4, QUIET, more, Timing::PROMPT, seed);
    lab.redials = false;
    let tor = lab.node("e0_0");
    lab.break_session(tor);
    let rogue = lab.add_device(u64::from(tor.0) + 1, 4);
    let peer = lab.connect(rogue).unwrap();
    lab.run_for(s(2));
    assert_eq!(lab.sessions(), 20);
    (lab, rogue, peer)
}

fn message(message: &Message<'_>, xid: u32) -> Vec<u8> {
    let mut out = Vec::new();
    message.emit(xid, &mut out).unwrap();
    out
}

/// A packet-in with a packet that arrived at a port.
fn packet_in(headers: Headers, port: u32) -> Vec<u8> {
    let data = &Frame::bytes_of(headers)[..];
    let matches = FlowMatch { in_port: Some(port), ..FlowMatch::default() };
    let (reason, total_len) = (PacketInReason::Action, data.len() as u16);
    let packet = PacketIn { buffer: NO_BUFFER, total_len, reason, table: 0, cookie: 0, matches, data };
    message(&Message::PacketIn(packet), 0)
}

/// A message that a switch might send.
fn sample(lab: &Lab, rng: &mut Pcg64) -> Vec<u8> {
    let mut body = [0u8; 24];
    rng.fill(&mut body);
    match rng.random_range(0..4) {
        0 => packet_in(lab.packet(0, 15, rng.random()), rng.random_range(1..5)),
        1 => message(&Message::EchoRequest(&body), rng.random()),
        2 => message(&Message::MultipartReply(MultipartReply { more: true, reply: Reply::Flows(Vec::new()) }), 7),
        _ => {
            let kinds = [Kind::ERROR, Kind::FLOW_REMOVED, Kind::PORT_STATUS, Kind::FEATURES_REPLY];
            let head = [4, kinds[rng.random_range(0..4)], 0, 32, 0, 0, 0, 1];
            [&head[..], &body].concat()
        }
    }
}

/// Something that no switch should send.
fn spoiled(lab: &Lab, how: &str, rng: &mut Pcg64) -> Vec<u8> {
    let mut bytes = sample(lab, rng);
    match how {
        "random" => {
            bytes.resize(rng.random_range(1..400), 0);
            rng.fill(&mut bytes[..]);
        }
        "mutated" => {
            for _ in 0..rng.random_range(1..6) {
                let at = rng.random_range(0..bytes.len());
                match rng.random_range(0..3) {
                    0 => bytes[at] = rng.random(),
                    1 => bytes.insert(at, rng.random()),
                    _ => bytes.extend_from_within(at..),
                }
            }
        }
        _ => {
            // The length in the header, or a count in the body.
            let at = if rng.random() { 2 } else { rng.random_range(8..bytes.len() - 1) };
            let length = [0, 1, 7, bytes.len() as u16 + 1, u16::MAX, rng.random()][rng.random_range(0..6)];
            bytes[at..at + 2].copy_from_slice(&length.to_be_bytes());
        }
    }
    bytes
}

#[test]
fn switches_with_invalid_messages_are_disconnected_and_named() {
    for how in ["random", "mutated", "lengths"] {
        let (mut lab, rogue, _) = with_rogue("", 1);
        lab.begin_flows(0);
        let (mut away, mut rng) = (0, Pcg64::seed_from_u64(5));
        for _ in 0..20 {
            // Some send nonsense in place of a handshake.
            let peer = match how {
                "random" => lab.open("192.0.2.99:1").unwrap(),
                _ => lab.connect(rogue).unwrap(),
            };
            lab.run_for(s(1));
            let mut turns = 0;
            while turns < 500 && lab.is_open(peer) {
                let bytes = spoiled(&lab, how, &mut rng);
                lab.say(peer, &bytes);
                lab.run_for(ms(1));
                turns += 1;
            }
            away += u64::from(!lab.is_open(peer));
            lab.break_connection(peer);
        }
        assert!(away >= 5, "{how}: {away}");
        assert_eq!(lab.machine().hub.counts.offences, away, "{how}");
        assert!(!lab.logged(&["a connection is closed"]).is_empty(), "{how}");
        assert!(lab.logged(&["WARN"]).len() < 1000, "{how}: {} lines", lab.logged(&["WARN"]).len());
        lab.break_session(rogue);
        lab.goes_on(1000, 19);
        // All other switches have had one session.
        assert_eq!(lab.logged(&["a session ended"]).len(), lab.logged(&["a session is up"]).len() - 19, "{how}");
    }
}

#[test]
fn a_switch_whose_messages_cannot_be_read_does_not_fill_the_log() {
    let (mut lab, _, peer) = with_rogue("", 1);
    // Port status messages of the right length with an invalid reason, and errors without a cause.
    let mut bytes = Vec::new();
    for _ in 0..500 {
        bytes.extend([4, Kind::PORT_STATUS, 0, 12, 0, 0, 0, 1, 9, 9, 9, 9]);
        bytes.extend([4, Kind::ERROR, 0, 12, 0, 0, 0, 1, 0, 1, 0, 1]);
    }
    for _ in 0..20 {
        lab.say(peer, &bytes);
    }
    lab.goes_on(1000, 20);
    assert_eq!(lab.logged(&["count=16384"]).len(), 1);
    let lines = lab.logged(&["192.0.2"]).len() + lab.logged(&["a message cannot be read"]).len();
    assert!(lines < 90, "{lines}");
    assert!(lab.is_open(peer), "a quirk does not end the session");
}

#[test]
fn an_endless_answer_closes_the_connection() {
    let mut lab = Lab::with(K4, QUIET, "", Timing::PROMPT, 1);
    lab.redials = false;
    let tor = lab.node("e0_0");
    lab.break_session(tor);
    // It describes its ports without end.
    let rogue = lab.add_device(u64::from(tor.0) + 1, 0);
    let port = |number: u32| (number, Port { number, name: "p".into(), ..Port::default() });
    lab.devices.get_mut(&rogue).unwrap().ports = (1..=5000).map(port).collect();
    lab.devices.get_mut(&rogue).unwrap().faults = Faults { rows_in_part: 900, ..Faults::default() };
    let peer = lab.connect(rogue).unwrap();
    lab.run_for(s(2));
    assert!(!lab.is_open(peer));
    assert_eq!(lab.logged(&["a connection is closed", "does not end"]).len(), 1);
    lab.goes_on(1000, 19);
}

#[test]
fn a_second_switch_with_the_same_identifier_is_disconnected_and_named() {
    let mut lab = Lab::with(K4, QUIET, "", Timing::PROMPT, 1);
    lab.redials = false;
    let core = lab.node("c0");
    for _ in 0..2 {
        let begun = lab.now();
        let double = lab.add_device(u64::from(core.0) + 1, 4);
        let peer = lab.connect(double).unwrap();
        assert!(lab.run_while(s(60), |lab| lab.is_open(peer)));
        let took = lab.now() - begun;
        assert!(took >= s(2) && took < ms(2300), "it has 2 s to show that it is alone: {took:?}");
    }
    assert_eq!(lab.logged(&["a connection is closed", "is connected from"]).len(), 1, "the same again is only counted");
    assert_eq!(lab.machine().hub.counts.offences, 2);
    lab.goes_on(1000, 20);
    assert_eq!(lab.logged(&["a session ended"]).len(), 0, "the first keeps its session");
}

#[test]
fn a_replaced_switch_does_not_affect_the_next_session() {
    let (mut lab, _, old) = with_rogue("", 1);
    let next_tor = lab.node("e0_1");
    lab.break_session(next_tor);
    lab.peer(old).silent = true;
    let tor = lab.node("e0_0");
    let heir = lab.connect(tor).unwrap();
    assert!(lab.run_while(s(60), |lab| lab.is_open(old)), "the old connection ends when it is replaced");
    assert_eq!(lab.logged(&["took its place"]).len(), 1);
    // It gets the place in the hub that the old connection had.
    let next = lab.connect(next_tor).unwrap();
    lab.run_for(s(3));
    assert!(lab.is_open(next) && lab.is_open(heir));
    lab.goes_on(1000, 20);
}

#[test]
fn only_the_port_that_sends_100_000_packets_is_limited_and_named() {
    let (mut lab, _, peer) = with_rogue("", 1);
    let uplink = lab.fabric.attachments()[0].uplink;
    let port = lab.fabric.link(uplink).to_port.0;
    let before = lab.machine().hub.counts.limited;
    for _ in 0..200 {
        let bytes: Vec<u8> = (0..500).flat_map(|number| packet_in(lab.packet(0, 15, 1000 + number), port)).collect();
        lab.say(peer, &bytes);
        lab.run_for(ms(1));
    }
    let limited = lab.machine().hub.counts.limited - before;
    assert_eq!(limited, 100_000 - u64::from(Limits::default().packet_ins_per_port) - admitted(ms(199)));
    let named = ["too many packets", &format!("port={port} ")[..]];
    assert!(!lab.logged(&[&named[..], &["refused=65536"]].concat()).is_empty());
    assert!(lab.logged(&["too many packets"]).len() < 40);
    lab.goes_on(1000, 20);
    // Ports that the switch invents share one allowance, and they are named as well.
    for made_up in 0..20 {
        let bytes: Vec<u8> =
            (0..500).flat_map(|number| packet_in(lab.packet(0, 15, 1000 + number), 1000 + made_up)).collect();
        lab.say(peer, &bytes);
    }
    lab.goes_on(1001, 20);
    assert!(!lab.logged(&["too many packets", "port=10", "refused=4096"]).is_empty());
    assert!(lab.logged(&["too many packets"]).len() < 60);
}

/// Packets that a port may send within a time, besides its burst.
fn admitted(time: Nanos) -> u64 {
    u64::from(Limits::default().packet_ins_per_port) * time.0 / 1_000_000_000
}

#[test]
fn connections_without_a_place_are_named_once_and_counted() {
    let mut lab = Lab::with(K4, QUIET, "[limits]\nconnections = 24\n", Timing::PROMPT, 1);
    lab.redials = false;
    let tor = lab.node("e0_0");
    lab.break_session(tor);
    // A loopback address may have all places. 19 belong to switches, and each further connection after 5 closes the
    // oldest.
    for port in 0..105 {
        lab.open(&format!("127.0.0.1:{port}")).unwrap();
    }
    assert_eq!(lab.machine().hub.counts.crowded, 100);
    let lines = lab.logged(&["too many connections; "]).len();
    assert_eq!(lines, 1);
    lab.connect(tor);
    lab.run_for(s(2));
    lab.goes_on(1000, 20);
}

#[test]
fn a_thousand_refused_connections_make_few_log_lines() {
    let mut lab = Lab::with(K4, QUIET, "", Timing::PROMPT, 1);
    // An invalid header, and a hello of another version of OpenFlow.
    for round in 0..1000u32 {
        let peer = lab.open(&format!("192.0.2.200:{}", 1000 + round)).unwrap();
        let said = [[4, 99, 0, 4, 0, 0, 0, 1], [1, 0, 0, 8, 0, 0, (round >> 8) as u8, round as u8]];
        lab.say(peer, &said[round as usize % 2]);
        lab.run_for(ms(1));
        assert!(!lab.is_open(peer));
    }
    assert_eq!(lab.machine().hub.counts.offences, 1000);
    let lines = lab.logged(&["a connection is closed", "switch=\"unknown\""]).len();
    assert!((2..10).contains(&lines), "{lines}");
    lab.goes_on(1000, 20);
}

/// Ports that change their state 100 times a second are held back. A cable that no flow uses flaps as well.
#[test]
fn ports_that_flap_are_held_back_and_cost_no_packet_of_others() {
    let mut lab = Lab::k4(QUIET, 1);
    lab.begin_flows(8);
    let used: Vec<_> = lab.paths().concat();
    let idle = lab.fabric.switch_cables().find(|&link| !used.contains(&link) && !used.contains(&link.reverse()));
    let idle = idle.unwrap();
    let tells = lab.logged(&["times in a row; must stay up"]).len();
    for turn in 0..800 {
        lab.set_cable(idle, turn % 2 == 1);
        lab.traffic(ms(5));
    }
    lab.traffic(s(1));
    lab.nothing_is_lost();
    assert!(lab.logged(&["times in a row; must stay up"]).len() > tells);
    assert!(lab.logged(&[""]).len() < 200, "{}", lab.logged(&[""]).len());
    assert_eq!(lab.sessions(), 20);
}

/// A host sends a first packet of another flow as fast as it can.
#[test]
fn a_host_that_opens_flows_is_limited_and_disturbs_no_other() {
    let mut lab = Lab::with(K4, QUIET, "[limits]\npacket_ins_per_port = 200\n", Timing::PROMPT, 1);
    lab.begin_flows(8);
    let known = lab.packets.len();
    for number in 0..5000u16 {
        let headers = lab.packet(0, 15, 1024 + number);
        lab.send(headers);
        if number % 10 == 0 {
            lab.traffic(ms(3));
        }
    }
    lab.nothing_is_lost();
    assert!(lab.packets.len() > known + 5000);
    assert!(!lab.logged(&["a port sends too many packets"]).is_empty());
    let flows = lab.machine().hub.controller().unwrap().view().flows.len();
    assert!(flows <= 8 + 200 * 3, "{flows}");
    lab.goes_on(1000, 20);
}
