//! Tests of the agent with lines in the form that the controller writes.

use super::*;
use serde_json::{json, Value};

const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const B: Ipv4Addr = Ipv4Addr::new(10, 0, 7, 1);
const ONE: ControllerId = ControllerId(0);
const OTHER: ControllerId = ControllerId(1);

fn flow(src_port: u16) -> FiveTuple {
    FiveTuple::new(6, (A.into(), src_port), (B.into(), 5001))
}

fn agent() -> Agent {
    Agent::new(Settings { hosts: vec![A], token: None, max_flows: 4 })
}

fn lines(agent: &mut Agent) -> Vec<Value> {
    std::iter::from_fn(|| agent.poll_line()).map(|(_, line)| serde_json::from_str(&line).unwrap()).collect()
}

fn orders(agent: &mut Agent) -> Vec<(u16, Order)> {
    std::iter::from_fn(|| agent.poll_order()).map(|(flow, order)| (flow.src_port(), order)).collect()
}

fn receive(agent: &mut Agent, now: Nanos, line: &Value) {
    agent.handle_line(now, ONE, line.to_string().as_bytes());
}

fn hold(agent: &mut Agent, now: Nanos, port: u16, lease_ms: u64) {
    receive(agent, now, &json!({"hold": {"flow": flow(port), "lease_ms": lease_ms}}));
}

fn pace(agent: &mut Agent, now: Nanos, port: u16, rate_bps: Option<u64>) {
    receive(agent, now, &json!({"pace": {"flow": flow(port), "rate_bps": rate_bps}}));
}

/// Creates an agent with a session whose scheme wants announcements.
fn welcomed() -> Agent {
    let mut agent = agent();
    agent.handle_connected(ONE);
    assert_eq!(lines(&mut agent), [json!({"hello": {"version": 1, "hosts": ["10.0.0.1"]}})]);
    receive(&mut agent, Nanos::ZERO, &json!({"welcome": {"version": 1, "announce": true}}));
    agent
}

#[test]
fn a_long_flow_is_announced_once_and_its_end_too() {
    let mut agent = welcomed();
    agent.handle_long(flow(1));
    agent.handle_long(flow(1));
    assert_eq!(lines(&mut agent), [json!({"announce": {"flow": flow(1), "size_bytes": null}})]);
    agent.handle_closed(flow(1));
    agent.handle_closed(flow(1));
    assert_eq!(lines(&mut agent), [json!({"finish": {"flow": flow(1)}})]);
}

#[test]
fn flows_are_announced_on_request_and_in_each_new_session() {
    let mut agent = agent();
    agent.handle_long(flow(1));
    agent.handle_connected(ONE);
    receive(&mut agent, Nanos::ZERO, &json!({"welcome": {"version": 1, "announce": false}}));
    assert_eq!(lines(&mut agent).len(), 1, "only the hello");
    receive(&mut agent, Nanos::ZERO, &json!({"wants": {"announce": true}}));
    let announced = json!({"announce": {"flow": flow(1), "size_bytes": null}});
    assert_eq!(lines(&mut agent).first(), Some(&announced));
    agent.handle_lost(Nanos::ZERO, ONE);
    agent.handle_connected(ONE);
    receive(&mut agent, Nanos::ZERO, &json!({"welcome": {"version": 1, "announce": true}}));
    assert_eq!(lines(&mut agent)[1], announced);
}

#[test]
fn the_hello_contains_the_token() {
    let mut agent = Agent::new(Settings { hosts: vec![A], token: Some("secret".into()), max_flows: 4 });
    agent.handle_connected(ONE);
    assert_eq!(lines(&mut agent)[0]["hello"]["token"], "secret");
}

#[test]
fn a_hold_ends_with_its_release_or_its_lease() {
    let mut agent = welcomed();
    let second = Nanos::from_secs(1);
    hold(&mut agent, Nanos::ZERO, 1, 1000);
    hold(&mut agent, Nanos::ZERO, 2, 2000);
    let held = orders(&mut agent);
    assert_eq!(held[0], (1, Order { hold_until: Some(second), ..Order::default() }));
    assert!(agent.has_holds());
    receive(&mut agent, Nanos::ZERO, &json!({"release": {"flow": flow(2)}}));
    assert_eq!(orders(&mut agent), [(2, Order { released: true, ..Order::default() })]);
    assert_eq!(agent.poll_timeout(), Some(second));
    agent.handle_time(second);
    assert_eq!(orders(&mut agent), [(1, Order { released: true, ..Order::default() })]);
    assert!(!agent.has_holds());
    assert_eq!(agent.counts().leases_ended, 1);
    agent.handle_time(Nanos::from_secs(3));
    assert!(orders(&mut agent).is_empty(), "the lease of a released flow has no effect");
}

