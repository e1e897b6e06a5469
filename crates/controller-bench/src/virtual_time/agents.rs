//! Agents of hosts: holds and their leases, and agents that break the protocol.

use super::lab::{ms, s, Lab, K4, QUIET};
use crate::faults::driven::Driven;
use pathloom_model::FiveTuple;
use pathloom_testnet::{Network, Timing};

/// The line that announces a transfer.
fn announce(flow: &FiveTuple, size_bytes: u64) -> String {
    let flow = serde_json::to_string(flow).unwrap();
    format!(r#"{{"announce":{{"flow":{flow},"size_bytes":{size_bytes}}}}}"#)
}

fn verbs(lab: &mut Lab, peer: usize) -> Vec<String> {
    lab.heard(peer).into_iter().map(|(verb, _)| verb).collect()
}

/// OFPT holds the longer of two transfers between two hosts. The hold ends when the other transfer does, and each hold
/// has a lease, so that it also ends without a controller.
#[test]
fn every_hold_has_a_lease_and_ends() {
    for seed in 0..4 {
        let mut lab = Lab::with(K4, "ofpt:sizes=announced,period=300ms", "", Timing::SLOW, seed);
        let agent = lab.agent(0);
        let [short, long] = [40_000, 40_001].map(|port| lab.packet(0, 2, port));
        lab.flows = vec![short];
        lab.say_line(agent, &announce(&short.five_tuple, 3_000_000));
        lab.traffic(ms(400));
        lab.say_line(agent, &announce(&long.five_tuple, 3_500_000));
        lab.traffic(s(2));
        let holds: Vec<_> = lab.heard(agent).into_iter().filter(|(verb, _)| verb == "hold").collect();
        assert!(!holds.is_empty(), "seed {seed}: {:?}", lab.heard(agent));
        for (_, hold) in &holds {
            let lease_ms = hold["lease_ms"].as_u64().unwrap();
            assert!((1..=1500).contains(&lease_ms), "seed {seed}: {hold}");
        }
        assert_eq!(lab.machine().hub.controller().unwrap().held_flows(), 1);
        let flow = serde_json::to_string(&short.five_tuple).unwrap();
        lab.say_line(agent, &format!(r#"{{"finish":{{"flow":{flow}}}}}"#));
        lab.flows = Vec::new();
        lab.traffic(s(3));
        assert_eq!(lab.machine().hub.controller().unwrap().held_flows(), 0, "seed {seed}");
        assert!(verbs(&mut lab, agent).iter().any(|verb| verb == "release"), "seed {seed}");
        // The agent is gone, and with it the reason to hold anything.
        lab.break_connection(agent);
        lab.run_for(s(60));
        assert_eq!(lab.machine().hub.controller().unwrap().view().flows.len(), 0, "seed {seed}");
        lab.nothing_is_lost();
    }
}

#[test]
fn a_held_flow_is_forgotten_when_its_agent_leaves() {
    let mut lab = Lab::with(K4, "ofpt:sizes=announced,period=300ms", "", Timing::SLOW, 1);
    let agent = lab.agent(0);
    let held = |network: &mut Network<Driven>| network.machine().hub.controller().unwrap().held_flows();
    for (port, size) in [(40_000, 3_000_000), (40_001, 3_500_000)] {
        let flow = lab.packet(0, 2, port).five_tuple;
        lab.say_line(agent, &announce(&flow, size));
    }
    assert!(lab.run_while(s(60), |network| held(network) == 0), "one of two flows is held");
    lab.break_connection(agent);
    lab.run_for(s(60));
    assert_eq!(held(&mut lab), 0);
    assert_eq!(lab.machine().hub.controller().unwrap().view().flows.len(), 0);
}

#[test]
fn an_agent_that_does_not_name_its_hosts_is_disconnected_after_10_s() {
    let mut lab = Lab::with(K4, QUIET, "", Timing::PROMPT, 1);
    let begun = lab.now();
    let agent = lab.open_agent("10.0.0.1").unwrap();
    assert!(lab.run_while(s(60), |lab| lab.is_open(agent)));
    let took = lab.now() - begun;
    assert!(took > s(10) && took < ms(10_300), "{took:?}");
    assert_eq!(lab.logged(&["it did not name its hosts in time"]).len(), 1);
}

#[test]
fn an_agent_with_invalid_lines_is_disconnected() {
    let mut lab = Lab::with(K4, QUIET, "", Timing::SLOW, 1);
    let first = lab.agent(0);
    for _ in 0..17 {
        lab.say_line(first, "nonsense");
    }
    lab.run_for(s(1));
    assert!(!lab.is_open(first));
    assert_eq!(verbs(&mut lab, first)[0], "welcome");
    assert_eq!(verbs(&mut lab, first)[1..], vec!["refused"; 17]);
    lab.goes_on(1000, 20);
}
