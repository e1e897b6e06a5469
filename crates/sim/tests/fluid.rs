//! Runs without packets: rates of flows against closed forms, and paths and control against runs with packets.

use super::cases::{listed, Case, Listed, SEARCH};
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{LinkId, Nanos, NodeId};
use pathloom_sim::{Fidelity, NoTap, Outcome, SimError, SimSettings, Simulation};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Two ToRs with three hosts each, and a cable of the same rate between them.
const DUMBBELL: &str = "dumbbell:hosts=3,rate=100Mbps,switch_rate=100Mbps,delay=10us";

fn settings(fabric: &str, flows: &[Listed], transport: &str, faults: &str) -> SimSettings {
    SimSettings { duration: Nanos::from_secs(1), drain: 20, ..listed("spt", fabric, flows, transport, faults) }
}

fn start(settings: SimSettings, fidelity: Fidelity) -> Simulation {
    Simulation::with_fidelity(settings, NoTap, None, fidelity).unwrap()
}

fn run(settings: SimSettings, fidelity: Fidelity) -> Outcome {
    let mut simulation = start(settings, fidelity);
    simulation.advance(simulation.end());
    simulation.outcome()
}

fn fcts_ms(outcome: &Outcome) -> Vec<f64> {
    let fct = |flow: &pathloom_sim::FlowOutcome| Some((flow.finish? - flow.start?).as_secs_f64() * 1e3);
    outcome.flows.iter().map(|flow| fct(flow).expect("finished")).collect()
}

#[test]
fn flows_without_end_share_a_link_exactly() {
    let flows: Vec<Listed> = (0..3).map(|host| (0, host, 3 + host, None)).collect();
    let outcome = run(settings(DUMBBELL, &flows, "newreno:handshake=off", ""), Fidelity::Fluid);
    // A frame of 1514 bytes has 1448 bytes of payload. No data flow the other way, so acknowledgements cost nothing.
    let expected = 100e6 / 3.0 * 1448.0 / 1514.0 / 8.0;
    for flow in &outcome.flows {
        assert!((flow.delivered_bytes as f64 - expected).abs() < 2.0, "{} of {expected}", flow.delivered_bytes);
        assert!((flow.throughput.unwrap() - 1.0 / 3.0).abs() < 1e-6);
    }
    let cable = outcome.links.iter().map(|link| link.sent_bytes).max().unwrap();
    assert!((12_499_990..=12_500_000).contains(&cable), "{cable}");
    assert!((outcome.links.iter().map(|link| link.utilisation).fold(0.0, f64::max) - 1.0).abs() < 1e-6);
}

#[test]
fn a_parking_lot_gives_each_flow_its_max_min_rate() {
    // Hosts 0 and 1 share the cable; host 1 also sends to host 2 of its own ToR, and host 5 also receives from host 3.
    let flows = [(0, 0, 5, None), (0, 1, 4, None), (0, 1, 2, None), (0, 3, 5, None), (0, 4, 5, None)];
    let outcome = run(settings(DUMBBELL, &flows, "newreno:handshake=off", ""), Fidelity::Fluid);
    // Host 5 receives thirds; the cable has two thirds left for host 1, which halves its own link.
    let rates: Vec<f64> =
        outcome.flows.iter().map(|flow| flow.delivered_bytes as f64 * 8.0 / 1e8 * 1514.0 / 1448.0).collect();
    let ack = 66.0 / 2.0 / 1514.0;
    for (rate, expected) in rates.iter().zip([1.0 / 3.0, 0.5, 0.5, 1.0 / 3.0, 1.0 / 3.0]) {
        assert!((rate - expected).abs() < ack, "{rates:?}");
    }
}

#[test]
fn a_flow_alone_takes_as_long_as_with_packets() {
    for size in [1, 1448, 10_000, 30_000, 100_000, 1_000_000, 10_000_000] {
        for transport in ["newreno:jitter=0s,acks=1", "newreno:jitter=0s,handshake=off", "newreno:jitter=0s"] {
            let of = || settings("dumbbell:hosts=3,rate=1Gbps,delay=50us", &[(0, 0, 4, Some(size))], transport, "");
            let [packets, fluid] = [Fidelity::Packets, Fidelity::Fluid].map(|of_run| fcts_ms(&run(of(), of_run))[0]);
            assert!((fluid / packets - 1.0).abs() < 0.03, "{size} {transport}: {fluid} ms, with packets {packets} ms");
        }
    }
}

