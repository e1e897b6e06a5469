//! Priority-based flow control: pauses, their instants, headroom, and deadlocks.

use crate::packets::{run, settings};
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::Nanos;
use pathloom_sim::{Outcome, PauseOutcome, SimSettings, Simulation};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Hosts of 10 Gbit/s behind a cable of 1 Gbit/s. A frame of 1250 bytes takes 1 µs or 10 µs.
const NARROW: &str = "dumbbell:hosts=1,host_rate=10Gbps,switch_rate=1Gbps,delay=1us";
const FRAMES: &str = "uec:mtu=1250B";

fn pauses(outcome: &Outcome) -> &PauseOutcome {
    outcome.pauses.as_ref().expect("the fabric has flow control")
}

fn finished(outcome: &Outcome) -> usize {
    outcome.flows.iter().filter(|flow| flow.finish.is_some()).count()
}

#[test]
fn pauses_begin_and_end_when_a_calculation_by_hand_says() {
    // Frame n reaches the first switch at 2 + n µs. Frame 0 is sent at once, for 10 µs; frame 3 is the third one that waits,
    // at 5 µs. The pause takes 51.2 ns and 1 µs to the host. By then 7 frames have begun, of which 6 wait. The switch sends
    // one of them at 12, 22, 32, 42 and 52 µs. Then 1250 bytes are left, and the resume takes as long as the pause. The host
    // sends again; frames arrive at 55.0512 and 56.0512 µs, the second of which exceeds the threshold again.
    let fabric = format!("{NARROW},pfc=3KB/1250B");
    let mut simulation = Simulation::new(settings(&fabric, &[(0, 0, 1, Some(50_000))], FRAMES, "")).unwrap();
    let graph = fabric_from_spec(&fabric).unwrap();
    let uplink = graph.links().iter().position(|link| link.from == graph.hosts()[0]).unwrap();
    let expected = [
        (6_051, 0, 0),
        (6_052, 1, 0),
        (16_051, 1, 9_999),
        (53_051, 1, 46_999),
        (53_052, 1, 47_000),
        (57_102, 1, 47_000),
        (57_103, 2, 47_000),
    ];
    for (ns, times, paused) in expected {
        simulation.advance(Nanos(ns));
        let row = simulation.outcome().links[uplink];
        assert_eq!((row.pauses, row.paused.0), (times, paused), "{ns} ns");
    }
    simulation.advance(Nanos::from_millis(10));
    let outcome = simulation.outcome();
    assert!(outcome.conserves_packets() && finished(&outcome) == 1, "{:?}", outcome.packets);
    assert_eq!((outcome.packets.dropped, pauses(&outcome).deadlock.as_ref()), (0, None));
    assert_eq!(pauses(&outcome).most_beyond_xoff_bytes, 6 * 1250 - 3_000);
}

/// Seven hosts send 2 MB each to the same one, which sends as much back to each of them.
fn incast(keys: &str, transport: &str) -> SimSettings {
    let flows: Vec<(u64, usize, usize, Option<u64>)> = (1..8)
        .flat_map(|host| [(host as u64, host, 8, Some(2_000_000)), (host as u64 + 3, 8, host, Some(2_000_000))])
        .collect();
    let fabric = format!("leaf-spine:spines=2,leaves=2,hosts=8,rate=10Gbps,delay=1770ns,{keys}");
    settings(&fabric, &flows, transport, "")
}

#[test]
fn the_computed_headroom_is_enough_and_a_frame_less_is_not() {
    // There and back, 10 Gbit/s for 3.54 µs are 4425 bytes.
    let (frame, xoff) = (1514, 15 * 1514);
    let headroom = 4425 + 64 + 3 * frame;
    for (transport, least) in [("newreno:iw=200KB", 9), ("uec:mtu=1514B", 9)] {
        let computed = run(incast(&format!("pfc={xoff}B"), transport));
        assert_eq!((computed.packets.dropped, finished(&computed)), (0, 14), "{transport}");
        let of = pauses(&computed);
        assert!(of.pauses > least && of.deadlock.is_none(), "{of:?}");
        assert!((headroom - frame + 1..=headroom).contains(&of.most_beyond_xoff_bytes), "{transport} {of:?}");
        let given = run(incast(&format!("pfc={xoff}B,pfc_headroom={headroom}B"), transport));
        assert_eq!(given, computed, "{transport}");
        let less = run(incast(&format!("pfc={xoff}B,pfc_headroom={}B", headroom - frame), transport));
        assert!(less.packets.dropped > 0, "{transport}");
    }
}

