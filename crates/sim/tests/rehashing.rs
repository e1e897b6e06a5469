//! Schemes whose senders change the entropy of their flows, and so the path.

use crate::cases::{throughputs, Case, SEARCH};
use pathloom_model::Nanos;
use pathloom_sim::{FlowOutcome, Outcome};

const PERMUTATION: Case<'static> =
    Case { traffic: "long-lived:pattern=permutation", duration: Nanos::from_millis(300), ..SEARCH };

fn run(case: Case, scheme: &str) -> Outcome {
    case.run(scheme, Some("dctcp:min_rto=2ms"))
}

#[test]
fn senders_that_never_change_their_path_are_those_of_ecmp() {
    let ecmp = run(SEARCH, "ecmp");
    for scheme in
        ["plb:threshold=1,rto=off", "flowbender:threshold=1,rto=off", "plb:rounds=1000000,idle_rounds=0,rto=off"]
    {
        assert_eq!(run(SEARCH, scheme), ecmp, "{scheme}");
    }
    assert_ne!(run(SEARCH, "flowbender"), ecmp);
}

/// A cable loses all packets, and no port reports it. Senders learn of it only by their timers. Marks then change nothing
/// for a time; without that, senders return to the cable again and again.
#[test]
fn time_outs_leave_a_black_hole() {
    let duration = Nanos::from_millis(600);
    let case = Case { faults: "20ms:loss:e0_0-a0_0:1.0", duration, ..PERMUTATION };
    let stuck = |scheme: &str| throughputs(&run(case, scheme)).iter().filter(|&&share| share < 0.1).count();
    let stuck = ["ecmp", "plb:rto=off", "plb", "flowbender:suspend=10s", "flowbender"].map(stuck);
    println!("flows below a tenth: ecmp, plb:rto=off, plb, flowbender:suspend=10s, flowbender {stuck:?}");
    assert!(stuck[0] > 0 && stuck[1] > 0 && stuck[2] == 0 && stuck[3] < stuck[4], "{stuck:?}");
}

/// With ecmp, the flows of a link that several of them share stay there until they end. flowbender moves them on, so none
/// has a small share for the whole run.
#[test]
fn flows_of_flowbender_leave_links_that_many_share() {
    let least =
        |scheme: &str, seed| throughputs(&run(Case { seed, ..PERMUTATION }, scheme)).into_iter().fold(1.0, f64::min);
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
        let outcomes = (1..4).map(|seed| run(Case { seed, ..case }, scheme));
        let fct = |flow: &FlowOutcome| Some(flow.finish?.0 - flow.start?.0);
        let mut fcts: Vec<u64> = outcomes.flat_map(|outcome| outcome.flows).filter_map(|flow| fct(&flow)).collect();
        fcts.sort_unstable();
        fcts[fcts.len() * 99 / 100]
    };
    let [ecmp, plb, flowbender] = ["ecmp", "plb", "flowbender"].map(late);
    println!("99th percentile of the FCT, in ns: ecmp {ecmp}, plb {plb}, flowbender {flowbender}");
    assert!(plb < ecmp / 2 && flowbender < ecmp / 2, "ecmp {ecmp} ns, plb {plb} ns, flowbender {flowbender} ns");
}
