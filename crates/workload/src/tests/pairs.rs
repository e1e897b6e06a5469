//! Patterns, long-lived flows and incast.

use super::*;
use std::collections::BTreeSet;

fn pairs(text: &str, fabric: &Fabric) -> Vec<(usize, usize)> {
    let workload = generate(text, fabric, 1.0);
    check(&workload, fabric, Nanos::from_secs(1));
    assert!(workload.flows.iter().all(|flow| flow.size_bytes.is_none()));
    workload.flows.iter().map(|flow| pair(flow, fabric)).collect()
}

fn degrees(pairs: &[(usize, usize)], hosts: usize) -> (Vec<usize>, Vec<usize>) {
    let (mut out, mut into) = (vec![0; hosts], vec![0; hosts]);
    for &(src, dst) in pairs {
        out[src] += 1;
        into[dst] += 1;
    }
    (out, into)
}

fn tor(host: usize, fabric: &Fabric) -> pathloom_model::NodeId {
    fabric.host_attachments(fabric.hosts()[host])[0].tor
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn patterns_have_their_defining_properties(fabric in any_fabric(), seed in any::<u64>(), times in 1usize..4) {
        let hosts = fabric.hosts().len();
        let pairs = |pattern: &str| {
            let spec = TrafficSpec::parse(&format!("long-lived:pattern={pattern},flows={times}")).unwrap();
            let workload = spec.generate(&fabric, Nanos::from_secs(1), seed, None).unwrap();
            check(&workload, &fabric, Nanos::from_secs(1));
            workload.flows.iter().map(|flow| pair(flow, &fabric)).collect::<Vec<_>>()
        };
        let stride = pairs("stride");
        prop_assert!(stride.iter().all(|&(src, dst)| dst == (src + hosts / 2) % hosts));
        prop_assert_eq!(degrees(&stride, hosts), (vec![times; hosts], vec![times; hosts]));
        prop_assert_eq!(degrees(&pairs("permutation"), hosts), (vec![times; hosts], vec![times; hosts]));
        prop_assert_eq!(pairs("unconstrained").len(), hosts * times);
        prop_assert_eq!(degrees(&pairs("random"), hosts).0, vec![times; hosts]);
        let all = pairs("all-to-all");
        prop_assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), hosts * (hosts - 1));
        prop_assert_eq!(all.len(), hosts * (hosts - 1) * times);
        let incast = pairs("incast");
        prop_assert_eq!(incast.iter().map(|pair| pair.1).collect::<BTreeSet<_>>().len(), 1);
        prop_assert_eq!(incast.len(), (hosts - 1) * times);
        let others = 1 + seed as usize % (hosts - 1);
        let one_to_n = pairs(&format!("one-to-{others}"));
        prop_assert_eq!(one_to_n.iter().collect::<BTreeSet<_>>().len(), hosts * others);
        prop_assert_eq!(degrees(&one_to_n, hosts).0, vec![others * times; hosts]);
        let even = pairs(&format!("one-to-{others}-even"));
        prop_assert_eq!(even.iter().collect::<BTreeSet<_>>().len(), hosts * others);
        prop_assert_eq!(degrees(&even, hosts), (vec![others * times; hosts], vec![others * times; hosts]));
        let drawn = pairs("one-to-random");
        let distinct = drawn.iter().collect::<BTreeSet<_>>().len();
        prop_assert_eq!(distinct * times, drawn.len());
        let numbers: Vec<usize> = degrees(&drawn, hosts).0.iter().map(|count| count / times).collect();
        prop_assert!(numbers.iter().all(|number| (1..hosts).contains(number)), "{:?}", numbers);
        if fabric.tors().len() > 1 {
            let apart = pairs("inter-leaf");
            prop_assert!(apart.iter().all(|&(src, dst)| tor(src, &fabric) != tor(dst, &fabric)));
            prop_assert_eq!(degrees(&apart, hosts).0, vec![times; hosts]);
        }
    }

    #[test]
    fn arrivals_follow_the_pattern(fabric in any_fabric(), seed in any::<u64>(), name in "hadoop|on-off") {
        for pattern in ["random", "inter-leaf", "stride", "permutation", "unconstrained", "one-to-1", "all-to-all", "incast"] {
            if pattern == "inter-leaf" && fabric.tors().len() < 2 {
                continue;
            }
            let spec = TrafficSpec::parse(&format!("{name}:pattern={pattern},load=0.8")).unwrap();
            let duration = Nanos::from_millis(500);
            let workload = spec.generate(&fabric, duration, seed, None).unwrap();
            check(&workload, &fabric, duration);
            let pairs: BTreeSet<_> = workload.flows.iter().map(|flow| pair(flow, &fabric)).collect();
            let hosts = fabric.hosts().len();
            let holds = match pattern {
                "stride" => pairs.iter().all(|&(src, dst)| dst == (src + hosts / 2) % hosts),
                "inter-leaf" => pairs.iter().all(|&(src, dst)| tor(src, &fabric) != tor(dst, &fabric)),
                "permutation" | "one-to-1" => pairs.iter().map(|pair| pair.0).collect::<BTreeSet<_>>().len() == pairs.len(),
                "unconstrained" => pairs.len() <= hosts,
                "incast" => pairs.iter().map(|pair| pair.1).collect::<BTreeSet<_>>().len() <= 1,
                _ => true,
            };
            prop_assert!(holds, "{}: {:?}", pattern, pairs);
        }
    }
}

