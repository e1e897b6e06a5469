use super::*;
use pathloom_model::search::{edge_disjoint, ShortestPaths};
use pathloom_model::units::{PS_PER_NS, PS_PER_S};
use pathloom_model::{LinkId, LinkSettings, LinkState, NodeId, Tier};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn build(spec: &str) -> Fabric {
    fabric_from_spec(spec).unwrap_or_else(|error| panic!("{spec}: {error}"))
}

fn count(fabric: &Fabric, tier: Tier) -> usize {
    fabric.nodes().iter().filter(|node| node.tier == tier).count()
}

/// Returns the numbers of hosts, ToRs, aggregation and core switches, and cables between switches.
fn sizes(fabric: &Fabric) -> [usize; 5] {
    let [hosts, tors, aggregations, cores] =
        [Tier::Host, Tier::Tor, Tier::Aggregation, Tier::Core].map(|tier| count(fabric, tier));
    [hosts, tors, aggregations, cores, fabric.switch_cables().count()]
}

fn node(fabric: &Fabric, name: &str) -> NodeId {
    fabric.find(name).unwrap_or_else(|| panic!("no {name}"))
}

/// Returns the number and the hops of the shortest paths between two switches.
fn shortest(fabric: &Fabric, from: &str, to: &str) -> (u128, Option<usize>) {
    let paths = ShortestPaths::between(fabric, &LinkState::of(fabric), node(fabric, from), node(fabric, to));
    (paths.count(), paths.hops())
}

fn disjoint(fabric: &Fabric, from: &str, to: &str) -> usize {
    edge_disjoint(fabric, &LinkState::of(fabric), node(fabric, from), node(fabric, to), usize::MAX).len()
}

/// Whether every ToR reaches every other ToR.
fn hosts_reach_each_other(fabric: &Fabric) -> bool {
    let state = LinkState::of(fabric);
    let distances = pathloom_model::search::distances_to(fabric, &state, fabric.tors()[0]);
    fabric.tors().iter().filter(|&&tor| !fabric.is_inside_server(tor)).all(|&tor| distances.hops(tor).is_some())
}

#[test]
fn fat_tree_is_as_published() {
    let fabric = build("fat-tree:k=8");
    assert_eq!(sizes(&fabric), [128, 32, 32, 16, 256]);
    assert_eq!(fabric.switches().len(), 80);
    assert_eq!(shortest(&fabric, "e0_0", "e1_0"), (16, Some(4)));
    assert_eq!(shortest(&fabric, "e0_0", "e0_3"), (4, Some(2)));
    assert_eq!(disjoint(&fabric, "e0_0", "e7_3"), 4);
    let fabric = build("fat-tree:k=4,hosts=6,host_rate=1Mbps,switch_rate=2Mbps,host_delay=5ms,switch_delay=1ms");
    assert_eq!(sizes(&fabric), [48, 8, 8, 4, 32]);
    let host = fabric.link(fabric.node(node(&fabric, "h47")).ports[0]);
    assert_eq!(host.to, node(&fabric, "e3_1"));
    let expected = LinkSettings { rate_bps: 1_000_000, delay_ps: 5 * PS_PER_S / 1000, buffer_packets: 100 };
    assert_eq!(host.settings, expected);
    let link = fabric.link_between(node(&fabric, "a2_1"), node(&fabric, "c3")).unwrap();
    assert_eq!(fabric.link(link).settings.rate_bps, 2_000_000);
    assert!(fabric.link_between(node(&fabric, "a2_1"), node(&fabric, "c1")).is_none());
    assert_eq!(fabric.node(node(&fabric, "e2_1")).pod, Some(2));
}

#[test]
fn vl2_of_the_papers_has_80_servers_10_switches_and_8_paths() {
    let fabric = build("vl2:d0=2,d1=4,d2=4,hosts=20");
    assert_eq!(sizes(&fabric), [80, 4, 4, 2, 16]);
    assert_eq!(shortest(&fabric, "e0_0", "e1_0"), (8, Some(4)));
    assert_eq!(shortest(&fabric, "e0_0", "e0_1"), (2, Some(2)));
    let switch_ports = |name: &str| fabric.switch_ports(node(&fabric, name)).len();
    assert_eq!(["e1_1", "a0_1", "c1"].map(switch_ports), [2, 4, 4]);
    // Stride(N/2) always goes from pod to pod.
    for host in 0..40 {
        let pod = |host: usize| fabric.node(fabric.hosts()[host]).pod;
        assert_ne!(pod(host), pod(host + 40));
    }
    // The size in the VL2 paper: D_A*D_I/4 ToRs, D_I aggregation and D_A/2 intermediate switches.
    assert_eq!(sizes(&build("vl2:d0=2,d1=12,d2=8,hosts=20")), [480, 24, 8, 6, 96]);
}

