//! Runs of the schemes whose switches find the paths themselves: tcp-path, tfe and arp-path.

use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{Fault, LinkId, Nanos, Tier};
use pathloom_sim::{ControlSettings, Outcome, ProgramOutcome, SimSettings, Simulation};
use pathloom_transport::TransportSpec;
use pathloom_workload::TrafficSpec;
use std::collections::BTreeSet;
use std::sync::Arc;

const SCHEMES: [&str; 5] =
    ["tcp-path", "tfe:elephant=1MB", "tfe:elephant=1MB,mark=dscp", "arp-path", "tcp-path:flood=down"];
const FABRICS: [&str; 2] = ["leaf-spine:spines=3,leaves=3,hosts=4,rate=1Gbps", "fat-tree:k=4,rate=1Gbps"];
const WEB_SEARCH: &str = "web-search:load=0.3,pattern=inter-leaf";
const STRIDE: &str = "long-lived:pattern=stride";

#[derive(Clone, Copy)]
struct Case {
    scheme: &'static str,
    fabric: &'static str,
    traffic: &'static str,
    duration: Nanos,
    faults: &'static str,
}

impl Case {
    fn of(scheme: &'static str, fabric: &'static str, traffic: &'static str) -> Case {
        Case { scheme, fabric, traffic, duration: Nanos::from_millis(300), faults: "" }
    }

    fn settings(&self) -> SimSettings {
        let fabric = Arc::new(fabric_from_spec(self.fabric).unwrap());
        let scheme = pathloom_schemes::parse(self.scheme).unwrap();
        let traffic = TrafficSpec::parse(self.traffic).unwrap();
        let faults = match self.faults {
            "" => Vec::new(),
            text => Fault::parse_schedule(&fabric, text).unwrap(),
        };
        SimSettings {
            workload: Arc::new(traffic.generate(&fabric, self.duration, 1, None).unwrap()),
            central: scheme.central(1),
            programs: scheme.deployment(),
            successor: None,
            transport: TransportSpec::parse("newreno").unwrap(),
            control: ControlSettings::default(),
            duration: self.duration,
            drain: 40,
            faults,
            seed: 1,
            fabric,
        }
    }

    fn start(&self) -> Simulation {
        Simulation::new(self.settings()).unwrap()
    }

    fn run(&self) -> Outcome {
        let mut simulation = self.start();
        simulation.advance(simulation.end());
        let outcome = simulation.outcome();
        assert!(outcome.conserves_packets(), "{} {:?}", self.scheme, outcome.packets);
        outcome
    }
}

fn unfinished(outcome: &Outcome) -> usize {
    outcome.flows.iter().filter(|flow| flow.size_bytes.is_some() && flow.finish.is_none()).count()
}

fn programs(outcome: &Outcome) -> &ProgramOutcome {
    outcome.programs.as_ref().expect("switches run programs")
}

#[test]
fn transfers_finish_and_every_packet_is_accounted_for() {
    for fabric in FABRICS {
        for scheme in SCHEMES {
            let outcome = Case::of(scheme, fabric, WEB_SEARCH).run();
            assert!(outcome.flows.len() > 20, "{}", outcome.flows.len());
            assert_eq!((unfinished(&outcome), outcome.control.messages), (0, 0), "{scheme} {fabric}");
            let programs = programs(&outcome);
            assert!(programs.exploration.frames > 0 && programs.late_copies > 0, "{scheme} {fabric}");
            assert_eq!((programs.recoveries, programs.fails), (0, 0), "{scheme} {fabric}");
            assert_eq!(programs.entries_max == 0, scheme == "arp-path", "{scheme} {fabric}");
        }
    }
}

#[test]
fn slices_or_a_disabled_cache_give_the_same_outcome() {
    for scheme in SCHEMES {
        let case = Case::of(scheme, FABRICS[0], WEB_SEARCH);
        let whole = case.run();
        let (mut sliced, mut forgetful) = (case.start(), case.start());
        forgetful.forget_decisions();
        forgetful.advance(forgetful.end());
        let mut at = Nanos::ZERO;
        while !sliced.is_done() {
            at += Nanos::from_micros(7_919);
            sliced.advance(at);
        }
        for other in [sliced.outcome(), forgetful.outcome()] {
            assert_eq!(other.flows, whole.flows, "{scheme}");
            assert_eq!((other.packets, other.programs), (whole.packets, whole.programs.clone()), "{scheme}");
        }
    }
}

