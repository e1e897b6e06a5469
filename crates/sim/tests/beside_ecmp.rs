//! Where OFPT and LESSOR cannot be better than ecmp, they must not be worse.

use pathloom_fabrics::{fabric_from_file_text, fabric_from_spec};
use pathloom_model::{Fabric, Nanos};
use pathloom_sim::{ControlSettings, Outcome, SimSettings, Simulation};
use pathloom_transport::TransportSpec;
use pathloom_workload::TrafficSpec;
use std::sync::Arc;

fn run(fabric: &Arc<Fabric>, traffic: &str, duration: Nanos, scheme: &str, seed: u64) -> Outcome {
    let traffic = TrafficSpec::parse(traffic).unwrap();
    let mut simulation = Simulation::new(SimSettings {
        workload: Arc::new(traffic.generate(fabric, duration, seed, None).unwrap()),
        central: pathloom_schemes::parse(scheme).unwrap().central(seed),
        successor: None,
        programs: None,
        transport: TransportSpec::parse("newreno").unwrap(),
        control: ControlSettings::default(),
        duration,
        drain: 5,
        faults: Vec::new(),
        seed,
        fabric: fabric.clone(),
    })
    .unwrap();
    simulation.advance(simulation.end());
    simulation.outcome()
}

fn mean_throughput(outcome: &Outcome) -> f64 {
    let shares: Vec<f64> = outcome.flows.iter().filter_map(|flow| flow.throughput).collect();
    shares.iter().sum::<f64>() / shares.len() as f64
}

/// Two rows of switches with a cable between neighbours, as node-link JSON: a wide-area network whose paths are long.
fn ladder(columns: usize) -> Fabric {
    let node = |row: usize, column: usize| format!("s{row}-{column}");
    let mut nodes = Vec::new();
    let mut cables = Vec::new();
    for column in 0..columns {
        nodes.extend((0..2).map(|row| format!(r#"{{"id":"{}"}}"#, node(row, column))));
        cables.push((node(0, column), node(1, column)));
        if column > 0 {
            cables.extend((0..2).map(|row| (node(row, column - 1), node(row, column))));
        }
    }
    let cables: Vec<String> = cables.iter().map(|(a, b)| format!(r#"{{"source":"{a}","target":"{b}"}}"#)).collect();
    let text = format!(r#"{{"nodes":[{}],"links":[{}]}}"#, nodes.join(","), cables.join(","));
    fabric_from_file_text("ladder.json:rate=10Mbps", &text).unwrap().fabric
}

/// Short flows use the default routes. With the default routes of ecmp, they behave exactly as under ecmp, packet by
/// packet.
#[test]
fn an_incast_of_short_flows_is_the_same_as_under_ecmp() {
    let fabric = Arc::new(fabric_from_spec("fat-tree:k=8,rate=1Gbps").unwrap());
    let traffic = "incast:senders=127,size=20KB,period=200ms";
    let flows = |scheme| run(&fabric, traffic, Nanos::from_millis(500), scheme, 1).flows;
    let ecmp = flows("ecmp");
    assert!(!ecmp.is_empty() && ecmp.iter().all(|flow| flow.finish.is_some()));
    for scheme in ["ofpt", "lessor"] {
        assert_eq!(flows(scheme), ecmp, "{scheme}");
    }
    assert_ne!(flows("ofpt:defaults=per-host"), ecmp);
}

/// On long paths, equal shares of every full link cost throughput, which TCP alone would not lose.
#[test]
fn long_paths_carry_as_much_as_under_ecmp() {
    let fabric = Arc::new(ladder(20));
    let mean = |scheme: &str| {
        let runs =
            (1..=3).map(|seed| run(&fabric, "long-lived:pattern=permutation", Nanos::from_secs(10), scheme, seed));
        runs.map(|outcome| mean_throughput(&outcome)).sum::<f64>() / 3.0
    };
    let [ecmp, ofpt, equal] = ["ecmp", "ofpt", "ofpt:shares=equal"].map(mean);
    assert!(ofpt > 1.03 * ecmp && equal < ecmp, "ecmp {ecmp:.3}, ofpt {ofpt:.3}, with equal shares {equal:.3}");
}

/// Where all paths have the same capacity, weights change nothing. If one of four spines is slow, ecmp puts a quarter of the
/// flows on a tenth of a path.
#[test]
fn weighted_next_hops_are_better_than_ecmp_only_if_capacities_differ() {
    let traffic = "long-lived:pattern=permutation";
    let of = |fabric: &str, scheme: &str| {
        let fabric = Arc::new(fabric_from_spec(fabric).unwrap());
        (1..=3).map(|seed| run(&fabric, traffic, Nanos::from_millis(100), scheme, seed)).collect::<Vec<_>>()
    };
    assert_eq!(of("fat-tree:k=4,rate=1Gbps", "wcmp"), of("fat-tree:k=4,rate=1Gbps", "ecmp"));
    let slow: Vec<String> = (0..32).map(|leaf| format!("e{leaf}-c0:100Mbps")).collect();
    let fabric = format!("leaf-spine:spines=4,leaves=32,hosts=2,rate=1Gbps,degrade={}", slow.join("/"));
    let mean = |outcomes: Vec<Outcome>| outcomes.iter().map(mean_throughput).sum::<f64>() / 3.0;
    let (weighted, ecmp) = (mean(of(&fabric, "wcmp")), mean(of(&fabric, "ecmp")));
    assert!(weighted > 1.1 * ecmp, "{weighted} and {ecmp}");
}
