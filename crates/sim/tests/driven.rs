//! Runs whose driver adds transfers and hears of their ends.

use crate::cases::Case;
use pathloom_model::{Nanos, NodeId};
use pathloom_sim::{Driven, Message, NoTap, Outcome, SimError, SimSettings};
use pathloom_workload::{FlowSpec, Start, Workload};
use std::sync::Arc;

const STAR: &str = "leaf-spine:spines=1,leaves=1,hosts=4,rate=100Gbps,delay=1us,buffer=2000";
const DUAL: &str = "jellyfish:switches=6,ports=6,hosts=6,homes=2,rate=1Gbps,delay=10us,buffer=200";

fn case<'a>(fabric: &'a str, traffic: &'a str) -> Case<'a> {
    Case { fabric, traffic, faults: "", duration: Nanos::from_secs(1), drain: 0, seed: 1 }
}

/// Settings without transfers, and the transfers that they would have.
fn settings(case: &Case<'_>, scheme: &str, transport: Option<&str>) -> (SimSettings, Vec<FlowSpec>) {
    let mut settings = case.settings(scheme, transport);
    let none = Workload { flows: Vec::new(), description: String::new(), notes: Vec::new(), jobs: Vec::new() };
    let workload = std::mem::replace(&mut settings.workload, Arc::new(none));
    (settings, workload.flows.clone())
}

fn driven(case: &Case<'_>, scheme: &str, transport: Option<&str>) -> (Driven, Vec<FlowSpec>) {
    let (settings, flows) = settings(case, scheme, transport);
    (Driven::new(settings, NoTap).unwrap(), flows)
}

fn message(flow: &FlowSpec) -> Message {
    Message { src: flow.src, dst: flow.dst, size_bytes: flow.size_bytes.unwrap() }
}

/// Sends the transfers of a workload, each as soon as those that it waits for have finished. Advances by at most `step`
/// at a time. Returns the outcome, and for each transfer of the workload its number in the run.
fn follow(simulation: &mut Driven, flows: &[FlowSpec], step: Nanos) -> (Outcome, Vec<u32>) {
    let mut numbers: Vec<Option<u32>> = vec![None; flows.len()];
    let mut sent = Vec::new();
    let mut done = vec![false; flows.len()];
    while done.contains(&false) {
        let mut until = simulation.simulation().now().saturating_add(step);
        for (index, flow) in flows.iter().enumerate() {
            let ready = match &flow.start {
                Start::At(at) => *at <= simulation.simulation().now(),
                Start::After { flows, delay } => {
                    assert_eq!(*delay, Nanos::ZERO, "only the simulator knows picoseconds");
                    flows.iter().all(|&other| done[other as usize])
                }
            };
            match &flow.start {
                _ if numbers[index].is_some() => {}
                _ if ready => {
                    numbers[index] = Some(simulation.send(message(flow)).unwrap());
                    sent.push(index);
                }
                Start::At(at) => until = until.min(*at),
                Start::After { .. } => {}
            }
        }
        let mut finished = Vec::new();
        simulation.advance(until, &mut finished);
        finished.iter().for_each(|&number| done[sent[number as usize]] = true);
        assert!(!simulation.simulation().is_done());
    }
    assert_eq!(simulation.open(), 0);
    let numbers = numbers.into_iter().flatten().collect();
    let outcome = simulation.simulation().outcome();
    assert!(outcome.conserves_packets(), "{:?}", outcome.packets);
    (outcome, numbers)
}

/// Times of all transfers: start and end.
fn times(outcome: &Outcome) -> Vec<(Option<Nanos>, Option<Nanos>)> {
    outcome.flows.iter().map(|flow| (flow.start, flow.finish)).collect()
}

#[test]
fn a_driver_that_follows_a_collective_gets_its_times_bit_for_bit() {
    let transports =
        ["newreno:jitter=0s", "cubic", "dctcp", "uec", "ndp", "eqds", "swift", "roce", "hpcc", "mptcp:subflows=2"];
    for transport in transports {
        let case = case(STAR, "all-reduce:algorithm=ring,size=1MB");
        let mut whole = case.start("spt", Some(transport));
        whole.advance(whole.end());
        let expected = times(&whole.outcome());
        for step in [Nanos::from_secs(1), Nanos::from_micros(7)] {
            let (mut simulation, flows) = driven(&case, "spt", Some(transport));
            let (outcome, numbers) = follow(&mut simulation, &flows, step);
            let measured = times(&outcome);
            let measured: Vec<_> = numbers.iter().map(|&number| measured[number as usize]).collect();
            assert_eq!(measured.len(), 4 * 2 * 3, "{transport}: four ranks, six steps");
            assert_eq!(measured, expected, "{transport} in steps of {step:?}");
        }
    }
}

#[test]
fn transfers_with_many_subflows_are_added_like_others() {
    for transport in ["mptcp:subflows=1,manager=fullmesh", "newreno"] {
        let case = case(DUAL, "all-to-all:size=100KB");
        let (mut simulation, flows) = driven(&case, "ecmp", Some(transport));
        let (outcome, _) = follow(&mut simulation, &flows, Nanos::from_secs(1));
        assert_eq!(outcome.flows.len(), 30);
        assert!(outcome.flows.iter().all(|flow| flow.finish.is_some() && flow.delivered_bytes == 100_000));
    }
    let (settings, _) = settings(&case(STAR, "all-to-all:size=1KB"), "ecmp", Some("mptcp:subflows=1,manager=fullmesh"));
    assert_eq!(Driven::new(settings, NoTap).err(), Some(SimError::SingleAddresses));
}

#[test]
fn transfers_that_finish_at_the_same_time_are_all_reported() {
    let (mut simulation, _) = driven(&case(STAR, "all-to-all:size=1KB"), "spt", Some("newreno:jitter=0s"));
    let hosts = star_hosts();
    let mut finished = Vec::new();
    for (src, dst) in [(0, 1), (2, 3), (1, 0)] {
        simulation.send(Message { src: hosts[src], dst: hosts[dst], size_bytes: 1000 }).unwrap();
    }
    while simulation.open() > 0 {
        simulation.advance(Nanos::from_secs(1), &mut finished);
    }
    finished.sort_unstable();
    assert_eq!(finished, [0, 1, 2]);
    let ends: Vec<_> = simulation.simulation().outcome().flows.iter().map(|flow| flow.finish).collect();
    assert_eq!(ends[0], ends[1]);
}

fn star_hosts() -> Vec<NodeId> {
    pathloom_fabrics::fabric_from_spec(STAR).unwrap().hosts().to_vec()
}

#[test]
fn a_run_without_transfers_only_lets_time_pass() {
    let (mut simulation, _) = driven(&case(STAR, "all-to-all:size=1KB"), "ecmp", None);
    let mut finished = Vec::new();
    simulation.advance(Nanos::from_micros(3), &mut finished);
    assert_eq!((simulation.simulation().now(), finished.len(), simulation.open()), (Nanos::from_micros(3), 0, 0));
    simulation.advance(Nanos::from_secs(9), &mut finished);
    assert!(simulation.simulation().is_done(), "the duration is over");
    let hosts = star_hosts();
    let wrong = simulation.send(Message { src: hosts[1], dst: hosts[1], size_bytes: 1 });
    assert_eq!(wrong, Err(SimError::NotHosts { flow: 0 }));
}

#[test]
fn a_run_of_a_driver_has_no_other_transfers() {
    let case = case(STAR, "all-to-all:size=1KB");
    let both = Driven::new(case.settings("ecmp", None), NoTap);
    assert_eq!(both.err(), Some(SimError::FlowsOfDriver(12)));
}
