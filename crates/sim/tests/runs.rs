//! Whole runs: what must hold for every scheme, any traffic and any faults.

use pathloom_control::{Input, Output};
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{Fabric, Fault, Nanos, PortNo};
use pathloom_schemes::Registry;
use pathloom_sim::{ControlSettings, Journal, LargeFabric, Outcome, PcapTap, SimError, SimSettings, Simulation};
use pathloom_testkit::schemes::{fast, Tested};
use pathloom_transport::TransportSpec;
use pathloom_workload::{TrafficSpec, Workload};
use proptest::prelude::*;
use std::sync::{Arc, Mutex};

struct Case<'a> {
    fabric: &'a str,
    traffic: &'a str,
    transport: &'a str,
    scheme: &'a str,
    control: &'a str,
    faults: &'a str,
    duration: Nanos,
    seed: u64,
}

const CASE: Case = Case {
    fabric: "fat-tree:k=4,rate=100Mbps",
    traffic: "web-search:load=0.5,max_size=1MB",
    transport: "newreno",
    scheme: "ecmp",
    control: "delay=500us",
    faults: "",
    duration: Nanos::from_millis(400),
    seed: 1,
};

impl Case<'_> {
    fn settings(&self) -> SimSettings {
        let fabric = Arc::new(fabric_from_spec(self.fabric).unwrap());
        let traffic = TrafficSpec::parse(self.traffic).unwrap();
        SimSettings {
            workload: Arc::new(traffic.generate(&fabric, self.duration, self.seed, None).unwrap()),
            central: Registry::WithTestSchemes.parse(self.scheme).unwrap().central(self.seed),
            programs: None,
            successor: Some(Box::new({
                let (scheme, seed) = (Registry::WithTestSchemes.parse(self.scheme).unwrap(), self.seed);
                move || scheme.central(seed)
            })),
            transport: TransportSpec::parse(self.transport).unwrap(),
            control: ControlSettings::parse(self.control).unwrap(),
            duration: self.duration,
            drain: 60,
            faults: Fault::parse_schedule(&fabric, self.faults).unwrap(),
            seed: self.seed,
            fabric,
        }
    }

    fn run(&self) -> Outcome {
        let mut simulation = Simulation::new(self.settings()).unwrap();
        simulation.advance(simulation.end());
        assert!(simulation.is_done());
        let outcome = simulation.outcome();
        assert!(outcome.conserves_packets(), "{:?}", outcome.packets);
        outcome
    }
}

fn unfinished(outcome: &Outcome) -> usize {
    outcome.flows.iter().filter(|flow| flow.finish.is_none()).count()
}

#[test]
fn a_host_with_small_queues_does_not_overfill_its_own_card() {
    // So slow that twelve segments of a first window fill a card of eight.
    let fabric = "fat-tree:k=4,rate=10Mbps,buffer=8";
    let dropped_by_hosts = |transport| {
        let case =
            Case { fabric, transport, traffic: "long-lived:pattern=stride", duration: Nanos::from_secs(2), ..CASE };
        let (settings, outcome) = (case.settings(), case.run());
        let from_hosts =
            outcome.links.iter().filter(|row| settings.fabric.is_host(settings.fabric.link(row.link).from));
        (from_hosts.map(|row| row.dropped_packets).sum::<u64>(), outcome.packets.dropped)
    };
    let (plain, _) = dropped_by_hosts("newreno:small_queues=off");
    let (small, elsewhere) = dropped_by_hosts("newreno");
    assert!(plain > 0);
    assert_eq!(small, 0);
    assert!(elsewhere > 0, "the fabric's queues still drop");
}