#[test]
fn leaf_spine_and_three_layer_have_four_disjoint_paths() {
    let fabric = build("leaf-spine");
    assert_eq!(sizes(&fabric), [80, 4, 0, 4, 16]);
    assert_eq!(shortest(&fabric, "e0", "e3"), (4, Some(2)));
    let fabric = build("three-layer");
    assert_eq!(sizes(&fabric), [80, 4, 16, 4, 32]);
    let fabric_with_pods = build("three-layer:pods=3,tors=2,hosts=4,spines=2");
    assert_eq!(sizes(&fabric_with_pods), [24, 6, 12, 8, 48]);
    for fabric in [fabric, fabric_with_pods] {
        for (&from, &to) in fabric.tors().iter().flat_map(|a| fabric.tors().iter().map(move |b| (a, b))) {
            let name = |tor: NodeId| fabric.node(tor).name.clone();
            assert!(from == to || disjoint(&fabric, &name(from), &name(to)) == 4);
        }
    }
}

#[test]
fn small_fabrics_have_their_named_shape() {
    let fabric = build("dumbbell:hosts=3,switch_rate=10Mbps,switch_buffer=20");
    assert_eq!(sizes(&fabric), [6, 2, 0, 0, 1]);
    let bottleneck = fabric.link(fabric.switch_cables().next().unwrap()).settings;
    assert_eq!((bottleneck.rate_bps, bottleneck.buffer_packets), (10_000_000, 20));
    assert_eq!(sizes(&build("diamond")), [2, 2, 0, 2, 4]);
    assert_eq!(shortest(&build("diamond"), "e0", "e1"), (2, Some(2)));
    let fabric = build("parallel-paths:rates=100Mbps/50Mbps,delays=1ms/20ms,hosts=2");
    assert_eq!(sizes(&fabric), [4, 2, 0, 2, 4]);
    let state = LinkState::of(&fabric);
    let paths = ShortestPaths::between(&fabric, &state, node(&fabric, "e0"), node(&fabric, "e1"));
    let sums: Vec<(u64, u64)> = paths
        .iter()
        .map(|path| {
            let links: Vec<LinkSettings> = path.links().iter().map(|&link| fabric.link(link).settings).collect();
            (links.iter().map(|link| link.rate_bps).min().unwrap(), links.iter().map(|link| link.delay_ps).sum())
        })
        .collect();
    let ms = 1_000_000 * PS_PER_NS;
    assert_eq!(sums, [(100_000_000, ms), (50_000_000, 20 * ms)]);
    assert_eq!(build("parallel-paths:delays=1ms/2ms/3ms").switch_cables().count(), 6);
    assert_eq!(build("parallel-paths:rates=1Mbps,delays=1ms/2ms/3ms").switch_cables().count(), 6);
    assert_eq!(sizes(&build("parallel-paths")), [2, 2, 0, 2, 4]);
    assert_eq!(sizes(&build("parallel-paths:rates=1Mbps")), [2, 2, 0, 1, 2]);
}

#[test]
fn jellyfish_is_regular_connected_and_seeded() {
    for seed in 0..20 {
        let fabric = build(&format!("jellyfish:seed={seed}"));
        assert_eq!(sizes(&fabric), [120, 60, 0, 0, 180]);
        for &switch in fabric.switches() {
            assert_eq!(fabric.switch_ports(switch).len(), 6);
            let others: BTreeSet<NodeId> = fabric.switch_ports(switch).iter().map(|port| port.to).collect();
            assert_eq!(others.len(), 6, "parallel cables");
            assert!(!others.contains(&switch), "self-loop");
        }
        assert!(hosts_reach_each_other(&fabric));
    }
    // With two switch ports each, switches form rings. A drawn graph of many rings is turned into one ring.
    for seed in 0..20 {
        let fabric = build(&format!("jellyfish:switches=50,ports=4,hosts=100,seed={seed}"));
        assert_eq!(sizes(&fabric), [100, 50, 0, 0, 50]);
        assert!(hosts_reach_each_other(&fabric));
    }
    assert_eq!(sizes(&build("jellyfish:switches=9,ports=9,hosts=9")), [9, 9, 0, 0, 36]);
    assert_eq!(build("jellyfish"), build("jellyfish"));
    assert_ne!(build("jellyfish:seed=1").links(), build("jellyfish:seed=2").links());
}

