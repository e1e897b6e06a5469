//! MPTCP in the simulator: the results of its subflows in total, beside other connections, and when paths fail.

use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{
    Fabric, FabricBuilder, Fault, LinkId, LinkSettings, MptcpOption, Nanos, NodeId, Tier, TCP_FIN, TCP_SYN,
};
use pathloom_sim::{ControlSettings, Fate, Outcome, SeenPacket, SimError, SimSettings, Simulation, Tap};
use pathloom_transport::TransportSpec;
use pathloom_workload::{FlowSpec, Start, TrafficSpec, Workload};
use std::sync::Arc;

/// A transfer: when it starts in milliseconds, from and to which host by name, and its bytes.
type Transfer<'a> = (u64, &'a str, &'a str, Option<u64>);

fn workload(fabric: &Fabric, transfers: &[Transfer<'_>]) -> Workload {
    let host = |name: &str| fabric.find(name).unwrap();
    let flow = |&(at, src, dst, size_bytes): &Transfer<'_>| {
        FlowSpec::new(Start::At(Nanos::from_millis(at)), host(src), host(dst), size_bytes)
    };
    Workload {
        flows: transfers.iter().map(flow).collect(),
        description: String::new(),
        notes: Vec::new(),
        jobs: Vec::new(),
    }
}

fn settings(fabric: Fabric, workload: Workload, transport: &str, duration: Nanos) -> SimSettings {
    SimSettings {
        workload: Arc::new(workload),
        central: pathloom_schemes::parse("ecmp").unwrap().central(1),
        successor: None,
        programs: None,
        transport: TransportSpec::parse(transport).unwrap(),
        control: ControlSettings::default(),
        duration,
        drain: 5,
        faults: Vec::new(),
        seed: 1,
        fabric: Arc::new(fabric),
    }
}

fn finished<T: Tap>(simulation: &mut Simulation<T>) -> Outcome {
    simulation.advance(simulation.end());
    let outcome = simulation.outcome();
    assert!(outcome.conserves_packets() && outcome.packets.misdelivered == 0, "{:?}", outcome.packets);
    outcome
}

fn run(fabric: Fabric, transfers: &[Transfer<'_>], transport: &str, seconds: u64) -> Outcome {
    let workload = workload(&fabric, transfers);
    finished(&mut Simulation::new(settings(fabric, workload, transport, Nanos::from_secs(seconds))).unwrap())
}

/// Goodput in Mbit/s of each transfer.
fn goodputs(outcome: &Outcome, seconds: u64) -> Vec<f64> {
    outcome.flows.iter().map(|flow| flow.delivered_bytes as f64 * 8e-6 / seconds as f64).collect()
}

fn link(rate_mbps: u64, delay_ms: u64) -> LinkSettings {
    LinkSettings {
        rate_bps: rate_mbps * 1_000_000,
        delay_ps: 10_000_000 + delay_ms * 1_000_000_000,
        buffer_packets: 100,
    }
}

/// Host `a` has an interface on each of these paths, by rate in Mbit/s and delay one way in milliseconds. Hosts `c`
/// and `d` are at the beginning of the first path, and `b` is at the end of all paths.
fn paths(paths: &[(u64, u64)]) -> Fabric {
    let mut builder = FabricBuilder::new("paths");
    let far = builder.switch("far", Tier::Tor, None);
    let near: Vec<NodeId> = (0..paths.len()).map(|i| builder.switch(format!("s{i}"), Tier::Tor, None)).collect();
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| builder.host(name, None));
    for (&switch, &(rate_mbps, delay_ms)) in near.iter().zip(paths) {
        builder.cable(a, switch, link(1000, 0));
        builder.cable(switch, far, link(rate_mbps, delay_ms));
    }
    builder.cable(b, far, link(1000, 0));
    builder.cable(c, near[0], link(1000, 0));
    builder.cable(d, near[0], link(1000, 0));
    builder.build().unwrap()
}

/// The limit is that of the Linux kernel's own test of simultaneous flows (selftest `simult_flows`): equal and
/// unequal rates, with and without delay, to and from the host with two interfaces.
#[test]
fn two_paths_without_competition_are_both_used() {
    const BYTES: u64 = 16_777_216;
    for rates in [[10, 10], [15, 5]] {
        for delays in [[0, 0], [1, 1], [25, 25], [1, 25], [25, 1]] {
            for (src, dst) in [("a", "b"), ("b", "a")] {
                for cc in ["lia", "olia", "uncoupled", "cubic"] {
                    let fabric = paths(&[(rates[0], delays[0]), (rates[1], delays[1])]);
                    let transport = format!("mptcp:subflows=1,cc={cc},manager=fullmesh");
                    let outcome = run(fabric, &[(0, src, dst, Some(BYTES))], &transport, 10);
                    let took = outcome.flows[0].finish.unwrap();
                    assert_eq!(outcome.flows[0].delivered_bytes, BYTES);
                    let bar = Nanos::from_millis(7906);
                    assert!(took <= bar, "{rates:?} Mbit/s, {delays:?} ms, from {src}, {cc}: {took:?}");
                }
            }
        }
    }
}

