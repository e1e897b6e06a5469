//! Collectives: numbers and sizes of transfers, dependencies, placement, refusals.

use super::*;

/// Simulates the dependencies with one unit of time for each transfer. Returns when each flow ends.
fn ends(workload: &Workload) -> Vec<u64> {
    let mut ends: Vec<u64> = Vec::new();
    for flow in &workload.flows {
        let start = match &flow.start {
            Start::At(_) => 0,
            Start::After { flows, .. } => flows.iter().map(|&needed| ends[needed as usize]).max().unwrap(),
        };
        ends.push(start + 1);
    }
    ends
}

#[test]
fn a_ring_takes_its_steps_one_after_the_other() {
    let fabric = even(4, 4);
    let workload = generate("all-reduce:algorithm=ring,size=100MB,iterations=3,gap=5ms", &fabric, 1.0);
    check(&workload, &fabric, Nanos::from_secs(1));
    assert_eq!(workload.flows.len(), 3 * 30 * 16);
    let ends = ends(&workload);
    for (flow, end) in workload.flows.iter().zip(&ends) {
        let (src, dst) = pair(flow, &fabric);
        assert_eq!(dst, (src + 1) % 16);
        // With equal transfers, step s ends at s + 1.
        assert_eq!(u64::from(flow.coflow.unwrap()) + 1, *end);
    }
    // Every step moves the whole buffer once: size / N from each of N ranks.
    let step = |step| workload.flows.iter().filter(move |flow| flow.coflow == Some(step));
    assert_eq!(step(17).filter_map(|flow| flow.size_bytes).sum::<u64>(), 100_000_000);
    for flow in &workload.flows {
        let delay = match flow.start {
            Start::At(time) => {
                assert!(flow.coflow == Some(0) && time < Nanos::from_micros(10));
                continue;
            }
            Start::After { delay, .. } => delay,
        };
        let first = flow.coflow.unwrap() % 30 == 0;
        assert_eq!(delay, if first { Nanos::from_millis(5) } else { Nanos::ZERO });
    }
}

#[test]
fn a_rank_waits_for_its_neighbour_and_for_itself() {
    let fabric = even(1, 3);
    let workload = generate("all-reduce:size=300B,jitter=0s", &fabric, 1.0);
    for (index, flow) in workload.flows.iter().enumerate() {
        if let Start::After { flows, .. } = &flow.start {
            let src = flow.src;
            let [received, sent] = flows[..] else { panic!("{flow:?}") };
            assert_eq!(workload.flows[received as usize].dst, src);
            assert_eq!(workload.flows[sent as usize].src, src);
            assert_eq!(workload.flows[sent as usize].coflow, flow.coflow.map(|step| step - 1));
        } else {
            assert!(index < 3);
        }
    }
}

#[test]
fn hosts_may_be_counted_or_named() {
    let fabric = even(4, 4);
    let ring = |text: &str| -> Vec<(usize, usize)> {
        let workload = generate(text, &fabric, 1.0);
        let mut ring: Vec<_> =
            workload.flows.iter().filter(|f| f.coflow == Some(0)).map(|f| pair(f, &fabric)).collect();
        ring.sort_unstable();
        ring
    };
    assert_eq!(ring("all-reduce:hosts=3"), [(0, 1), (1, 2), (2, 0)]);
    assert_eq!(ring("all-reduce:hosts=h0/h4/8"), [(0, 4), (4, 8), (8, 0)]);
    let random = ring("all-reduce:placement=random");
    assert_eq!(random.len(), 16);
    assert_ne!(random, ring("all-reduce"));
    assert!(message("all-reduce:hosts=h0/h1/0", &fabric, 1.0, None).contains("h0 is named twice"));
    assert!(message("all-reduce:hosts=h0/", &fabric, 1.0, None).contains("hosts: `` is not a host"));
    assert!(message("all-reduce:hosts=17", &fabric, 1.0, None).contains("more than the 16 hosts"));
    assert!(message("all-reduce:hosts=1", &fabric, 1.0, None).contains("not a whole number from 2"));
    assert!(message("all-reduce:size=15B", &fabric, 1.0, None).contains("raise size="));
    assert!(message("all-reduce:algorithm=tre", &fabric, 1.0, None).contains("did you mean `tree`?"));
    assert!(message("all-reduce:hosts=3,skip=14", &fabric, 1.0, None).contains("skip=14 leaves 2 of the 16 hosts"));
    assert!(message("all-reduce:hosts=h1/h0,skip=1", &fabric, 1.0, None).contains("leave it out with hosts by name"));
    assert_eq!(ring("all-reduce:hosts=2,skip=5"), [(5, 6), (6, 5)]);
    assert!(message("all-reduce:hosts=h1/h0,placement=random", &fabric, 1.0, None).contains("by name"));
    assert!(message("all-reduce:iterations=1000000", &fabric, 1.0, None).contains("lower iterations="));
}

