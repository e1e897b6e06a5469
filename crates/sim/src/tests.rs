//! Runs that only the simulator itself can set up: frames put on links by hand, rules that no controller would send.

use crate::packet::Packet;
use crate::settings::{ControlSettings, SimSettings};
use crate::simulation::Simulation;
use crate::time::to_ps;
use pathloom_model::rules::{Match, Rule, RuleAction};
use pathloom_model::{fabric_from_spec, Attachment, Nanos, NodeId, PortNo};
use pathloom_transport::TransportSpec;
use pathloom_workload::TrafficSpec;
use std::sync::Arc;

fn settings(fabric: &str, traffic: &str, scheme: &str, duration: Nanos) -> SimSettings {
    let fabric = Arc::new(fabric_from_spec(fabric).unwrap());
    let traffic = TrafficSpec::parse(traffic).unwrap();
    SimSettings {
        workload: Arc::new(traffic.generate(&fabric, duration, 1, None).unwrap()),
        central: pathloom_schemes::parse(scheme).unwrap().central(1).unwrap(),
        transport: TransportSpec::parse("newreno").unwrap(),
        control: ControlSettings::default(),
        duration,
        drain: 20,
        faults: Vec::new(),
        seed: 1,
        fabric,
    }
}

fn stride() -> Simulation {
    let settings = settings("fat-tree:k=4,rate=100Mbps", "long-lived:pattern=stride", "ecmp", Nanos::from_millis(200));
    Simulation::new(settings).unwrap()
}

/// Both ends of a flow.
fn ends(simulation: &Simulation, flow: usize) -> [Attachment; 2] {
    let five_tuple = simulation.outcome().flows[flow].five_tuple.unwrap();
    [five_tuple.src, five_tuple.dst].map(|address| *simulation.fabric.attachment(address).unwrap())
}

/// Puts a rule above all others into a switch.
fn overrule(simulation: &mut Simulation, switch: NodeId, matches: Match, port: PortNo) {
    let rule = Rule {
        table: 0,
        priority: u16::MAX,
        matches,
        actions: [RuleAction::Output(port)].into(),
        goto: None,
        meter: None,
        idle_timeout_s: 0,
        hard_timeout_s: 0,
        cookie: 0,
        notify_removal: false,
    };
    let now = simulation.now();
    simulation.network.with_switch(switch, |switch| switch.add_rule(now, rule)).unwrap().unwrap();
}

#[test]
fn what_wrong_rules_bring_to_another_host_is_counted_apart() {
    let mut simulation = stride();
    simulation.advance(Nanos::from_millis(50));
    let [_, dst] = ends(&simulation, 0);
    let ports = &simulation.fabric.node(dst.tor).ports;
    let to_host = |port: &PortNo| simulation.fabric.is_host(simulation.fabric.link(ports[port.0 as usize - 1]).to);
    let own = simulation.fabric.link(dst.uplink).to_port;
    let wrong = (1..=ports.len() as u32).map(PortNo).find(|port| *port != own && to_host(port)).unwrap();
    let before = simulation.outcome();
    let five_tuple = before.flows[0].five_tuple.unwrap();
    assert_eq!(before.packets.misdelivered, 0);
    overrule(&mut simulation, dst.tor, Match::five_tuple(five_tuple), wrong);
    simulation.advance(Nanos::from_millis(150));
    let after = simulation.outcome();
    assert!(after.conserves_packets() && after.packets.misdelivered > 0, "{:?}", after.packets);
    let gained = |flow: usize| after.flows[flow].delivered_bytes - before.flows[flow].delivered_bytes;
    // What had passed the switch already arrives still.
    assert!(gained(0) < 20 * 1448 && gained(1) > 100 * 1448, "{} {}", gained(0), gained(1));
}