#[test]
fn leases_can_be_renewed_and_have_a_maximum() {
    let mut agent = welcomed();
    hold(&mut agent, Nanos::ZERO, 1, 1000);
    hold(&mut agent, Nanos::from_millis(900), 1, 1000);
    orders(&mut agent);
    agent.handle_time(Nanos::from_millis(1000));
    assert!(orders(&mut agent).is_empty(), "the lease was renewed");
    agent.handle_time(Nanos::from_millis(1900));
    assert_eq!(orders(&mut agent).len(), 1);
    hold(&mut agent, Nanos::ZERO, 1, u64::MAX);
    assert_eq!(orders(&mut agent)[0].1.hold_until, Some(LONGEST_LEASE));
}

#[test]
fn paces_end_within_15_s_and_holds_with_their_leases_after_a_loss() {
    let mut agent = welcomed();
    pace(&mut agent, Nanos::ZERO, 1, Some(5_000_000));
    hold(&mut agent, Nanos::ZERO, 2, 3000);
    orders(&mut agent);
    let lost = Nanos::from_secs(1);
    agent.handle_lost(lost, ONE);
    agent.handle_lost(Nanos::from_secs(9), ONE); // A failed attempt to connect does not extend the time.
    agent.handle_time(Nanos::from_secs(3));
    assert_eq!(orders(&mut agent), [(2, Order { released: true, ..Order::default() })]);
    assert_eq!(agent.poll_timeout(), Some(Nanos::from_millis(15_500)));
    agent.handle_time(Nanos::from_millis(15_499));
    assert!(orders(&mut agent).is_empty());
    agent.handle_time(Nanos::from_millis(15_500));
    assert_eq!(orders(&mut agent), [(1, Order::default())]);
}

/// The controller comes back and repeats the pace of the first flow. It has ended that of the second one meanwhile.
#[test]
fn paces_stay_if_the_controller_comes_back_and_repeats_them() {
    let mut agent = welcomed();
    let paced = |rate_bps: u64| Order { pace_bps: Some(rate_bps), ..Order::default() };
    for port in [1, 2] {
        agent.handle_long(flow(port));
        pace(&mut agent, Nanos::ZERO, port, Some(5_000_000));
    }
    orders(&mut agent);
    agent.handle_lost(Nanos::from_secs(1), ONE);
    agent.handle_connected(ONE);
    receive(&mut agent, Nanos::from_secs(2), &json!({"welcome": {"version": 1, "announce": true}}));
    pace(&mut agent, Nanos::from_secs(2), 1, Some(5_000_000));
    assert_eq!((orders(&mut agent), agent.paces_end()), (vec![(1, paced(5_000_000))], None));
    agent.handle_time(Nanos::from_millis(15_499));
    assert!(orders(&mut agent).is_empty());
    agent.handle_time(Nanos::from_millis(15_500));
    assert_eq!(orders(&mut agent), [(2, Order::default())]);
    agent.handle_time(Nanos::from_secs(29));
    assert!(orders(&mut agent).is_empty());
    // A second loss ends the pace 14.5 s after it, even if the first one is repeated too late.
    agent.handle_lost(Nanos::from_secs(30), ONE);
    agent.handle_lost(Nanos::from_secs(40), ONE);
    assert_eq!(agent.paces_end(), Some(Nanos::from_millis(44_500)));
    agent.handle_time(Nanos::from_millis(44_500));
    assert_eq!((orders(&mut agent), agent.paces_end()), (vec![(1, Order::default())], None));
}

#[test]
fn orders_of_an_earlier_agent_end_at_their_original_times() {
    let mut agent = agent();
    let (now, paces_until) = (Nanos::from_secs(100), Nanos::from_secs(105));
    agent.adopt(now, flow(1), Order { pace_bps: Some(1), ..Order::default() }, paces_until);
    agent.adopt(now, flow(2), Order { hold_until: Some(Nanos::from_secs(102)), ..Order::default() }, paces_until);
    agent.handle_time(Nanos::from_secs(102));
    agent.handle_time(Nanos::from_millis(104_999));
    assert_eq!(agent.sizes(), (0, 2));
    assert_eq!(agent.paces_end(), Some(paces_until));
    agent.handle_time(paces_until);
    assert_eq!(orders(&mut agent), [(2, Order { released: true, ..Order::default() }), (1, Order::default())]);
}