#[test]
fn all_to_all_reaches_everyone_a_few_at_a_time() {
    let fabric = even(2, 4);
    for (text, parallel) in
        [("all-to-all:size=1MB", 1), ("all-to-all:parallel=3,order=random", 3), ("all-to-all:parallel=99", 7)]
    {
        let workload =
            generate(&format!("{text}{}iterations=2", if text.contains("=") { "," } else { ":" }), &fabric, 1.0);
        check(&workload, &fabric, Nanos::from_secs(1));
        assert_eq!(workload.flows.len(), 2 * 56);
        let mut seen = vec![0; 64];
        workload.flows.iter().map(|flow| pair(flow, &fabric)).for_each(|(src, dst)| seen[src * 8 + dst] += 1);
        assert!((0..64).all(|at| seen[at] == if at / 8 == at % 8 { 0 } else { 2 }), "{text}");
        // With equal transfers, each host has exactly `parallel` transfers in progress, except for the last ones.
        let ends = ends(&workload);
        for host in 0..8 {
            for time in 1..=14u64.div_ceil(parallel) {
                let under_way = workload
                    .flows
                    .iter()
                    .zip(&ends)
                    .filter(|&(flow, &end)| pair(flow, &fabric).0 == host && end == time);
                let expected = parallel.min(14 - (time - 1) * parallel);
                assert_eq!(under_way.count() as u64, expected, "{text} {host} {time}");
            }
        }
    }
}

#[test]
fn shifted_phases_are_permutations() {
    let fabric = even(2, 4);
    let workload = generate("all-to-all", &fabric, 1.0);
    for phase in 0..7u32 {
        let pairs: Vec<_> =
            workload.flows.iter().filter(|f| f.coflow == Some(phase)).map(|f| pair(f, &fabric)).collect();
        assert!(pairs.iter().all(|&(src, dst)| dst == (src + phase as usize + 1) % 8));
        assert_eq!(pairs.len(), 8);
    }
}

/// Bytes that each host sends, and those that it receives.
fn bytes_of_hosts(workload: &Workload, fabric: &Fabric) -> (Vec<u64>, Vec<u64>) {
    let hosts = fabric.hosts().len();
    let (mut out, mut into) = (vec![0; hosts], vec![0; hosts]);
    for flow in &workload.flows {
        let (src, dst) = pair(flow, fabric);
        out[src] += flow.size_bytes.unwrap();
        into[dst] += flow.size_bytes.unwrap();
    }
    (out, into)
}

