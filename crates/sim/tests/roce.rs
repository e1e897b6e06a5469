//! Transfers over RoCE with DCQCN: rates, queues, notices, and recovery on fabrics with and without pauses.

use crate::packets::{fcts_us, run, run_with, settings};
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::Nanos;
use pathloom_sim::{LargeFabric, Outcome, SimSettings, Simulation};

/// Bytes of a full packet, headers included.
const FRAME: f64 = 4162.0;

fn finished(outcome: &Outcome) -> usize {
    outcome.flows.iter().filter(|flow| flow.finish.is_some()).count()
}

#[test]
fn a_lone_flow_takes_the_time_of_its_frames_and_links() {
    // 100 frames of 4162 bytes at 100 Gbit/s take 33.296 µs, and six links of 500 ns with five switches add 3 µs and 5 · 332.96 ns.
    let outcome = run(settings(crate::packets::FAT_TREE, &[(0, 0, 15, Some(409_600))], "roce", ""));
    assert_eq!(fcts_us(&outcome), [37.960], "37.9608 us less what was rounded");
    assert_eq!(outcome.flows[0].five_tuple.unwrap().dst_port(), 4791);
    let packets = outcome.flows[0].packets;
    assert_eq!(packets, 100 + 13, "an acknowledgement for 8 packets, and one for the last");
}

#[test]
fn transfers_of_a_job_share_the_queue_pair_of_their_hosts_while_it_is_free() {
    let ports = |standing: bool| {
        let flows =
            [(0, 0, 15, Some(40_960)), (50, 0, 15, Some(40_960)), (51, 0, 15, Some(40_960)), (99, 1, 15, Some(40_960))];
        let own = settings(crate::packets::FAT_TREE, &flows, "roce", "");
        let mut workload = (*own.workload).clone();
        workload.flows.iter_mut().for_each(|flow| flow.standing = standing);
        let outcome = run(SimSettings { workload: workload.into(), ..own });
        outcome.flows.iter().map(|flow| flow.five_tuple.unwrap().src_port()).collect::<Vec<u16>>()
    };
    let [first, second, third, fourth] = ports(true)[..] else { panic!("four transfers") };
    assert_eq!((second, third), (first, first + 1), "the third transfer begins while the second one goes on");
    assert_ne!(fourth, first, "other hosts");
    assert_ne!(ports(false)[1], first, "requests of a service have a queue pair each");
}

#[test]
fn results_on_large_fabrics_and_with_failures_are_as_on_small_ones() {
    let flows: Vec<(u64, usize, usize, Option<u64>)> =
        (1..8).map(|host| (host as u64, host, 8, Some(1_000_000))).collect();
    let fabric = "leaf-spine:spines=2,leaves=2,hosts=8,rate=10Gbps,pfc=30KB,ecn=20KB/80KB/0.1";
    let faults = "300us:down:e0-c0,500us:up:e0-c0,700us:down:e1-c1,900us:up:e1-c1";
    for transport in ["roce:rto=1ms", "roce:recovery=irn,rto=1ms"] {
        let own = || settings(fabric, &flows, transport, faults);
        let (small, large) = (run(own()), run_with(own(), LargeFabric));
        assert_eq!(small, large, "{transport}");
        assert_eq!(finished(&small), 7, "{transport}");
        assert!(small.packets.dropped > 0 && small.pauses.as_ref().unwrap().pauses > 5, "{:?}", small.pauses);
    }
}

/// Fixed point of the fluid model of DCQCN (Zhu et al. 2015, §5, equations 5 to 9, with all derivatives 0): the share of marked
/// packets if this many flows share a link of `rate_bps`.
fn fixed_point(flows: f64, rate_bps: f64) -> f64 {
    let rate = rate_bps / 8.0 / FRAME / flows;
    let (tau, alpha_timer, timer, stages) = (50e-6, 55e-6, 55e-6, 5.0);
    let (step, growth) = (10e6 / FRAME, 40e6 / 8.0 / FRAME);
    let excess = |p: f64| {
        let none = |packets: f64| (1.0 - p).powf(packets);
        let (noticed, alpha) = (1.0 - none(tau * rate), 1.0 - none(alpha_timer * rate));
        let [by_bytes, by_time] = [step, timer * rate].map(|packets| p * none(packets) / (1.0 - none(packets)));
        let grown = none(stages * step) * by_bytes + none(stages * timer * rate) * by_time;
        let distance = tau * growth * rate * grown / noticed;
        rate * alpha * noticed / (2.0 * tau) - distance / 2.0 * rate * (by_bytes + by_time)
    };
    let (mut low, mut high) = (1e-9f64, 0.5f64);
    for _ in 0..200 {
        let middle = (low * high).sqrt();
        if excess(middle) > 0.0 {
            high = middle;
        } else {
            low = middle;
        }
    }
    low
}