#[test]
fn if_only_long_flows_are_reported_a_transfer_is_announced_when_it_is_long() {
    let mut agent = agent();
    agent.handle_connected(ONE);
    receive(&mut agent, Nanos::ZERO, &json!({"welcome": {"version": 1, "announce": false, "report": true}}));
    assert_eq!(agent.session(), Some(false), "programs need not announce");
    lines(&mut agent);
    agent.handle_announce(ProgramId(7), flow(1), Some(1000)).unwrap();
    assert!(lines(&mut agent).is_empty());
    agent.handle_long(flow(1));
    agent.handle_long(flow(2));
    let announced = |port, size: Option<u64>| json!({"announce": {"flow": flow(port), "size_bytes": size}});
    assert_eq!(lines(&mut agent), [announced(1, Some(1000)), announced(2, None)]);
    agent.handle_closed(flow(2));
    assert_eq!(lines(&mut agent), [json!({"finish": {"flow": flow(2)}})]);
}

#[test]
fn the_order_of_a_closed_flow_is_removed() {
    let mut agent = welcomed();
    agent.handle_long(flow(1));
    hold(&mut agent, Nanos::ZERO, 1, 1000);
    agent.handle_closed(flow(1));
    assert_eq!(orders(&mut agent).last(), Some(&(1, Order { released: true, ..Order::default() })));
    assert_eq!((agent.sizes(), agent.poll_timeout()), ((0, 0), None));
}

#[test]
fn an_order_for_an_unknown_flow_expires() {
    let mut agent = welcomed();
    pace(&mut agent, Nanos::ZERO, 1, Some(1));
    agent.handle_time(Nanos::from_secs(30));
    assert_eq!(agent.sizes(), (0, 1));
    agent.handle_time(Nanos::from_secs(31));
    assert_eq!(agent.sizes(), (0, 0));
}

#[test]
fn flows_and_orders_are_limited_in_number_and_to_own_hosts() {
    let mut agent = welcomed();
    (0..10).for_each(|port| agent.handle_long(flow(port)));
    (0..10).for_each(|port| pace(&mut agent, Nanos::ZERO, port, Some(1)));
    assert_eq!((agent.sizes(), agent.counts().beyond_limit), ((4, 4), 12));
    let foreign = flow(1).with_src(B.into());
    assert!(agent.handle_announce(ProgramId(1), foreign, None).unwrap_err().contains("10.0.7.1"));
    let mut agent = welcomed();
    receive(&mut agent, Nanos::ZERO, &json!({"pace": {"flow": foreign, "rate_bps": 1}}));
    assert!(orders(&mut agent).is_empty());
}

#[test]
fn a_program_announces_its_transfer_and_receives_its_orders() {
    let mut agent = welcomed();
    agent.handle_announce(ProgramId(7), flow(1), Some(1000)).unwrap();
    agent.handle_long(flow(1));
    assert_eq!(lines(&mut agent), [json!({"announce": {"flow": flow(1), "size_bytes": 1000}})]);
    hold(&mut agent, Nanos::ZERO, 1, 1000);
    let (program, line) = agent.poll_program().unwrap();
    assert_eq!((program, line.contains("lease_ms")), (ProgramId(7), true));
    agent.handle_finish(ProgramId(8), flow(1));
    assert!(lines(&mut agent).is_empty(), "the flow does not belong to that program");
    agent.handle_finish(ProgramId(7), flow(1));
    assert_eq!(lines(&mut agent), [json!({"finish": {"flow": flow(1)}})]);
}

#[test]
fn only_flows_that_are_not_long_end_with_their_program() {
    let mut agent = welcomed();
    agent.handle_announce(ProgramId(7), flow(1), None).unwrap();
    agent.handle_announce(ProgramId(7), flow(2), None).unwrap();
    agent.handle_long(flow(2));
    lines(&mut agent);
    agent.handle_program_gone(ProgramId(7));
    assert_eq!(lines(&mut agent), [json!({"finish": {"flow": flow(1)}})]);
    assert_eq!(agent.sizes().0, 1);
}

#[test]
fn the_list_of_all_flows_replaces_lost_events() {
    let mut agent = welcomed();
    agent.handle_long(flow(1));
    agent.handle_long(flow(2));
    agent.handle_announce(ProgramId(7), flow(4), None).unwrap();
    lines(&mut agent);
    agent.handle_all(&BTreeSet::from([flow(2), flow(3)]));
    let sent = lines(&mut agent);
    assert_eq!(sent[0], json!({"finish": {"flow": flow(1)}}));
    assert_eq!(sent[1]["announce"]["flow"]["src_port"], 3);
    assert_eq!(sent.len(), 2, "an announced transfer that has not begun is kept");
}

#[test]
fn unreadable_lines_change_nothing() {
    let mut agent = welcomed();
    for line in ["", "{}", "[1]", r#"{"hold": {"flow": 7}}"#, r#"{"later": {}}"#] {
        agent.handle_line(Nanos::ZERO, ONE, line.as_bytes());
    }
    assert!(orders(&mut agent).is_empty());
    assert_eq!(agent.counts().useless_lines, 4);
    receive(&mut agent, Nanos::ZERO, &json!({"refused": {"why": "another connection represents its hosts now"}}));
    assert!(agent.take_refusal().unwrap().contains("another"));
}

