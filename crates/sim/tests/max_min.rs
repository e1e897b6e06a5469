//! An independent judge of the simulator: long-lived flows over ECMP are compared with the exact max-min rates of the
//! same paths. TCP is not exactly max-min fair, so only means are compared.

use pathloom_allocation::{max_min, FlowSet};
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{Fabric, Nanos};
use pathloom_sim::{SimSettings, Simulation};
use pathloom_transport::TransportSpec;
use pathloom_workload::TrafficSpec;
use std::sync::Arc;

/// Mean throughput of long-lived flows in the simulator, and by water-filling over the same paths. Both are shares of
/// what an access link carries.
fn shares(fabric: &Arc<Fabric>, pattern: &str, duration: Nanos, seed: u64) -> (f64, f64) {
    let traffic = TrafficSpec::parse(&format!("long-lived:pattern={pattern}")).unwrap();
    let workload = Arc::new(traffic.generate(fabric, duration, seed, None).unwrap());
    let central = pathloom_schemes::parse("ecmp").unwrap().central(seed);
    let transport = TransportSpec::parse("newreno:acks=1").unwrap();
    let (control, faults, fabric) = (Default::default(), Vec::new(), fabric.clone());
    let settings = SimSettings {
        fabric: fabric.clone(),
        workload,
        central,
        successor: None,
        programs: None,
        transport,
        control,
        duration,
        drain: 5,
        faults,
        seed,
    };
    let mut simulation = Simulation::new(settings).unwrap();
    simulation.advance(simulation.end());
    let outcome = simulation.outcome();
    assert!(outcome.conserves_packets(), "{:?}", outcome.packets);
    let simulated: f64 = outcome.flows.iter().map(|flow| flow.throughput.unwrap()).sum();

    let mut flows = FlowSet::default();
    for flow in &outcome.flows {
        let links: Vec<u32> = simulation.route(flow.index).iter().map(|link| link.0).collect();
        assert_eq!(fabric.link(*simulation.route(flow.index).last().unwrap()).to, flow.dst);
        flows.push(&links);
    }
    let access = fabric.link(fabric.attachments()[0].uplink).settings.rate_bps as f64;
    let capacity: Vec<f64> = fabric.links().iter().map(|link| link.settings.rate_bps as f64 / access).collect();
    let exact: f64 = max_min(&capacity, &flows).unwrap().rates.iter().sum();
    let count = outcome.flows.len() as f64;
    (simulated / count, exact / count)
}

fn judge(spec: &str, pattern: &str, duration: Nanos, seeds: std::ops::RangeInclusive<u64>) {
    let fabric = Arc::new(fabric_from_spec(spec).unwrap());
    let count = seeds.clone().count() as f64;
    let sums =
        seeds.map(|seed| shares(&fabric, pattern, duration, seed)).fold((0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1));
    let (simulated, exact) = (sums.0 / count, sums.1 / count);
    println!("{spec} {pattern}: simulated {simulated:.4}, max-min {exact:.4}");
    assert!((simulated - exact).abs() <= 0.06, "{pattern}: simulated {simulated:.4}, max-min {exact:.4}");
}

#[test]
fn small_fabrics_follow_max_min() {
    judge("fat-tree:k=4,rate=100Mbps,buffer=100", "permutation", Nanos::from_secs(6), 1..=2);
}

#[test]
#[ignore = "takes minutes; part of make test-long"]
fn permutation_on_k8_follows_max_min() {
    judge("fat-tree:k=8,rate=1Gbps,delay=1us,buffer=100", "permutation", Nanos::from_secs(2), 1..=10);
}

#[test]
#[ignore = "takes minutes; part of make test-long"]
fn stride_on_k8_follows_max_min() {
    judge("fat-tree:k=8,rate=1Gbps,delay=1us,buffer=100", "stride", Nanos::from_secs(2), 1..=10);
}