#[test]
fn hosts_work_on_each_packet_for_up_to_the_jitter() {
    let fct = |transport, seed| {
        let traffic = "incast:senders=1,size=1KB,jitter=0ns";
        let fabric = "dumbbell:hosts=2,rate=10Mbps,buffer=50";
        let outcome = Case { fabric, traffic, transport, seed, scheme: "spt", ..CASE }.run();
        outcome.flows[0].finish.unwrap() - outcome.flows[0].start.unwrap()
    };
    let plain = fct("newreno:jitter=0s", 1);
    let jittered: Vec<Nanos> = (1..20).map(|seed| fct("newreno:jitter=1ms", seed)).collect();
    // SYN, its answer, and the data.
    assert!(jittered.iter().all(|&fct| plain < fct && fct <= plain + Nanos::from_millis(3)), "{jittered:?}");
    assert!(jittered.iter().any(|&fct| fct > plain + Nanos::from_millis(1)));
    assert_eq!(fct("newreno:jitter=1ms", 7), jittered[6]);
    // By default, up to the time of a full frame, which is 1.2 ms at 10 Mbit/s.
    let default: Vec<Nanos> = (1..20).map(|seed| fct("newreno", seed)).collect();
    assert!(default.iter().all(|&fct| plain < fct && fct <= plain + Nanos::from_micros(3 * 1212)), "{default:?}");
    assert!(default.iter().any(|&fct| fct > plain + Nanos::from_micros(1212)));
}

#[test]
fn the_same_settings_give_the_same_outcome_in_one_go_or_in_slices() {
    for Tested { spec: scheme, .. } in fast() {
        let case = Case { scheme, ..CASE };
        let whole = case.run();
        let mut sliced = Simulation::new(case.settings()).unwrap();
        let mut at = Nanos::ZERO;
        while !sliced.is_done() {
            at += Nanos::from_micros(7_919);
            sliced.advance(at);
        }
        let sliced = sliced.outcome();
        assert_eq!(whole.flows, sliced.flows, "{scheme}");
        assert_eq!((whole.packets, &whole.control), (sliced.packets, &sliced.control), "{scheme}");
        assert_eq!(unfinished(&whole), 0);
        assert_ne!(whole.flows, Case { seed: 2, scheme, ..CASE }.run().flows);
    }
}

#[test]
fn a_single_flow_comes_close_to_the_optimum() {
    let alone = |traffic, transport| {
        Case { fabric: "dumbbell:rate=100Mbps", traffic, transport, duration: Nanos::from_secs(4), ..CASE }.run()
    };
    let long = alone("long-lived:pattern=one-to-1,jitter=1us", "newreno:acks=1");
    let best = long.flows.iter().filter_map(|flow| flow.throughput).fold(0.0, f64::max);
    assert!(best <= 1.0, "{best}");
    let outcome = Case { fabric: "fat-tree:k=4,rate=100Mbps", traffic: "long-lived:pattern=permutation", ..CASE }.run();
    assert!(outcome.flows.iter().all(|flow| flow.throughput.is_some_and(|share| (0.0..=1.001).contains(&share))));
    let short = alone("incast:senders=1,size=2MB", "newreno:iw=100KB");
    let flow = &short.flows[0];
    let fct = flow.finish.unwrap().0 - flow.start.unwrap().0;
    let ideal = flow.ideal_fct.unwrap().0;
    assert!((ideal..ideal * 103 / 100).contains(&fct), "{fct} ns, ideal {ideal} ns");
}

#[test]
fn packets_on_failed_links_are_lost_and_counted_and_all_flows_finish() {
    let quiet = CASE.run();
    let faults = "100ms:down:a0_0-c0,150ms:down:c3,200ms:up:a0_0-c0,250ms:up:c3,120ms:down:e1_0-a1_0";
    for Tested { spec: scheme, .. } in fast() {
        let outcome = Case { scheme, faults, ..CASE }.run();
        assert_eq!(unfinished(&outcome), 0, "{scheme}: every flow finds another path");
        assert_ne!(outcome.packets, quiet.packets);
        let busiest = outcome.links.iter().map(|link| link.utilisation).fold(0.0, f64::max);
        assert!(busiest <= 1.0);
    }
}

