//! Malicious switches, and API clients without a token, at a controller that others use. The offender is limited and
//! named in the log, and everyone else is served. Malicious hosts are tested in `pathloom-discovery`.
//! `tests/lab/test_offenders.py` tests all cases again with real switches.

use crate::bench::fake::{append_message, Common, Fake};
use crate::bench::paths::first_packet;
use crate::testing::{api, lab_without, wait, Directory, Idle, Lab, READ};
use crate::tls_tests::{authority, with_tls};
use pathloom_model::{FiveTuple, PROTO_TCP};
use pathloom_openflow::{Kind, Message, MultipartReply, Port, Reply, Request};
use rand::RngExt;
use rand_pcg::Pcg64;
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

/// A ToR that no flow of others crosses, so that a rogue can take its place.
const TOR: u64 = 1;

static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Sink;

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOG.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Lines of the log, of all controllers of this process, that contain these words.
fn logged(words: &[&str]) -> Vec<String> {
    let log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    let text = String::from_utf8_lossy(&log);
    text.lines().filter(|line| words.iter().all(|word| line.contains(word))).map(str::to_owned).collect()
}

const MORE: &str = "[scheme]\nspec = \"ofpt:sizes=announced\"\n";

/// A controller whose log is kept. Its switches with these identifiers do not connect by themselves.
fn standing(absent: &[u64]) -> Lab {
    standing_with("", absent)
}

/// The same with additional configuration.
fn standing_with(more: &str, absent: &[u64]) -> Lab {
    keep_log();
    lab_without(Directory::new(), &api(&format!("{MORE}{more}")), absent)
}

fn keep_log() {
    static KEPT: Once = Once::new();
    KEPT.call_once(|| tracing_subscriber::fmt().with_ansi(false).with_writer(|| Sink).init());
}

/// Number of connections that were closed because of what their peer did.
fn offences(lab: &Lab) -> u64 {
    let metrics = lab.call("GET", "/metrics", &format!("Bearer {READ}"), "").body;
    let value = metrics.lines().find_map(|line| line.strip_prefix("pathloom_offences_total "));
    value.unwrap_or_else(|| panic!("{metrics}")).parse().unwrap()
}

/// Checks that others are served: a transfer from ToR e1_0 to e2_0 gets its path promptly, and the number of sessions
/// is right.
fn goes_on(lab: &Lab, src_port: u16, sessions: u64) {
    let five_tuple = json!({"src": "10.0.2.1", "dst": "10.0.4.1", "src_port": src_port, "dst_port": 80});
    let begun = Instant::now();
    let (status, answer) =
        lab.change("POST", "/v1/flows", &json!({"five_tuple": five_tuple, "size_bytes": 10_000_000}).to_string());
    assert_eq!(status, 202, "{answer}");
    let flow = answer["flow"]["id"].as_str().unwrap().to_owned();
    wait("the flow of another host is on its path", || lab.get(&format!("/v1/flows/{flow}"))["phase"] == "own path");
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    wait("the number of sessions is right", || lab.get("/v1/state")["sessions"] == sessions);
}

/// A connection to the controller that acts as a switch when it is told to.
struct Rogue {
    stream: TcpStream,
    fake: Fake,
    heard: Vec<u8>,
    work: Idle,
}