#[test]
fn every_algorithm_sends_what_its_formula_says() {
    let fabric = even(4, 4);
    // Size, steps, transfers, and the most that a host sends.
    for (text, steps, transfers, most_bytes) in [
        ("all-reduce:algorithm=recursive", 8, 8 * 16, 2 * 15_000_000),
        ("all-reduce:algorithm=tree,chunks=16", 2 * (16 + 6), 2 * 15 * 16, 2 * 16_000_000),
        ("all-reduce:algorithm=hierarchical", 12, 12 * 16, 2 * 15_000_000),
        ("all-reduce:algorithm=hierarchical,groups=8", 16, 16 * 16, 2 * 15_000_000),
        ("all-gather", 15, 15 * 16, 15_000_000),
        ("all-gather:algorithm=recursive", 4, 4 * 16, 15_000_000),
        ("reduce-scatter", 15, 15 * 16, 15_000_000),
        ("reduce-scatter:algorithm=recursive", 4, 4 * 16, 15_000_000),
        ("broadcast:chunks=16", 16 + 8, 15 * 16, 16_000_000),
        ("broadcast:algorithm=ring,chunks=16,root=3", 30, 15 * 16, 16_000_000),
        ("broadcast:algorithm=binomial", 4, 15, 4 * 16_000_000),
        ("reduce:algorithm=binomial,root=7", 4, 15, 16_000_000),
        ("all-to-all:algorithm=direct", 15, 15 * 16, 15 * 16_000_000),
        ("all-to-all:algorithm=pairwise", 15, 15 * 16, 15 * 16_000_000),
        ("all-to-all:algorithm=bruck", 4, 4 * 16, 4 * 8 * 16_000_000),
    ] {
        let text = format!("{text}{}size=16MB", if text.contains(':') { "," } else { ":" });
        let workload = generate(&text, &fabric, 1.0);
        check(&workload, &fabric, Nanos::from_secs(1));
        assert!(workload.flows.iter().all(|flow| flow.standing), "{text}");
        assert_eq!(workload.flows.len(), transfers, "{text}");
        let last = workload.flows.iter().filter_map(|flow| flow.coflow).max().unwrap();
        assert_eq!(last + 1, steps, "{text}");
        let (out, _) = bytes_of_hosts(&workload, &fabric);
        assert_eq!(out.into_iter().max().unwrap(), most_bytes, "{text}");
    }
}

#[test]
fn rounds_follow_each_other_in_every_iteration() {
    let fabric = even(4, 4);
    for text in [
        "all-reduce:algorithm=recursive,hosts=7",
        "all-reduce:algorithm=tree,chunks=8,hosts=7",
        "all-reduce:algorithm=hierarchical",
        "broadcast:algorithm=ring,chunks=8",
        "all-to-all:algorithm=bruck,hosts=9",
    ] {
        let workload = generate(&format!("{text},iterations=3,gap=5ms"), &fabric, 1.0);
        check(&workload, &fabric, Nanos::from_secs(1));
        let steps = (workload.flows.iter().filter_map(|flow| flow.coflow).max().unwrap() + 1) / 3;
        let step = |flow: &FlowSpec| flow.coflow.unwrap();
        for flow in &workload.flows {
            let Start::After { flows, delay } = &flow.start else { continue };
            // A rank waits for what it has received and sent in earlier steps, and for the port of the receiver.
            let needed: Vec<&FlowSpec> = flows.iter().map(|&index| &workload.flows[index as usize]).collect();
            let is_near = |it: &FlowSpec| it.src == flow.src || it.dst == flow.src || it.dst == flow.dst;
            assert!(needed.iter().all(|it| step(it) < step(flow) && is_near(it)), "{text}");
            let is_first = needed.iter().all(|it| step(it) / steps < step(flow) / steps);
            assert_eq!(*delay, if is_first { Nanos::from_millis(5) } else { Nanos::ZERO }, "{text}");
        }
    }
}