#[test]
fn cached_decisions_follow_the_rules() {
    // Without the cache, the tables decide about every packet. Only the amount of work may differ.
    for scheme in ["ecmp", "hedera:period=50ms", "ofpt:rules=path", "lessor:sizes=announced"] {
        let case = Case { scheme, faults: "100ms:down:a0_0-c0,200ms:up:a0_0-c0", ..CASE };
        let mut plain = Simulation::new(case.settings()).unwrap();
        plain.forget_decisions();
        plain.advance(plain.end());
        let (plain, cached) = (plain.outcome(), case.run());
        assert_eq!(plain.flows, cached.flows);
        assert_eq!((plain.packets, plain.control), (cached.packets, cached.control));
    }
}

#[test]
fn the_code_for_large_fabrics_gives_the_same_outcome() {
    let faults = "100ms:down:a0_0-c0,200ms:up:a0_0-c0,250ms:down:e1_1-a1_0";
    for scheme in ["ecmp", "ofpt:rules=path"] {
        let case = Case { scheme, faults, ..CASE };
        let mut large = Simulation::with_tap(case.settings(), LargeFabric, None).unwrap();
        large.advance(large.end());
        let (large, small) = (large.outcome(), case.run());
        assert_eq!(large.flows, small.flows);
        assert_eq!(large.links, small.links);
        assert_eq!((large.packets, large.control), (small.packets, small.control));
    }
}

#[test]
fn hedera_beats_the_hash_on_long_flows() {
    let mean = |scheme| {
        let traffic = "long-lived:pattern=stride";
        let outcome = Case { traffic, scheme, duration: Nanos::from_secs(4), ..CASE }.run();
        outcome.flows.iter().filter_map(|flow| flow.throughput).sum::<f64>() / outcome.flows.len() as f64
    };
    let (ecmp, hedera) = (mean("ecmp"), mean("hedera:period=500ms"));
    assert!(hedera > ecmp + 0.1, "ecmp {ecmp:.3}, hedera {hedera:.3}");
}

/// Mean throughput and mean FCT of a scheme on the papers' traffic, over three seeds.
fn on_web_search(scheme: &str) -> (f64, f64) {
    let (mut shares, mut times) = (Vec::new(), Vec::new());
    for seed in 1..=3 {
        let case = Case {
            fabric: "fat-tree:k=4,rate=10Mbps,buffer=150",
            traffic: "web-search:load=0.5,pattern=random",
            duration: Nanos::from_secs(30),
            scheme,
            seed,
            ..CASE
        };
        for flow in case.run().flows {
            shares.extend(flow.throughput);
            times.extend(flow.start.zip(flow.finish).map(|(start, finish)| (finish - start).as_secs_f64()));
        }
    }
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    (mean(&shares), mean(&times))
}

/// OFPT Fig. 9 and LESSOR Fig. 4 and 5: the order of the schemes.
#[test]
fn schemes_come_in_the_order_of_the_papers() {
    let schemes = ["spt", "ecmp", "hedera", "lessor", "ofpt", "ofpt:sizes=announced"];
    let seen: Vec<(f64, f64)> = schemes.into_iter().map(on_web_search).collect();
    let fct_s: Vec<f64> = seen.iter().map(|&(_, fct_s)| fct_s).collect();
    assert!(fct_s.is_sorted_by(|worse, better| worse > better), "{schemes:?} {seen:?}");
    let [_, (ecmp, _), (hedera, _), (lessor, _), (ofpt, _), (announced, _)] = seen[..] else { panic!() };
    assert!(lessor > hedera.max(ecmp) && ofpt > lessor + 0.05 && announced > ofpt + 0.05, "{schemes:?} {seen:?}");
}

#[test]
fn own_paths_and_pacing_fill_the_fabric() {
    let traffic = "long-lived:pattern=stride";
    // Acknowledgements use the default routes. Per host they are spread evenly here; by ecmp's hash some would fill
    // links.
    let scheme = "ofpt:defaults=per-host";
    let outcome = Case { traffic, scheme, duration: Nanos::from_secs(4), ..CASE }.run();
    let worst = outcome.flows.iter().filter_map(|flow| flow.throughput).fold(1.0, f64::min);
    assert!(worst > 0.95, "{worst:.3}");
}