/// A sender that has backed off for minutes gets through: the path that its frame repaired still exists when it sends
/// again.
#[test]
fn a_sender_that_waits_longer_than_a_minute_gets_through() {
    for scheme in ["tcp-path", "arp-path"] {
        let fabric = "leaf-spine:spines=1,leaves=2,hosts=1,rate=10Mbps";
        let faults = "1s:down:e0-c0,120s:up:e0-c0";
        let case =
            Case { duration: Nanos::from_secs(10), faults, ..Case::of(scheme, fabric, "incast:senders=1,size=5MB") };
        let outcome = case.run();
        let flow = &outcome.flows[0];
        let finish = flow.finish.unwrap_or_else(|| panic!("{scheme}: {} bytes arrived", flow.delivered_bytes));
        assert!(finish > Nanos::from_secs(120) && flow.timeouts > 5, "{scheme} {finish:?}");
    }
}

/// The links that the data of all flows cross.
fn links(simulation: &Simulation) -> Vec<Vec<LinkId>> {
    (0..simulation.outcome().flows.len() as u32).map(|flow| simulation.route(flow)).collect()
}

#[test]
fn data_take_the_path_of_the_first_copy_both_ways() {
    for fabric in FABRICS {
        let mut simulation = Case::of("tcp-path", fabric, STRIDE).start();
        simulation.advance(Nanos::from_millis(20));
        for flow in 0..simulation.outcome().flows.len() as u32 {
            let [there, mut back] = simulation.paths(flow);
            back.reverse();
            assert!(there.len() >= 4, "{there:?}");
            assert_eq!(there, back.iter().map(|link| link.reverse()).collect::<Vec<_>>(), "{fabric}");
        }
    }
}

/// Takes down a cable or a switch that flows use. Returns the state 2.9 s later, and for each flow whether it has
/// recovered: it has delivered data later than 1.4 s after that, or its data has a path to its receiver.
///
/// A path is not always enough to deliver data: a flow that enters a link at the rate at which the link sends keeps its
/// queue full, and locks out single retransmissions of others.
fn with_a_cut(scheme: &'static str, fabric: &'static str, whole_switch: bool) -> (Simulation, Vec<bool>) {
    let case = Case { duration: Nanos::from_secs(3), ..Case::of(scheme, fabric, STRIDE) };
    let mut before = case.start();
    before.advance(Nanos::from_millis(99));
    let parts = fabric_from_spec(fabric).unwrap();
    let name = |node| parts.node(node).name.clone();
    let used: BTreeSet<LinkId> = links(&before).into_iter().map(|way| way[1]).collect();
    let cable = parts.link(*used.first().unwrap());
    assert_eq!(parts.node(cable.from).tier, Tier::Tor);
    let fault = match whole_switch {
        true => format!("100ms:down:{}", name(cable.to)),
        false => format!("100ms:down:{}-{}", name(cable.from), name(cable.to)),
    };
    let faults = Fault::parse_schedule(&parts, &fault).unwrap();
    let mut simulation = Simulation::new(SimSettings { faults, ..case.settings() }).unwrap();
    simulation.advance(Nanos::from_millis(1_500));
    let settled = simulation.outcome().flows;
    simulation.advance(Nanos::from_millis(2_990));
    let now = simulation.outcome().flows;
    let recovered = settled.iter().zip(&now).zip(links(&simulation)).map(|((then, flow), way)| {
        let arrives = way.last().is_some_and(|&link| parts.link(link).to == flow.dst);
        arrives || flow.delivered_bytes > then.delivered_bytes + 10_000
    });
    let recovered = recovered.collect();
    (simulation, recovered)
}