/// 100 packets wait for 1.2 s on a path of 1 Mbit/s, and the receive window is what a path of 1 Gbit/s carries in 0.13 s.
/// The receiver must not wait for them.
#[test]
fn a_slow_path_does_not_stop_a_fast_one() {
    for cc in ["lia", "olia", "uncoupled", "cubic"] {
        let transport = format!("mptcp:subflows=1,cc={cc},manager=fullmesh,min_rto=10ms");
        let got = goodputs(&run(paths(&[(1000, 0), (1, 0)]), &[(0, "a", "b", None)], &transport, 5), 5)[0];
        assert!(got > 0.95 * 957.0, "{cc}: {got} Mbit/s");
    }
}

/// RFC 6356 §2, goal 1: at least what one TCP connection would get on the best of the paths. Two other hosts keep the
/// first path busy. They have one interface, so one subflow each.
#[test]
fn a_connection_gets_at_least_what_its_best_path_gives() {
    let others = [(0, "c", "b", None), (3, "d", "b", None), (5, "a", "b", None)];
    let free = run(paths(&[(10, 5)]), &[(0, "a", "b", None)], "newreno:sack=on", 40);
    let best = goodputs(&free, 40)[0];
    for cc in ["lia", "olia"] {
        let transport = format!("mptcp:subflows=1,cc={cc},manager=fullmesh");
        let got = goodputs(&run(paths(&[(10, 5), (10, 5)]), &others, &transport, 40), 40);
        assert!(best > 9.0 && got[2] > best, "{cc}: {got:?} Mbit/s, and {best} on the best path alone");
    }
}

/// RFC 6356 §2, goal 2: no more than one TCP connection if all paths share a bottleneck. `a` has several interfaces,
/// `c` has one. Returns the share of `a` once both have found their rates.
fn share_of_bottleneck(cc: &str, ways: usize, start_ms: u64) -> f64 {
    let mut builder = FabricBuilder::new("shared");
    let [middle, far] = ["m", "far"].map(|name| builder.switch(name, Tier::Tor, None));
    let [a, b, c] = ["a", "b", "c"].map(|name| builder.host(name, None));
    for i in 0..ways {
        let near = builder.switch(format!("s{i}"), Tier::Tor, None);
        builder.cable(a, near, link(1000, 0));
        builder.cable(near, middle, link(1000, 0));
    }
    builder.cable(c, middle, link(1000, 0));
    builder.cable(b, far, link(1000, 0));
    builder.cable(middle, far, link(10, 5));
    let transfers = [(start_ms, "a", "b", None), (100 - start_ms, "c", "b", None)];
    let transport = format!("mptcp:subflows=1,cc={cc},manager=fullmesh");
    let fabric = builder.build().unwrap();
    let workload = workload(&fabric, &transfers);
    let mut simulation = Simulation::new(settings(fabric, workload, &transport, Nanos::from_secs(200))).unwrap();
    let mut after = |seconds| {
        simulation.advance(Nanos::from_secs(seconds));
        goodputs(&simulation.outcome(), 100)
    };
    let (first, both) = (after(100), after(199));
    let got = [0, 1].map(|flow: usize| both[flow] - first[flow]);
    assert!(got[0] + got[1] > 9.0, "{got:?}");
    got[0] / (got[0] + got[1])
}

#[test]
fn linked_increases_take_no_more_than_one_tcp_of_a_shared_bottleneck() {
    for ways in [2, 4] {
        let mean = |cc| [0, 20, 40, 60].map(|start| share_of_bottleneck(cc, ways, start)).iter().sum::<f64>() / 4.0;
        let [lia, olia, uncoupled] = ["lia", "olia", "uncoupled"].map(mean);
        assert!(lia > 0.4 && lia <= 0.6, "LIA, {ways} subflows: {lia}");
        assert!(olia > 0.4 && olia <= 0.6, "OLIA, {ways} subflows: {olia}");
        // Windows that are not coupled take a share each.
        let each = ways as f64 / (ways as f64 + 1.0);
        assert!((uncoupled - each).abs() < 0.05, "uncoupled, {ways} subflows: {uncoupled}");
    }
}