/// Round-trip times that were reported to the controller.
#[derive(Clone, Default)]
struct RoundTrips(Arc<Mutex<Vec<Nanos>>>);

impl Journal for RoundTrips {
    fn input(&mut self, _at: Nanos, input: &Input) {
        if let Input::Rtt { rtt, .. } = input {
            self.0.lock().unwrap().push(*rtt);
        }
    }

    fn output(&mut self, _at: Nanos, _output: &Output) {}
}

#[test]
fn the_controller_measures_the_round_trip_to_its_switches() {
    let case = Case { scheme: "hedera:period=100ms", control: "delay=2ms,service=1ms,install=5ms", ..CASE };
    let trips = RoundTrips::default();
    let journal = Some(Box::new(trips.clone()) as Box<dyn Journal + Send>);
    let mut simulation = Simulation::with_tap(case.settings(), pathloom_sim::NoTap, journal).unwrap();
    simulation.advance(simulation.end());
    let trips = trips.0.lock().unwrap();
    let shortest = trips.iter().min().unwrap();
    let longest = trips.iter().max().unwrap();
    // Both directions, and the controller's service; longer if the answers of eight ToRs arrive at once.
    assert!((Nanos::from_millis(5)..Nanos::from_millis(6)).contains(shortest), "{shortest:?}");
    assert!(*longest > Nanos::from_millis(8), "{longest:?}");
}

#[test]
fn a_full_rule_table_stops_no_traffic() {
    for Tested { spec: scheme, .. } in fast().filter(|tested| tested.places) {
        let with_room = |control: &str| Case { scheme, control, ..CASE }.run();
        let free = with_room("delay=500us");
        // Room for the default routes, and for less than half of the rules that the scheme would add.
        let defaults = Case { scheme, traffic: NOTHING_TO_ROUTE, ..CASE }.run().control.rules_max;
        let room = defaults + (free.control.rules_max - defaults) / 3;
        let full = with_room(&format!("delay=500us,tcam={room}"));
        assert!(free.control.rules_max > room + 1, "{scheme}: {room} of {}", free.control.rules_max);
        assert_eq!(unfinished(&full), 0, "{scheme}");
        assert_eq!(full.control.rules_max, room, "{scheme}: what fits is used");
    }
}

/// A flow that is too short for any scheme to act on.
const NOTHING_TO_ROUTE: &str = "incast:senders=1,size=1KB";

#[test]
fn steps_of_a_collective_wait_for_each_other() {
    let outcome = Case { traffic: "all-reduce:algorithm=ring,size=1MB,hosts=4", ..CASE }.run();
    assert_eq!((outcome.flows.len(), unfinished(&outcome)), (24, 0));
    let step = |n: u32| outcome.flows.iter().filter(move |flow| flow.coflow == Some(n));
    for n in 1..6 {
        let earliest = step(n).map(|flow| flow.start.unwrap()).min();
        assert!(earliest > step(n - 1).map(|flow| flow.start.unwrap()).max(), "step {n}");
    }
}

#[test]
fn impossible_runs_are_refused() {
    let refused = |change: fn(&mut SimSettings)| {
        let mut settings = CASE.settings();
        change(&mut settings);
        Simulation::new(settings).err()
    };
    let empty = |settings: &mut SimSettings| {
        let Workload { description, notes, .. } = (*settings.workload).clone();
        settings.workload = Arc::new(Workload { flows: Vec::new(), description, notes, jobs: Vec::new() });
    };
    assert_eq!(refused(empty), Some(SimError::NoFlows));
    assert_eq!(refused(|settings| settings.duration = Nanos::ZERO), Some(SimError::NoDuration));
    assert_eq!(refused(|settings| settings.duration = Nanos::from_secs(10_000_000)), Some(SimError::TooLong));
    let wrong = |settings: &mut SimSettings| {
        let mut workload = (*settings.workload).clone();
        workload.flows[3].dst = settings.fabric.switches()[0];
        settings.workload = Arc::new(workload);
    };
    assert_eq!(refused(wrong), Some(SimError::NotHosts { flow: 3 }));
}