#[test]
fn a_host_takes_no_frame_that_is_for_another_interface_of_it() {
    let fabric = "jellyfish:switches=6,ports=6,hosts=6,homes=2,rate=100Mbps";
    let mut simulation =
        Simulation::new(settings(fabric, "long-lived:pattern=permutation", "ecmp", Nanos::from_millis(100))).unwrap();
    simulation.advance(Nanos::from_millis(50));
    let [_, dst] = ends(&simulation, 0);
    let homes = simulation.fabric.host_attachments(dst.host);
    let other = homes.iter().find(|home| home.uplink != dst.uplink).unwrap().uplink.reverse();
    let slot = simulation.network.lanes.slot(&simulation.outcome().flows[0].five_tuple.unwrap()).unwrap();
    let frame = Packet::new(slot as u32 * 2, 0, 1448, 1514, 0);
    assert!(simulation.network.send(to_ps(simulation.now()), other.0, frame));
    simulation.advance(Nanos::from_millis(90));
    let packets = simulation.outcome().packets;
    assert_eq!(packets.misdelivered, 1);
    assert!(simulation.outcome().conserves_packets(), "{packets:?}");
}

#[test]
fn a_frame_of_no_connection_touches_no_lane() {
    let mut simulation = stride();
    simulation.advance(Nanos::from_millis(50));
    let [src, dst] = ends(&simulation, 0);
    let rows = |simulation: &Simulation| (0..2).map(|lane| simulation.network.remembered(lane)).collect::<Vec<usize>>();
    let slots = simulation.network.lanes.slot(&simulation.outcome().flows[0].five_tuple.unwrap());
    assert!(slots.is_some_and(|slot| slot > 0 && simulation.network.remembered(slot as u32 * 2) > 1));
    let dropped = simulation.network.totals.dropped_at_switches;
    let now = to_ps(simulation.now());
    for lane in [0, 1] {
        // The first table has a rule for everything; a frame without a five-tuple is dropped all the same.
        for _ in 0..3 {
            assert!(simulation.network.send(now, src.uplink.0, Packet::new(lane, 0, 46, 64, 0)));
        }
        assert!(simulation.network.send(now, dst.uplink.reverse().0, Packet::new(lane, 0, 46, 64, 0)));
    }
    simulation.advance(Nanos::from_millis(150));
    let after = simulation.outcome();
    assert_eq!(rows(&simulation), [0, 0]);
    assert!(after.conserves_packets() && after.packets.misdelivered == 0, "{:?}", after.packets);
    assert_eq!(simulation.network.totals.dropped_at_switches, dropped + 6);
}

#[test]
fn a_rule_for_one_flow_makes_switches_forget_no_other() {
    let mut simulation = stride();
    simulation.advance(Nanos::from_millis(50));
    let [src, _] = ends(&simulation, 0);
    let uplink = simulation.route(0)[1];
    let (port, five_tuple) =
        (simulation.fabric.link(uplink).from_port, simulation.outcome().flows[0].five_tuple.unwrap());
    let asked = |simulation: &mut Simulation, until_ms| {
        let before = simulation.decisions();
        simulation.advance(Nanos::from_millis(until_ms));
        simulation.decisions() - before
    };
    assert_eq!(asked(&mut simulation, 60), 0, "everything is remembered");
    overrule(&mut simulation, src.tor, Match::five_tuple(five_tuple), port);
    assert_eq!(asked(&mut simulation, 70), 1, "the data of one flow");
    let back = simulation.fabric.link(src.uplink).to_port;
    overrule(&mut simulation, src.tor, Match::five_tuple(five_tuple.reverse()), back);
    assert_eq!(asked(&mut simulation, 80), 1, "its acknowledgements");
    overrule(&mut simulation, src.tor, Match { in_port: Some(PortNo(99)), ..Match::default() }, port);
    // Two hosts of a ToR each send to one and receive from one: data and acknowledgements both ways.
    assert_eq!(asked(&mut simulation, 90), 2 * 2 * 2, "all that pass");
}