/// RFC 6356 §2, goal 3: traffic moves away from congested paths. Two others share the first path; a third of it would
/// be a fair share.
#[test]
fn linked_increases_move_off_the_congested_path() {
    let transfers = [(0, "c", "b", None), (3, "d", "b", None), (5, "a", "b", None)];
    let on_first = |cc: &str| {
        let fabric = paths(&[(10, 5), (10, 5)]);
        let transport = format!("mptcp:subflows=1,cc={cc},manager=fullmesh");
        let out: Vec<usize> = ["s0", "s1"]
            .map(|name| {
                let [a, near] = ["a", name].map(|name| fabric.find(name).unwrap());
                fabric.link_between(a, near).unwrap().index()
            })
            .to_vec();
        let links = run(fabric, &transfers, &transport, 60).links;
        let [first, second] = [0, 1].map(|path: usize| links[out[path]].sent_bytes as f64 * 8e-6 / 60.0);
        assert!(second > 9.0, "{cc}: {second} Mbit/s on the free path");
        first
    };
    let (lia, olia, uncoupled) = (on_first("lia"), on_first("olia"), on_first("uncoupled"));
    assert!(lia < 0.75 * uncoupled && olia < 0.75 * uncoupled, "lia {lia}, olia {olia}, uncoupled {uncoupled} Mbit/s");
}

#[test]
fn outstanding_data_of_a_dead_path_arrive_by_the_other_paths() {
    const BYTES: u64 = 5_000_000;
    for (down, up) in
        [("500ms:down:s0-far", None), ("500ms:down:s1-far", None), ("500ms:down:s1-far", Some("1500ms:up:s1-far"))]
    {
        let fabric = paths(&[(10, 1), (10, 1)]);
        let faults = [Some(down), up].into_iter().flatten().map(|text| Fault::parse(&fabric, text).unwrap()).collect();
        let workload = workload(&fabric, &[(0, "a", "b", Some(BYTES))]);
        let transport = "mptcp:subflows=1,manager=fullmesh";
        let settings = SimSettings { faults, ..settings(fabric, workload, transport, Nanos::from_secs(10)) };
        let flow = finished(&mut Simulation::new(settings).unwrap()).flows[0].clone();
        assert_eq!(flow.delivered_bytes, BYTES);
        // 2 x 0.5 s x 10 Mbit/s over both paths, the rest over one.
        let took = flow.finish.unwrap().as_secs_f64();
        let alone = 0.5 + (BYTES as f64 * 1514.0 / 1448.0 * 8e-7 - 1.0);
        assert!(took < alone + 0.4 && (up.is_none() || took < alone - 0.5), "{down} {up:?}: {took} s");
    }
}

/// When SYNs and FINs leave the first hosts, and the MPTCP options of the SYNs.
#[derive(Default)]
struct Marks {
    syns: Vec<(u64, Option<MptcpOption>)>,
    first_syn_ack: Option<(u64, Option<MptcpOption>)>,
    fins: usize,
    uplinks: Vec<LinkId>,
}

impl Tap for Marks {
    const ON: bool = true;
    fn seen(&mut self, now_ps: u64, link: LinkId, packet: &SeenPacket, _: Fate) {
        let (flags, leaves) = (packet.headers.tcp_flags, self.uplinks.contains(&link));
        if flags & TCP_SYN != 0 && !packet.is_ack && leaves {
            self.syns.push((now_ps, packet.headers.mptcp));
        } else if flags & TCP_SYN != 0 && packet.is_ack && self.first_syn_ack.is_none() {
            self.first_syn_ack = Some((now_ps, packet.headers.mptcp));
        }
        self.fins += usize::from(flags & TCP_FIN != 0 && leaves);
    }
}

#[test]
fn the_other_subflows_join_when_the_first_is_established() {
    let fabric = paths(&[(10, 5), (10, 5)]);
    let uplinks = fabric.attachments().iter().map(|at| at.uplink).collect();
    let workload = workload(&fabric, &[(0, "a", "b", Some(100_000))]);
    let transport = "mptcp:subflows=3,manager=fullmesh,jitter=0s";
    let settings = settings(fabric, workload, transport, Nanos::from_secs(10));
    let mut simulation = Simulation::with_tap(settings, Marks { uplinks, ..Marks::default() }, None).unwrap();
    assert_eq!(finished(&mut simulation).flows.len(), 1, "one row per connection");
    let Marks { syns, first_syn_ack, fins, .. } = std::mem::take(simulation.tap_mut());
    assert_eq!((syns.len(), fins), (6, 6), "three over each of two pairs, and each one ends");
    assert_eq!(syns[0].1, Some(MptcpOption::Capable { token: None }), "the receiver's key is not known yet");
    let Some((answered, Some(MptcpOption::Capable { token: Some(token) }))) = first_syn_ack else {
        panic!("{first_syn_ack:?}")
    };
    assert!(syns[1..].iter().all(|syn| syn.1 == Some(MptcpOption::Join { token })), "{syns:?}");
    let joined = syns[1].0;
    assert!(joined > answered && joined > 10_000_000_000 && joined < 11_000_000_000, "{joined} ps");
    assert!(syns[2..].iter().all(|syn| syn.0 == joined));
}