/// Runs flows without end over one cable. Returns the mean queue at the cable in bytes, its utilisation, and Jain's index of the
/// goodput of the flows, all from 10 to 60 ms.
fn steady(flows: usize, gbps: u64, ecn: &str) -> (f64, f64, f64) {
    let fabric = format!("dumbbell:hosts={flows},rate={gbps}Gbps,delay=1us,buffer=2000,pfc=on,ecn={ecn}");
    let rows: Vec<(u64, usize, usize, Option<u64>)> =
        (0..flows).map(|flow| (flow as u64, flow, flows + flow, None)).collect();
    let own = settings(&fabric, &rows, "roce", "");
    let mut simulation = Simulation::new(SimSettings { duration: Nanos::from_millis(60), drain: 0, ..own }).unwrap();
    let graph = fabric_from_spec(&fabric).unwrap();
    let [before, after] = [10, 60].map(|ms| {
        simulation.advance(Nanos::from_millis(ms));
        simulation.outcome()
    });
    assert_eq!(after.packets.dropped, 0);
    let cable =
        after.links.iter().filter(|row| graph.is_switch_link(row.link)).max_by_key(|row| row.sent_bytes).unwrap();
    let earlier = before.links[cable.link.index()];
    let queue = (cable.mean_queue * 60.0 - earlier.mean_queue * 10.0) / 50.0;
    let sent = (cable.sent_bytes - earlier.sent_bytes) as f64 * 8.0 / (gbps as f64 * 1e9 * 0.05);
    let goodput = |flow: usize| (after.flows[flow].delivered_bytes - before.flows[flow].delivered_bytes) as f64;
    let (sum, squares) = (0..flows).map(goodput).fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    (queue * FRAME, sent, sum * sum / squares / flows as f64)
}

#[test]
fn queues_and_rates_of_dcqcn_are_at_the_fixed_point_of_its_fluid_model() {
    // With few fast flows the queue is often empty, which lowers its mean (docs/lossless.md). At 25 and 40 Gbit/s it seldom is.
    let (often_empty, seldom_empty) = ((60_000.0, 130_000.0), (95_000.0, 115_000.0));
    for (flows, gbps, (least, most), least_jain) in [
        (2, 10, often_empty, 0.99),
        (2, 25, seldom_empty, 0.98),
        (2, 40, seldom_empty, 0.99),
        (2, 100, often_empty, 0.99),
        (2, 400, often_empty, 0.99),
        (8, 100, often_empty, 0.99),
    ] {
        let marked = fixed_point(flows as f64, gbps as f64 * 1e9);
        // A curve that marks this share at the middle of 5 to 205 KB.
        let (queue, utilisation, jain) = steady(flows, gbps, &format!("5KB/205KB/{}", 2.0 * marked));
        assert!((least..most).contains(&queue), "{flows} flows, {gbps} Gbit/s: {queue} bytes");
        assert!(utilisation > 0.95 && jain > least_jain, "{flows} flows, {gbps} Gbit/s: {utilisation} {jain}");
    }
}

#[test]
fn an_incast_on_a_fabric_with_pauses_loses_nothing() {
    let fabric = "leaf-spine:spines=2,leaves=2,hosts=8,rate=10Gbps,buffer=30";
    let flows: Vec<(u64, usize, usize, Option<u64>)> =
        (1..8).map(|host| (host as u64, host, 8, Some(500_000))).collect();
    let paused = run(settings(&format!("{fabric},pfc=on"), &flows, "roce:cc=none", ""));
    assert_eq!((paused.packets.dropped, finished(&paused)), (0, 7));
    assert!(paused.flows.iter().all(|flow| flow.retransmits == 0 && flow.timeouts == 0));
    let paces = run(settings(&format!("{fabric},pfc=on,ecn=20KB/80KB/0.1"), &flows, "roce", ""));
    let pauses = |outcome: &Outcome| outcome.pauses.as_ref().unwrap().pauses;
    assert!(pauses(&paces) < pauses(&paused) / 2, "{} {}", pauses(&paces), pauses(&paused));
    // Without pauses packets are lost, and going back repeats far more than was lost.
    let lossy = run(settings(fabric, &flows, "roce:cc=none", ""));
    let irn = run(settings(fabric, &flows, "roce:cc=none,recovery=irn", ""));
    assert_eq!((finished(&lossy), finished(&irn)), (7, 7));
    let again = |outcome: &Outcome| outcome.flows.iter().map(|flow| u64::from(flow.retransmits)).sum::<u64>();
    assert!(
        lossy.packets.dropped > 0 && again(&lossy) > lossy.packets.dropped,
        "{} {:?}",
        again(&lossy),
        lossy.packets
    );
    assert!(irn.packets.dropped > 0 && again(&lossy) > 10 * again(&irn), "{} {}", again(&lossy), again(&irn));
    assert_eq!(again(&irn), irn.packets.dropped, "IRN repeats only what was lost");
}

#[test]
fn schemes_that_reorder_cost_go_back_n_what_they_do_not_cost_irn() {
    let flows: Vec<(u64, usize, usize, Option<u64>)> =
        (0..8).map(|host| (0, host, 8 + host, Some(1_000_000))).collect();
    let fabric = "leaf-spine:spines=4,leaves=2,hosts=8,rate=10Gbps,pfc=on,ecn=20KB/80KB/0.1";
    let retransmits = |scheme: &str, transport: &str| {
        let spec = pathloom_schemes::parse(scheme).unwrap();
        let own = settings(fabric, &flows, transport, "");
        let refined = spec.transport_with(Some(own.transport.clone())).unwrap();
        let outcome = run(SimSettings { central: spec.central(1), transport: refined, ..own });
        assert_eq!((outcome.packets.dropped, finished(&outcome)), (0, 8), "{scheme} {transport}");
        outcome.flows.iter().map(|flow| u64::from(flow.retransmits)).sum::<u64>()
    };
    assert_eq!(["ecmp", "plb"].map(|scheme| retransmits(scheme, "roce")), [0, 0]);
    let sprayed = ["rps", "drb"].map(|scheme| retransmits(scheme, "roce"));
    assert!(sprayed.iter().all(|&again| again > 100), "{sprayed:?}");
    let irn = ["rps", "drb"].map(|scheme| retransmits(scheme, "roce:recovery=irn"));
    // It takes packets in any order, but repeats those that seem lost.
    assert!((0..2).all(|scheme| irn[scheme] < sprayed[scheme] / 2), "{sprayed:?} {irn:?}");
}