#[test]
fn algorithms_refuse_what_they_cannot_do() {
    let fabric = even(4, 4);
    let refused = |text: &str| message(text, &fabric, 1.0, None);
    for text in ["all-gather:algorithm=recursive,hosts=7", "reduce-scatter:algorithm=recursive,hosts=7"] {
        let error = refused(text);
        assert!(error.contains("needs a power of two of ranks, and there are 7; set hosts=4"), "{error}");
    }
    assert!(
        refused("all-reduce:chunks=4").contains("algorithm=ring has no chunks; leave it out, or set algorithm=tree")
    );
    assert!(refused("all-reduce:groups=4").contains("algorithm=ring has no groups"));
    assert!(refused("broadcast:algorithm=binomial,chunks=4").contains("algorithm=binomial has no chunks"));
    assert!(refused("all-to-all:algorithm=bruck,parallel=2").contains("algorithm=bruck has no parallel"));
    assert!(refused("all-reduce:algorithm=tree,size=63B").contains("63 B is too small for 64 chunks"));
    assert!(refused("broadcast:root=16").contains("root=16 is not a rank; the job has 16 ranks"));
    assert!(refused("all-reduce:algorithm=hierarchical,hosts=7").contains("they have 3 to 4 ranks"));
    assert!(refused("all-reduce:algorithm=hierarchical,groups=5").contains("16 ranks are not a multiple of 5"));
    assert!(refused("all-reduce:algorithm=hierarchical,groups=server").contains("host h0 is in no server"));
    assert!(refused("all-reduce:placement=rail").contains("placement=rail needs servers with a switch of their own"));
    assert!(refused("moe:experts=17").contains("experts: 17 are not a multiple of the 16 ranks"));
    assert!(refused("moe:top=17").contains("top=17 is more than the 16 experts"));
    assert!(refused("moe:tokens=100000000").contains("lower tokens="));
}

#[test]
fn servers_are_the_groups_of_a_fabric_that_has_them() {
    let fabric = pathloom_fabrics::fabric_from_spec("rail-optimized:servers=4,gpus=2,spines=2").unwrap();
    let workload = generate("all-reduce:algorithm=hierarchical,size=8MB", &fabric, 1.0);
    let steps = |steps: std::ops::Range<u32>| {
        workload.flows.iter().filter(move |flow| steps.contains(&flow.coflow.unwrap())).map(|flow| pair(flow, &fabric))
    };
    assert!(steps(0..1).chain(steps(7..8)).all(|(src, dst)| src / 2 == dst / 2));
    // Across servers, hosts stay on their rail.
    assert!(steps(1..7).all(|(src, dst)| src % 2 == dst % 2 && src / 2 != dst / 2));
    assert_eq!(steps(0..8).count(), workload.flows.len());
    let rail = generate("all-gather:placement=rail", &fabric, 1.0);
    let mut first: Vec<(usize, usize)> =
        rail.flows.iter().filter(|flow| flow.coflow == Some(0)).map(|flow| pair(flow, &fabric)).collect();
    first.sort_unstable();
    assert_eq!(first, [(0, 2), (1, 3), (2, 4), (3, 5), (4, 6), (5, 7), (6, 1), (7, 0)]);
}

#[test]
fn tokens_come_back_from_their_experts() {
    let fabric = even(4, 4);
    let workload =
        generate("moe:tokens=500,token=1000B,combine=3000B,top=2,compute=1ms,iterations=2,gap=2ms", &fabric, 1.0);
    check(&workload, &fabric, Nanos::from_secs(1));
    let bytes = |phase: u32, src: usize, dst: usize| -> u64 {
        let mut found = workload.flows.iter().filter(|it| it.coflow == Some(phase) && pair(it, &fabric) == (src, dst));
        found.next().map_or(0, |flow| flow.size_bytes.unwrap())
    };
    for phase in [0, 2] {
        let mut sent = 0;
        for src in 0..16 {
            for dst in (0..16).filter(|dst| *dst != src) {
                assert_eq!(3 * bytes(phase, src, dst), bytes(phase + 1, dst, src), "{src} {dst}");
                sent += bytes(phase, src, dst);
            }
        }
        // Two experts of 16, one of which may be on the own rank: 15/16 of 1000 tokens of each rank.
        let expected = 16.0 * 1000.0 * 1000.0 * 15.0 / 16.0;
        assert!((sent as f64 / expected - 1.0).abs() < 0.02, "{sent}");
    }
    for flow in workload.flows.iter().filter(|flow| flow.coflow == Some(1)) {
        let Start::After { flows, delay } = &flow.start else { panic!("{flow:?}") };
        assert_eq!((flows.len(), *delay), (15, Nanos::from_millis(1)));
        assert!(flows.iter().all(|&needed| workload.flows[needed as usize].dst == flow.src));
    }
    for flow in workload.flows.iter().filter(|flow| flow.coflow == Some(2)) {
        let Start::After { flows, delay } = &flow.start else { panic!("{flow:?}") };
        assert_eq!(*delay, Nanos::from_millis(2));
        assert!(flows.iter().all(|&needed| workload.flows[needed as usize].dst == flow.src));
    }
}

