use super::*;
use crate::config::{Limits, Sessions};
use crate::drivers::agents::{accept_tcp, accept_unix};
use crate::drivers::session::Shared;
use crate::drivers::timers::run_timers;
use crate::hub::connection::Transmit;
use crate::hub::{Hub, Responder};
use crate::tests::loopback::Directory;
use pathloom_fabrics::fabric_from_spec;
use pathloom_fake_switch::until;
use proptest::prelude::*;
use std::future::Future;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::{spawn_local, LocalSet};

fn hosts() -> Hosts {
    Hosts::new(Some(Arc::new(fabric_from_spec("fat-tree:k=4").unwrap())))
}

fn flow(src: &str) -> FiveTuple {
    FiveTuple::new(6, (src.parse().unwrap(), 40000), ("10.0.7.1".parse().unwrap(), 5001))
}

/// The messages to an agent since the last call, and whether it is disconnected.
fn read(hosts: &mut Hosts, id: AgentId) -> (String, bool) {
    let mut buffer = Vec::new();
    let transmit = hosts.transmit(id, &mut buffer);
    assert_ne!(transmit, Transmit::Gone);
    (String::from_utf8(buffer).unwrap(), transmit == Transmit::Closing)
}

fn greeted(hosts: &mut Hosts, addresses: &str) -> AgentId {
    let id = hosts.connect(Nanos::ZERO, "test".into(), None).unwrap();
    let hello = format!(r#"{{"hello":{{"version":1,"hosts":{addresses}}}}}"#);
    assert_eq!(hosts.line(id, hello.as_bytes()), None);
    assert_eq!(read(hosts, id), ("{\"welcome\":{\"version\":1,\"announce\":false}}\n".into(), false));
    id
}

const ANNOUNCE: &[u8] = br#"{"announce":{"flow":{"src":"10.0.0.1","dst":"10.0.7.1","proto":6,"src_port":40000,"dst_port":5001},"size_bytes":9}}"#;

#[test]
fn messages_for_a_host_go_to_the_agent_that_represents_it() {
    let mut hosts = hosts();
    let fabric = hosts.fabric.clone().unwrap();
    let host = fabric.attachment("10.0.0.1".parse().unwrap()).unwrap().host;
    let (one, other) = (greeted(&mut hosts, r#"["10.0.0.1"]"#), greeted(&mut hosts, r#"["10.0.7.1","10.0.7.2"]"#));
    let five_tuple = flow("10.0.0.1");
    hosts.carry_out(&Output::HoldFlow { host, five_tuple, lease: Nanos(1_500_001) });
    hosts.carry_out(&Output::PaceFlow { host, five_tuple, rate_bps: Some(5) });
    hosts.carry_out(&Output::PaceFlow { host, five_tuple, rate_bps: None });
    hosts.carry_out(&Output::ReleaseFlow { host, five_tuple });
    let name = r#""flow":{"src":"10.0.0.1","dst":"10.0.7.1","proto":6,"src_port":40000,"dst_port":5001}"#;
    let expected = format!(
        "{{\"hold\":{{{name},\"lease_ms\":2}}}}\n{{\"pace\":{{{name},\"rate_bps\":5}}}}\n\
         {{\"pace\":{{{name},\"rate_bps\":null}}}}\n{{\"release\":{{{name}}}}}\n"
    );
    assert_eq!(read(&mut hosts, one).0, expected);
    assert_eq!(read(&mut hosts, other).0, "");
    // Another connection for the same host takes over. Without any, no message is kept for later.
    let again = greeted(&mut hosts, r#"["10.0.0.1"]"#);
    hosts.carry_out(&Output::ReleaseFlow { host, five_tuple });
    assert!(!read(&mut hosts, one).0.contains("release"));
    assert_eq!(read(&mut hosts, again).0.lines().count(), 1);
    hosts.disconnect(Nanos::ZERO, again, "test");
    hosts.carry_out(&Output::ReleaseFlow { host, five_tuple });
    assert_eq!(read(&mut hosts, one).0, "");
}

/// A listener at `[::]` accepts IPv4 hosts too, and sees 10.0.0.1 as ::ffff:10.0.0.1.
#[test]
fn a_listener_for_both_families_accepts_the_agents_of_ipv4_hosts() {
    for (peer, is_welcome) in
        [("10.0.0.1", true), ("::ffff:10.0.0.1", true), ("::ffff:10.0.1.1", false), ("fe80::1", false)]
    {
        let mut hosts = hosts();
        let id = hosts.connect(Nanos::ZERO, peer.into(), Some(peer.parse().unwrap())).unwrap();
        assert_eq!(hosts.line(id, br#"{"hello":{"version":1,"hosts":["10.0.0.1"]}}"#), None);
        assert_eq!(read(&mut hosts, id).0.starts_with("{\"welcome\""), is_welcome, "{peer}");
    }
}

#[test]
fn agents_announce_the_flows_of_their_hosts() {
    let mut hosts = hosts();
    let id = greeted(&mut hosts, r#"["10.0.0.1"]"#);
    let five_tuple = flow("10.0.0.1");
    assert_eq!(hosts.line(id, ANNOUNCE), Some(Input::TransferAnnounced { five_tuple, size_bytes: Some(9) }));
    let finish = format!(r#"{{"finish":{{"flow":{}}}}}"#, serde_json::to_string(&five_tuple).unwrap());
    assert_eq!(hosts.line(id, finish.as_bytes()), Some(Input::TransferEnded { five_tuple }));
    hosts.set_wants(Wants { announce: true, report: false });
    assert_eq!(read(&mut hosts, id).0, "{\"wants\":{\"announce\":true}}\n");
    hosts.set_wants(Wants { announce: false, report: true });
    assert_eq!(read(&mut hosts, id).0, "{\"wants\":{\"announce\":false,\"report\":true}}\n");
    hosts.set_wants(Wants { announce: true, report: false });
    read(&mut hosts, id);
    // No agent can announce flows of hosts that it does not represent.
    let other = greeted_announcing(&mut hosts);
    assert_eq!(hosts.line(other, ANNOUNCE), None);
    assert!(read(&mut hosts, other).0.contains("this agent does not represent the host 10.0.0.1"));
}

#[test]
fn changes_of_agents_are_reported_once() {
    let mut hosts = hosts();
    assert_eq!(hosts.changes(), []);
    let one = greeted(&mut hosts, r#"["10.0.0.1"]"#);
    let host = hosts.host("10.0.0.1".parse().unwrap()).unwrap();
    assert_eq!(hosts.changes(), [Input::Agent { host, speaks: true }]);
    // Another agent takes over. It does not know the rates of the host's flows.
    let again = greeted(&mut hosts, r#"["10.0.0.1"]"#);
    hosts.disconnect(Nanos::ZERO, one, "test");
    assert_eq!(hosts.changes(), [Input::Agent { host, speaks: true }]);
    assert_eq!(hosts.changes(), []);
    hosts.disconnect(Nanos::ZERO, again, "test");
    assert_eq!(hosts.changes(), [Input::Agent { host, speaks: false }]);
}

fn greeted_announcing(hosts: &mut Hosts) -> AgentId {
    let id = hosts.connect(Nanos::ZERO, "test".into(), None).unwrap();
    hosts.line(id, br#"{"hello":{"version":1,"hosts":["10.0.7.1"]}}"#);
    assert_eq!(read(hosts, id).0, "{\"welcome\":{\"version\":1,\"announce\":true}}\n");
    id
}

#[test]
fn paths_are_offered_claimed_and_released_by_the_names_of_their_switches() {
    let mut hosts = hosts();
    let fabric = hosts.fabric.clone().unwrap();
    let scheme = pathloom_schemes::parse("ecmp").unwrap().central(1).unwrap();
    let mut controller = pathloom_control::Controller::new(Default::default(), fabric, scheme);
    let id = greeted(&mut hosts, r#"["10.0.0.1"]"#);
    let mut say = |line: &str| {
        if let Some(input) = hosts.line(id, line.as_bytes()) {
            controller.handle(Nanos::from_secs(1), input);
            while let Some(output) = controller.poll_output() {
                hosts.carry_out(&output);
            }
        }
        read(&mut hosts, id).0
    };
    let id = controller_id(&say(r#"{"paths":{"request":77,"src":"10.0.0.1","dst":"10.0.1.1","count":2}}"#));
    let claim = |src: &str, port: u32| {
        format!(r#"{{"claim":{{"request":5,"assignment":{id},"src":"{src}","dst":"10.0.1.1","src_port":{port}}}}}"#)
    };
    assert_eq!(say(&claim("10.0.0.1", 40000)), "{\"claimed\":{\"request\":5,\"path\":[\"e0_0\",\"a0_0\",\"e0_1\"]}}\n");
    assert_eq!(say(&claim("10.0.0.1", 40001)), "{\"claimed\":{\"request\":5,\"path\":[\"e0_0\",\"a0_1\",\"e0_1\"]}}\n");
    assert!(
        say(&claim("10.0.0.1", 0)).contains("\"request\":5")
            && say(&claim("10.0.0.1", 0)).contains("port 0 is not valid")
    );
    assert!(say(&claim("10.0.0.1", 70000)).contains("the line is not a valid message"));
    assert!(say(&claim("10.0.0.2", 40000)).contains("this agent does not represent the host 10.0.0.2"));
    let release = format!(r#"{{"release_paths":{{"request":6,"assignment":{id},"src":"10.0.0.1"}}}}"#);
    assert_eq!(say(&release), "{\"paths_released\":{\"request\":6}}\n");
    assert!(say(&release).contains(&format!("there is no assignment {id}")));
    let none = r#"{"paths":{"request":8,"src":"10.0.0.1","dst":"10.9.9.9","count":2}}"#;
    assert!(say(none).contains("no host of the fabric has the address 10.9.9.9"));
    assert!(hosts.requests.is_empty(), "a request is answered once");
}

/// The assignment that an offer of two paths names.
fn controller_id(offer: &str) -> u64 {
    let offer: serde_json::Value = serde_json::from_str(offer).unwrap();
    assert_eq!(offer["offer"]["request"], 77);
    assert_eq!(offer["offer"]["paths"], serde_json::json!([["e0_0", "a0_0", "e0_1"], ["e0_0", "a0_1", "e0_1"]]));
    offer["offer"]["assignment"].as_u64().unwrap()
}

#[test]
fn an_agent_by_tcp_represents_only_the_host_with_its_address() {
    let mut hosts = hosts();
    for (from, hello, welcome) in [
        ("10.0.0.1", r#"["10.0.0.1"]"#, true),
        ("10.0.0.1", r#"["10.0.0.1","10.0.0.2"]"#, false),
        ("10.9.9.9", r#"["10.0.0.1"]"#, false),
        ("::1", r#"["10.0.0.1"]"#, false),
    ] {
        let id = hosts.connect(Nanos::ZERO, from.into(), Some(from.parse().unwrap())).unwrap();
        hosts.line(id, format!(r#"{{"hello":{{"version":1,"hosts":{hello}}}}}"#).as_bytes());
        let (text, closed) = read(&mut hosts, id);
        assert_eq!((text.contains("welcome"), closed), (welcome, !welcome), "{from} {hello}: {text}");
        hosts.disconnect(Nanos::ZERO, id, "test");
    }
}

#[test]
fn agents_with_invalid_lines_are_disconnected() {
    let mut hosts = hosts();
    let first_lines =
        ["", "7", r#"{"hello":{"version":2,"hosts":[]}}"#, r#"{"hello":{"version":1,"hosts":["1.2.3.4"]}}"#];
    for line in first_lines.map(str::as_bytes).into_iter().chain([ANNOUNCE]) {
        let id = hosts.connect(Nanos::ZERO, "test".into(), None).unwrap();
        assert_eq!(hosts.line(id, line), None);
        let (text, closed) = read(&mut hosts, id);
        assert!(closed && text.starts_with("{\"refused\":{\"why\":"), "{text}");
        assert_eq!(hosts.line(id, br#"{"hello":{"version":1,"hosts":[]}}"#), None, "it is too late");
    }
    let id = greeted(&mut hosts, r#"["10.0.0.1"]"#);
    (0..PATIENCE).for_each(|_| assert_eq!(hosts.line(id, b"[]"), None));
    assert!(!read(&mut hosts, id).1);
    assert_eq!(hosts.line(id, b"[]"), None);
    assert!(read(&mut hosts, id).1);
    // A silent agent is disconnected as well.
    let silent = hosts.connect(Nanos::ZERO, "test".into(), None).unwrap();
    hosts.tick(FIRST_LINE);
    assert!(!read(&mut hosts, silent).1);
    hosts.tick(FIRST_LINE.saturating_add(Nanos(1)));
    assert!(read(&mut hosts, silent).1);
}

#[test]
fn an_agent_with_too_many_announcements_is_limited_and_named() {
    let mut hosts = hosts();
    hosts.set_limits(&HostsConfig { agents: 16, flows_per_host: 10, ..HostsConfig::default() });
    let (liar, honest) = (greeted(&mut hosts, r#"["10.0.0.1"]"#), greeted(&mut hosts, r#"["10.0.7.1"]"#));
    hosts.agents.get_mut(&liar).unwrap().peer = "10.0.0.1:4711".into();
    let announce = |src: &str, port: u32| {
        let flow = serde_json::to_string(&flow(src)).unwrap().replace("40000", &port.to_string());
        format!(r#"{{"announce":{{"flow":{flow},"size_bytes":18446744073709551615}}}}"#)
    };
    let taken = (1..=1000).filter(|&port| hosts.line(liar, announce("10.0.0.1", port).as_bytes()).is_some()).count();
    assert_eq!(taken, 10);
    let (text, closed) = read(&mut hosts, liar);
    assert!(text.contains("announced and not finished, the maximum: 10") && !closed, "{text}");
    assert_eq!(
        hosts.offences().map(|(agent, offences)| (agent, offences.times)).collect::<Vec<_>>(),
        [("10.0.0.1", 990)]
    );
    assert!(hosts.line(honest, announce("10.0.7.1", 1).as_bytes()).is_some());
}

#[test]
fn lines_with_invalid_numbers_are_refused() {
    let mut hosts = hosts();
    let id = greeted(&mut hosts, r#"["10.0.0.1"]"#);
    let flow = serde_json::to_string(&flow("10.0.0.1")).unwrap();
    for size in ["-1", "1e400", "NaN", "1.5", "18446744073709551616", "\"9\""] {
        let line = format!(r#"{{"announce":{{"flow":{flow},"size_bytes":{size}}}}}"#);
        assert_eq!(hosts.line(id, line.as_bytes()), None, "{size}");
    }
    let port = flow.replace("40000", "70000");
    assert_eq!(hosts.line(id, format!(r#"{{"announce":{{"flow":{port}}}}}"#).as_bytes()), None);
    assert_eq!(read(&mut hosts, id).0.matches("the line is not a valid message").count(), 7);
}

#[test]
fn an_agent_that_does_not_read_is_disconnected() {
    let mut hosts = hosts();
    let host = hosts.host("10.0.0.1".parse().unwrap()).unwrap();
    let id = greeted(&mut hosts, r#"["10.0.0.1"]"#);
    let output = Output::ReleaseFlow { host, five_tuple: flow("10.0.0.1") };
    (0..100_000).for_each(|_| hosts.carry_out(&output));
    assert_eq!(read(&mut hosts, id), (String::new(), true));
}

#[test]
fn an_agent_that_represents_no_host_any_more_is_disconnected() {
    let mut hosts = hosts();
    let one = greeted(&mut hosts, r#"["10.0.0.1","10.0.7.1"]"#);
    let other = greeted(&mut hosts, r#"["10.0.0.1"]"#);
    assert_eq!(read(&mut hosts, one), (String::new(), false), "it still represents a host");
    assert_eq!(hosts.line(other, br#"{"hello":{"version":1,"hosts":["10.0.0.1"]}}"#), None);
    assert!(!read(&mut hosts, other).1, "it displaces nobody, and not itself");
    let third = greeted(&mut hosts, r#"["10.0.7.1"]"#);
    let (text, closed) = read(&mut hosts, one);
    assert!(closed && text.contains("another connection represents its hosts"), "{text}");
    assert!(!read(&mut hosts, other).1 && !read(&mut hosts, third).1);
}

/// Runs a test that uses sockets.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, test);
}

#[test]
fn silent_agents_are_disconnected_for_agents_that_represent_hosts() {
    let mut hosts = hosts();
    hosts.set_limits(&HostsConfig { agents: 4, flows_per_host: 10, ..HostsConfig::default() });
    let from = |last: u8| Some(IpAddr::from([10, 0, 0, last]));
    let first = hosts.connect(Nanos::ZERO, "10.0.0.1:1".into(), from(1)).unwrap();
    let idle = (0..40).map(|_| hosts.connect(Nanos::ZERO, "10.0.0.2:1".into(), from(2)).unwrap()).last().unwrap();
    assert!(hosts.agents.contains_key(&first), "the other address has more connections");
    for last in 3..=5 {
        let id = hosts.connect(Nanos::ZERO, format!("10.0.0.{last}:1"), from(last)).unwrap();
        let hello = format!(r#"{{"hello":{{"version":1,"hosts":["10.0.{}.1"]}}}}"#, last - 3);
        hosts.agents.get_mut(&id).unwrap().only = None;
        assert_eq!(hosts.line(id, hello.as_bytes()), None);
    }
    assert!(!hosts.agents.contains_key(&idle) && hosts.agents.contains_key(&first) && hosts.agents.len() == 4);
    // 37 of the forty were closed for later ones of the forty, and the last three for the agents.
    assert_eq!(hosts.refused(), 37 + 3);
    let last = greeted(&mut hosts, r#"["10.0.3.1"]"#);
    assert!(!hosts.agents.contains_key(&first));
    assert_eq!(hosts.connect(Nanos::ZERO, "10.0.0.9:1".into(), from(9)), None, "all of them represent hosts");
    assert!(hosts.agents.contains_key(&last));
}

fn shared() -> Shared {
    let settings = (Sessions::default(), Limits::default());
    Shared::new(Hub::new(Responder::SurveyOnly, hosts().fabric, BTreeMap::new(), settings))
}

#[test]
fn an_agent_that_does_not_read_loses_its_connection() {
    run(async {
        let (shared, directory) = (shared(), Directory::new());
        spawn_local(run_timers(shared.clone()));
        let path = directory.0.join("agents");
        spawn_local(accept_unix(UnixListener::bind(&path).unwrap(), shared.clone()));
        let mut agent = UnixStream::connect(&path).await.unwrap();
        agent.write_all(b"{\"hello\":{\"version\":1,\"hosts\":[\"10.0.0.1\"]}}\n").await.unwrap();
        let host = hosts().host("10.0.0.1".parse().unwrap()).unwrap();
        until("a welcome", || shared.hub.borrow().hosts.by_host.contains_key(&host)).await.unwrap();
        let output = Output::ReleaseFlow { host, five_tuple: flow("10.0.0.1") };
        let tell = |lines: usize| shared.drive(|hub, _| (0..lines).for_each(|_| hub.hosts.carry_out(&output)));
        // More than the kernel takes: the task that writes waits.
        tell(20_000);
        let is_empty = || shared.hub.borrow().hosts.agents.values().all(|agent| agent.out.is_empty());
        until("a wait of the writer", is_empty).await.unwrap();
        tell(100_000);
        until("the last messages", || shared.hub.borrow().hosts.agents.is_empty()).await.unwrap();
        assert!(shared.hub.borrow().hosts.by_host.is_empty());
    });
}

#[test]
fn an_agent_with_an_endless_line_is_disconnected() {
    run(async {
        let (shared, directory) = (shared(), Directory::new());
        spawn_local(run_timers(shared.clone()));
        let path = directory.0.join("agents");
        spawn_local(accept_unix(UnixListener::bind(&path).unwrap(), shared.clone()));
        let mut agent = UnixStream::connect(&path).await.unwrap();
        agent.write_all(b"{\"hello\":{\"version\":1,\"hosts\":[\"10.0.0.1\"]}}\n").await.unwrap();
        until("a welcome", || !shared.hub.borrow().hosts.by_host.is_empty()).await.unwrap();
        // The controller may close the connection before all bytes are sent.
        let _ = agent.write_all(&vec![b'x'; 10 << 20]).await;
        until("the last messages", || shared.hub.borrow().hosts.agents.is_empty()).await.unwrap();
        assert!(shared.hub.borrow().hosts.by_host.is_empty() && shared.hub.borrow().hosts.refused() == 1);
    });
}

/// Hundredths of a second until the kernel probes the peer of a connection on this machine; `None` without such a
/// timer.
fn asks_in(port: u16, peer: u16) -> Option<u32> {
    let (port, peer) = (format!(":{port:04X}"), format!(":{peer:04X}"));
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let timer = table.lines().find_map(|line| match *line.split_ascii_whitespace().collect::<Vec<_>>() {
        [_, from, to, _, _, timer, ..] if from.ends_with(&port) && to.ends_with(&peer) => Some(timer.to_owned()),
        _ => None,
    });
    u32::from_str_radix(timer?.strip_prefix("02:")?, 16).ok()
}

#[test]
fn the_kernel_probes_the_hosts_of_agents() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        spawn_local(accept_tcp(listener, None, shared()));
        let agent = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let peer = agent.local_addr().unwrap().port();
        until("a timer", || asks_in(port, peer).is_some_and(|hundredths| hundredths <= 1500)).await.unwrap();
    });
}

#[test]
fn the_number_of_agents_is_limited() {
    let mut hosts = hosts();
    hosts.set_limits(&HostsConfig { agents: 2, flows_per_host: 10, ..HostsConfig::default() });
    let [one, _] = [r#"["10.0.0.1"]"#, r#"["10.0.1.1"]"#].map(|address| greeted(&mut hosts, address));
    assert_eq!(hosts.connect(Nanos::ZERO, "test".into(), None), None);
    hosts.disconnect(Nanos::ZERO, one, "test");
    assert!(hosts.connect(Nanos::ZERO, "test".into(), None).is_some());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_handled(lines in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 1..20)) {
        let mut hosts = hosts();
        let id = hosts.connect(Nanos::ZERO, "test".into(), None).unwrap();
        hosts.line(id, br#"{"hello":{"version":1,"hosts":["10.0.0.1"]}}"#);
        for line in &lines {
            prop_assert_eq!(hosts.line(id, line), None);
        }
        let (text, closed) = read(&mut hosts, id);
        prop_assert_eq!(closed, lines.len() as u32 > PATIENCE);
        let refused = text.lines().skip(1).all(|line| line.starts_with(r#"{"refused""#));
        prop_assert!(refused, "{}", text);
    }
}

#[test]
fn an_agent_by_tcp_needs_a_token_and_represents_only_its_own_address() {
    let mut hosts = hosts();
    let directory = Directory::new();
    directory.write("tokens", 0o600, "a-token-of-the-first-host 10.0.0.1\n");
    hosts.set_tokens(Some(Tokens::load(&directory.0.join("tokens")).unwrap()));
    let mut answer = |from: &str, hello: &str| {
        let id = hosts.connect(Nanos::ZERO, from.into(), Some(from.parse().unwrap())).unwrap();
        hosts.line(id, hello.as_bytes());
        read(&mut hosts, id).0
    };
    let hello = |token: &str, host: &str| format!(r#"{{"hello":{{"version":1,"hosts":["{host}"]{token}}}}}"#);
    let token = r#","token":"a-token-of-the-first-host""#;
    assert!(answer("10.0.0.1", &hello("", "10.0.0.1")).contains("a token is needed"));
    assert!(answer("10.0.0.1", &hello(r#","token":"a-guess-of-somebody""#, "10.0.0.1")).contains("not known"));
    assert!(answer("10.0.7.1", &hello(token, "10.0.7.1")).contains("for other hosts"));
    assert!(answer("10.0.7.1", &hello(token, "10.0.0.1")).contains("not the address"));
    assert!(answer("10.0.0.1", &hello(token, "10.0.0.1")).contains("welcome"));
    // The Unix socket is protected by its file.
    greeted(&mut hosts, r#"["10.0.0.1"]"#);
}

#[test]
fn a_host_returns_to_its_earlier_agent_when_the_later_one_leaves() {
    let mut hosts = hosts();
    let machine = greeted(&mut hosts, r#"["10.0.0.1","10.0.7.1"]"#);
    let program = greeted(&mut hosts, r#"["10.0.0.1"]"#);
    assert_eq!(hosts.line(machine, ANNOUNCE), None, "the program represents the host now");
    hosts.disconnect(Nanos::ZERO, program, "test");
    assert!(hosts.line(machine, ANNOUNCE).is_some());
}

#[test]
fn the_agents_of_a_follower_get_no_orders_until_it_leads() {
    let mut hosts = hosts();
    hosts.follow(Some("c1".into()));
    let host = hosts.host("10.0.0.1".parse().unwrap()).unwrap();
    let id = hosts.connect(Nanos::ZERO, "test".into(), None).unwrap();
    hosts.line(id, br#"{"hello":{"version":1,"hosts":["10.0.0.1"]}}"#);
    assert_eq!(read(&mut hosts, id), ("{\"standby\":{\"leader\":\"c1\"}}\n".to_owned(), false));
    assert_eq!((hosts.line(id, ANNOUNCE), hosts.changes()), (None, vec![]));
    let paths = br#"{"paths":{"request":8,"src":"10.0.0.1","dst":"10.0.7.1","count":2}}"#;
    assert_eq!(hosts.line(id, paths), None);
    let (text, closed) = read(&mut hosts, id);
    assert!(text.contains("follows c1") && text.contains("\"request\":8") && !closed, "{text}");
    hosts.lead(7);
    hosts.lead(7);
    let welcome = "{\"welcome\":{\"version\":1,\"announce\":false,\"election\":7}}\n";
    assert_eq!(read(&mut hosts, id), (welcome.to_owned(), false));
    assert_eq!(hosts.changes(), [Input::Agent { host, speaks: true }]);
    assert!(hosts.line(id, ANNOUNCE).is_some());
    hosts.carry_out(&Output::PaceFlow { host, five_tuple: flow("10.0.0.1"), rate_bps: Some(9) });
    assert!(read(&mut hosts, id).0.ends_with("\"rate_bps\":9,\"election\":7}}\n"));
}

#[test]
fn a_leader_in_doubt_gives_applications_no_paths_and_agents_that_refuse_it_are_counted() {
    let mut hosts = hosts();
    let id = greeted(&mut hosts, r#"["10.0.0.1"]"#);
    hosts.follow(None);
    hosts.lead(7);
    assert!(read(&mut hosts, id).0.contains("\"election\":7"));
    let paths = br#"{"paths":{"request":8,"src":"10.0.0.1","dst":"10.0.7.1","count":2}}"#;
    assert!(hosts.line(id, paths).is_some());
    hosts.doubt();
    assert_eq!(hosts.line(id, paths), None);
    assert!(read(&mut hosts, id).0.contains("etcd does not confirm"));
    assert_eq!(hosts.line(id, br#"{"stale":{"newest":9}}"#), None);
    assert_eq!((read(&mut hosts, id), hosts.stale_orders()), ((String::new(), false), 1));
    // A host cannot make a leader give way with a number that means nothing.
    assert_eq!(hosts.line(id, br#"{"stale":{"newest":7}}"#), None);
    assert!(read(&mut hosts, id).0.contains("is not newer") && hosts.stale_orders() == 1);
    hosts.lead(11);
    assert!(read(&mut hosts, id).0.contains("\"election\":11"));
    assert!(hosts.line(id, paths).is_some());
}