/// The packets of a pcapng file: interface and captured bytes.
pub(crate) fn packets(file: &[u8]) -> Vec<(u32, &[u8])> {
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    let (mut at, mut found) = (0, Vec::new());
    while at < file.len() {
        let length = word(at + 4) as usize;
        assert_eq!(word(at + length - 4) as usize, length, "a block's two lengths agree");
        if word(at) == 6 {
            found.push((word(at + 8), &file[at + 28..at + 28 + word(at + 20) as usize]));
        }
        at += length;
    }
    found
}

#[test]
fn a_capture_has_every_packet_with_its_headers_on_the_wire() {
    let case = Case { traffic: "incast:senders=3,size=20KB", scheme: "hedera", ..CASE };
    let settings = case.settings();
    let fabric: Arc<Fabric> = settings.fabric.clone();
    let tap = PcapTap::new(Vec::new(), &fabric).unwrap();
    let mut simulation = Simulation::with_tap(settings, tap, None).unwrap();
    simulation.advance(simulation.end());
    let outcome = simulation.outcome();
    let (written, file) = simulation.tap_mut().finish_with(|file| file.clone()).unwrap();
    let packets = packets(&file);
    assert_eq!(
        (written, packets.len() as u64),
        (packets.len() as u64, outcome.packets.hops + outcome.packets.in_flight)
    );
    let receiver = fabric.attachments().iter().find(|at| at.host == outcome.flows[0].dst).unwrap();
    let mut syns = 0;
    for (interface, bytes) in packets {
        let link = fabric.links()[interface as usize];
        assert_ne!(link.from_port, PortNo(0));
        etherparse::LaxSlicedPacket::from_ethernet(bytes).expect("headers that parse");
        let ip = &bytes[14..];
        assert_eq!((ip[0], ip[9]), (0x45, 6), "IPv4 and TCP");
        let own = receiver.address.low().to_be_bytes();
        assert!(ip[12..16] == own || ip[16..20] == own);
        syns += u32::from(link.to == receiver.host && bytes[14 + 20 + 13] == 0x02);
    }
    assert_eq!(syns, 3, "one SYN per flow reaches the receiver");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    /// No packet is lost without being counted and no flow hangs, on any fabric, under any scheme and any faults.
    #[test]
    fn packets_are_conserved_through_faults(
        fabric in prop::sample::select(vec!["fat-tree:k=4,rate=50Mbps,buffer=5", "leaf-spine:spines=2,leaves=3,hosts=2,rate=50Mbps",
            "jellyfish:switches=8,ports=5,hosts=10,seed=3,rate=50Mbps", "jellyfish:switches=6,ports=6,hosts=6,homes=2,seed=3,rate=50Mbps",
            "parallel-paths:rates=50Mbps/20Mbps,delays=1ms/2ms"]),
        tested in prop::sample::select(fast().collect::<Vec<_>>()),
        faults in prop::collection::vec((0u64..300, any::<bool>(), 0usize..1000), 0..12), seed in 0u64..1000,
    ) {
        let built = fabric_from_spec(fabric).unwrap();
        let name = |pick: usize| {
            let cables: Vec<_> = built.switch_cables().collect();
            let link = built.link(cables[pick % cables.len()]);
            format!("{}-{}", built.node(link.from).name, built.node(link.to).name)
        };
        let texts: Vec<String> = faults.iter().map(|&(ms, up, pick)| format!("{ms}ms:{}:{}", if up { "up" } else { "down" }, name(pick))).collect();
        let case = Case { fabric, scheme: &tested.spec, seed, faults: &texts.join(","), traffic: "web-search:load=0.4,max_size=200KB", duration: Nanos::from_millis(300), ..CASE };
        let outcome = case.run();
        for flow in &outcome.flows {
            prop_assert!(flow.delivered_bytes <= flow.size_bytes.unwrap_or(u64::MAX));
            prop_assert_eq!(flow.finish.is_some(), flow.start.is_some() && Some(flow.delivered_bytes) == flow.size_bytes);
        }
    }
}