/// With Zipf's exponent s and one expert per token, the share of the most popular of n experts is 1 / sum i^-s.
#[test]
fn skew_makes_one_expert_popular() {
    let fabric = even(4, 4);
    for skew in [0.0, 0.5, 1.0, 2.0] {
        let workload = generate(&format!("moe:tokens=4000,token=1000B,top=1,skew={skew}"), &fabric, 1.0);
        let dispatch = workload.flows.iter().filter(|flow| flow.coflow == Some(0));
        let mut into = [0.0; 16];
        dispatch.for_each(|flow| into[pair(flow, &fabric).1] += flow.size_bytes.unwrap() as f64);
        let most = into.iter().copied().fold(0.0, f64::max);
        let weights: f64 = (1..=16).map(|place| f64::from(place).powf(-skew)).sum();
        // The rank of the expert keeps its own tokens.
        let expected = 15.0 * 4000.0 * 1000.0 / weights;
        assert!((most / expected - 1.0).abs() < 0.05, "{skew}: {most} {expected}");
    }
}

/// The longest chain of transfers that wait for each other. With `k` chunks, a broadcast over two trees takes
/// k + 2 log2(n) - 1 of them if both numbers are even and n is a power of two. An all-reduce takes at most
/// 2 k + 4 (log2(n) - 1), with the logarithm rounded up; two ranks only exchange the two halves.
#[test]
fn trees_take_a_step_for_each_chunk_and_few_more() {
    for ranks in [2u32, 3, 4, 5, 7, 8, 12, 16, 32, 33, 64, 100] {
        let fabric = even(1, ranks as usize);
        for chunks in [8, 16, 64] {
            let steps = |name: &str| {
                let workload = generate(&format!("{name}:algorithm=tree,chunks={chunks}"), &fabric, 1.0);
                ends(&workload).into_iter().max().unwrap()
            };
            let height = u64::from(ranks.next_power_of_two().ilog2());
            for name in ["broadcast", "reduce"] {
                let expected = if ranks == 2 { chunks } else { chunks + 2 * height - 1 };
                let found = steps(name);
                assert!(found <= expected, "{name}, {ranks} ranks, {chunks} chunks: {found} steps");
                assert!(!ranks.is_power_of_two() || found == expected, "{name}, {ranks} ranks: {found} steps");
            }
            let most = if ranks == 2 { chunks } else { 2 * chunks + 4 * (height - 1) };
            let found = steps("all-reduce");
            assert!((chunks..=most).contains(&found), "{ranks} ranks, {chunks} chunks: {found} steps");
        }
    }
}

