//! loom: priorities by age or by what is left, planned weights of next hops, and hosts that avoid failed paths.

use crate::cases::{finish, throughputs, Case, SEARCH};
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::Nanos;
use pathloom_sim::{FlowOutcome, Outcome};
use proptest::prelude::*;

const PERMUTATION: Case<'static> =
    Case { traffic: "long-lived:pattern=permutation", duration: Nanos::from_millis(60), ..SEARCH };
/// A third of the capacity between the pods is missing, at a few places.
const UNEVEN: Case<'static> =
    Case { fabric: "fat-tree:k=4,rate=1Gbps,degrade=a0_0-c0:100Mbps/a0_1-c3:100Mbps,buffer=400", ..PERMUTATION };

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.collect();
    values.iter().sum::<f64>() / values.len() as f64
}

fn mean_throughput(outcome: &Outcome) -> f64 {
    mean(throughputs(outcome).into_iter())
}

/// Mean FCT in seconds of the transfers of these sizes.
fn mean_fct_s(outcome: &Outcome, sizes: std::ops::Range<u64>) -> f64 {
    let of_size = |flow: &&FlowOutcome| flow.size_bytes.is_some_and(|size| sizes.contains(&size));
    mean(outcome.flows.iter().filter(of_size).map(|flow| (flow.finish.unwrap() - flow.start.unwrap()).as_secs_f64()))
}

#[test]
fn short_transfers_overtake_long_ones() {
    let case = Case { traffic: "web-search:load=0.8,max_size=1MB", ..SEARCH };
    for hosts in ["pull", "tcp"] {
        let run = |levels: u8| case.run(&format!("loom:hosts={hosts},levels={levels}"), None);
        let (with, without) = (run(8), run(1));
        let short = [&with, &without].map(|outcome| mean_fct_s(outcome, 0..30_000));
        assert!(short[0] < 0.7 * short[1], "hosts={hosts}: {short:?}");
        assert!(with.flows.iter().all(|flow| flow.finish.is_some()), "hosts={hosts}: nobody is starved for ever");
    }
}

#[test]
fn announced_sizes_shorten_transfers_and_a_half_of_them_does_so_too() {
    let case = Case { traffic: "web-search:load=0.8,max_size=1MB", ..SEARCH };
    for hosts in ["pull", "tcp"] {
        let mean_fct_s = ["0", "0.5", "1"].map(|announced| {
            mean_fct_s(&case.run(&format!("loom:hosts={hosts},announced={announced}"), None), 0..u64::MAX)
        });
        assert!(mean_fct_s.is_sorted_by(|a, b| a > b), "hosts={hosts}: {mean_fct_s:?}");
    }
}

#[test]
fn without_a_controller_hosts_leave_a_path_that_fails() {
    // The aggregation switch sends on by its default route, so the core switch drops what is for the second pod.
    let faults = "4ms:controller-kill,5ms:down:c0-a1_0";
    let case = Case { fabric: "fat-tree:k=4,rate=10Gbps", duration: Nanos::from_millis(20), faults, ..PERMUTATION };
    let [with, without] = ["loom", "loom:react=off"].map(|scheme| case.run(scheme, None));
    let lost = [&with, &without].map(|outcome| outcome.flows.iter().map(|flow| flow.retransmits).sum::<u32>());
    assert!(lost[0] * 3 < lost[1], "retransmissions: {lost:?}");
    assert!(mean_throughput(&with) > mean_throughput(&without));
}

#[test]
fn a_fabric_with_equal_paths_needs_no_plan() {
    let [planned, by_capacity] = ["loom", "loom:plan=off"].map(|scheme| PERMUTATION.run(scheme, None));
    assert_eq!(throughputs(&planned), throughputs(&by_capacity));
    assert!(mean_throughput(&planned) > 0.95, "{}", mean_throughput(&planned));
}

#[test]
fn a_plan_moves_traffic_away_from_slow_cables() {
    let [ecmp, by_capacity, planned] =
        ["ecmp", "loom:plan=off", "loom"].map(|scheme| mean_throughput(&UNEVEN.run(scheme, None)));
    assert!(planned > by_capacity && by_capacity > ecmp, "{planned}, by capacity {by_capacity}, ecmp {ecmp}");
}