#[test]
fn permutations_are_uniform_over_derangements() {
    // Four hosts have 9 derangements.
    let fabric = even(2, 2);
    let spec = TrafficSpec::parse("long-lived:pattern=permutation,jitter=0s").unwrap();
    let mut counts = std::collections::BTreeMap::new();
    for seed in 0..1800 {
        let workload = spec.generate(&fabric, Nanos::from_secs(1), seed, None).unwrap();
        let order: Vec<usize> = workload.flows.iter().map(|flow| pair(flow, &fabric).1).collect();
        *counts.entry(order).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), 9);
    // 200 expected, standard deviation 13.3.
    assert!(counts.values().all(|&count| (130..270).contains(&count)), "{counts:?}");
}

#[test]
fn random_destinations_are_uniform_and_all_to_all_takes_turns() {
    let fabric = even(3, 3);
    let count = |text: &str| {
        let workload = generate(text, &fabric, 2.0);
        let mut counts = vec![[0u32; 9]; 9];
        workload.flows.iter().map(|flow| pair(flow, &fabric)).for_each(|(src, dst)| counts[src][dst] += 1);
        counts
    };
    for (src, row) in count("hadoop:load=0.4,pattern=random").iter().enumerate() {
        let mean = f64::from(row.iter().sum::<u32>()) / 8.0;
        let off = |(dst, &count): (usize, &u32)| if dst == src { 0.0 } else { (f64::from(count) - mean).abs() };
        assert!(row.iter().enumerate().map(off).fold(0.0, f64::max) < 5.0 * mean.sqrt(), "{row:?}");
    }
    for (src, row) in count("hadoop:load=0.4,pattern=all-to-all").iter().enumerate() {
        let others = || row.iter().enumerate().filter(|&(dst, _)| dst != src).map(|(_, &count)| count);
        assert!(others().max().unwrap() - others().min().unwrap() <= 1, "{row:?}");
    }
}

#[test]
fn a_stride_may_be_given() {
    let fabric = even(2, 4);
    assert!(pairs("long-lived:stride=3", &fabric).iter().all(|&(src, dst)| dst == (src + 3) % 8));
    assert!(pairs("long-lived:stride=4294967294", &fabric).iter().all(|&(src, dst)| dst == (src + 6) % 8));
    assert!(message("long-lived:stride=16", &fabric, 1.0, None).contains("makes each of the 8 hosts send to itself"));
    assert!(message("long-lived:pattern=random,stride=2", &fabric, 1.0, None).contains("valid with pattern=stride"));
}

#[test]
fn patterns_that_do_not_fit_are_refused() {
    let flat = even(1, 4);
    assert!(message("web-search:pattern=inter-leaf", &flat, 1.0, None).contains("and host h0 has none"));
    assert!(message("on-off:pattern=one-to-4", &flat, 1.0, None).contains("each of the 4 hosts has 3"));
    assert!(message("on-off:pattern=one-to-4-even", &flat, 1.0, None).contains("each of the 4 hosts has 3"));
    assert!(message("long-lived:pattern=one-to-0", &flat, 1.0, None).contains("expected one-to-1 or more"));
    assert!(message("long-lived:pattern=one-to-0-even", &flat, 1.0, None).contains("expected one-to-1 or more"));
    assert!(message("long-lived:pattern=one-to-2-evn", &flat, 1.0, None).contains("did you mean `one-to-2-even`"));
    let error = message("long-lived:pattern=permutaton", &flat, 1.0, None);
    assert!(error.contains("did you mean `permutation`?"), "{error}");
    let error = message("long-lived:pattern=all-to-all,flows=10000", &even(8, 10), 1.0, None);
    assert!(error.contains("about 6.320e7 flows, more than the 20000000"), "{error}");
}