#[test]
fn a_paused_priority_does_not_stop_the_others() {
    // Long flows have the lower of two queues. Host 8 gets them from seven hosts, and a short flow from one of these.
    let mut flows: Vec<(u64, usize, usize, Option<u64>)> = (1..8).map(|host| (0, host, 8, Some(3_000_000))).collect();
    flows.push((800, 1, 9, Some(50_000)));
    let fct = |keys: &str| {
        let fabric = format!("leaf-spine:spines=2,leaves=2,hosts=8,rate=10Gbps,pfc=30KB{keys}");
        let outcome = run(settings(&fabric, &flows, "newreno:iw=100KB", ""));
        assert_eq!((outcome.packets.dropped, finished(&outcome)), (0, 8));
        let flow = &outcome.flows[7];
        flow.finish.unwrap().0 - flow.start.unwrap().0
    };
    let (shared, apart) = (fct(""), fct(",queues=2"));
    assert!(shared > 5 * apart, "{shared} {apart}");
}

#[test]
fn a_cycle_of_paused_links_is_found_and_named() {
    // Each switch of the ring sends to the one after the next, always clockwise: half of what each cable carries goes on
    // by the next one.
    let ring = |hosts: usize, keys: &str| {
        let flows: Vec<(u64, usize, usize, Option<u64>)> = (0..5)
            .flat_map(|switch| {
                (0..hosts).map(move |host| (0, switch * hosts + host, (switch + 2) % 5 * hosts + host, Some(1_000_000)))
            })
            .collect();
        let fabric = format!("torus:dims=5,hosts={hosts},rate=10Gbps{keys}");
        (
            run(SimSettings { drain: 20, ..settings(&fabric, &flows, "uec:entropy=single", "") }),
            fabric_from_spec(&fabric).unwrap(),
        )
    };
    let (outcome, fabric) = ring(2, ",pfc=20KB");
    let deadlock = pauses(&outcome).deadlock.clone().expect("a cycle");
    assert_eq!((outcome.packets.dropped, deadlock.cycle.len()), (0, 5));
    for (place, &link) in deadlock.cycle.iter().enumerate() {
        let next = fabric.link(deadlock.cycle[(place + 1) % 5]);
        assert_eq!(fabric.link(link).to, next.from, "the links follow each other");
    }
    assert!(deadlock.since > Nanos::ZERO && deadlock.since < Nanos::from_millis(2), "{deadlock:?}");
    assert!(deadlock.stuck.len() > 5, "hosts wait as well: {deadlock:?}");
    assert!(finished(&outcome) < 10 && outcome.packets.in_flight > 0);
    let (lossy, _) = ring(2, "");
    assert_eq!((lossy.pauses.is_none(), finished(&lossy)), (true, 10));
}

#[test]
fn a_cable_that_fails_forgets_its_pauses() {
    let faults = "300us:down:e0-c0,500us:up:e0-c0,700us:down:e1-c1,900us:up:e1-c1";
    for transport in ["newreno:iw=200KB,min_rto=1ms", "uec"] {
        let fabric = "leaf-spine:spines=2,leaves=2,hosts=8,rate=10Gbps,pfc=30KB";
        let flows: Vec<(u64, usize, usize, Option<u64>)> =
            (1..8).map(|host| (host as u64, host, 8, Some(1_000_000))).collect();
        let outcome = run(settings(fabric, &flows, transport, faults));
        assert_eq!(finished(&outcome), 7, "{transport} {:?}", outcome.pauses);
        assert!(pauses(&outcome).pauses > 5 && pauses(&outcome).deadlock.is_none(), "{transport}");
    }
}

