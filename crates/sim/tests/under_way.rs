//! Transfers that began before the run continue on their paths, with their windows.

use crate::cases::Case;
use pathloom_model::{Fabric, Nanos, NodeId};
use pathloom_sim::{SimSettings, Simulation};
use pathloom_transport::TransportSpec;
use pathloom_workload::{FlowSpec, Start, UnderWay, Workload};
use std::sync::Arc;

const CASE: Case = Case {
    fabric: "fat-tree:k=4,rate=100Mbps,delay=100us",
    traffic: "long-lived:pattern=stride",
    faults: "",
    duration: Nanos::from_millis(500),
    drain: 5,
    seed: 1,
};

fn nodes(fabric: &Fabric, names: &[&str]) -> Box<[NodeId]> {
    names.iter().map(|name| fabric.find(name).unwrap()).collect()
}

/// A run under `scheme` with a transfer of `size_bytes` from h0 to h8 for each path, which were sending at 20 Mbps.
fn simulation(scheme: &str, transport: &str, paths: &[&[&str]], size_bytes: Option<u64>) -> Simulation {
    let settings = CASE.settings(scheme, None);
    let fabric = settings.fabric.clone();
    let [src, dst] = ["h0", "h8"].map(|name| fabric.find(name).unwrap());
    let flow = |path: &&[&str]| {
        let state =
            UnderWay { window_bytes: 5_000, slow_start: false, rate_bps: 20_000_000, path: nodes(&fabric, path) };
        let under_way = Some(Box::new(state));
        FlowSpec { under_way, ..FlowSpec::new(Start::At(Nanos::ZERO), src, dst, size_bytes) }
    };
    let flows: Vec<FlowSpec> = paths.iter().map(flow).collect();
    let workload = Workload { flows, description: "under way".into(), notes: Vec::new(), jobs: Vec::new() };
    let transport = TransportSpec::parse(transport).unwrap();
    let programs = pathloom_schemes::parse(scheme).unwrap().deployment();
    Simulation::new(SimSettings { workload: Arc::new(workload), transport, programs, ..settings }).unwrap()
}

const PATHS: [&[&str]; 4] = [
    &["e0_0", "a0_1", "c3", "a2_1", "e2_0"],
    &["e0_0", "a0_0", "c0", "a2_0", "e2_0"],
    &["e0_0", "a0_1", "c2", "a2_1", "e2_0"],
    &["e0_0", "a0_1", "c3", "a2_1", "e2_0"],
];

fn switches(simulation: &Simulation, fabric: &Fabric, flow: u32) -> Vec<String> {
    let ends = simulation.route(flow).into_iter().map(|link| fabric.link(link).to);
    ends.filter(|&node| !fabric.is_host(node)).map(|node| fabric.node(node).name.clone()).collect()
}

#[test]
fn each_transfer_takes_the_path_that_it_had() {
    let fabric = CASE.settings("ecmp", None).fabric;
    let mut run = simulation("ecmp", "newreno", &PATHS, None);
    run.advance(Nanos::from_millis(1));
    for (flow, path) in PATHS.iter().enumerate() {
        assert_eq!(switches(&run, &fabric, flow as u32), *path, "flow {flow}");
    }
    let outcome = run.outcome();
    let mut ports: Vec<u16> = outcome.flows.iter().map(|flow| flow.five_tuple.unwrap().src_port()).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), PATHS.len());
}

#[test]
fn a_path_that_the_scheme_cannot_take_is_left() {
    let fabric = CASE.settings("spt", None).fabric;
    let unknown: &[&str] = &["e0_0", "a0_1", "e1_0"];
    let mut run = simulation("spt", "newreno", &[PATHS[0], PATHS[1], unknown, &[]], Some(100_000));
    run.advance(run.end());
    assert!((1..4).all(|flow| switches(&run, &fabric, flow) == switches(&run, &fabric, 0)), "one shortest path");
    assert!(run.outcome().flows.iter().all(|flow| flow.finish.is_some()));
}

/// A new connection needs a round trip for its SYN, and four more until its window is 32 segments.
#[test]
fn neither_a_syn_nor_slow_start_delays_it() {
    for transport in ["newreno", "cubic", "dctcp"] {
        let mut run = simulation("ecmp", &format!("{transport}:jitter=0s"), &PATHS[..1], None);
        let delivered_at = |run: &mut Simulation, ms: u64| {
            run.advance(Nanos::from_millis(ms));
            run.outcome().flows[0].delivered_bytes as f64
        };
        // Half a round trip is 0.6 ms on its way, and frames take 0.12 ms on each of 6 links.
        let (early, later) = (delivered_at(&mut run, 3), delivered_at(&mut run, 13));
        let rate_bps = (later - early) * 8.0 / 10e-3;
        assert!((18e6..40e6).contains(&rate_bps), "{transport}: {rate_bps}");
        assert!(early > 0.0 && run.outcome().flows[0].retransmits == 0, "{transport}");
    }
}

/// Where a SYN exchange finds paths, or where a connection has several subflows, it begins again.
#[test]
fn other_transports_and_programs_begin_again() {
    for (scheme, transport) in [("tcp-path", "newreno"), ("mptcp", "mptcp:subflows=2"), ("ecmp", "uec")] {
        let mut run = simulation(scheme, transport, &PATHS[..2], Some(50_000));
        run.advance(run.end());
        let outcome = run.outcome();
        assert!(outcome.conserves_packets(), "{scheme}, {transport}");
        assert!(outcome.flows.iter().all(|flow| flow.delivered_bytes == 50_000), "{scheme}, {transport}");
    }
}
