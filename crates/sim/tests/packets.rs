//! Transfers over the transport `uec`: packets that take any path, ports that trim them, hosts that share their cards.

use crate::cases::{finish, listed, Listed};
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::Nanos;
use pathloom_sim::{LargeFabric, NoTap, Outcome, PcapTap, SimError, SimSettings, Simulation, Tap};
use pathloom_workload::TrafficSpec;
use proptest::prelude::*;
use std::sync::Arc;

pub(crate) const FAT_TREE: &str = "fat-tree:k=4,rate=100Gbps,delay=500ns";
/// Ports that hold 20 packets of 4150 bytes.
pub(crate) const TRIMMING: &str = "queue_bytes=83000B,ecn=16600B/66400B,trim=on";

pub(crate) fn settings(fabric: &str, flows: &[Listed], transport: &str, faults: &str) -> SimSettings {
    listed("ecmp", fabric, flows, transport, faults)
}

pub(crate) fn run_with(settings: SimSettings, tap: impl Tap) -> Outcome {
    finish(Simulation::with_tap(settings, tap, None).unwrap())
}

pub(crate) fn run(settings: SimSettings) -> Outcome {
    run_with(settings, NoTap)
}

/// Flow completion times in microseconds.
pub(crate) fn fcts_us(outcome: &Outcome) -> Vec<f64> {
    let fct = |flow: &pathloom_sim::FlowOutcome| (flow.finish.unwrap().0 - flow.start.unwrap().0) as f64 / 1e3;
    outcome.flows.iter().map(fct).collect()
}

pub(crate) fn all_finish(outcome: &Outcome) -> bool {
    outcome.flows.iter().all(|flow| flow.finish.is_some() && Some(flow.delivered_bytes) == flow.size_bytes)
}

/// Each of 16 hosts sends to the one after the next four.
pub(crate) fn shift(bytes: u64) -> Vec<(u64, usize, usize, Option<u64>)> {
    (0..16).map(|host| (0, host, (host + 4) % 16, Some(bytes))).collect()
}

pub(crate) fn incast(senders: usize, bytes: u64) -> Vec<(u64, usize, usize, Option<u64>)> {
    (1..=senders).map(|host| (0, host, 0, Some(bytes))).collect()
}

/// Sent and lost packets of a kind.
fn of_kind(outcome: &Outcome, name: &str) -> (u64, u64) {
    let kind = outcome.kinds.iter().flatten().find(|kind| kind.name == name).unwrap();
    (kind.sent, kind.lost.unwrap())
}

#[test]
fn packets_are_counted_by_kind() {
    let fabric = format!("{FAT_TREE},{TRIMMING}");
    let ndp = run(settings(&fabric, &incast(15, 400_000), "ndp", ""));
    let again: u64 = ndp.flows.iter().map(|flow| u64::from(flow.retransmits)).sum();
    let (data, headers) = (15 * 98 + again, ndp.packets.trimmed);
    assert_eq!([of_kind(&ndp, "data"), of_kind(&ndp, "headers")], [(data, 0), (headers, 0)]);
    assert_eq!([of_kind(&ndp, "nacks"), of_kind(&ndp, "acks")], [(headers, 0), (15 * 98, 0)]);
    assert!(of_kind(&ndp, "pulls").0 > 0 && of_kind(&ndp, "requests") == (0, 0));
    let eqds = run(settings(&fabric, &incast(15, 400_000), "eqds:start=request", ""));
    assert_eq!((of_kind(&eqds, "requests"), of_kind(&eqds, "nacks")), ((15, 0), (15, 0)));
    let roce = run(settings(&format!("{FAT_TREE},pfc=30KB,ecn=20KB/80KB/0.1"), &incast(15, 400_000), "roce", ""));
    assert_eq!(of_kind(&roce, "pauses").0, roce.pauses.as_ref().unwrap().frames);
    assert!(of_kind(&roce, "notices").0 > 0 && of_kind(&roce, "nacks").0 == 0);
    let faults = "20us:down:e0_0-h0,120us:up:e0_0-h0";
    let lossy = run(settings(&format!("{fabric},loss=0.01"), &shift(400_000), "ndp", faults));
    assert!(["data", "acks", "pulls"].iter().all(|kind| of_kind(&lossy, kind).1 > 0));
    assert!(run(settings(FAT_TREE, &shift(10_000), "newreno", "")).kinds.is_none());
}

#[test]
fn a_lone_transfer_uses_its_card_fully_and_ends_early_enough() {
    for fabric in [FAT_TREE.to_owned(), format!("{FAT_TREE},{TRIMMING}")] {
        for mtu in ["1514B", "4150B", "9000B"] {
            let outcome = run(settings(&fabric, &[(0, 0, 15, Some(2_000_000))], &format!("uec:mtu={mtu}"), ""));
            let share = outcome.flows[0].throughput.unwrap();
            assert!((0.95..=1.0).contains(&share), "{fabric} {mtu}: {share}");
            assert_eq!((outcome.packets.dropped, outcome.packets.trimmed), (0, 0), "{fabric} {mtu}");
            assert_eq!(
                outcome.flows[0].five_tuple.map(|five_tuple| (five_tuple.proto(), five_tuple.dst_port())),
                Some((17, 4793))
            );
        }
    }
}

