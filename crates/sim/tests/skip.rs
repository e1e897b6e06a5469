//! Runs whose steady phases are skipped, beside the same runs with all packets.

use super::cases::{listed, Case, Listed, SEARCH};
use pathloom_model::Nanos;
use pathloom_sim::{Fidelity, NoTap, Outcome, PcapTap, SimSettings, Simulation, Skipped};
use proptest::prelude::*;

/// Two ToRs with three hosts each, and a cable of the same rate between them.
const DUMBBELL: &str = "dumbbell:hosts=3,rate=1Gbps,switch_rate=1Gbps,delay=10us";

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

fn start(settings: SimSettings, fidelity: Fidelity) -> Simulation {
    Simulation::with_fidelity(settings, NoTap, None, fidelity).unwrap()
}

fn finish(mut simulation: Simulation) -> (Outcome, Simulation) {
    simulation.advance(simulation.end());
    let outcome = simulation.outcome();
    assert!(outcome.conserves_packets(), "{:?}", outcome.packets);
    for flow in &outcome.flows {
        let of_whole = flow.size_bytes.is_none_or(|size| flow.finish.is_none() || flow.delivered_bytes == size);
        assert!(of_whole, "{flow:?}");
    }
    (outcome, simulation)
}

fn skipped(simulation: &Simulation) -> Skipped {
    simulation.skipped().expect("a run that skips")
}

/// The relative errors of a figure of flows, in their order.
fn errors(exact: &Outcome, other: &Outcome, figure: fn(&pathloom_sim::FlowOutcome) -> f64) -> Vec<f64> {
    exact.flows.iter().zip(&other.flows).map(|(exact, other)| figure(other) / figure(exact) - 1.0).collect()
}

fn goodput(flow: &pathloom_sim::FlowOutcome) -> f64 {
    flow.throughput.unwrap()
}

fn mean_size(errors: &[f64]) -> f64 {
    errors.iter().map(|error| error.abs()).sum::<f64>() / errors.len() as f64
}

fn dumbbell(flows: &[Listed], transport: &str, faults: &str, duration: Nanos) -> SimSettings {
    SimSettings { duration, drain: 20, ..listed("spt", DUMBBELL, flows, transport, faults) }
}

#[test]
fn flows_without_end_keep_their_rates() {
    // Flows that share a link, and flows that have their links to themselves.
    let shared = [(0, 0, 3, None), (50, 1, 4, None), (90, 2, 5, None)];
    let apart = [(0, 0, 1, None), (50, 3, 4, None)];
    for seed in 1..4 {
        for (flows, transport) in
            [(&shared[..], "newreno:rwnd=16KB"), (&shared, "cubic:rwnd=32KB"), (&apart, "newreno"), (&apart, "dctcp")]
        {
            let of = || SimSettings { seed, ..dumbbell(flows, transport, "", ms(2000)) };
            let (packets, _) = finish(start(of(), Fidelity::Packets));
            let (skip, run) = finish(start(of(), Fidelity::Skip));
            let skipped = skipped(&run);
            assert!(skipped.time > ms(1900) && skipped.obstacle.is_none(), "{transport} {skipped:?}");
            let errors = errors(&packets, &skip, goodput);
            assert!(errors.iter().all(|error| error.abs() < 0.015), "{transport} {seed}: {errors:?}");
            assert!(mean_size(&errors) < 0.01, "{transport} {seed}: {errors:?}");
            for (exact, other) in packets.links.iter().zip(&skip.links) {
                let [exact, other] = [exact, other].map(|link| (link.sent_bytes as f64, link.mean_queue));
                assert!((other.0 - exact.0).abs() < 0.02 * exact.0 + 20_000.0, "{transport}: {other:?} of {exact:?}");
                assert!((other.1 - exact.1).abs() < 0.1 * exact.1 + 0.5, "{transport}: {other:?} of {exact:?}");
            }
            let [exact, other] = [&packets, &skip].map(|outcome| outcome.packets);
            assert!(exact.sent.abs_diff(other.sent) < exact.sent / 50, "{transport}: {other:?} of {exact:?}");
            assert!(run.packet_totals().events < packets.packets.events, "{transport}");
        }
    }
}