#[test]
fn starts_are_spread_over_the_jitter_within_the_run() {
    let fabric = even(4, 16);
    let latest = |text: &str, s: f64| {
        let workload = generate(text, &fabric, s);
        match workload.flows.last().unwrap().start {
            Start::At(time) => time.0,
            Start::After { .. } => unreachable!(),
        }
    };
    assert!((900_000..1_000_000).contains(&latest("long-lived", 1.0)));
    assert!((8_000_000..10_000_000).contains(&latest("long-lived:jitter=10ms", 1.0)));
    assert_eq!(latest("long-lived:jitter=0s", 1.0), 0);
    assert!(latest("long-lived:jitter=10ms", 0.001) < 1_000_000);
}

#[test]
fn incasts_come_in_periods_with_distinct_senders() {
    let fabric = even(4, 5);
    let workload = generate("incast:senders=8,size=64KB,period=10ms", &fabric, 0.095);
    check(&workload, &fabric, Nanos::from_millis(95));
    assert_eq!(workload.flows.len(), 80);
    for event in 0..10u32 {
        let flows: Vec<_> = workload.flows.iter().filter(|flow| flow.coflow == Some(event)).collect();
        let senders: BTreeSet<_> = flows.iter().map(|flow| flow.src).collect();
        assert_eq!((flows.len(), senders.len()), (8, 8));
        assert!(flows.iter().all(|flow| flow.dst == flows[0].dst && flow.size_bytes == Some(64_000)));
        let from = u64::from(event) * 10_000_000;
        let in_time =
            |flow: &&FlowSpec| matches!(flow.start, Start::At(time) if (from..from + 10_000).contains(&time.0));
        assert!(flows.iter().all(in_time));
    }
    let once = generate("incast:receiver=h3", &fabric, 1.0);
    assert_eq!(once.flows.len(), 16);
    assert!(once.flows.iter().all(|flow| pair(flow, &fabric).1 == 3 && flow.size_bytes == Some(256_000)));
    assert_eq!(generate("incast:receiver=3", &fabric, 1.0).flows, once.flows);
    assert_eq!(generate("incast", &even(1, 3), 1.0).flows.len(), 2);
    assert!(message("incast:senders=20", &fabric, 1.0, None).contains("more than the 19 hosts beside the receiver"));
    assert!(message("incast:receiver=h99", &fabric, 1.0, None)
        .contains("`h99` is not a host of the fabric; hosts are h0 to h19"));
    assert!(message("incast:period=0s", &fabric, 1.0, None).contains("too short"));
    assert!(message("incast:period=1ns", &fabric, 1.0, None).contains("raise period="));
}

#[test]
fn both_ports_of_a_host_count() {
    let dual = |tor_count: usize| {
        let mut builder = FabricBuilder::new("dual");
        let settings = |rate_bps| LinkSettings { rate_bps, delay_ps: 0, buffer_packets: 9 };
        let tors: Vec<pathloom_model::NodeId> =
            (0..tor_count).map(|index| builder.switch(format!("t{index}"), Tier::Tor, None)).collect();
        for index in 0..4 {
            let host = builder.host(format!("h{index}"), None);
            // The even hosts share two ToRs, and so do the odd ones.
            builder.cable(host, tors[index % 2], settings(100_000_000));
            builder.cable(host, tors[(index % 2 + 2) % tor_count], settings(50_000_000));
        }
        builder.build().unwrap()
    };
    let fabric = dual(4);
    let workload = generate("hadoop:pattern=inter-leaf", &fabric, 10.0);
    assert!(workload.flows.iter().map(|flow| pair(flow, &fabric)).all(|(src, dst)| src % 2 != dst % 2));
    assert!(workload.description.contains("4 hosts of 150 Mbps"), "{}", workload.description);
    // With two ToRs, both ports of a host are on the same ToR.
    let fabric = dual(2);
    let workload = generate("hadoop:pattern=inter-leaf", &fabric, 10.0);
    assert!(workload.flows.iter().map(|flow| pair(flow, &fabric)).all(|(src, dst)| src % 2 != dst % 2));
}
