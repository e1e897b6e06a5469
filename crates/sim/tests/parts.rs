//! One run on several threads has the result of one thread, bit for bit.

use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{Fault, Nanos};
use pathloom_sim::{ControlSettings, LargeFabric, NoTap, Outcome, Parted, SimSettings, Simulation, Tap};
use pathloom_transport::TransportSpec;
use pathloom_workload::TrafficSpec;
use proptest::prelude::*;
use std::sync::Arc;

#[derive(Clone, Copy, Debug)]
struct Case {
    fabric: &'static str,
    traffic: &'static str,
    transport: &'static str,
    scheme: &'static str,
    faults: &'static str,
    control: &'static str,
    duration_us: u64,
    seed: u64,
}

const FAT_TREE: Case = Case {
    fabric: "fat-tree:k=4,rate=1Gbps,delay=5us,buffer=20",
    traffic: "web-server:load=0.6,pattern=random",
    transport: "newreno:min_rto=1ms",
    scheme: "ecmp",
    faults: "",
    control: "delay=100us",
    duration_us: 3000,
    seed: 1,
};

impl Case {
    fn has_flows(&self) -> bool {
        let fabric = fabric_from_spec(self.fabric).unwrap();
        let traffic = TrafficSpec::parse(self.traffic).unwrap();
        traffic
            .generate(&fabric, Nanos::from_micros(self.duration_us), self.seed, None)
            .is_ok_and(|all| !all.flows.is_empty())
    }

    fn start<T: Tap>(&self, tap: T) -> Simulation<T> {
        let fabric = Arc::new(fabric_from_spec(self.fabric).unwrap());
        let duration = Nanos::from_micros(self.duration_us);
        let traffic = TrafficSpec::parse(self.traffic).unwrap();
        let scheme = pathloom_schemes::parse(self.scheme).unwrap();
        let settings = SimSettings {
            workload: Arc::new(traffic.generate(&fabric, duration, self.seed, None).unwrap()),
            transport: scheme.transport_with(Some(TransportSpec::parse(self.transport).unwrap())).unwrap(),
            central: scheme.central(self.seed),
            programs: scheme.deployment(),
            successor: Some(Box::new(move || scheme.central(1))),
            control: ControlSettings::parse(self.control).unwrap(),
            duration,
            drain: 5,
            faults: Fault::parse_schedule(&fabric, self.faults).unwrap(),
            seed: self.seed,
            fabric,
        };
        Simulation::with_tap(settings, tap, None).unwrap()
    }

    /// The result on one thread.
    fn alone<T: Tap>(&self, tap: T) -> Outcome {
        let mut simulation = self.start(tap);
        simulation.advance(simulation.end());
        let outcome = simulation.outcome();
        assert!(outcome.conserves_packets(), "{:?}", outcome.packets);
        outcome
    }

    /// The result on several threads, in slices, and the number of windows that it took.
    fn together<const LARGE: bool>(&self, threads: usize, slices: u64) -> (Outcome, u64) {
        let mut simulation = self.start(Parted::<LARGE>);
        simulation.force_threads();
        let end = simulation.end();
        for slice in 1..=slices {
            simulation.advance_on(Nanos(end.0 * slice / slices), threads);
        }
        (simulation.outcome(), simulation.windows())
    }
}

/// Compares item by item, because the difference of two whole outcomes is too long to read.
fn assert_same(one: &Outcome, other: &Outcome, what: &str) {
    assert_eq!(one.packets, other.packets, "{what}");
    assert_eq!(one.end, other.end, "{what}");
    for (a, b) in one.flows.iter().zip(&other.flows) {
        assert_eq!(a, b, "{what}");
    }
    for (a, b) in one.links.iter().zip(&other.links) {
        assert_eq!(a, b, "{what}");
    }
    assert_eq!(one, other, "{what}");
}

fn check(case: Case) {
    let alone = case.alone(NoTap);
    for threads in 1..=3 {
        let (together, windows) = case.together::<false>(threads, 1);
        assert_same(&alone, &together, &format!("{threads} threads: {case:?}"));
        assert_eq!(windows > 50, threads > 1, "{windows} windows on {threads} threads");
    }
}

#[test]
fn finite_transfers_on_a_fat_tree() {
    check(FAT_TREE);
}

#[test]
fn long_lived_transfers_with_drops_and_draws() {
    check(Case {
        traffic: "long-lived:pattern=random",
        transport: "newreno:min_rto=1ms,jitter=2us,small_queues=off",
        ..FAT_TREE
    });
}

#[test]
fn cables_fail_degrade_and_lose_within_a_run() {
    let faults = "500us:down:c0,1ms:degrade:e0_0-a0_1:200Mbps,1500us:loss:e1_0-a1_0:0.02,1600us:degrade:h0-e0_0:300Mbps,\
                  2ms:loss:h4-e1_0:0.01,2500us:reboot:a2_0,3ms:down:e0_0,3500us:up:e0_0,5ms:restore:e0_0-a0_1,6ms:up:c0";
    check(Case { faults, ..FAT_TREE });
    let large = Case { faults, transport: "cubic", ..FAT_TREE };
    let alone = large.alone(NoTap);
    assert_same(&alone, &large.alone(LargeFabric), "as on a large fabric");
    assert_same(&alone, &large.together::<true>(2, 1).0, "as on a large fabric, on two threads");
}

#[test]
fn packets_of_a_flow_on_several_paths() {
    let faults = "500us:down:c0,1500us:loss:e1_0-a1_0:0.02,2500us:up:c0";
    for scheme in ["rps", "letflow:gap=20us", "drill", "rps:order=round-robin", "presto:cell=5KB"] {
        check(Case { scheme, faults, ..FAT_TREE });
    }
    for scheme in ["plb:rounds=2", "flowbender"] {
        check(Case { scheme, faults, transport: "dctcp:min_rto=1ms", ..FAT_TREE });
    }
}