#[test]
fn completion_times_follow_processor_sharing() {
    // Flows of exponential sizes arrive at a link at random: M/G/1 processor sharing, whose mean time is E[S] / (1 - rho),
    // where E[S] is the time that a flow alone needs (Kleinrock, Queueing Systems II, §4.4).
    let (mut rng, load, mean_s) = (Pcg64::seed_from_u64(7), 0.6, 1e-3);
    let exponential = |rng: &mut Pcg64, mean: f64| -mean * (1.0 - rng.random_range(0.0..1.0f64)).ln();
    let (mut at_s, mut flows, mut total_s) = (0.0, Vec::new(), 0.0);
    for index in 0..8000 {
        at_s += exponential(&mut rng, mean_s / load);
        let needs_s = exponential(&mut rng, mean_s);
        total_s += needs_s;
        // Hosts take turns, so that only the cable is shared.
        let size = (needs_s * 100e6 / 8.0) as u64 + 1;
        flows.push(((at_s * 1e6) as u64, index % 3, 3 + index / 3 % 3, Some(size)));
    }
    let fabric = "dumbbell:hosts=3,rate=10Gbps,switch_rate=100Mbps,delay=0us";
    let transport = "newreno:handshake=off,iw=1GB,rwnd=1GB";
    let of = SimSettings { duration: Nanos::from_secs(60), ..settings(fabric, &flows, transport, "") };
    let times = fcts_ms(&run(of, Fidelity::Fluid));
    let (mean_ms, own_ms) = (times.iter().sum::<f64>() / 8000.0, total_s * 1e3 / 8000.0);
    let (expected, header) = (own_ms / (1.0 - load), 1514.0 / 1448.0);
    // Headers raise the load to 0.63 and the size of small flows by more. Means of 8000 flows spread by some percent.
    let most = own_ms * header * 1.02 / (1.0 - load * header * 1.02);
    assert!((expected * 0.95..most * 1.05).contains(&mean_ms), "{mean_ms} ms, expected {expected} to {most} ms");
}

#[test]
fn ecmp_chooses_the_paths_that_packets_take() {
    let case = Case { traffic: "long-lived:pattern=permutation", fabric: "fat-tree:k=8,rate=1Gbps", ..SEARCH };
    let [packets, fluid] = [Fidelity::Packets, Fidelity::Fluid].map(|fidelity| {
        let mut simulation = start(case.settings("ecmp", None), fidelity);
        simulation.advance(Nanos::from_millis(5));
        (0..128).map(|flow| simulation.route(flow)).collect::<Vec<Vec<LinkId>>>()
    });
    assert!(packets.iter().all(|path| path.len() >= 2));
    assert_eq!(packets, fluid);
}

#[test]
fn schemes_learn_of_flows_and_move_them() {
    let case = Case {
        traffic: "long-lived:pattern=stride",
        fabric: "fat-tree:k=4,rate=1Gbps",
        duration: Nanos::from_millis(500),
        ..SEARCH
    };
    let mean = |outcome: &Outcome| outcome.flows.iter().filter_map(|flow| flow.throughput).sum::<f64>() / 16.0;
    let [ecmp, hedera, ofpt, lessor] =
        ["ecmp", "hedera:period=20ms", "ofpt:period=20ms", "lessor:min_period=10ms,period=20ms"]
            .map(|scheme| run(case.settings(scheme, None), Fidelity::Fluid));
    for outcome in [&hedera, &ofpt, &lessor] {
        assert!(outcome.control.routes > 0 && outcome.control.messages > 0, "{:?}", outcome.control);
        assert!(mean(outcome) > mean(&ecmp) + 0.05, "{} against {}", mean(outcome), mean(&ecmp));
    }
    assert!(hedera.control.polls >= 20 && ofpt.control.polls > 0);
    let packets = run(case.settings("hedera:period=20ms", None), Fidelity::Packets);
    assert!((mean(&hedera) - mean(&packets)).abs() < 0.1, "{} {}", mean(&hedera), mean(&packets));
}

#[test]
fn subflows_of_a_connection_are_one_flow_on_a_shared_link() {
    let of = |transport| settings(DUMBBELL, &[(0, 0, 3, None), (0, 1, 4, None)], transport, "");
    let outcome = run(of("mptcp:subflows=4"), Fidelity::Fluid);
    assert_eq!(outcome.subflows.len(), 8);
    let shares: Vec<f64> = outcome.flows.iter().map(|flow| flow.throughput.unwrap()).collect();
    assert!(shares.iter().all(|share| (share - 0.5).abs() < 0.01), "{shares:?}");
    let case = Case { traffic: "long-lived:pattern=permutation", duration: Nanos::from_millis(100), ..SEARCH };
    let mean = |scheme| {
        let outcome = run(case.settings(scheme, None), Fidelity::Fluid);
        outcome.flows.iter().filter_map(|flow| flow.throughput).sum::<f64>() / 16.0
    };
    assert!(mean("mptcp") > mean("ecmp") + 0.05);
}