#[test]
fn finite_flows_finish_when_they_would() {
    let fct = |flow: &pathloom_sim::FlowOutcome| (flow.finish.unwrap() - flow.start.unwrap()).as_secs_f64();
    let sizes = [20_000_000, 60_000_000, 30_000_000];
    let flows: Vec<Listed> = (0..3).map(|host| (host as u64 * 70, host, 3 + host, Some(sizes[host]))).collect();
    for transport in ["newreno:rwnd=16KB", "cubic:rwnd=32KB,acks=1", "dctcp:rwnd=12KB,handshake=off"] {
        let of = || dumbbell(&flows, transport, "", ms(500));
        let (packets, _) = finish(start(of(), Fidelity::Packets));
        let (skip, run) = finish(start(of(), Fidelity::Skip));
        assert!(skipped(&run).jumps >= 3, "{transport} {:?}", skipped(&run));
        let errors = errors(&packets, &skip, fct);
        assert!(mean_size(&errors) < 0.003, "{transport}: {errors:?}");
        assert!(errors.iter().all(|error| error.abs() < 0.01), "{transport}: {errors:?}");
    }
}

#[test]
fn a_permutation_on_a_fat_tree_keeps_its_mean() {
    let case = Case { traffic: "long-lived:pattern=permutation", duration: ms(3000), drain: 1, ..SEARCH };
    let run = |fidelity| finish(start(case.settings("ecmp", Some("dctcp")), fidelity));
    let ((packets, _), (skip, run)) = (run(Fidelity::Packets), run(Fidelity::Skip));
    assert!(skipped(&run).time > ms(1500), "{:?}", skipped(&run));
    let errors = errors(&packets, &skip, goodput);
    assert!(mean_size(&errors) < 0.02, "{errors:?}");
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    assert!(mean.abs() < 0.005, "{errors:?}");
}

#[test]
fn the_division_into_calls_changes_nothing() {
    let flows = [(0, 0, 3, None), (90, 2, 1, Some(40_000_000)), (900_000, 4, 5, Some(30_000_000))];
    let of = || dumbbell(&flows, "newreno", "700ms:down:e0-e1,705ms:up:e0-e1", ms(1500));
    let (whole, run) = finish(start(of(), Fidelity::Skip));
    assert!(skipped(&run).jumps >= 4, "{:?}", run.skipped_phases());
    for slice in [17, 1_000, 9_999, 333_333] {
        let mut sliced = start(of(), Fidelity::Skip);
        let mut at = Nanos::ZERO;
        while !sliced.is_done() && at < ms(2000) {
            at += Nanos::from_micros(slice);
            sliced.advance(at);
            assert!(sliced.outcome().conserves_packets());
            assert!(sliced.is_done() || sliced.now() == at, "{:?} {at:?}", sliced.now());
        }
        let (outcome, sliced) = finish(sliced);
        assert_eq!(sliced.skipped_phases(), run.skipped_phases());
        assert_eq!(outcome, whole, "slices of {slice} µs");
    }
}