#[test]
fn a_fabric_whose_cables_lose_packets() {
    check(Case { fabric: "fat-tree:k=4,rate=1Gbps,delay=5us,buffer=20,loss=0.01", ..FAT_TREE });
}

#[test]
fn slices_make_no_difference() {
    for (threads, slices) in [(2, 7), (3, 20)] {
        assert_same(&FAT_TREE.alone(NoTap), &FAT_TREE.together::<false>(threads, slices).0, "sliced");
    }
}

#[test]
fn little_work_is_not_shared() {
    let mut simulation = FAT_TREE.start(Parted::<false>);
    simulation.advance_on(simulation.end(), 2);
    assert_same(&FAT_TREE.alone(NoTap), &simulation.outcome(), "unshared");
    assert_eq!((simulation.one_thread(), simulation.windows()), (None, 0));
}

/// A link without delay that hands packets on when their sending begins has a look-ahead of 1 ps. A window cannot be
/// half as long.
#[test]
fn a_look_ahead_that_cannot_be_halved_is_not_used() {
    let case = Case {
        fabric: FABRICS[2].0,
        traffic: "long-lived:pattern=permutation",
        transport: "newreno:handshake=off,small_queues=off,acks=1,jitter=1us",
        control: "handover=begin,delay=10us,long=10KB",
        duration_us: 1163,
        seed: 973,
        ..FAT_TREE
    };
    let (together, windows) = case.together::<false>(2, 1);
    assert_same(&case.alone(NoTap), &together, "as on one thread");
    assert_eq!(windows, 0);
}

#[test]
fn a_run_that_needs_one_thread_says_so_and_has_the_same_result() {
    let chained = "all-reduce:algorithm=ring,size=1MB";
    for (case, why) in [
        (Case { scheme: "hedera", ..FAT_TREE }, "controller"),
        (Case { scheme: "tcp-path", ..FAT_TREE }, "programs"),
        (Case { transport: "mptcp:subflows=2", ..FAT_TREE }, "subflows"),
        (Case { traffic: chained, ..FAT_TREE }, "wait"),
        (Case { fabric: "fat-tree:k=4,rate=1Gbps,delay=5us,buffer=20,queues=2", ..FAT_TREE }, "queues"),
    ] {
        let mut simulation = case.start(Parted::<false>);
        assert!(simulation.one_thread().is_some_and(|reason| reason.contains(why)), "{case:?}");
        simulation.advance_on(simulation.end(), 2);
        assert_eq!((simulation.windows(), simulation.outcome()), (0, case.alone(NoTap)), "{case:?}");
    }
    let mut recorded = FAT_TREE.start(Parted::<false>);
    recorded.record_subflow_paths();
    assert!(recorded.one_thread().is_some());
    let mut changed = FAT_TREE.start(Parted::<false>);
    changed.set_scheme(pathloom_schemes::parse("hedera").unwrap().central(1).unwrap());
    assert!(changed.one_thread().is_some());
}

const FABRICS: [(&str, &str); 6] = [
    ("fat-tree:k=4,rate=1Gbps,delay=3us,buffer=20", "200us:down:c1,400us:up:c1,500us:loss:a0_0-c0:0.05"),
    ("fat-tree:k=4,rate=10Gbps,delay=1us,buffer=15,fail=0.1", "100us:down:e0_1,300us:up:e0_1"),
    ("fat-tree:k=4,host_rate=1Gbps,switch_rate=500Mbps,host_delay=0s,switch_delay=4us,buffer=10", "200us:reboot:e0_0"),
    ("leaf-spine:spines=2,leaves=3,hosts=4,rate=1Gbps,delay=2us,buffer=10", ""),
    ("vl2:d0=2,d1=4,d2=4,hosts=2", ""),
    ("jellyfish:switches=10,ports=8,hosts=20,homes=2,seed=1,rate=1Gbps,delay=2us", ""),
];
const TRAFFIC: [&str; 5] = [
    "web-server:load=0.7,pattern=random",
    "hadoop:load=0.8,pattern=random",
    "web-server:load=0.3,pattern=permutation",
    "long-lived:pattern=permutation",
    "long-lived:pattern=unconstrained",
];
const TRANSPORTS: [&str; 5] = [
    "newreno:min_rto=1ms",
    "newreno:handshake=off,small_queues=off,acks=1,jitter=1us",
    "cubic:min_rto=2ms",
    "dctcp:min_rto=1ms",
    "newreno:min_rto=500us,delayed_ack=200us,pace=300Mbps",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn any_number_of_threads_gives_the_same_result(
        fabric in 0..FABRICS.len(), with_faults: bool, traffic in 0..TRAFFIC.len(), transport in 0..TRANSPORTS.len(),
        scheme in prop::sample::select(vec!["spt", "ecmp"]),
        control in prop::sample::select(vec!["delay=50us", "handover=begin,delay=10us,long=10KB"]),
        duration_us in 500u64..1500, seed in 0u64..1000, threads in 2usize..=3, slices in 1u64..4,
    ) {
        let (fabric, faults) = FABRICS[fabric];
        let case = Case {
            fabric,
            traffic: TRAFFIC[traffic],
            transport: TRANSPORTS[transport],
            scheme,
            faults: if with_faults { faults } else { "" },
            control,
            duration_us,
            seed,
        };
        prop_assume!(case.has_flows());
        let alone = case.alone(NoTap);
        assert_same(&alone, &case.together::<false>(threads, slices).0, &format!("{threads} threads: {case:?}"));
    }
}