/// A line of a leader.
fn says(agent: &mut Agent, controller: ControllerId, line: &Value) {
    agent.handle_line(Nanos::ZERO, controller, line.to_string().as_bytes());
}

fn welcome_of(election: u64) -> Value {
    json!({"welcome": {"version": 1, "announce": true, "election": election}})
}

fn pace_of(election: u64, rate_bps: u64) -> Value {
    json!({"pace": {"flow": flow(1), "rate_bps": rate_bps, "election": election}})
}

/// An agent with connections to two controllers, of which the first leads by election 5.
fn with_two() -> Agent {
    let mut agent = agent();
    agent.handle_connected(ONE);
    agent.handle_connected(OTHER);
    says(&mut agent, OTHER, &json!({"standby": {"leader": "c0"}}));
    says(&mut agent, ONE, &welcome_of(5));
    agent.handle_long(flow(1));
    says(&mut agent, ONE, &pace_of(5, 1000));
    assert_eq!((agent.leader(), agent.newest_election()), (Some(ONE), 5));
    assert_eq!((lines(&mut agent).len(), orders(&mut agent).len()), (3, 1));
    agent
}

#[test]
fn a_new_leader_gets_the_flows_and_the_orders_of_the_old_one_are_refused_once() {
    let mut agent = with_two();
    says(&mut agent, OTHER, &welcome_of(7));
    let announced = json!({"announce": {"flow": flow(1), "size_bytes": null}});
    assert_eq!(agent.poll_line().map(|(to, _)| to), Some(OTHER), "its flows are announced to it");
    assert_eq!(agent.paces_end(), None, "there is a leader, so no pace ends without one");
    for line in [pace_of(5, 1), json!({"hold": {"flow": flow(1), "lease_ms": 1, "election": 5}}), welcome_of(5)] {
        says(&mut agent, ONE, &line);
    }
    assert_eq!((orders(&mut agent), agent.leader()), (vec![], Some(OTHER)));
    assert_eq!((lines(&mut agent), agent.counts().stale), (vec![json!({"stale": {"newest": 7}})], 3));
    says(&mut agent, OTHER, &pace_of(7, 2000));
    assert_eq!(orders(&mut agent)[0].1.pace_bps, Some(2000));
    // It is elected again.
    says(&mut agent, ONE, &welcome_of(9));
    says(&mut agent, ONE, &pace_of(9, 3000));
    assert_eq!((orders(&mut agent)[0].1.pace_bps, lines(&mut agent)), (Some(3000), vec![announced]));
}

#[test]
fn an_order_of_a_new_leader_fences_before_its_welcome() {
    let mut agent = with_two();
    says(&mut agent, OTHER, &pace_of(7, 2000));
    says(&mut agent, ONE, &pace_of(5, 1));
    assert_eq!(orders(&mut agent), [(1, Order { pace_bps: Some(2000), ..Order::default() })]);
}

#[test]
fn an_agent_that_starts_anew_still_refuses_deposed_leaders() {
    let mut agent = agent();
    agent.adopt_election(7);
    agent.handle_connected(ONE);
    lines(&mut agent);
    says(&mut agent, ONE, &welcome_of(5));
    assert_eq!((agent.session(), lines(&mut agent)), (None, vec![json!({"stale": {"newest": 7}})]));
    says(&mut agent, ONE, &json!({"wants": {"announce": true}}));
    assert_eq!(agent.session(), None);
}

#[test]
fn orders_without_a_number_are_those_of_the_controller_that_welcomed_last() {
    let mut agent = with_two();
    pace(&mut agent, Nanos::ZERO, 1, Some(10));
    assert_eq!(orders(&mut agent)[0].1.pace_bps, Some(10));
    // A controller of an earlier version leads now.
    says(&mut agent, OTHER, &json!({"welcome": {"version": 1, "announce": true}}));
    pace(&mut agent, Nanos::ZERO, 1, Some(20));
    assert_eq!(orders(&mut agent), []);
    says(&mut agent, OTHER, &json!({"pace": {"flow": flow(1), "rate_bps": 30}}));
    assert_eq!(orders(&mut agent)[0].1.pace_bps, Some(30));
}

#[test]
fn the_loss_of_a_controller_that_stands_by_ends_no_pace() {
    let mut agent = with_two();
    agent.handle_lost(Nanos::ZERO, OTHER);
    assert_eq!((agent.paces_end(), agent.session()), (None, Some(true)));
    agent.handle_lost(Nanos::ZERO, ONE);
    assert_eq!((agent.paces_end(), agent.session()), (Some(PACES_KEPT), None));
}