#[test]
fn what_cannot_be_skipped_says_why_and_has_the_result_of_packets() {
    for (scheme, transport, reason) in [
        ("tcp-path", None, "run programs"),
        ("drill", None, "choose a path for each packet"),
        ("conga", None, "choose a path for each packet"),
        ("rps", None, "choose a path for each packet"),
        ("parallel-tcp", None, "parallel streams"),
        ("ecmp", Some("uec"), "acknowledge packets"),
        ("ecmp", None, ""),
    ] {
        let programs = || pathloom_schemes::parse(scheme).unwrap().deployment();
        let of = || SimSettings { programs: programs(), ..SEARCH.settings(scheme, transport) };
        let (packets, _) = finish(start(of(), Fidelity::Packets));
        let (skip, run) = finish(start(of(), Fidelity::Skip));
        let skipped = skipped(&run);
        assert!(skipped.obstacle.is_some_and(|given| given.contains(reason)), "{scheme}: {skipped:?}");
        assert_eq!((skipped.jumps, skipped.time), (0, Nanos::ZERO));
        assert_eq!(packets, skip, "{scheme} {transport:?}");
    }
    let settings = SEARCH.settings("ecmp", None);
    let tap = PcapTap::new(Vec::new(), &settings.fabric).unwrap();
    let captured = Simulation::with_fidelity(settings, tap, None, Fidelity::Skip).unwrap();
    assert!(captured.skipped().unwrap().obstacle.unwrap().contains("captured"));
    assert_eq!(start(SEARCH.settings("ecmp", None), Fidelity::Packets).skipped(), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// No phase contains a start, a fault or an end of a flow, whatever their times, and nothing is lost or found.
    #[test]
    fn no_event_is_ever_skipped(
        starts in prop::collection::vec((0u64..400_000, 0usize..3, 3usize..6, prop::option::of(1u64..30_000_000)), 1..6),
        downs in prop::collection::vec((0u64..400_000_000, 1u64..3_000_000), 0..3),
        law in 0usize..3, seed in 0u64..1000,
    ) {
        let mut starts = starts;
        starts.sort_unstable();
        let cut = |&(at, lasts): &(u64, u64)| format!("{at}ns:down:e0-e1,{}ns:up:e0-e1", at + lasts);
        let faults: Vec<String> = downs.iter().map(cut).collect();
        let transport = ["newreno", "cubic", "dctcp"][law];
        let of = || SimSettings { seed, ..dumbbell(&starts, transport, &faults.join(","), ms(500)) };
        let (outcome, run) = finish(start(of(), Fidelity::Skip));
        let mut times: Vec<Nanos> = starts.iter().map(|start| Nanos::from_micros(start.0)).collect();
        times.extend(downs.iter().flat_map(|&(at, lasts)| [Nanos(at), Nanos(at + lasts)]));
        times.extend(outcome.flows.iter().filter_map(|flow| flow.finish));
        times.push(ms(500));
        for (from, to) in run.skipped_phases() {
            prop_assert!(from < to);
            prop_assert!(times.iter().all(|&at| at <= from || at >= to), "{from:?} to {to:?}: {times:?}");
        }
        for (flow, start) in outcome.flows.iter().zip(&starts) {
            prop_assert_eq!(flow.start, Some(Nanos::from_micros(start.0)));
        }
        // The same again is the same.
        prop_assert_eq!(finish(start(of(), Fidelity::Skip)).0, outcome);
    }
}

#[test]
fn schemes_with_a_controller_do_what_they_would() {
    let case = Case { traffic: "long-lived:pattern=permutation", duration: ms(3000), drain: 1, ..SEARCH };
    for scheme in ["hedera:period=500ms", "ofpt:period=500ms", "lessor:min_period=200ms,period=500ms"] {
        let run = |fidelity| finish(start(case.settings(scheme, Some("dctcp")), fidelity));
        let ((packets, _), (skip, run)) = (run(Fidelity::Packets), run(Fidelity::Skip));
        assert!(skipped(&run).time > ms(1000), "{scheme}: {:?}", skipped(&run));
        assert!(packets.control.polls >= 4, "{scheme}");
        assert_eq!(packets.control, skip.control, "{scheme}: the counters that it reads decide what it does");
        let errors = errors(&packets, &skip, goodput);
        assert!(mean_size(&errors) < 0.02, "{scheme}: {errors:?}");
    }
}

#[test]
fn ports_with_several_queues_are_not_skipped() {
    let fabric = format!("{DUMBBELL},queues=2");
    let of = |fidelity| {
        start(SimSettings { duration: ms(50), ..listed("spt", &fabric, &[(0, 0, 3, None)], "newreno", "") }, fidelity)
    };
    let ((packets, _), (skip, run)) = (finish(of(Fidelity::Packets)), finish(of(Fidelity::Skip)));
    assert!(skipped(&run).obstacle.unwrap().contains("several queues"), "{:?}", skipped(&run));
    assert_eq!(packets, skip);
}

#[test]
fn connections_of_several_subflows_are_skipped_as_a_whole() {
    // The receive window limits each connection, so that no segment is lost.
    let flows = [(0, 0, 3, None), (50, 1, 4, Some(30_000_000)), (90, 2, 5, Some(20_000_000))];
    for transport in ["mptcp:subflows=2,rwnd=40KB", "mptcp:subflows=3,cc=uncoupled,rwnd=24KB,handshake=off"] {
        let of = || dumbbell(&flows, transport, "", ms(1500));
        let (packets, _) = finish(start(of(), Fidelity::Packets));
        let (skip, run) = finish(start(of(), Fidelity::Skip));
        assert!(skipped(&run).time > ms(600), "{transport}: {:?}", skipped(&run));
        for (exact, other) in packets.flows.iter().zip(&skip.flows) {
            let end = |flow: &pathloom_sim::FlowOutcome| flow.finish.unwrap_or(ms(1500)).as_secs_f64();
            assert!((end(other) / end(exact) - 1.0).abs() < 0.01, "{transport}: {other:?} of {exact:?}");
            let share = other.delivered_bytes as f64 / exact.delivered_bytes as f64;
            assert!((share - 1.0).abs() < 0.01, "{transport}: {other:?} of {exact:?}");
            assert_eq!(other.arrived_bytes >= other.delivered_bytes, exact.arrived_bytes >= exact.delivered_bytes);
            let of_subflows = |outcome: &Outcome| {
                let own = outcome.subflows.iter().filter(|one| one.transfer == exact.index);
                own.map(|one| one.delivered_bytes).sum::<u64>() as f64
            };
            assert!((of_subflows(&skip) / of_subflows(&packets) - 1.0).abs() < 0.01, "{transport}");
        }
    }
}