fn permutation(transport: &str, seed: u64) -> Outcome {
    let fabric = fabric_from_spec("fat-tree:k=4,rate=10Mbps,buffer=150").unwrap();
    let duration = Nanos::from_secs(20);
    let traffic = TrafficSpec::parse("long-lived:pattern=permutation").unwrap();
    let workload = traffic.generate(&fabric, duration, seed, None).unwrap();
    finished(&mut Simulation::new(SimSettings { seed, ..settings(fabric, workload, transport, duration) }).unwrap())
}

/// Raiciu et al., Improving Datacenter Performance and Robustness with Multipath TCP, SIGCOMM 2011: hashed single paths
/// leave half of a FatTree unused, and eight subflows use nine tenths.
#[test]
fn more_subflows_use_more_of_a_fat_tree() {
    let mean = |transport: &str| {
        let shares: Vec<f64> =
            (1..=3).flat_map(|seed| permutation(transport, seed).flows).map(|flow| flow.throughput.unwrap()).collect();
        shares.iter().sum::<f64>() / shares.len() as f64
    };
    let [one, two, four, eight] = [1, 2, 4, 8].map(|count| mean(&format!("mptcp:subflows={count}")));
    let tcp = mean("newreno:sack=on");
    assert!((one - tcp).abs() < 0.03, "one subflow is plain TCP: {one}, {tcp}");
    assert!(two > one + 0.08 && four > two + 0.06 && eight > four + 0.03 && eight > 0.88, "{one} {two} {four} {eight}");
}

#[test]
fn the_same_settings_give_the_same_outcome() {
    for transport in ["mptcp:subflows=4", "mptcp:subflows=3,cc=olia,scheduler=round-robin"] {
        let (first, second) = (permutation(transport, 1), permutation(transport, 1));
        assert_eq!((first.flows, first.packets), (second.flows, second.packets), "{transport}");
    }
}

#[test]
fn transfers_of_all_sizes_deliver_all_bytes() {
    let fabric = fabric_from_spec("fat-tree:k=4,rate=10Mbps,buffer=30").unwrap();
    let duration = Nanos::from_secs(5);
    let traffic = TrafficSpec::parse("web-search:load=0.5,pattern=random").unwrap();
    for transport in ["mptcp:subflows=4", "mptcp:subflows=64,cc=uncoupled", "mptcp:handshake=off,scheduler=round-robin"]
    {
        let workload = traffic.generate(&fabric, duration, 1, None).unwrap();
        let settings = SimSettings { drain: 40, ..settings(fabric.clone(), workload, transport, duration) };
        let outcome = finished(&mut Simulation::new(settings).unwrap());
        for flow in &outcome.flows {
            assert!(flow.finish.is_some(), "{transport}: {flow:?}");
            assert_eq!(Some(flow.delivered_bytes), flow.size_bytes, "{transport}");
            assert!(flow.throughput.is_some_and(|share| share > 0.0 && share <= 1.0), "{transport}: {flow:?}");
        }
    }
}

#[test]
fn impossible_mptcp_settings_are_refused() {
    let error = |spec: &str, transport: &str| {
        let fabric = fabric_from_spec(spec).unwrap();
        let traffic = TrafficSpec::parse("long-lived:pattern=permutation").unwrap();
        let workload = traffic.generate(&fabric, Nanos::from_secs(1), 1, None).unwrap();
        let settings = settings(fabric, workload, transport, Nanos::from_secs(1));
        Simulation::new(settings).err().map(|error| (error.clone(), error.to_string()))
    };
    let (kind, text) = error("fat-tree:k=4", "mptcp:manager=fullmesh").unwrap();
    assert!(kind == SimError::SingleAddresses && text.contains("ndiffports") && !text.contains('\n'), "{text}");
    let dual = "jellyfish:switches=6,ports=6,hosts=6,homes=2,rate=10Mbps";
    assert_eq!(error(dual, "mptcp:subflows=16,manager=fullmesh"), None);
    let (kind, text) = error(dual, "mptcp:subflows=17,manager=fullmesh").unwrap();
    assert!(matches!(kind, SimError::ManySubflows { pairs: 4, count: 68, .. }), "{text}");
    assert!(text.contains("at most 64") && !text.contains('\n'), "{text}");
}