/// A scheme that selects the transport gives the result of ecmp with that transport.
#[test]
fn schemes_over_ultra_ethernet_are_ecmp_with_their_transport() {
    let case = crate::cases::Case { traffic: "web-search:load=0.3,max_size=200KB", ..crate::cases::SEARCH };
    for choice in ["oblivious", "bitmap", "reps", "mixed"] {
        let own = case.run(choice, Some("dctcp:min_rto=1ms"));
        assert_eq!(own, case.run("ecmp", Some(&format!("uec:entropy={choice}"))), "{choice}");
        assert!(own.flows.iter().all(|flow| flow.finish.is_some()), "{choice}");
    }
}

/// The order of uet-htsim's results for permutations (docs/uec.md): the more a host learns about its paths, the earlier
/// the transfers end.
#[test]
fn the_choices_of_paths_have_the_order_of_uet_htsim() {
    // Each of 128 hosts sends 2 MB to a host of another pod; no two senders have the same receiver.
    let flows: Vec<_> = (0..128).map(|host| (0, host, (37 * host + 61) % 128, Some(2_000_000))).collect();
    let fabric = "fat-tree:k=8,rate=100Gbps,delay=1us,queue_bytes=178450B,ecn=37350B/145250B,trim=on";
    let choices = ["mixed", "reps", "bitmap", "oblivious", "single"];
    let mean_us = choices.map(|entropy| {
        let outcome = run(settings(fabric, &flows, &format!("uec:paths=128,entropy={entropy}"), ""));
        assert!(all_finish(&outcome), "{entropy}");
        fcts_us(&outcome).iter().sum::<f64>() / flows.len() as f64
    });
    assert!(mean_us.is_sorted(), "{mean_us:?}");
    // One path for each transfer: some links carry several of them, others none.
    assert!(mean_us[4] > 1.5 * mean_us[3], "{mean_us:?}");
}

#[test]
fn transfers_of_a_host_share_its_card_packet_by_packet() {
    let flows = [(0, 0, 12, Some(1_000_000)), (0, 0, 8, Some(1_000_000)), (0, 0, 4, Some(1_000_000))];
    let outcome = run(settings(FAT_TREE, &flows, "uec", ""));
    let fcts = fcts_us(&outcome);
    let (least, most) = fcts.iter().fold((f64::MAX, 0.0_f64), |(least, most), &fct| (least.min(fct), most.max(fct)));
    // Three transfers of 1 MB take 240 us at 100 Gbit/s; their last packets leave one after another.
    assert!(most < 260.0 && most - least < 10.0, "{fcts:?}");
}

#[test]
fn an_incast_trims_packets_and_drops_none() {
    let fabric = format!("{FAT_TREE},{TRIMMING}");
    let outcome = run(settings(&fabric, &incast(15, 200_000), "uec", ""));
    assert!(all_finish(&outcome) && outcome.packets.trimmed > 100, "{:?}", outcome.packets);
    assert_eq!(outcome.packets.dropped, 0);
    let timeouts: u32 = outcome.flows.iter().map(|flow| flow.timeouts).sum();
    let retransmits: u32 = outcome.flows.iter().map(|flow| flow.retransmits).sum();
    // What is trimmed is sent again, and nothing else but what timed out.
    assert!(u64::from(retransmits) <= outcome.packets.trimmed + u64::from(timeouts), "{timeouts} {retransmits}");
    let last = fcts_us(&outcome).into_iter().fold(0.0, f64::max);
    // 3 MB take 240 us at 100 Gbit/s.
    assert!(last < 300.0, "{last}");
    // TCP does not understand headers, so its data are dropped.
    let tcp = run(settings(&fabric, &incast(15, 200_000), "newreno", ""));
    assert!(tcp.packets.trimmed == 0 && tcp.packets.dropped > 0);
}

#[test]
fn entropies_spread_the_packets_of_a_transfer_over_all_paths() {
    let fabric = format!("{FAT_TREE},{TRIMMING}");
    let last = |entropy: &str| {
        let outcome = run(settings(&fabric, &shift(1_000_000), &format!("uec:entropy={entropy}"), ""));
        assert!(all_finish(&outcome));
        fcts_us(&outcome).into_iter().fold(0.0, f64::max)
    };
    // 1 MB takes 80 us at 100 Gbit/s. With one path for each transfer, some share a cable.
    let single = last("single");
    for entropy in ["oblivious", "bitmap", "reps", "mixed"] {
        assert!(last(entropy) < 0.8 * single && last(entropy) < 120.0, "{entropy}: {} {single}", last(entropy));
    }
}