#[test]
fn dual_homed_jellyfish_spreads_second_homes_evenly() {
    for seed in 0..20 {
        let fabric = build(&format!("jellyfish:homes=2,seed={seed}"));
        assert_eq!(sizes(&fabric), [120, 60, 0, 0, 120]);
        assert_eq!(fabric.attachments().len(), 240);
        for &host in fabric.hosts() {
            let homes = fabric.host_attachments(host);
            assert_eq!(homes.len(), 2);
            assert_ne!(homes[0].tor, homes[1].tor);
            let ports = &fabric.node(host).ports;
            assert_eq!([homes[0].uplink, homes[1].uplink], [ports[0], ports[1]]);
        }
        for &switch in fabric.switches() {
            assert_eq!(fabric.node(switch).ports.len(), 8);
            assert_eq!(fabric.switch_ports(switch).len(), 4);
        }
    }
    // Cases in which all free slots can be on the last host's own switch.
    for switches in 2..8 {
        for hosts in [switches, switches + 1, 2 * switches + 1] {
            for seed in 0..10 {
                build(&format!("jellyfish:switches={switches},hosts={hosts},ports=20,homes=2,seed={seed}"));
            }
        }
    }
}

#[test]
fn failures_are_seeded_and_leave_hosts_connected() {
    for spec in ["fat-tree:k=8", "leaf-spine", "jellyfish", "vl2"] {
        for share in ["0.05", "0.3"] {
            let fabric = build(&format!("{spec}{}fail={share}", if spec.contains(':') { "," } else { ":" }));
            let wanted = (share.parse::<f64>().unwrap() * fabric.switch_cables().count() as f64).round() as usize;
            assert_eq!(fabric.failed_links().len(), wanted);
            assert!(fabric.failed_links().iter().all(|&link| fabric.is_switch_link(link)));
            assert!(hosts_reach_each_other(&fabric));
        }
    }
    assert_ne!(build("jellyfish:fail=0.1").failed_links(), build("jellyfish:fail=0.1,fail_seed=2").failed_links());
    let error = fabric_from_spec("dumbbell:fail=1").unwrap_err().to_string();
    assert!(error.contains("fail: only 0 of the 1 cables"), "{error}");
    // A tree with all four leaves needs at least four of the sixteen cables.
    assert!(fabric_from_spec("leaf-spine:fail=0.8").is_err());
    // Switches without hosts can be disconnected: one spine is enough.
    let lost = |seed: u64| {
        let fabric = build(&format!("leaf-spine:fail=0.5,fail_seed={seed}"));
        let state = LinkState::of(&fabric);
        fabric.switches().iter().any(|&node| fabric.switch_ports(node).iter().all(|port| !state.is_up(port.link)))
    };
    assert!((0..100).any(lost));
}