#[test]
fn a_job_describes_its_ranks_and_its_algorithms() {
    let fabric =
        pathloom_fabrics::fabric_from_spec("rail-optimized:servers=4,gpus=2,spines=2,rate=100Gbps,delay=1us").unwrap();
    let job = |text: &str| generate(text, &fabric, 1.0).jobs.remove(0);
    let ring = job("all-reduce:size=8MB,iterations=3");
    assert_eq!((ring.spec.as_str(), ring.collective.as_str()), ("all-reduce:size=8MB,iterations=3", "all-reduce"));
    assert_eq!((ring.hosts.len(), ring.iterations, ring.coflows), (8, 3, (0, 3 * 14)));
    assert_eq!((ring.size_bytes, ring.bus_factor, ring.in_one_server), (8e6, 2.0 * 7.0 / 8.0, false));
    assert_eq!((ring.outside.rate_bps, ring.outside.delay_ps), (100_000_000_000, 2_000_000));
    assert_eq!(ring.inside.unwrap().rate_bps, 3_600_000_000_000);
    let names = |job: &crate::Job| job.known.iter().map(|known| known.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&ring), ["ring", "recursive", "tree", "hierarchical"]);
    // Two ranks in each server, and one of four servers on each rail.
    let hierarchical = &ring.known[3];
    assert_eq!((hierarchical.inside.steps, hierarchical.inside.bytes), (2.0, 8e6));
    assert_eq!((hierarchical.outside.steps, hierarchical.outside.bytes), (6.0, 6e6));
    assert_eq!(job("all-reduce:algorithm=hierarchical,size=8MB,groups=2").algorithm, *hierarchical);
    assert!(job("all-reduce:size=8MB,hosts=h2/h3").in_one_server);
    assert_eq!(names(&job("all-gather:hosts=3")), ["ring"]);
    assert_eq!(names(&job("broadcast")), ["tree", "ring", "binomial"]);
    // Only the nearest partner is in the same server, unless ranks are placed rail by rail.
    let recursive = &ring.known[1];
    assert_eq!((recursive.inside.steps, recursive.inside.bytes), (2.0, 2e6));
    assert_eq!((recursive.outside.steps, recursive.outside.bytes), (4.0, 12e6));
    let by_rail = &job("all-reduce:algorithm=recursive,size=8MB,placement=rail").algorithm;
    assert_eq!((by_rail.inside.bytes, by_rail.outside.bytes), (8e6, 6e6));
    let windowed = job("all-to-all").algorithm;
    assert_eq!((windowed.inside.bytes, windowed.outside.bytes), (1e6, 6e6));
    assert_eq!(job("all-to-all:algorithm=direct").algorithm.outside.bytes, 6e6);
    let on_one_switch = generate("all-to-all:parallel=3", &even(1, 8), 1.0).jobs.remove(0).algorithm;
    assert_eq!((on_one_switch.outside.steps, on_one_switch.outside.bytes), (3.0, 7e6));
    let tree = generate("all-reduce:algorithm=tree,chunks=8,size=8MB", &even(1, 8), 1.0).jobs.remove(0).algorithm;
    assert_eq!((tree.name.as_str(), tree.outside.bytes), ("tree", tree.outside.steps * 1e6));
    assert!(generate("incast", &fabric, 1.0).jobs.is_empty());
}

#[test]
fn a_job_is_followed_back_through_the_last_transfers_that_it_waited_for() {
    let fabric = even(1, 3);
    let workload = generate("all-reduce:size=300B,jitter=0s", &fabric, 1.0);
    // Each transfer takes 1 ns, and those of the second host 5 ns.
    let mut ends: Vec<Nanos> = Vec::new();
    for flow in &workload.flows {
        let start = match &flow.start {
            Start::At(at) => *at,
            Start::After { flows, .. } => flows.iter().map(|&needed| ends[needed as usize]).max().unwrap(),
        };
        ends.push(Nanos(start.0 + if pair(flow, &fabric).0 == 1 { 5 } else { 1 }));
    }
    let chain = workload.waited_for(&workload.jobs[0], |flow| Some(ends[flow as usize]));
    let senders: Vec<usize> = chain.iter().map(|&flow| pair(&workload.flows[flow as usize], &fabric).0).collect();
    assert_eq!(senders, [1, 1, 1, 1]);
    assert!(workload.waited_for(&workload.jobs[0], |flow| (flow > 0).then_some(Nanos(1))).is_empty());
}