#[test]
fn a_run_is_repeatable_and_the_code_for_large_fabrics_gives_the_same_run() {
    let faults = "20us:down:c0,60us:up:c0,30us:degrade:c1:10Gbps,0s:loss:c2:0.01";
    let fabric = format!("{FAT_TREE},{TRIMMING}");
    let settings = || settings(&fabric, &shift(500_000), "uec", faults);
    let first = run(settings());
    assert_eq!(first, run(settings()));
    assert_eq!(first, run_with(settings(), LargeFabric));
    let mut in_slices = Simulation::new(settings()).unwrap();
    (1..300).for_each(|us| in_slices.advance(Nanos::from_micros(us)));
    in_slices.advance(in_slices.end());
    assert_eq!(first, in_slices.outcome());
    assert_ne!(first.flows, run(SimSettings { seed: 2, ..settings() }).flows);
}

#[test]
fn a_cut_cable_delays_transfers_but_loses_none() {
    for fabric in [FAT_TREE.to_owned(), format!("{FAT_TREE},{TRIMMING}")] {
        for faults in ["10us:down:c0", "10us:down:e0_0-a0_0,200us:up:e0_0-a0_0", "10us:down:e0_0-h0,300us:up:e0_0-h0"] {
            let outcome = run(settings(&fabric, &shift(500_000), "uec", faults));
            assert!(all_finish(&outcome) && outcome.packets.dropped > 0, "{fabric} {faults}: {:?}", outcome.packets);
        }
    }
}

#[test]
fn a_transfer_without_end_is_measured_until_arrivals_stop() {
    let outcome = run(settings(FAT_TREE, &[(0, 0, 12, None), (0, 4, 8, None)], "uec", ""));
    for flow in &outcome.flows {
        assert!((0.9..=1.0).contains(&flow.throughput.unwrap()), "{flow:?}");
    }
}

#[test]
fn packets_are_captured_as_udp() {
    let fabric = fabric_from_spec(FAT_TREE).unwrap();
    let tap = PcapTap::new(Vec::new(), &fabric).unwrap();
    let mut simulation =
        Simulation::with_tap(settings(FAT_TREE, &[(0, 0, 1, Some(9000))], "uec", ""), tap, None).unwrap();
    simulation.advance(simulation.end());
    let (packets, bytes) = simulation.tap_mut().finish_with(Vec::clone).unwrap();
    assert!(packets >= 8, "{packets}");
    // The UDP header of data: the port 4793 in network byte order.
    assert!(bytes.windows(2).any(|pair| pair == 4793u16.to_be_bytes()));
}

#[test]
fn schemes_that_need_tcp_are_refused() {
    for (scheme, transport, words) in [
        ("ofpt", "uec", "limits the rates"),
        ("tcp-path", "uec", "finds paths by the SYN"),
        ("conga", "uec", "lets switches choose the path"),
        ("flowcut", "roce", "lets switches read acknowledgements of bytes"),
    ] {
        let parsed = pathloom_schemes::parse(scheme).unwrap();
        let refused = SimSettings {
            central: parsed.central(1),
            programs: parsed.deployment(),
            ..settings(FAT_TREE, &shift(1000), transport, "")
        };
        let error = Simulation::new(refused).err().unwrap();
        assert!(matches!(error, SimError::NeedsTcp { .. }) && error.to_string().contains(words), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn packets_are_conserved_and_transfers_finish_under_any_load(
        seed in 0u64..1000,
        queue_kb in 9u64..100,
        trim in any::<bool>(),
        load in 0.2f64..1.2,
        loss in prop_oneof![Just("0"), Just("0.001"), Just("0.02")],
        transport in prop_oneof![Just("uec"), Just("ndp"), Just("eqds"), Just("roce:rto=1ms"), Just("hpcc:rto=1ms")],
    ) {
        let keys = format!("queue_bytes={queue_kb}KB,ecn=8KB/40KB,control_queue=on,trim={}", if trim { "on" } else { "off" });
        let fabric = Arc::new(fabric_from_spec(&format!("{FAT_TREE},{keys},loss={loss}")).unwrap());
        let duration = Nanos::from_micros(300);
        let traffic = TrafficSpec::parse(&format!("hadoop:load={load:.2},pattern=random")).unwrap();
        let workload = Arc::new(traffic.generate(&fabric, duration, seed, None).unwrap());
        prop_assume!(!workload.flows.is_empty());
        let base = settings(FAT_TREE, &shift(1), transport, "");
        let mut simulation =
            Simulation::new(SimSettings { fabric, workload, duration, drain: 1000, seed, ..base }).unwrap();
        for us in [100, 200, 400] {
            simulation.advance(Nanos::from_micros(us));
            prop_assert!(simulation.outcome().conserves_packets());
        }
        simulation.advance(simulation.end());
        let outcome = simulation.outcome();
        prop_assert!(outcome.conserves_packets(), "{:?}", outcome.packets);
        let started = outcome.flows.iter().filter(|flow| flow.start.is_some());
        prop_assert!(started.clone().all(|flow| flow.finish.is_some()), "{:?}", outcome.packets);
        prop_assert!(trim || outcome.packets.trimmed == 0);
    }
}
