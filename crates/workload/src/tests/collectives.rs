//! Ring all-reduce and all-to-all.

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
    assert!(message("all-reduce:algorithm=tree", &fabric, 1.0, None).contains("is not one of ring"));
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