#[test]
fn transfers_finish_whatever_fails() {
    let faults =
        "1ms:down:c0,2ms:loss:e0_0-a0_0:0.01,4ms:down:e1_0-a1_1,8ms:restore:e0_0-a0_0,9ms:controller-kill,12ms:up:c0";
    for scheme in ["loom", "loom:hosts=tcp"] {
        let case = Case { faults, ..SEARCH };
        let outcome = case.run(scheme, None);
        assert!(outcome.flows.iter().all(|flow| flow.finish.is_some()), "{scheme}");
        let mut forgetful = case.start(scheme, None);
        forgetful.forget_decisions();
        assert_eq!(finish(forgetful), outcome, "{scheme}: the cache changes nothing");
    }
}

/// Each stays connected without any one of its cables.
const FABRICS: [&str; 5] = [
    "fat-tree:k=4,rate=1Gbps",
    "fat-tree:k=4,rate=1Gbps,degrade=a0_0-c0:100Mbps/a0_1-c3:50Mbps",
    "leaf-spine:spines=2,leaves=3,hosts=3,rate=1Gbps",
    "jellyfish:switches=10,ports=6,hosts=20,seed=1,rate=1Gbps",
    "vl2:d0=2,d1=4,d2=4,hosts=2",
];

/// The names of a cable of a fabric, by a number that is taken modulo their count.
fn cable(fabric: &str, number: usize) -> String {
    let fabric = fabric_from_spec(fabric).unwrap();
    let cables: Vec<_> = fabric.switch_cables().collect();
    let link = fabric.link(cables[number % cables.len()]);
    format!("{}-{}", fabric.node(link.from).name, fabric.node(link.to).name)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// One cable fails for ever, and its ports may not show it. Others fail for a while. The controller may be dead.
    #[test]
    fn no_message_waits_for_ever(
        fabric in prop::sample::select(&FABRICS[..]),
        announced in prop::sample::select(&["0", "0.5", "1"][..]),
        part in prop::sample::select(&["react=on", "react=off", "plan=off", "levels=1"][..]),
        is_alone: bool,
        for_ever in (0..256usize, 2..12u32, any::<bool>()),
        for_a_while in prop::collection::vec((0..256usize, 2..12u32, 1..20u32), 0..3),
        seed in 0..1000u64,
    ) {
        // A pair of a Jellyfish may have one shortest path alone, so a controller must know that it has failed.
        let has_spares = !fabric.starts_with("jellyfish");
        let mut faults: Vec<String> = Vec::new();
        if is_alone && has_spares {
            faults.push("1us:controller-kill".into());
        }
        let (number, ms, is_silent) = for_ever;
        let failed = cable(fabric, number);
        // Hosts that do not react may send the same packet into a failed cable again and again. A plan may leave one path to a
        // pair, and changes only if the controller learns of something.
        let is_silent = is_silent && has_spares && part != "react=off" && !fabric.contains("degrade");
        faults.push(if is_silent { format!("{ms}ms:loss:{failed}:1") } else { format!("{ms}ms:down:{failed}") });
        for (number, ms, long_ms) in for_a_while {
            let name = cable(fabric, number);
            if name != failed {
                faults.extend([format!("{ms}ms:down:{name}"), format!("{}ms:up:{name}", ms + long_ms)]);
            }
        }
        let (traffic, duration) = ("web-search:load=0.4,max_size=300KB", Nanos::from_millis(10));
        let faults = faults.join(",");
        let case = Case { fabric, traffic, faults: &faults, duration, drain: 30_000, seed };
        let scheme = format!("loom:announced={announced},{part}");
        let outcome = case.run(&scheme, None);
        let waiting = outcome.flows.iter().filter(|flow| flow.finish.is_none()).count();
        prop_assert_eq!(waiting, 0, "{} on {} with {}, seed {}", scheme, fabric, faults, seed);
    }
}