#[test]
fn flows_recover_by_themselves_from_a_dead_cable_and_a_dead_switch() {
    for fabric in ["leaf-spine:spines=3,leaves=3,hosts=4,rate=200Mbps", "fat-tree:k=4,rate=200Mbps"] {
        for scheme in ["tcp-path", "tfe:elephant=1MB", "arp-path"] {
            for whole_switch in [false, true] {
                let (simulation, recovered) = with_a_cut(scheme, fabric, whole_switch);
                let outcome = simulation.outcome();
                assert!(outcome.conserves_packets(), "{scheme} {fabric} {:?}", outcome.packets);
                // ARP-Path repairs the path to a host when a frame for it arrives. By then, TCP's time-outs have
                // doubled.
                let least = if scheme == "arp-path" { recovered.len() * 3 / 4 } else { recovered.len() };
                let count = recovered.iter().filter(|&&flow| flow).count();
                assert!(count >= least, "{scheme} {fabric} {whole_switch} {recovered:?}");
                let programs = programs(&outcome);
                assert!(programs.fails + programs.recoveries > 0, "{scheme} {fabric} {programs:?}");
            }
        }
    }
}

#[test]
fn packets_are_conserved_while_everything_fails_and_comes_back() {
    let schedules = [
        "50ms:down:e0-c0,60ms:down:e1-c1,70ms:up:e0-c0,80ms:reboot:c2,90ms:down:c1,120ms:up:c1,150ms:down:e2,170ms:up:e2",
        "10ms:down:c0,20ms:down:c1,30ms:down:c2,200ms:up:c0,210ms:up:c1,220ms:up:c2,230ms:reboot:e0",
    ];
    for faults in schedules {
        for scheme in SCHEMES {
            let outcome = Case { faults, ..Case::of(scheme, FABRICS[0], WEB_SEARCH) }.run();
            assert_eq!(unfinished(&outcome), 0, "{scheme} {faults}");
        }
    }
}

#[test]
fn only_elephants_have_entries_under_tfe() {
    let entries = |scheme| programs(&Case::of(scheme, FABRICS[0], WEB_SEARCH).run()).entries_mean;
    let (all, elephants, none) = (entries("tcp-path"), entries("tfe:elephant=1MB"), entries("tfe:elephant=1GB"));
    assert!(0.0 < elephants && elephants < 0.7 * all && none == 0.0, "{all} {elephants}");
}

#[test]
fn long_connections_get_more_throughput_than_by_hashing() {
    let throughput = |scheme| {
        let case = Case { duration: Nanos::from_secs(1), ..Case::of(scheme, FABRICS[1], STRIDE) };
        let shares: Vec<f64> = case.run().flows.iter().filter_map(|flow| flow.throughput).collect();
        shares.iter().sum::<f64>() / shares.len() as f64
    };
    let (fastest, hashed) = (throughput("tcp-path"), throughput("ecmp"));
    assert!(fastest > hashed, "{fastest} {hashed}");
}

#[test]
fn entries_stay_while_they_are_used_and_expire_otherwise() {
    // The connection lasts longer than unused entries do, and no time-out of TCP lasts as long as they do. So nothing
    // is explored again.
    let case = Case { duration: Nanos::from_secs(4), ..Case::of("tcp-path:age=1500ms,lock=200ms", FABRICS[0], STRIDE) };
    let mut simulation = case.start();
    simulation.advance(Nanos::from_millis(3_900));
    let used = simulation.outcome();
    let mut early = case.start();
    early.advance(Nanos::from_millis(50));
    assert_eq!(programs(&used).explorations, programs(&early.outcome()).explorations);
    assert!(programs(&used).recoveries == 0 && used.flows.iter().all(|flow| flow.delivered_bytes > 1_000_000));
    let short = Case { traffic: "incast:senders=8,size=10KB", ..case };
    let mut simulation = short.start();
    simulation.advance(Nanos::from_secs(4));
    let samples = programs(&simulation.outcome()).samples.clone();
    assert!(samples.iter().any(|sample| sample.entries_mean > 0.0));
    assert!(samples.last().is_some_and(|last| last.entries_mean == 0.0), "{:?}", samples.last());
}