#[test]
fn bad_specifications_give_a_helpful_one_line_error() {
    for (spec, part) in [
        ("", "fabric ``: is empty; expected name:key=value"),
        ("fattree:k=4", "no fabric is called `fattree`; did you mean `fat-tree`?"),
        ("fatree", "FILE.graphml, FILE.json"),
        ("topology.xml", "unsupported format: a fabric is read from FILE.graphml or FILE.json (node-link"),
        ("a.et", "a.et is not a fabric"),
        ("fat-tree:k=5", "k: 5 is odd; a FatTree needs an even number, such as 4 or 6"),
        ("fat-tree:k=0", "k: `0` is not a whole number from 2 to 1000"),
        ("fat-tree:k=-1", "k: `-1` is not a whole number"),
        ("fat-tree:k=1e9", "k: `1e9` is not a whole number"),
        ("fat-tree:k=nan", "k: `nan` is not a whole number"),
        ("fat-tree:k=1000", "needs 750000000 cables; at most 1000000"),
        ("fat-tree:k=64,hosts=100000", "at most 1000000"),
        ("fat-tree:K=4", "unknown key `K`; did you mean `k`?"),
        ("fat-tree:k=4,rates=1Gbps", "unknown key `rates`; did you mean `rate`?"),
        ("fat-tree:k=4,rate=10", "rate: `10` is not a rate"),
        ("fat-tree:delay=1e15s", "delay: `1e15s` is not a time"),
        ("fat-tree:delay=20min", "delay: a link's delay is at most 1000s"),
        ("fat-tree:buffer=-1", "buffer: `-1` is not a whole number from 0"),
        ("fat-tree:fail=nan", "fail: `nan` is not a number from 0 to 1"),
        ("fat-tree:fail=1.5", "fail: `1.5` is not a number from 0 to 1"),
        ("fat-tree:fail=0.9", "expected a smaller share"),
        ("vl2:d1=3", "d1: 3 is odd"),
        ("vl2:d2=5", "d2: 5 is not a multiple of d0=2"),
        ("vl2:d1=100000,d2=100000", "at most 1000000"),
        ("leaf-spine:spines=100000,leaves=100000", "at most 1000000"),
        ("leaf-spine:leaves=1,hosts=1", "1 host;"),
        ("three-layer:pods=100000,tors=100000,planes=100000,spines=100000,hosts=100000", "at most 1000000"),
        ("jellyfish:homes=3", "homes: `3` is not a whole number from 1 to 2"),
        ("jellyfish:switches=1,homes=2", "homes: 2 needs at least 2 switches"),
        ("jellyfish:ports=2", "ports: 2 are too few to hold 120 host ports on 60 switches"),
        ("jellyfish:ports=3", "ports: 3 are too few"),
        ("jellyfish:switches=100000,ports=10000", "at most 1000000"),
        ("dragonfly:groups=10", "expected at most 9 groups"),
        ("dragonfly:groups=1,routers=1,hosts=1", "1 host;"),
        ("dragonfly:routers=10000,global=10000,hosts=10000", "at most 1000000"),
        ("slim-fly:q=9", "q: 9 is not an odd prime; expected a number such as 7 or 11"),
        ("slim-fly:q=4", "3 or 5"),
        ("slim-fly:q=200", "such as 199"),
        ("slim-fly:q=2", "q: `2` is not a whole number from 3 to 200"),
        ("slim-fly:q=199", "at most 1000000"),
        ("rail-optimized:spines=0", "spines: `0` is not a whole number from 1"),
        ("rail-optimized:segments=100000,servers=100000,gpus=100000", "at most 1000000"),
        ("rail-optimized:nvlink_rate=fast", "nvlink_rate: `fast` is not a rate"),
        ("torus:dims=4x", "dims: `4x` are not sizes"),
        ("torus:dims=0x2", "such as 4x4x4"),
        ("torus:dims=1000x1000x1000", "at most 1000000"),
        ("torus:dims=1", "1 host;"),
        ("rail-optimized:planes=17", "planes: `17` is not a whole number from 1 to 16"),
        ("hammingmesh:board=2", "board: `2` are not two sizes"),
        ("hammingmesh:boards=0x4", "such as 4x4"),
        ("hammingmesh:board=10000x10000,boards=10000x10000", "at most 1000000"),
        ("hammingmesh:board=1x1,boards=1x1", "1 host;"),
        ("parallel-paths:rates=1Gbps/10", "rates: `10` is not a rate"),
        ("parallel-paths:rates=1Gbps/1Gbps,delays=1ms/1ms/1ms", "rates= has 2 members and delays= has 3"),
        ("dumbbell:hosts=1000000", "at most 1000000"),
        ("a.graphml:rate=1Gbps", "a.graphml is a file"),
    ] {
        let error = fabric_from_spec(spec).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(part), "{spec}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

/// Returns how many cables to others the switches have, and the most hops between two of them.
fn degrees_and_diameter(fabric: &Fabric) -> (BTreeSet<usize>, u32) {
    let state = LinkState::of(fabric);
    let tors = || fabric.tors().iter().copied();
    let hops = |to| {
        let distances = pathloom_model::search::distances_to(fabric, &state, to);
        tors().map(|tor| distances.hops(tor).expect("connected")).max().unwrap_or(0)
    };
    (tors().map(|tor| fabric.switch_ports(tor).len()).collect(), tors().map(hops).max().unwrap_or(0))
}

#[test]
fn slim_flies_have_the_published_degree_and_diameter() {
    // 2*q*q switches with (3*q - δ)/2 cables each. q=5 is the Hoffman-Singleton graph, the largest of degree 7 and diameter 2.
    for (q, degree, diameter) in [(3, 5, 2), (5, 7, 2), (7, 11, 2), (11, 17, 2), (13, 19, 2), (17, 25, 2)] {
        let fabric = build(&format!("slim-fly:q={q},hosts=1"));
        assert_eq!(fabric.tors().len(), 2 * q * q);
        assert_eq!(degrees_and_diameter(&fabric), (BTreeSet::from([degree]), diameter), "q={q}");
    }
    // A graph of girth 5: each pair of switches has one shortest path.
    let fabric = build("slim-fly");
    assert_eq!(sizes(&fabric), [200, 50, 0, 0, 175]);
    let counts = (1..50).map(|other| shortest(&fabric, "e0", &format!("e{other}")).0);
    assert!(counts.eq(std::iter::repeat_n(1, 49)));
}

#[test]
fn balanced_dragonflies_are_three_hops_wide() {
    // a=4, p=h=2: 9 groups of 4 switches, 72 hosts, radix 7 (Kim et al. §3.1, Fig. 5).
    let fabric = build("dragonfly");
    assert_eq!(sizes(&fabric), [72, 36, 0, 0, 9 * 6 + 36]);
    assert_eq!(degrees_and_diameter(&fabric), (BTreeSet::from([5]), 3));
    let pod = |tor: NodeId| fabric.node(tor).pod;
    let between: BTreeSet<_> = fabric
        .switch_cables()
        .map(|cable| (pod(fabric.link(cable).from), pod(fabric.link(cable).to)))
        .filter(|(a, b)| a != b)
        .collect();
    assert_eq!(between.len(), 36, "each pair of groups has one cable");
    // Three groups share 8 ports each: 4 cables for each pair.
    assert_eq!(build("dragonfly:groups=3").switch_cables().count(), 3 * 6 + 3 * 4);
    let single = build("dragonfly:groups=1");
    assert_eq!((sizes(&single), degrees_and_diameter(&single).1), ([8, 4, 0, 0, 6], 1));
}

#[test]
fn tori_have_two_neighbours_in_each_dimension() {
    let fabric = build("torus");
    assert_eq!(sizes(&fabric), [64, 64, 0, 0, 192]);
    assert_eq!(degrees_and_diameter(&fabric), (BTreeSet::from([6]), 6));
    assert_eq!(degrees_and_diameter(&build("torus:dims=2x5")), (BTreeSet::from([3]), 3));
    assert_eq!(degrees_and_diameter(&build("torus:dims=2x5,wrap=off")), (BTreeSet::from([2, 3]), 5));
    assert_eq!(shortest(&fabric, "e0_0_0", "e0_0_3"), (1, Some(1)));
    assert_eq!(shortest(&fabric, "e0_0_0", "e1_1_1"), (6, Some(3)));
}

#[test]
fn rails_join_the_gpus_of_one_number_and_servers_all_of_theirs() {
    let fabric = build("rail-optimized:segments=2,servers=4,gpus=8,spines=3,rate=400Gbps");
    // 16 leaves and 8 switches inside servers; the cables are those from leaves to spines.
    assert_eq!(sizes(&fabric), [64, 24, 0, 3, 16 * 3]);
    let tors = |host: &str| -> Vec<String> {
        let ports = fabric.node(node(&fabric, host)).ports.iter();
        ports.map(|&port| fabric.node(fabric.link(port).to).name.clone()).collect()
    };
    assert_eq!(
        (tors("h0"), tors("h9"), tors("h63")),
        (vec!["e0_0".into(), "n0".into()], vec!["e0_1".into(), "n1".into()], vec!["e1_7".into(), "n7".into()])
    );
    let rates: BTreeSet<u64> = fabric.links().iter().map(|link| link.settings.rate_bps).collect();
    assert_eq!(rates, BTreeSet::from([400_000_000_000, 3_600_000_000_000]));
    let summary = FabricSummary::of(&fabric);
    assert_eq!((summary.pairs_sampled, summary.pairs_apart, summary.diameter_hops), (16 * 15, 0, Some(2)));
    // Half of the 16 leaves send 3 links each to the spines.
    assert_eq!(summary.bisection_bps, Some(24 * 400_000_000_000));
    let plain = build("rail-optimized:nvlink=off");
    assert_eq!((sizes(&plain), plain.attachments().len()), ([64, 8, 0, 8, 64], 64));
}

#[test]
fn two_planes_of_rails_are_hpn_as_published() {
    // Qian et al. 2024, §4 and §5: 15 segments of 128 servers with 8 GPUs, each with two ports of 200 Gbit/s. Leaves have 128 of
    // them, and 60 ports of 400 Gbit/s: 25.6 down and 24 Tbit/s up, 1.067 to 1.
    let fabric =
        build("rail-optimized:segments=15,servers=128,gpus=8,spines=60,planes=2,host_rate=200Gbps,switch_rate=400Gbps");
    let (gpus, leaves) = (15 * 128 * 8, 15 * 8 * 2);
    assert_eq!(sizes(&fabric), [gpus, leaves + 15 * 128, 0, 120, leaves * 60]);
    let rates = |leaf: &str| -> [u64; 2] {
        let ports = || fabric.node(node(&fabric, leaf)).ports.iter().map(|&port| fabric.link(port));
        let sum = |to_host: bool| -> u64 {
            ports().filter(|link| fabric.is_host(link.to) == to_host).map(|link| link.settings.rate_bps).sum()
        };
        [sum(true), sum(false)]
    };
    assert_eq!(rates("e0_0_0"), [25_600_000_000_000, 24_000_000_000_000]);
    assert_eq!(rates("e14_7_1"), rates("e0_0_0"));
    let tors = |host: &str| -> Vec<String> {
        let ports = fabric.node(node(&fabric, host)).ports.iter();
        ports.map(|&port| fabric.node(fabric.link(port).to).name.clone()).collect()
    };
    assert_eq!(tors("h9"), ["e0_1_0", "e0_1_1", "n1"]);
    assert_eq!(shortest(&fabric, "e0_0_0", "e14_7_0"), (60, Some(2)));
    assert_eq!(shortest(&fabric, "e0_0_0", "e0_0_1"), (0, None), "planes meet in servers only");
}

#[test]
fn hamming_meshes_have_the_published_bandwidth_and_diameter() {
    // Hx2Mesh and Hx4Mesh (Hoefler et al. 2022, §III): 4 ports for each accelerator, and 1/(2a) of the full bisection.
    for (a, accelerators, diameter) in [(2, 64, 4), (4, 256, 8)] {
        let fabric = build(&format!("hammingmesh:board={a}x{a},boards=4x4"));
        let lines = 2 * 4 * a;
        let (on_boards, at_edges) = (16 * 2 * a * (a - 1), lines * 4 * 2);
        assert_eq!(sizes(&fabric), [accelerators, accelerators, 0, lines, on_boards + at_edges]);
        assert_eq!(degrees_and_diameter(&fabric), (BTreeSet::from([4]), diameter), "board of {a}x{a}");
        let full_bps = accelerators as u64 / 2 * 4 * 1_000_000_000;
        assert_eq!(FabricSummary::of(&fabric).bisection_bps, Some(full_bps / (2 * a as u64)), "board of {a}x{a}");
    }
    let fabric = build("hammingmesh");
    assert_eq!(shortest(&fabric, "e0_0", "e0_7"), (1, Some(2)), "over the switch of the row");
    assert_eq!(shortest(&fabric, "e0_0", "e7_7"), (2, Some(4)), "row or column first");
    // One board is a mesh.
    let board = build("hammingmesh:board=4x4,boards=1x1");
    assert_eq!((sizes(&board), degrees_and_diameter(&board).1), ([16, 16, 0, 0, 24], 6));
}

#[test]
fn boards_of_a_hamming_mesh_are_drawn_apart_with_their_networks_beside_them() {
    let fabric = build("hammingmesh:board=2x3,boards=3x2");
    let at = |name: &str| fabric.node(fabric.find(name).unwrap()).position.unwrap();
    let [first, right, next_board] = ["e0_0", "e0_1", "e0_2"].map(at);
    assert_eq!((right.0 - first.0, next_board.0 - right.0, first.1), (1.0, 2.0, right.1));
    let [below, board_below] = ["e2_0", "e3_0"].map(at);
    assert_eq!((first.1 - below.1, below.1 - board_below.1), (2.0, 2.0));
    assert_eq!((first.0 + at("e5_5").0, first.1 + at("e5_5").1), (0.0, 0.0), "0 is the middle");
    assert!(at("r0").0 > at("e0_5").0 + 1.0 && at("r0").1 == first.1 + 0.5, "right of its row");
    assert!(at("c0").1 < at("e5_0").1 - 1.0 && at("c0").0 == first.0 + 0.5, "below its column");
}

#[test]
fn rates_of_eight_hundred_gigabits_and_more_are_exact() {
    // A frame of 1514 bytes at 1.6 Tbit/s takes 7.57 ns.
    for (text, rate_bps) in [("800Gbps", 800_000_000_000), ("1.6Tbps", 1_600_000_000_000)] {
        let fabric = build(&format!("rail-optimized:servers=2,gpus=2,rate={text}"));
        let slowest = fabric.links().iter().map(|link| link.settings.rate_bps).min();
        assert_eq!(slowest, Some(rate_bps));
    }
}

#[test]
fn every_named_example_builds_to_the_default() {
    for kind in FABRICS {
        let (example, plain) = (build(kind.example), build(kind.name));
        assert_eq!((example.nodes(), example.links()), (plain.nodes(), plain.links()), "{}", kind.name);
    }
}

#[test]
fn large_fat_trees_build() {
    let fabric = build("fat-tree:k=48");
    assert_eq!(sizes(&fabric), [27_648, 1152, 1152, 576, 55_296]);
    assert_eq!(shortest(&fabric, "e0_0", "e47_23"), (576, Some(4)));
    let last = fabric.attachments()[27_647];
    assert_eq!(fabric.host_attachments(last.host), [&last]);
}

/// Generates specifications, most of them valid.
fn any_spec() -> impl Strategy<Value = String> {
    let own = prop_oneof![
        (0u32..13, 0u32..5).prop_map(|(k, hosts)| format!("fat-tree:k={k},hosts={hosts}")),
        (0u32..5, 0u32..9, 0u32..9).prop_map(|(d0, d1, d2)| format!("vl2:d0={d0},d1={d1},d2={d2},hosts=2")),
        (0u32..6, 0u32..6).prop_map(|(s, l)| format!("leaf-spine:spines={s},leaves={l},hosts=2")),
        (0u32..4, 0u32..4, 0u32..4, 0u32..4)
            .prop_map(|(p, t, n, s)| format!("three-layer:pods={p},tors={t},planes={n},spines={s},hosts=2")),
        (0u32..24, 0u32..12, 0u32..40, 1u32..3, 0u32..1000).prop_map(|(s, p, h, homes, seed)| {
            format!("jellyfish:switches={s},ports={p},hosts={h},homes={homes},seed={seed}")
        }),
        (0u32..9).prop_map(|hosts| format!("dumbbell:hosts={hosts}")),
        (0u32..9, 0u32..6, 0u32..4)
            .prop_map(|(g, r, l)| format!("dragonfly:groups={g},routers={r},global={l},hosts=1")),
        (0u32..3, 0u32..3, 0u32..4, 0u32..3, 0u32..2).prop_map(|(s, n, g, c, nvlink)| {
            format!(
                "rail-optimized:segments={s},servers={n},gpus={g},spines={c},nvlink={}",
                ["off", "on"][nvlink as usize]
            )
        }),
        (2u32..8).prop_map(|q| format!("slim-fly:q={q},hosts=1")),
        (0u32..5, 0u32..5).prop_map(|(x, y)| format!("torus:dims={x}x{y},hosts=1")),
        (1usize..5).prop_map(|n| format!("parallel-paths:rates={}", vec!["10Mbps"; n].join("/"))),
    ];
    let common = prop_oneof![
        4 => Just(String::new()),
        2 => (0u32..10).prop_map(|tenths| format!(",fail=0.{tenths},fail_seed=7")),
        1 => Just(",rate=10Mbps,host_delay=5ms,buffer=0".to_owned()),
        1 => "[a-z_]{1,8}=[0-9a-zA-Z.]{1,8}".prop_map(|pair| format!(",{pair}")),
    ];
    (own, common).prop_map(|(own, common)| own + &common)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn built_fabrics_connect_their_hosts(spec in any_spec()) {
        let Ok(fabric) = fabric_from_spec(&spec) else { return Ok(()) };
        prop_assert!(hosts_reach_each_other(&fabric), "{}", spec);
        let addresses: BTreeSet<_> = fabric.attachments().iter().map(|a| a.address).collect();
        let host_ports: usize = fabric.hosts().iter().map(|&host| fabric.node(host).ports.len()).sum();
        prop_assert_eq!(addresses.len(), host_ports);
        let summary = FabricSummary::of(&fabric);
        prop_assert_eq!(summary.pairs_apart, 0);
        prop_assert_eq!(summary.nodes, summary.hosts + summary.switches);
    }

    #[test]
    fn no_text_makes_the_reader_panic(spec in "(fat-tree|vl2|jellyfish|dumbbell|x)?[:,=k0-9a-z.é]{0,24}") {
        if let Err(error) = fabric_from_spec(&spec) {
            prop_assert!(!error.to_string().contains('\n'));
        }
    }

    #[test]
    fn exports_are_read_back_unchanged(spec in any_spec()) {
        let Ok(fabric) = fabric_from_spec(&spec) else { return Ok(()) };
        for (path, text) in [("f.json", to_node_link_json(&fabric)), ("f.graphml", to_graphml(&fabric))] {
            let read = fabric_from_file_text(path, &text).unwrap();
            same(&fabric, &read.fabric);
            prop_assert_eq!(read.notes, Vec::<String>::new());
        }
    }
}

/// Checks that two fabrics are equal except for the text of their specification.
fn same(a: &Fabric, b: &Fabric) {
    assert_eq!(a.nodes(), b.nodes());
    assert_eq!(a.links(), b.links());
    assert_eq!(a.failed_links(), b.failed_links());
    assert_eq!(a.lossy_links(), b.lossy_links());
    assert_eq!(a.attachments(), b.attachments());
}

#[test]
fn exports_keep_positions_names_and_both_directions() {
    let mut builder = FabricBuilder::new("by <hand> & \"quoted\"");
    let link = LinkSettings { rate_bps: 999_999_999_999_999, delay_ps: 123_456_789_012_345, buffer_packets: 7 };
    let a = builder.switch("Zürich <1> & \"x\"\n\t", Tier::Core, Some(4));
    let b = builder.switch(" lead", Tier::Tor, None);
    builder.place(a, (8.541_694_000_000_01, -47.376_887));
    builder.place(b, (f64::MIN_POSITIVE, 1e300));
    let (h, g) = (builder.host("h", None), builder.host("g", Some(0)));
    let first = builder.cable(b, a, link);
    builder.cable(h, b, link);
    builder.cable(a, b, LinkSettings { rate_bps: 1, ..link });
    builder.cable(b, g, link);
    builder.set(first.reverse(), LinkSettings { rate_bps: 5, delay_ps: 0, buffer_packets: 0 });
    let fabric = builder.build().unwrap().with_failed(vec![LinkId(4)]);
    for (path, text) in [("f.json", to_node_link_json(&fabric)), ("f.graphml", to_graphml(&fabric))] {
        same(&fabric, &fabric_from_file_text(path, &text).unwrap().fabric);
    }
}

/// networkx returns a graph with edges in another order, some reversed, numbers as floats, and `links` for `edges`.
#[test]
fn an_export_survives_networkx() {
    let fabric = build("fat-tree:k=4,fail=0.1,switch_rate=2Mbps,loss=c0:0.015625");
    let mut value: serde_json::Value = serde_json::from_str(&to_node_link_json(&fabric)).unwrap();
    let mut edges = value["edges"].as_array().unwrap().clone();
    edges.reverse();
    for edge in edges.iter_mut().step_by(2) {
        let object = edge.as_object_mut().unwrap();
        let (source, target) = (object["source"].clone(), object["target"].clone());
        object.insert("source".into(), target);
        object.insert("target".into(), source);
        object.insert("rate_bps".into(), serde_json::json!(object["rate_bps"].as_f64().unwrap()));
    }
    value.as_object_mut().unwrap().remove("edges");
    value["links"] = edges.clone().into();
    same(&fabric, &fabric_from_file_text("f.json", &value.to_string()).unwrap().fabric);
    // to_directed(): every edge in both directions, with the same attributes.
    let mut both = edges.clone();
    for edge in &mut edges {
        let object = edge.as_object_mut().unwrap();
        let (source, target) = (object["source"].clone(), object["target"].clone());
        object.insert("source".into(), target);
        object.insert("target".into(), source);
    }
    both.append(&mut edges);
    value["links"] = both.into();
    value["directed"] = true.into();
    same(&fabric, &fabric_from_file_text("f.json", &value.to_string()).unwrap().fabric);
}