impl Rogue {
    fn connect(lab: &Lab, dpid: u64, ports: u32) -> Rogue {
        let stream = TcpStream::connect(("127.0.0.1", lab.openflow)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
        let fake = Fake::new(dpid, ports, Common::default());
        let mut rogue = Rogue { stream, fake, heard: Vec::new(), work: Idle };
        let mut hello = Vec::new();
        rogue.fake.hello(&mut hello);
        rogue.send(&hello);
        rogue
    }

    /// The address by which the controller names it.
    fn peer(&self) -> String {
        self.stream.local_addr().unwrap().to_string()
    }

    /// Sends these bytes. Returns whether the connection is still open.
    fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// Answers the messages that have arrived. Returns whether the connection is still open.
    fn serve(&mut self) -> bool {
        let mut buffer = [0; 1 << 16];
        match self.stream.read(&mut buffer) {
            Ok(0) => return false,
            Ok(count) => self.heard.extend_from_slice(&buffer[..count]),
            Err(problem) => {
                return matches!(problem.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
            }
        }
        let mut out = Vec::new();
        let used = self.fake.read(&self.heard, &mut out, &mut self.work).unwrap();
        self.heard.drain(..used);
        self.send(&out)
    }

    fn serve_for(&mut self, time: Duration) -> bool {
        let end = Instant::now() + time;
        while Instant::now() < end {
            if !self.serve() {
                return false;
            }
        }
        true
    }

    /// Serves until the controller has its session.
    fn stand(&mut self) {
        let end = Instant::now() + Duration::from_secs(30);
        while self.fake.common.standing.get() == 0 {
            assert!(self.serve() && Instant::now() < end, "the handshake");
        }
        assert!(self.serve_for(Duration::from_millis(300)), "the session");
    }

    /// Sends echo requests and reads none of the answers, until the controller has so much to write that it stops
    /// reading.
    fn stop_reading(&mut self) {
        self.stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
        let (mut echo, end) = (Vec::new(), Instant::now() + Duration::from_secs(20));
        append_message(&Message::EchoRequest(&[0; 60_000]), 1, &mut echo);
        while self.send(&echo) {
            assert!(Instant::now() < end, "the controller reads without end");
        }
    }

    /// Serves until the controller disconnects it, for this time at most. Returns whether it was disconnected.
    fn is_sent_away(&mut self, within: Duration) -> bool {
        !self.serve_for(within)
    }
}

/// A message that a switch might send.
fn sample(rng: &mut Pcg64) -> Vec<u8> {
    let mut out = Vec::new();
    let five_tuple = FiveTuple {
        src: [10, 0, 0, 1].into(),
        dst: [10, 0, 7, 1].into(),
        proto: PROTO_TCP,
        src_port: rng.random(),
        dst_port: 80,
    };
    let mut body = [0u8; 24];
    rng.fill(&mut body);
    match rng.random_range(0..4) {
        0 => first_packet(five_tuple, rng.random_range(1..5), &mut out),
        1 => append_message(&Message::EchoRequest(&body), rng.random(), &mut out),
        2 => append_message(
            &Message::MultipartReply(MultipartReply { more: true, reply: Reply::Flows(Vec::new()) }),
            7,
            &mut out,
        ),
        _ => {
            let kind =
                [Kind::ERROR, Kind::FLOW_REMOVED, Kind::PORT_STATUS, Kind::FEATURES_REPLY][rng.random_range(0..4)];
            out.extend([4, kind, 0, 32, 0, 0, 0, 1]);
            out.extend(body);
        }
    }
    out
}

/// Something that no switch should send.
fn spoiled(how: &str, rng: &mut Pcg64) -> Vec<u8> {
    let mut bytes = sample(rng);
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
    let lab = standing(&[TOR]);
    let mut all = Vec::new();
    for how in ["random", "mutated", "lengths"] {
        let (mut away, mut peers, before) = (0, Vec::new(), offences(&lab));
        for number in 0..4 {
            // The bytes of a rogue do not depend on when the previous one is disconnected.
            let mut rng = Pcg64::new(5, number);
            let mut rogue = Rogue::connect(&lab, TOR, 4);
            peers.push(rogue.peer());
            if how != "random" {
                rogue.stand();
            }
            let stands = (0..2000).all(|turn| rogue.send(&spoiled(how, &mut rng)) && (turn % 8 > 0 || rogue.serve()));
            away += u32::from(!stands || rogue.is_sent_away(Duration::from_secs(1)));
        }
        goes_on(&lab, 1000, 19);
        assert!(away >= 2, "{how}: {away}");
        wait("they are counted", || offences(&lab) >= before + u64::from(away));
        for peer in &peers {
            assert!(logged(&[peer]).len() < 40, "{how}: {:?}", logged(&[peer]));
        }
        all.extend(peers);
    }
    // The log has a line for each reason, and counts what happens again soon after.
    assert!(all.iter().any(|peer| !logged(&["a connection is closed", peer]).is_empty()));
}

#[test]
fn a_switch_whose_messages_cannot_be_read_does_not_fill_the_log() {
    let lab = standing(&[TOR]);
    let mut rogue = Rogue::connect(&lab, TOR, 4);
    rogue.stand();
    // Port status messages of the right length with an invalid reason, and errors without a cause.
    let mut bytes = Vec::new();
    for _ in 0..500 {
        bytes.extend([4, Kind::PORT_STATUS, 0, 12, 0, 0, 0, 1, 9, 9, 9, 9]);
        bytes.extend([4, Kind::ERROR, 0, 12, 0, 0, 0, 1, 0, 1, 0, 1]);
    }
    for _ in 0..20 {
        assert!(rogue.send(&bytes) && rogue.serve());
    }
    goes_on(&lab, 1000, 20);
    let peer = rogue.peer();
    wait("all was read", || logged(&[&peer, "count=16384"]).len() == 1);
    assert!(!logged(&[&peer, "a message cannot be read"]).is_empty());
    let lines = logged(&[&peer]);
    assert!(lines.len() < 40, "{lines:?}");
    assert!(rogue.serve_for(Duration::from_millis(100)), "a quirk does not end the session");
}

#[test]
fn an_endless_answer_closes_the_connection() {
    let lab = standing(&[TOR]);
    let mut rogue = Rogue::connect(&lab, TOR, 4);
    let (peer, end) = (rogue.peer(), Instant::now() + Duration::from_secs(30));
    let port = |number: u32| Port { number, name: "p".into(), ..Port::default() };
    let mut buffer = [0; 1 << 16];
    loop {
        assert!(Instant::now() < end, "the connection is never closed");
        match rogue.stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => rogue.heard.extend_from_slice(&buffer[..count]),
            Err(problem) if problem.kind() == std::io::ErrorKind::ConnectionReset => break,
            Err(_) => {}
        }
        let heard = std::mem::take(&mut rogue.heard);
        let (mut at, mut out) = (0, Vec::new());
        while let Some((header, body, length)) = pathloom_openflow::frame(&heard[at..]).unwrap() {
            match Message::parse(header, body).unwrap() {
                Message::MultipartRequest(asked) if asked.request == Request::PortDesc => {
                    // It describes its ports without end.
                    for part in 0..20 {
                        let reply = Reply::PortDesc((1..=900).map(|number| port(900 * part + number)).collect());
                        append_message(
                            &Message::MultipartReply(MultipartReply { more: true, reply }),
                            header.xid,
                            &mut out,
                        );
                    }
                }
                _ => drop(rogue.fake.read(&heard[at..at + length], &mut out, &mut rogue.work).unwrap()),
            }
            at += length;
        }
        rogue.heard.extend_from_slice(&heard[at..]);
        rogue.send(&out);
    }
    wait("it is named", || logged(&[&peer, "a connection is closed", "does not end"]).len() == 1);
    goes_on(&lab, 1000, 19);
}

#[test]
fn a_second_switch_with_the_same_identifier_is_disconnected_and_named() {
    let lab = standing(&[]);
    let mut peers = Vec::new();
    for _ in 0..2 {
        let mut rogue = Rogue::connect(&lab, 3, 4);
        peers.push(rogue.peer());
        assert!(rogue.is_sent_away(Duration::from_secs(60)));
    }
    wait("it is named", || logged(&[&peers[0], "a connection is closed", "is connected from"]).len() == 1);
    assert_eq!(logged(&[&peers[1], "a connection is closed"]), [""; 0], "the same again is only counted");
    assert_eq!(offences(&lab), 2);
    goes_on(&lab, 1000, 20);
    assert_eq!(lab.get("/v1/state")["sessions"], 20, "the first keeps its session");
}

#[test]
fn a_replaced_switch_does_not_affect_the_next_session() {
    let lab = standing(&[TOR, 2]);
    let mut old = Rogue::connect(&lab, TOR, 4);
    old.stand();
    old.stop_reading();
    let mut heir = Rogue::connect(&lab, TOR, 4);
    let (peer, end) = (old.peer(), Instant::now() + Duration::from_secs(30));
    while logged(&[&peer, "took its place"]).is_empty() {
        assert!(heir.serve() && Instant::now() < end, "it is not replaced");
    }
    assert!(heir.serve_for(Duration::from_millis(300)));
    // It gets the place in the hub that the old connection had.
    let mut next = Rogue::connect(&lab, 2, 4);
    next.stand();
    wait("both sessions are up", || lab.get("/v1/state")["sessions"] == 20);
    assert!(old.is_sent_away(Duration::from_secs(30)), "the old connection is ended as soon as it is replaced");
    drop(old);
    assert!(next.serve_for(Duration::from_millis(300)) && heir.serve_for(Duration::from_millis(300)));
    goes_on(&lab, 1000, 20);
}

#[test]
fn only_the_host_that_sends_100_000_packets_is_limited_and_named() {
    let fabric = pathloom_fabrics::fabric_from_spec("fat-tree:k=4,rate=10Mbps").unwrap();
    let at = fabric.attachments()[0];
    assert_eq!(u64::from(at.tor.0) + 1, TOR);
    let port = fabric.link(at.uplink).to_port.0;
    let lab = standing(&[TOR]);
    let mut rogue = Rogue::connect(&lab, TOR, 4);
    rogue.stand();
    wait("all sessions are up", || lab.get("/v1/state")["sessions"] == 20);
    let packets = |port: u32, from: u16| {
        let mut out = Vec::new();
        for src_port in from..from + 500 {
            let five_tuple =
                FiveTuple { src: at.address, dst: [10, 0, 7, 1].into(), proto: PROTO_TCP, src_port, dst_port: 80 };
            first_packet(five_tuple, port, &mut out);
        }
        out
    };
    let flood = packets(port, 1000);
    let begun = Instant::now();
    for _ in 0..200 {
        assert!(rogue.send(&flood) && rogue.serve());
    }
    // The controller still handles the flood.
    goes_on(&lab, 1000, 20);
    let switch = format!("{TOR:016x}");
    wait("it is named", || {
        !logged(&[&switch, &format!("port={port} "), "refused=65536", "too many packets"]).is_empty()
    });
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    // Ports that the switch invents share one allowance, and they are named as well.
    for made_up in 0..20 {
        assert!(rogue.send(&packets(1000 + made_up, 1000)) && rogue.serve());
    }
    wait("made-up ports are limited", || !logged(&[&switch, "port=10", "refused=4096", "too many packets"]).is_empty());
    assert!(logged(&[&switch, "too many packets"]).len() < 60);
    let metrics = lab.call("GET", "/metrics", &format!("Bearer {READ}"), "").body;
    let limited = metrics.lines().find_map(|line| line.strip_prefix("pathloom_packet_ins_limited_total ")).unwrap();
    assert!(limited.parse::<u64>().unwrap() > 90_000, "{limited}");
}

#[test]
fn requests_without_a_token_are_logged_ever_less_often() {
    let lab = standing(&[]);
    let named = || logged(&["a request to the API was refused", "peer=127.0.0.1"]).len();
    let before = named();
    for number in 0..300 {
        let shown = if number % 2 == 0 { "" } else { "Bearer of bad news" };
        assert_eq!(lab.call("GET", "/v1/state", shown, "").status, 401);
    }
    let lines = named() - before;
    // The first, the second, the fourth and so on are logged. Parallel tests also have refused requests.
    assert!((9..40).contains(&lines), "{lines}");
    goes_on(&lab, 1000, 20);
    let metrics = lab.call("GET", "/metrics", &format!("Bearer {READ}"), "").body;
    assert!(metrics.contains("pathloom_api_requests_total{status=\"401\"} 300"), "{metrics}");
}

/// Connects and sends these bytes. Returns the answer that came before the connection was closed.
fn turned_away(lab: &Lab, said: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(("127.0.0.1", lab.openflow)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut answer = Vec::new();
    // The connection may be closed before all bytes are sent.
    let _ = stream.write_all(said);
    match stream.read_to_end(&mut answer) {
        Err(problem) if problem.kind() != std::io::ErrorKind::ConnectionReset => panic!("{problem}"),
        _ => answer,
    }
}

#[test]
fn switches_without_a_place_are_named_once_and_counted() {
    let lab = standing_with("[limits]\nconnections = 24\n", &[TOR]);
    // A loopback address may have all places. 19 belong to switches, and each further connection after 5 closes the
    // oldest.
    let idle: Vec<TcpStream> = (0..105).map(|_| TcpStream::connect(("127.0.0.1", lab.openflow)).unwrap()).collect();
    let metrics = || lab.call("GET", "/metrics", &format!("Bearer {READ}"), "").body;
    wait("100 made room", || metrics().contains("pathloom_connections_crowded_out_total 100\n"));
    // There is one line, and then a count every 10 s. Parallel tests of the hub also refuse connections.
    let lines = logged(&["too many connections; ", "all places are taken"]);
    assert!((1..20).contains(&lines.len()), "{lines:?}");
    let mut last = Rogue::connect(&lab, TOR, 4);
    wait("the last switch has its session", || last.serve() && lab.get("/v1/state")["sessions"] == 20);
    drop(idle);
    goes_on(&lab, 1000, 20);
}

#[test]
fn switches_that_are_not_encrypted_are_counted_and_named_once() {
    keep_log();
    let lab = with_tls(&authority(), "");
    for _ in 0..100 {
        turned_away(&lab, &[4, 0, 0, 8, 0, 0, 0, 1]);
    }
    let metrics = lab.call("GET", "/metrics", &format!("Bearer {READ}"), "").body;
    assert!(metrics.contains("pathloom_offences_total 100\n"), "{metrics}");
    assert!(metrics.contains("pathloom_handshakes_failed_total 100\n"), "{metrics}");
    // Parallel tests also disconnect switches.
    let lines = logged(&["a TLS handshake failed"]);
    assert!((1..20).contains(&lines.len()), "{lines:?}");
}

#[test]
fn a_thousand_refused_connections_make_few_log_lines() {
    let lab = standing(&[TOR]);
    // An invalid header, and a hello of another version of OpenFlow.
    for round in 0..500u32 {
        turned_away(&lab, &[4, 99, 0, 4, 0, 0, 0, 1]);
        turned_away(&lab, &[1, 0, 0, 8, 0, 0, (round >> 8) as u8, round as u8]);
    }
    let metrics = lab.call("GET", "/metrics", &format!("Bearer {READ}"), "").body;
    assert!(metrics.contains("pathloom_offences_total 1000\n"), "{metrics}");
    // Parallel tests log as well. Without a limit, each of these connections would have a line or two.
    let lines = logged(&["a connection is closed", "switch=\"unknown\""]);
    assert!((1..200).contains(&lines.len()), "{} lines", lines.len());
}
