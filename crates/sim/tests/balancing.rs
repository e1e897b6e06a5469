//! Schemes whose switches choose by what they measure: conga, hula and flowcut.

use crate::cases::{finish, Case, SEARCH};
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::Nanos;
use pathloom_sim::{Outcome, Simulation};

/// Four spines, one of which has a tenth of the rate.
const UNEVEN: Case<'static> = Case {
    fabric: "leaf-spine:spines=4,leaves=4,hosts=8,rate=1Gbps,\
             degrade=e0-c0:100Mbps/e1-c0:100Mbps/e2-c0:100Mbps/e3-c0:100Mbps",
    traffic: "web-search:load=0.3,max_size=1MB,pattern=inter-leaf",
    ..SEARCH
};

const TCP: Option<&str> = Some("newreno:sack=on,min_rto=2ms,initial_rto=10ms");

/// Mean FCT in ms of the flows, all of which must have finished.
fn mean_fct_ms(outcome: &Outcome) -> f64 {
    let fct = |flow: &pathloom_sim::FlowOutcome| flow.finish.unwrap().0 - flow.start.unwrap().0;
    let sum: u64 = outcome.flows.iter().map(fct).sum();
    sum as f64 / outcome.flows.len() as f64 / 1e6
}

#[test]
fn congestion_aware_switches_avoid_a_slow_spine() {
    let [ecmp, letflow, conga, hula, flowcut] =
        ["ecmp", "letflow", "conga", "hula", "flowcut"].map(|scheme| mean_fct_ms(&UNEVEN.run(scheme, TCP)));
    let text = format!(
        "mean FCT: ecmp {ecmp:.2}, letflow {letflow:.2}, conga {conga:.2}, hula {hula:.2}, flowcut {flowcut:.2} ms"
    );
    println!("{text}");
    assert!(conga < 0.8 * ecmp && conga < 0.9 * letflow, "{text}");
    assert!(hula < 0.8 * ecmp && hula < 0.9 * letflow, "{text}");
    assert!(flowcut < 0.8 * ecmp, "{text}");
}

/// Hosts of RoCE leave the place for notes free, and a paced sender pauses between packets.
#[test]
fn congestion_aware_switches_avoid_a_slow_spine_with_roce_too() {
    let lossless = "leaf-spine:spines=4,leaves=4,hosts=8,rate=10Gbps,pfc=200KB,ecn=20KB/80KB/0.2,\
                    degrade=e0-c0:1Gbps/e1-c0:1Gbps/e2-c0:1Gbps/e3-c0:1Gbps";
    let case = Case { fabric: lossless, traffic: "web-search:load=0.3,max_size=1MB,pattern=inter-leaf", ..UNEVEN };
    for transport in ["roce:mtu=1024B", "hpcc:mtu=1024B"] {
        let [ecmp, conga, hula] = ["ecmp", "conga:gap=100us", "hula"].map(|scheme| {
            let outcome = case.run(scheme, Some(transport));
            assert_eq!(outcome.packets.dropped, 0, "{scheme}");
            mean_fct_ms(&outcome)
        });
        let text = format!("{transport}: ecmp {ecmp:.3}, conga {conga:.3}, hula {hula:.3} ms");
        println!("{text}");
        assert!(conga < 0.8 * ecmp && hula < 0.8 * ecmp, "{text}");
    }
}

/// Without losses, everything arrives in the order in which it was sent.
#[test]
fn flowcuts_never_reorder_and_are_faster_than_ecmp() {
    let mut sums = [0.0; 3];
    for seed in 1..=5 {
        for (scheme, sum) in ["ecmp", "flowcut", "letflow:gap=20us"].into_iter().zip(&mut sums) {
            let case = Case { fabric: "fat-tree:k=4,rate=1Gbps,buffer=20000", seed, ..SEARCH };
            let outcome = case.run(scheme, Some("dctcp:sack=on,min_rto=2ms,initial_rto=10ms"));
            assert_eq!(outcome.packets.dropped, 0, "{scheme}");
            let reordered: u64 = outcome.flows.iter().map(|flow| u64::from(flow.reordered)).sum();
            assert_eq!(reordered > 0, scheme.starts_with("letflow"), "{scheme}: {reordered} packets");
            *sum += mean_fct_ms(&outcome);
        }
    }
    let [ecmp, flowcut, letflow] = sums.map(|sum| sum / 5.0);
    println!("mean FCT: ecmp {ecmp:.2}, flowcut {flowcut:.2}, letflow {letflow:.2} ms");
    assert!(flowcut < 0.97 * ecmp, "{flowcut} {ecmp}");
}

#[test]
fn failures_leave_no_flow_behind_and_the_cache_changes_nothing() {
    let faults =
        "1ms:down:c0,2ms:loss:e0_0-a0_0:0.01,5ms:down:e1_0-a1_1,8ms:restore:e0_0-a0_0,9ms:reboot:a2_0,12ms:up:c0";
    let case = Case { faults, ..SEARCH };
    let with_priorities = Case { fabric: "fat-tree:k=4,rate=1Gbps,queues=2", ..case };
    for (case, scheme) in [
        (case, "conga"),
        (case, "hula"),
        (with_priorities, "conga:gap=50us"),
        (case, "conga:gap=0s"),
        (case, "flowcut"),
    ] {
        let outcome = case.run(scheme, None);
        assert!(outcome.flows.iter().all(|flow| flow.finish.is_some()), "{scheme}");
        let mut forgetful = case.start(scheme, None);
        forgetful.forget_decisions();
        assert_eq!(finish(forgetful), outcome, "{scheme}: the cache changes nothing");
    }
}

/// With one path there is nothing to choose, and the notes change nothing that hosts see.
#[test]
fn with_one_path_the_result_is_that_of_ecmp() {
    let one = Case { fabric: "leaf-spine:spines=1,leaves=3,hosts=3,rate=1Gbps", ..SEARCH };
    let (conga, ecmp) = (one.run("conga", None), one.run("ecmp", None));
    assert_eq!((conga.flows, conga.links, conga.packets), (ecmp.flows, ecmp.links, ecmp.packets));
}

#[test]
fn probes_are_counted_and_keep_their_rhythm() {
    let fabric = fabric_from_spec(SEARCH.fabric).unwrap();
    let sent = |scheme: &str| {
        let mut settings = SEARCH.settings(scheme, None);
        settings.duration = Nanos::from_millis(10);
        let mut simulation = Simulation::new(settings).unwrap();
        simulation.advance(Nanos::from_millis(10));
        simulation.outcome().packets
    };
    let (hula, rare) = (sent("hula:probe=500us"), sent("hula:probe=1000s"));
    // Each of the 8 ToRs sends 20 times to two aggregation switches, and each probe goes on to at least one ToR and two core
    // switches. On one path at least, each of the other ToRs gets it.
    let least = 8 * 20 * 2 * 4;
    assert!(hula.sent >= rare.sent + least, "{} and {}", hula.sent, rare.sent);
    assert_eq!(fabric.tors().len(), 8);
    assert_eq!(hula.sent + hula.copied, hula.delivered + hula.misdelivered + hula.dropped + hula.in_flight);
}
