//! Runs that only the simulator itself can set up: frames put on links by hand, and rules that no controller would
//! send.

use crate::packet::Packet;
use crate::plan::{Ends, Plan, Service};
use crate::settings::{ControlSettings, Fidelity, SimSettings};
use crate::simulation::Simulation;
use crate::tap::NoTap;
use crate::time::to_ps;

use pathloom_fabrics::fabric_from_spec;
use pathloom_model::rules::{Match, Rule, RuleAction};
use pathloom_model::{Attachment, Fault, FiveTuple, Nanos, NodeId, PortNo};
use pathloom_switching::deployment::Deployment;
use pathloom_switching::{Frame, Outgoing, Program, Stale, Tables, Used, Verdict};
use pathloom_transport::TransportSpec;
use pathloom_workload::{FlowSpec, Start, TrafficSpec, Workload};
use std::sync::Arc;

fn settings(fabric: &str, traffic: &str, scheme: &str, duration: Nanos) -> SimSettings {
    let fabric = Arc::new(fabric_from_spec(fabric).unwrap());
    let traffic = TrafficSpec::parse(traffic).unwrap();
    SimSettings {
        workload: Arc::new(traffic.generate(&fabric, duration, 1, None).unwrap()),
        central: pathloom_schemes::parse(scheme).unwrap().central(1),
        successor: None,
        programs: None,
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

/// Attachments of both ends of a flow.
fn ends(simulation: &Simulation, flow: usize) -> [Attachment; 2] {
    let five_tuple = simulation.outcome().flows[flow].five_tuple.unwrap();
    [five_tuple.src(), five_tuple.dst()].map(|address| *simulation.fabric.attachment(address).unwrap())
}

/// Adds a rule with the highest priority to a switch.
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
fn packets_that_wrong_rules_send_to_another_host_are_counted_as_misdelivered() {
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
    // Packets that had passed the switch still arrive.
    assert!(gained(0) < 20 * 1448 && gained(1) > 100 * 1448, "{} {}", gained(0), gained(1));
}

#[test]
fn a_host_rejects_a_frame_for_another_of_its_interfaces() {
    let fabric = "jellyfish:switches=6,ports=6,hosts=6,homes=2,rate=100Mbps";
    let mut simulation =
        Simulation::new(settings(fabric, "long-lived:pattern=permutation", "ecmp", Nanos::from_millis(100))).unwrap();
    simulation.advance(Nanos::from_millis(50));
    let [_, dst] = ends(&simulation, 0);
    let homes = simulation.fabric.host_attachments(dst.host);
    let other = homes.iter().find(|home| home.uplink != dst.uplink).unwrap().uplink.reverse();
    let slot = simulation.network.links.lanes.slot(&simulation.outcome().flows[0].five_tuple.unwrap()).unwrap();
    let frame = Packet::new(slot as u32 * 2, 0, 1448, 1514, 0);
    assert!(simulation.network.send(to_ps(simulation.now()), other.0, frame));
    simulation.advance(Nanos::from_millis(90));
    let packets = simulation.outcome().packets;
    assert_eq!(packets.misdelivered, 1);
    assert!(simulation.outcome().conserves_packets(), "{packets:?}");
}

#[test]
fn a_frame_of_no_connection_changes_no_lane() {
    let mut simulation = stride();
    simulation.advance(Nanos::from_millis(50));
    let [src, dst] = ends(&simulation, 0);
    let rows = |simulation: &Simulation| (0..2).map(|lane| simulation.network.remembered(lane)).collect::<Vec<usize>>();
    let slots = simulation.network.links.lanes.slot(&simulation.outcome().flows[0].five_tuple.unwrap());
    assert!(slots.is_some_and(|slot| slot > 0 && simulation.network.remembered(slot as u32 * 2) > 1));
    let dropped = simulation.network.totals.dropped_at_switches;
    let now = to_ps(simulation.now());
    for lane in [0, 1] {
        // The first table has a rule for everything, but a frame without a five-tuple is dropped.
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
fn a_rule_for_one_flow_invalidates_no_decision_about_others() {
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
    assert_eq!(asked(&mut simulation, 60), 0, "all decisions are cached");
    overrule(&mut simulation, src.tor, Match::five_tuple(five_tuple), port);
    assert_eq!(asked(&mut simulation, 70), 1, "the data of one flow");
    let back = simulation.fabric.link(src.uplink).to_port;
    overrule(&mut simulation, src.tor, Match::five_tuple(five_tuple.reverse()), back);
    assert_eq!(asked(&mut simulation, 80), 1, "its acknowledgements");
    overrule(&mut simulation, src.tor, Match { in_port: Some(PortNo(99)), ..Match::default() }, port);
    // Two hosts of a ToR each send to one host and receive from one: data and acknowledgements both ways.
    assert_eq!(asked(&mut simulation, 90), 2 * 2 * 2, "all that pass");
}

const DUAL_HOMED: &str = "jellyfish:switches=6,ports=6,hosts=6,homes=2,rate=100Mbps,delay=10us,buffer=200";

/// For each subflow of a transfer: interface of the sending host, interface of the receiving host, and size.
type Subflows<'a> = &'a [(usize, usize, Option<u64>)];

/// Sets up a run on the dual-homed fabric. The hosts of a transfer are given by number.
fn dual_homed(transfers: &[(usize, usize, Start, Subflows<'_>)]) -> Simulation {
    let fabric = fabric_from_spec(DUAL_HOMED).unwrap();
    let hosts = fabric.hosts();
    let of = |(src, dst, start, subflows): &(usize, usize, Start, Subflows<'_>)| {
        let size_bytes = subflows.iter().map(|subflow| subflow.2).sum();
        FlowSpec::new(start.clone(), hosts[*src], hosts[*dst], size_bytes)
    };
    let flows: Vec<FlowSpec> = transfers.iter().map(of).collect();
    let ends = |src: usize, dst: usize, (from, to, size_bytes): (usize, usize, Option<u64>)| {
        let at = |host: usize, home: usize| *fabric.host_attachments(hosts[host])[home];
        Ends { src: at(src, from), dst: at(dst, to), src_port: 40_000, size_bytes, service: Service::TCP, entropy: 0 }
    };
    let plan = transfers.iter().map(|(src, dst, _, subflows)| subflows.iter().map(|&one| ends(*src, *dst, one)));
    let plan = Plan::new(plan);
    let workload = Workload { flows, description: String::new(), notes: Vec::new(), jobs: Vec::new() };
    let mut settings = settings(DUAL_HOMED, "long-lived:pattern=permutation", "ecmp", Nanos::from_secs(1));
    settings.workload = Arc::new(workload);
    Simulation::with_plan(settings, NoTap, None, (plan, Fidelity::Packets)).unwrap()
}

#[test]
fn gpus_of_a_server_use_the_switch_inside_it_and_others_their_cards() {
    let fabric = fabric_from_spec("rail-optimized:servers=2,gpus=2,spines=2").unwrap();
    let name = |at: Attachment| fabric.node(at.tor).name.as_str();
    let flow = |src: usize, dst: usize| {
        FlowSpec::new(Start::At(Nanos::ZERO), fabric.hosts()[src], fabric.hosts()[dst], Some(1000))
    };
    let flows = vec![flow(0, 1), flow(3, 2), flow(0, 2), flow(1, 2)];
    let workload = Workload { flows, description: String::new(), notes: Vec::new(), jobs: Vec::new() };
    for seed in 0..4 {
        let plan = Plan::of_workload(&fabric, &workload, &TransportSpec::default(), seed).unwrap();
        let tors: Vec<_> =
            (0..4).map(|transfer| plan.of(transfer)[0]).map(|ends| [name(ends.src), name(ends.dst)]).collect();
        assert_eq!(tors, [["n0", "n0"], ["n1", "n1"], ["e0_0", "e0_0"], ["e0_1", "e0_0"]]);
    }
}

#[test]
fn a_transfer_uses_the_interfaces_of_its_subflows() {
    const HALF: u64 = 2_000_000;
    let after = || Start::After { flows: [0].into(), delay: Nanos::from_millis(3) };
    let mut both = dual_homed(&[
        (0, 1, Start::At(Nanos::ZERO), &[(0, 0, Some(HALF)), (1, 1, Some(HALF))]),
        (1, 0, after(), &[(1, 0, Some(1000))]),
    ]);
    let mut one = dual_homed(&[
        (0, 1, Start::At(Nanos::ZERO), &[(0, 0, Some(HALF)), (0, 0, Some(HALF))]),
        (1, 0, after(), &[(1, 0, Some(1000))]),
    ]);
    let run = |simulation: &mut Simulation| {
        simulation.advance(simulation.end());
        let outcome = simulation.outcome();
        assert!(outcome.conserves_packets() && outcome.packets.misdelivered == 0, "{:?}", outcome.packets);
        let flow = &outcome.flows[0];
        assert_eq!(flow.delivered_bytes, 2 * HALF);
        assert_eq!(
            outcome.flows[1].start,
            flow.finish.map(|at| at + Nanos::from_millis(3)),
            "after the last subflow ends"
        );
        let homes = simulation.fabric.host_attachments(flow.src);
        let sent = [0, 1].map(|home: usize| outcome.links[homes[home].uplink.index()].sent_bytes);
        (sent, flow.ideal_fct.unwrap().as_secs_f64(), flow.finish.unwrap().as_secs_f64(), flow.throughput.unwrap())
    };
    let (sent, ideal_s, fct_s, throughput) = run(&mut both);
    assert!(sent[0] > HALF && sent[1] > HALF, "{sent:?}");
    let (sent, ideal_one_s, fct_one_s, throughput_one) = run(&mut one);
    assert!(sent[0] > 2 * HALF && sent[1] < 10_000, "{sent:?}");
    assert!((1.9..2.0).contains(&(ideal_one_s / ideal_s)), "{ideal_s} {ideal_one_s}");
    assert!(fct_one_s > 1.6 * fct_s && throughput > 0.8 && throughput_one > 0.8, "{fct_s} {fct_one_s}");
}

#[test]
fn the_optimum_depends_on_the_interface_that_a_transfer_uses() {
    let start = || Start::At(Nanos::ZERO);
    // Host 0 acknowledges received data by its interface 1 in the first case, and by the interface that it sends by
    // in the second.
    let optimum_bps = |home: usize, subflows: Subflows<'_>| {
        let simulation = dual_homed(&[(0, 1, start(), subflows), (2, 0, start(), &[(0, home, None)])]);
        simulation.outcome().flows[0].optimum_bps
    };
    let alone_bps = 100e6 * 1448.0 / 1514.0;
    assert_eq!(optimum_bps(1, &[(0, 0, None)]), alone_bps);
    assert!(optimum_bps(0, &[(0, 0, None)]) < 0.99 * alone_bps);
    assert_eq!(optimum_bps(1, &[(0, 0, None), (0, 0, None)]), alone_bps, "two subflows share one access link");
    let two_bps = optimum_bps(1, &[(0, 0, None), (1, 1, None)]);
    assert!(two_bps > 1.9 * alone_bps && two_bps < 2.0 * alone_bps, "less the acknowledgements on one of them");
}

#[test]
fn subflows_of_one_transfer_have_different_five_tuples_and_end_with_the_run() {
    let subflows: Subflows<'_> = &[(0, 0, None), (0, 0, None), (1, 0, None)];
    let mut simulation = dual_homed(&[(0, 1, Start::At(Nanos::ZERO), subflows)]);
    simulation.advance(Nanos::from_millis(500));
    let first = simulation.outcome().flows[0].five_tuple.unwrap();
    let slots: Vec<Option<usize>> = [40_000, 40_001, 40_002]
        .map(|src_port| simulation.network.links.lanes.slot(&first.with_src_port(src_port)))
        .to_vec();
    assert_eq!(slots, [Some(1), Some(2), None]);
    let half = simulation.outcome().flows[0].delivered_bytes;
    assert!(half > 4_000_000, "{half}");
    simulation.advance(simulation.end());
    assert!(simulation.is_done() && simulation.now() < Nanos::from_millis(1100), "{:?}", simulation.now());
    assert!(simulation.outcome().flows[0].delivered_bytes > 2 * half - 500_000);
}

#[test]
fn frames_are_kept_only_while_they_are_in_the_network() {
    let mut settings = settings(
        "leaf-spine:spines=1,leaves=3,hosts=2,rate=1Gbps",
        "incast:senders=5,size=10KB",
        "ecmp",
        Nanos::from_secs(2),
    );
    settings.central = None;
    settings.programs = Some(Deployment {
        make: Arc::new(|_, _| Box::<Flooder>::default()),
        arp_age: Nanos::ZERO,
        arp_retry: Nanos::from_secs(1),
        jitter: Nanos::ZERO,
        elephants: None,
    });
    settings.faults = vec![
        Fault::parse(&settings.fabric, "5us:down:c0").unwrap(),
        Fault::parse(&settings.fabric, "1ms:up:c0").unwrap(),
    ];
    let mut simulation = Simulation::new(settings).unwrap();
    simulation.advance(Nanos::from_micros(4));
    assert!(simulation.network.kept_frames() > 0);
    simulation.advance(Nanos::from_micros(500));
    assert_eq!(simulation.network.kept_frames(), 0, "frames on the failed cables are removed, too");
    simulation.advance(simulation.end());
    let outcome = simulation.outcome();
    assert!(outcome.conserves_packets() && outcome.flows.iter().all(|flow| flow.finish.is_some()));
    assert_eq!(simulation.network.kept_frames(), 0);
}

/// Sends every frame out of all other ports. Only for fabrics without loops.
#[derive(Default)]
struct Flooder(Vec<PortNo>);

impl Program for Flooder {
    fn decide(&mut self, _: Nanos, in_port: PortNo, frame: &Frame) -> Verdict {
        let others = self.0.iter().filter(|&&port| port != in_port);
        Verdict::all(others.map(|&port| Outgoing { port, frame: *frame }).collect())
    }

    fn handle_timeout(&mut self, _: Nanos) {}

    fn poll_timeout(&self) -> Option<Nanos> {
        None
    }

    fn poll_emission(&mut self) -> Option<Outgoing> {
        None
    }

    fn set_port(&mut self, _: Nanos, port: PortNo, up: bool) {
        self.0.retain(|one| *one != port);
        self.0.extend(up.then_some(port));
    }

    fn take_stale(&mut self) -> Stale {
        Stale::Nothing
    }

    fn credit(&mut self, _: FiveTuple, _: Used) {}

    fn note_unreadable(&mut self, _: PortNo) {}

    fn tables(&self) -> Tables {
        Tables::default()
    }
}

#[test]
fn counters_of_rules_grow_with_what_is_skipped() {
    let counts = |fidelity| {
        let mut of = settings("fat-tree:k=4,rate=1Gbps", "long-lived:pattern=stride", "spt", Nanos::from_secs(1));
        of.transport = TransportSpec::parse("newreno:rwnd=8KB").unwrap();
        let mut run = Simulation::with_fidelity(of, NoTap, None, fidelity).unwrap();
        run.advance(run.end());
        let switches = run.fabric.switches().to_vec();
        let counters = |node| {
            let rules = |switch: &mut pathloom_switching::Switch| {
                switch.rules().into_iter().map(|(_, counters)| [counters.packets, counters.bytes]).collect::<Vec<_>>()
            };
            run.network.with_switch(node, rules).unwrap_or_default()
        };
        let counts: Vec<[u64; 2]> = switches.into_iter().flat_map(counters).collect();
        (counts, run.skipped())
    };
    let ((exact, _), (skip, skipped)) = (counts(Fidelity::Packets), counts(Fidelity::Skip));
    assert!(skipped.is_some_and(|skipped| skipped.time > Nanos::from_millis(900)), "{skipped:?}");
    assert!(exact.iter().any(|count| count[0] > 10_000) && exact.len() == skip.len(), "{exact:?}");
    for (exact, skip) in exact.iter().flatten().zip(skip.iter().flatten()) {
        assert!(skip.abs_diff(*exact) <= exact / 50 + 100, "{skip} of {exact}");
    }
}

#[test]
fn transfers_between_servers_take_either_plane_and_stay_in_it() {
    let fabric = "rail-optimized:servers=4,gpus=2,spines=2,planes=2,rate=10Gbps";
    let settings = settings(fabric, "all-to-all:algorithm=direct,size=20KB", "ecmp", Nanos::from_millis(50));
    let mut simulation = Simulation::new(settings).unwrap();
    simulation.advance(simulation.end());
    let outcome = simulation.outcome();
    assert!(outcome.flows.iter().all(|flow| flow.finish.is_some()) && outcome.packets.misdelivered == 0);
    let graph = simulation.fabric.clone();
    let tor = |address| graph.node(graph.attachment(address).unwrap().tor).name.clone();
    let ends = outcome.flows.iter().map(|flow| {
        let five_tuple = flow.five_tuple.unwrap();
        [five_tuple.src(), five_tuple.dst()].map(tor)
    });
    // The last part of the name of a leaf is its plane.
    let (inside, outside): (Vec<_>, Vec<_>) = ends.partition(|[src, _]| src.starts_with('n'));
    assert_eq!((inside.len(), outside.len()), (8, 48), "a transfer to the other one in the server, six to others");
    assert!(outside.iter().all(|[src, dst]| src.chars().last() == dst.chars().last()), "{outside:?}");
    let first = outside.iter().filter(|[src, _]| src.ends_with('0')).count();
    assert!((12..=36).contains(&first), "{first} of 48 in the first plane");
}