#[test]
fn random_traffic_loses_nothing_whatever_the_transport_and_the_queues() {
    let mut rng = Pcg64::seed_from_u64(7);
    for (transport, keys) in [
        ("newreno:iw=100KB", "pfc=on"),
        ("cubic", "pfc=20KB/5KB,queues=3"),
        ("dctcp", "pfc=30KB,control_queue=off"),
        ("mptcp:subflows=3", "pfc=20KB"),
        ("uec", "pfc=20KB,queues=2"),
        ("roce", "pfc=20KB,ecn=10KB/40KB/0.2"),
        ("roce:cc=none", "pfc=15KB,control_queue=off"),
        ("roce:recovery=irn,mtu=1024B", "pfc=15KB,red=5/30,red_ecn=on"),
    ] {
        let mut host = |not: usize| (not + rng.random_range(1..16)) % 16;
        let ends: Vec<(usize, usize)> = (0..40).map(|flow| (flow % 16, host(flow % 16))).collect();
        let mut flow =
            |&(src, dst): &(usize, usize)| (rng.random_range(0..400), src, dst, Some(rng.random_range(1_000..400_000)));
        let flows: Vec<(u64, usize, usize, Option<u64>)> = ends.iter().map(&mut flow).collect();
        for fabric in
            ["fat-tree:k=4,rate=10Gbps,buffer=40", "leaf-spine:spines=2,leaves=4,hosts=4,rate=10Gbps,buffer=40"]
        {
            let fabric = format!("{fabric},{keys}");
            let outcome = run(settings(&fabric, &flows, transport, ""));
            let is_stuck = pauses(&outcome).deadlock.is_some();
            assert_eq!((outcome.packets.dropped, finished(&outcome), is_stuck), (0, 40, false), "{fabric} {transport}");
        }
    }
}

#[test]
fn victims_are_the_flows_that_a_pause_holds_back_and_that_do_not_feed_its_cause() {
    // Figure 4 of Zhu et al. 2015 with three racks. Six hosts of racks 0 and 2 send to host 8 of rack 1, whose cable is
    // the only full one. Host 4 of rack 0 sends to rack 2, and host 5 to another host of rack 1. Hosts 22 and 23 stay
    // within rack 2.
    let mut flows: Vec<(u64, usize, usize, Option<u64>)> =
        [0, 1, 2, 16, 17, 18].into_iter().map(|host| (0, host, 8, Some(2_000_000))).collect();
    flows.extend([(100, 4, 20, Some(300_000)), (100, 5, 9, Some(300_000)), (100, 22, 23, Some(300_000))]);
    let spec = "leaf-spine:spines=1,leaves=3,hosts=8,host_rate=10Gbps,switch_rate=40Gbps,pfc=50KB";
    let fabric = fabric_from_spec(spec).unwrap();
    for transport in ["roce:cc=none", "newreno:iw=200KB"] {
        let outcome = run(settings(spec, &flows, transport, ""));
        assert_eq!((outcome.packets.dropped, finished(&outcome)), (0, 9), "{transport}");
        let victims = &pauses(&outcome).victims;
        let mut found: Vec<usize> = victims
            .iter()
            .map(|victim| outcome.flows.iter().position(|flow| flow.five_tuple == Some(victim.five_tuple)).unwrap())
            .collect();
        found.sort_unstable();
        assert_eq!(found, [6, 7], "{transport} {victims:?}");
        for victim in victims {
            let (root, link) = (fabric.link(victim.root), fabric.link(victim.link));
            assert_eq!((root.to, fabric.is_host(link.to)), (fabric.hosts()[8], false), "{transport} {victim:?}");
            let flow = outcome.flows.iter().find(|flow| flow.five_tuple == Some(victim.five_tuple)).unwrap();
            let fct = flow.finish.unwrap().0 - flow.start.unwrap().0;
            assert!(victim.paused.0 > 10_000 && victim.paused.0 < fct, "{transport} {victim:?} {fct}");
        }
    }
    let alone = run(settings(spec, &flows[6..], "roce:cc=none", ""));
    assert_eq!((pauses(&alone).pauses, &pauses(&alone).victims), (0, &Vec::new()));
}