#[test]
fn sprayed_flows_take_all_next_hops_evenly() {
    let case = Case { traffic: "long-lived:pattern=stride", duration: Nanos::from_millis(50), ..SEARCH };
    let fabric = fabric_from_spec(case.fabric).unwrap();
    let outcome = run(case.settings("rps", None), Fidelity::Fluid);
    let shares: Vec<f64> = outcome.flows.iter().map(|flow| flow.throughput.unwrap()).collect();
    assert!(shares.iter().all(|share| *share > 0.98), "{shares:?}");
    let sent = outcome.links.iter().filter(|row| fabric.is_switch_link(row.link)).map(|row| row.sent_bytes as f64);
    let [least, most] = sent.fold([f64::INFINITY, 0.0], |[least, most], one| [one.min(least), one.max(most)]);
    assert!(least > 0.99 * most, "{least} to {most}");
}

#[test]
fn a_degraded_link_limits_its_flows_until_it_is_restored() {
    let faults = "200ms:degrade:e0-e1:10Mbps,600ms:restore:e0-e1";
    let of = settings(DUMBBELL, &[(0, 0, 3, None)], "newreno:handshake=off", faults);
    let outcome = run(of, Fidelity::Fluid);
    // 600 ms at 100 Mbit/s and 400 ms at 10 Mbit/s.
    let expected = (0.6 * 100e6 + 0.4 * 10e6) * 1448.0 / 1514.0 / 8.0;
    let delivered = outcome.flows[0].delivered_bytes as f64;
    assert!((delivered / expected - 1.0).abs() < 1e-3, "{delivered} of {expected}");
}

#[test]
fn faults_move_flows_and_links_without_power_carry_nothing() {
    let flows: Vec<Listed> = (0..8).map(|host| (0, host, 8 + host, None)).collect();
    let mut of = settings("fat-tree:k=4,rate=100Mbps", &flows, "newreno", "300ms:down:a0_0,600ms:up:a0_0");
    of.central = pathloom_schemes::parse("ecmp").unwrap().central(1);
    let dead = of.fabric.nodes().iter().position(|node| node.name == "a0_0").map(|index| NodeId(index as u32)).unwrap();
    let out: Vec<LinkId> = of.fabric.node(dead).ports.clone();
    let mut simulation = start(of, Fidelity::Fluid);
    let sent = |simulation: &Simulation| -> u64 {
        let links = simulation.outcome().links;
        out.iter().map(|link| links[link.index()].sent_bytes).sum()
    };
    let mut at = |ms| {
        simulation.advance(Nanos::from_millis(ms));
        sent(&simulation)
    };
    let [before, dead, still, after] = [300, 400, 600, 1000].map(&mut at);
    assert!(before > 0 && dead == still, "{before} {dead} {still}");
    assert!(after > still, "flows come back");
    let goodput: u64 = simulation.outcome().flows.iter().map(|flow| flow.delivered_bytes).sum();
    assert!(goodput > 0 && simulation.outcome().conserves_packets());
}

#[test]
fn the_same_seed_gives_the_same_result() {
    let of = || run(SEARCH.settings("hedera:period=5ms", None), Fidelity::Fluid);
    let (first, second) = (of(), of());
    assert_eq!(first, second);
    assert!(first.flows.iter().all(|flow| flow.finish.is_some()));
}

#[test]
fn what_needs_packets_is_refused() {
    let refused = |scheme: &str, transport: Option<&str>, fabric: &'static str| {
        let of = Case { fabric, ..SEARCH }.settings(scheme, transport);
        Simulation::with_fidelity(of, NoTap, None, Fidelity::Fluid).err()
    };
    let plain = "fat-tree:k=4,rate=1Gbps";
    for (scheme, transport) in [("drill", None), ("conga", None), ("letflow", None), ("ecmp", Some("uec"))] {
        let error = refused(scheme, transport, plain);
        assert!(matches!(error, Some(SimError::NeedsPackets { .. })), "{scheme} {transport:?} {error:?}");
    }
    assert_eq!(refused("rps", None, plain), None, "packets by themselves are spread evenly");
}
