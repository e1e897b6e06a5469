//! Schemes whose senders change the entropy of their flows, and so the path.

use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{Fault, Nanos};
use pathloom_sim::{ControlSettings, FlowOutcome, Outcome, SimSettings, Simulation};
use pathloom_transport::TransportSpec;
use pathloom_workload::TrafficSpec;
use std::sync::Arc;

#[derive(Clone, Copy)]
struct Case {
    fabric: &'static str,
    traffic: &'static str,
    faults: &'static str,
    duration: Nanos,
}

const SEARCH: Case = Case {
    fabric: "fat-tree:k=4,rate=1Gbps",
    traffic: "web-search:load=0.5,max_size=1MB",
    faults: "",
    duration: Nanos::from_millis(30),
};

const PERMUTATION: Case =
    Case { traffic: "long-lived:pattern=permutation", duration: Nanos::from_millis(300), ..SEARCH };

impl Case {
    fn run(&self, scheme: &str) -> Outcome {
        self.run_seed(scheme, 1)
    }

    fn run_seed(&self, scheme: &str, seed: u64) -> Outcome {
        let fabric = Arc::new(fabric_from_spec(self.fabric).unwrap());
        let traffic = TrafficSpec::parse(self.traffic).unwrap();
        let scheme = pathloom_schemes::parse(scheme).unwrap();
        let mut simulation = Simulation::new(SimSettings {
            workload: Arc::new(traffic.generate(&fabric, self.duration, seed, None).unwrap()),
            central: scheme.central(seed),
            successor: None,
            programs: None,
            transport: scheme.transport_with(Some(TransportSpec::parse("dctcp:min_rto=2ms").unwrap())).unwrap(),
            control: ControlSettings::default(),
            duration: self.duration,
            drain: 60,
            faults: Fault::parse_schedule(&fabric, self.faults).unwrap(),
            seed,
            fabric,
        })
        .unwrap();
        simulation.advance(simulation.end());
        let outcome = simulation.outcome();
        assert!(outcome.conserves_packets(), "{:?}", outcome.packets);
        outcome
    }
}

fn throughputs(outcome: &Outcome) -> Vec<f64> {
    outcome.flows.iter().filter_map(|flow| flow.throughput).collect()
}

#[test]
fn senders_that_never_change_their_path_are_those_of_ecmp() {
    let ecmp = SEARCH.run("ecmp");
    for scheme in
        ["plb:threshold=1,rto=off", "flowbender:threshold=1,rto=off", "plb:rounds=1000000,idle_rounds=0,rto=off"]
    {
        assert_eq!(SEARCH.run(scheme), ecmp, "{scheme}");
    }
    assert_ne!(SEARCH.run("flowbender"), ecmp);
}

/// A cable loses all packets, and no port reports it. Senders learn of it only by their timers. Marks then change nothing
/// for a time; without that, senders return to the cable again and again.
#[test]
fn time_outs_leave_a_black_hole() {
    let duration = Nanos::from_millis(600);
    let case = Case { faults: "20ms:loss:e0_0-a0_0:1.0", duration, ..PERMUTATION };
    let stuck = |scheme: &str| throughputs(&case.run(scheme)).iter().filter(|&&share| share < 0.1).count();
    let stuck = ["ecmp", "plb:rto=off", "plb", "flowbender"].map(stuck);
    println!("flows below a tenth: ecmp, plb:rto=off, plb, flowbender {stuck:?}");
    assert!(stuck[0] > 0 && stuck[1] > 0 && stuck[2] == 0, "{stuck:?}");
}

/// With ecmp, the flows of a link that several of them share stay there until they end. flowbender moves them on, so none
/// has a small share for the whole run.
#[test]
fn flows_of_flowbender_leave_links_that_many_share() {
    let least = |scheme: &str, seed| throughputs(&PERMUTATION.run_seed(scheme, seed)).into_iter().fold(1.0, f64::min);
    for seed in 1..4 {
        let [ecmp, flowbender] = ["ecmp", "flowbender"].map(|scheme| least(scheme, seed));
        assert!(flowbender > ecmp + 0.1, "seed {seed}: {flowbender} against {ecmp}");
    }
}

/// One core cable has a tenth of the rate. Flows that ecmp hashes to it are late; senders that see marks leave it.
#[test]
fn senders_leave_a_slow_cable() {
    let case = Case {
        fabric: "fat-tree:k=4,rate=1Gbps,degrade=a0_0-c0:100Mbps",
        traffic: "web-search:load=0.3,max_size=3MB",
        duration: Nanos::from_millis(300),
        ..SEARCH
    };
    let late = |scheme: &str| {
        let outcomes = (1..4).map(|seed| case.run_seed(scheme, seed));
        let fct = |flow: &FlowOutcome| Some(flow.finish?.0 - flow.start?.0);
        let mut fcts: Vec<u64> = outcomes.flat_map(|outcome| outcome.flows).filter_map(|flow| fct(&flow)).collect();
        fcts.sort_unstable();
        fcts[fcts.len() * 99 / 100]
    };
    let [ecmp, plb, flowbender] = ["ecmp", "plb", "flowbender"].map(late);
    println!("99th percentile of the FCT, in ns: ecmp {ecmp}, plb {plb}, flowbender {flowbender}");
    assert!(plb < ecmp / 2 && flowbender < ecmp / 2, "ecmp {ecmp} ns, plb {plb} ns, flowbender {flowbender} ns");
}
