//! OFPT on collectives of distributed training, whose steps wait for each other: one time-out of 200 ms delays all later
//! steps. Compared with ECMP on the same transfers.

use pathloom_fabrics::fabric_from_spec;
use pathloom_model::Nanos;
use pathloom_sim::{ControlSettings, SimSettings, Simulation};
use pathloom_transport::TransportSpec;
use pathloom_workload::TrafficSpec;
use std::sync::Arc;

const ALL_TO_ALL: &str = "all-to-all:size=1MB,order=random";
/// Random places of the ranks, so that a ring crosses the fabric.
const ALL_REDUCE: &str = "all-reduce:size=16MB,placement=random";
const SEEDS: [u64; 5] = [901, 902, 903, 904, 905];

/// Medians over the runs, in seconds: time until the last transfer ends, and mean flow completion time. A mean of
/// few runs would mostly show in which of them a segment was lost twice.
#[derive(Clone, Copy, Debug)]
struct Times {
    makespan_s: f64,
    fct_s: f64,
}

fn times(scheme: &str, traffic: &str, control: &str) -> Times {
    let (mut makespans_s, mut fcts_s) = (Vec::new(), Vec::new());
    for seed in SEEDS {
        let fabric = Arc::new(fabric_from_spec("fat-tree:k=4,rate=1Gbps").unwrap());
        let duration = Nanos::from_secs(2);
        let traffic = TrafficSpec::parse(traffic).unwrap();
        let settings = SimSettings {
            workload: Arc::new(traffic.generate(&fabric, duration, seed, None).unwrap()),
            central: pathloom_schemes::parse(scheme).unwrap().central(seed),
            successor: None,
            programs: None,
            transport: TransportSpec::parse("newreno:jitter=0s").unwrap(),
            control: ControlSettings::parse(control).unwrap(),
            duration,
            drain: 5,
            faults: Vec::new(),
            seed,
            fabric,
        };
        let mut simulation = Simulation::new(settings).unwrap();
        simulation.advance(simulation.end());
        let flows = simulation.outcome().flows;
        let ends: Vec<(Nanos, Nanos)> =
            flows.iter().map(|flow| (flow.start.unwrap(), flow.finish.expect("every transfer ends"))).collect();
        let last = ends.iter().map(|&(_, finish)| finish).max().unwrap();
        let total: f64 = ends.iter().map(|&(start, finish)| finish.saturating_sub(start).as_secs_f64()).sum();
        makespans_s.push(last.as_secs_f64());
        fcts_s.push(total / ends.len() as f64);
    }
    Times { makespan_s: median(makespans_s), fct_s: median(fcts_s) }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Without pacing, queues overflow and flows time out. Flows that wait by MRTF must not wait for a flow that has
/// timed out.
#[test]
fn no_flow_waits_for_one_that_timed_out() {
    let control = "delay=500us";
    let (ecmp, ofpt) =
        (times("ecmp", ALL_TO_ALL, control), times("ofpt:sizes=announced,enforce=none", ALL_TO_ALL, control));
    assert!(ofpt.fct_s < 0.75 * ecmp.fct_s, "{ofpt:?} {ecmp:?}");
}

/// Flows start at once, however slow the controller is. Until it sets their paces, they send slowly enough to fill no
/// queue.
#[test]
fn a_slow_controller_does_no_harm() {
    for traffic in [ALL_TO_ALL, ALL_REDUCE] {
        let ecmp = times("ecmp", traffic, "delay=2ms");
        for scheme in ["ofpt", "ofpt:sizes=announced"] {
            let (fast, slow) = (times(scheme, traffic, "delay=100us"), times(scheme, traffic, "delay=2ms"));
            assert!(slow.makespan_s < 0.5 * ecmp.makespan_s && slow.fct_s < ecmp.fct_s, "{scheme}: {slow:?} {ecmp:?}");
            assert!(slow.makespan_s < 2.0 * fast.makespan_s, "{scheme}: {slow:?} {fast:?}");
        }
    }
}

/// If no two transfers share a link, nothing can be gained, and nothing must be lost.
#[test]
fn transfers_that_share_nothing_are_as_fast_as_without_a_controller() {
    let traffic = "all-reduce:size=16MB";
    for control in ["delay=100us", "delay=2ms"] {
        let ecmp = times("ecmp", traffic, control);
        for scheme in ["ofpt", "ofpt:sizes=announced"] {
            let ofpt = times(scheme, traffic, control);
            assert!(
                ofpt.makespan_s < 1.01 * ecmp.makespan_s && ofpt.fct_s < 1.01 * ecmp.fct_s,
                "{scheme}: {ofpt:?} {ecmp:?}"
            );
        }
    }
}
