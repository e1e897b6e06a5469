//! Loads, gaps and sizes of Poisson and ON-OFF arrivals.

use super::*;
use crate::SizeTable;

fn payload(workload: &Workload) -> f64 {
    workload.flows.iter().filter_map(|flow| flow.size_bytes).map(|size| size as f64).sum()
}

fn times_s(workload: &Workload) -> Vec<f64> {
    let time = |flow: &FlowSpec| match flow.start {
        Start::At(time) => Some(time.as_secs_f64()),
        Start::After { .. } => None,
    };
    workload.flows.iter().filter_map(time).collect()
}

/// Mean of the squared flow size.
fn mean_square(table: &SizeTable) -> f64 {
    let pairs = table.points().windows(2);
    pairs.map(|p| (p[1].1 - p[0].1) * (p[0].0 * p[0].0 + p[0].0 * p[1].0 + p[1].0 * p[1].0) / 3.0).sum()
}

/// Checks that the offered rate over the total rate is the load, within five standard deviations of a compound
/// Poisson sum.
fn check_load(name: &str, load: f64, total_bps: f64, seconds: f64, workload: &Workload) {
    let table = SizeTable::published(name).unwrap();
    let expected = load * total_bps / 8.0 * seconds;
    let flows = expected / table.mean_bytes();
    let deviation = (flows * mean_square(&table)).sqrt();
    let off = payload(workload) - expected;
    assert!(off.abs() < 5.0 * deviation, "{name}: {:.3} of {load}", payload(workload) / expected * load);
    // The bound must be tight enough to be meaningful.
    assert!(5.0 * deviation < 0.3 * expected, "{name}: five deviations are {:.2}", 5.0 * deviation / expected);
    assert!((workload.flows.len() as f64 - flows).abs() < 5.0 * flows.sqrt());
}

#[test]
fn published_tables_meet_their_load() {
    let fabric = even(4, 4);
    for (name, seconds) in [("web-search", 20.0), ("data-mining", 300.0), ("hadoop", 3.0), ("web-server", 1.0)] {
        for load in [0.4, 1.5] {
            let workload = generate(&format!("{name}:load={load}"), &fabric, seconds);
            check(&workload, &fabric, Nanos((seconds * 1e9) as u64));
            check_load(name, load, 16e9, seconds, &workload);
        }
    }
}

#[test]
fn every_host_offers_its_share_at_its_own_rate() {
    let fabric = fabric(&[&[1000, 100, 1000], &[500, 100]]);
    for pattern in ["random", "inter-leaf", "stride", "permutation", "one-to-2", "all-to-all"] {
        let workload = generate(&format!("hadoop:load=0.5,pattern={pattern}"), &fabric, 10.0);
        check_load("hadoop", 0.5, 2.7e9, 10.0, &workload);
        let mut flows = [0.0; 5];
        workload.flows.iter().for_each(|flow| flows[pair(flow, &fabric).0] += 1.0);
        let all = workload.flows.len() as f64;
        for (share, rate) in flows.map(|flows| flows / all).into_iter().zip([1000.0, 100.0, 1000.0, 500.0, 100.0]) {
            let expected: f64 = rate / 2700.0;
            assert!((share - expected).abs() < 5.0 * (expected / all).sqrt(), "{pattern}: {share} {expected}");
        }
    }
}

#[test]
fn incast_loads_the_receiver_and_unconstrained_the_pairs() {
    let fabric = even(4, 4);
    let incast = generate("hadoop:load=0.5,pattern=incast", &fabric, 20.0);
    check_load("hadoop", 0.5, 1e9, 20.0, &incast);
    let receivers: std::collections::BTreeSet<_> = incast.flows.iter().map(|flow| flow.dst).collect();
    assert_eq!(receivers.len(), 1);
    assert!(incast.notes.iter().any(|note| note.contains("receiver")));
    let pairs = generate("hadoop:load=0.5,pattern=unconstrained", &fabric, 3.0);
    check_load("hadoop", 0.5, 16e9, 3.0, &pairs);
    let distinct: std::collections::BTreeSet<_> = pairs.flows.iter().map(|flow| (flow.src, flow.dst)).collect();
    assert!(distinct.len() <= 16);
}

#[test]
fn gaps_pass_a_kolmogorov_smirnov_test() {
    let fabric = even(4, 4);
    let workload = generate("hadoop:load=0.4", &fabric, 2.0);
    let times = times_s(&workload);
    let rate = 0.4 * 16e9 / 8.0 / SizeTable::published("hadoop").unwrap().mean_bytes();
    let mut gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]) * rate).collect();
    gaps.sort_by(f64::total_cmp);
    let count = gaps.len() as f64;
    let off = |(rank, gap): (usize, &f64)| {
        let exact = 1.0 - (-gap).exp();
        (rank as f64 / count - exact).abs().max(((rank + 1) as f64 / count - exact).abs())
    };
    let worst = gaps.iter().enumerate().map(off).fold(0.0, f64::max);
    assert!(count > 10_000.0 && worst < 1.95 / count.sqrt(), "{worst} of {count}");
}

/// Variance over mean of the number of flows per window: 1 for a Poisson process.
fn dispersion(times_s: &[f64], seconds: f64, windows: usize) -> f64 {
    let mut counts = vec![0.0; windows];
    times_s.iter().for_each(|time| counts[(time / seconds * windows as f64) as usize] += 1.0);
    let mean = counts.iter().sum::<f64>() / windows as f64;
    counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / windows as f64 / mean
}

#[test]
fn on_off_sources_meet_their_load_and_come_in_bursts() {
    let fabric = even(4, 4);
    // Windows are much longer than the mean gap, so that they contain whole bursts.
    let poisson = generate("hadoop:load=0.4,pattern=stride", &fabric, 10.0);
    let smooth = dispersion(&times_s(&poisson), 10.0, 1000);
    assert!((smooth - 1.0).abs() < 0.2, "{smooth}");
    for extra in ["", ",on=20ms", ",on=10ms,off=40ms", ",sigma_on=0,sigma_off=0,sigma_gap=2"] {
        let text = format!("on-off:sizes=hadoop,load=0.4,pattern=stride{extra}");
        let spec = TrafficSpec::parse(&text).unwrap();
        let count = |seed| {
            let workload = spec.generate(&fabric, Nanos::from_secs(10), seed, None).unwrap();
            check(&workload, &fabric, Nanos::from_secs(10));
            workload.flows.len() as f64
        };
        let expected = 0.4 * 16e9 / 8.0 / SizeTable::published("hadoop").unwrap().mean_bytes() * 10.0;
        let mean = (0..4).map(count).sum::<f64>() / 4.0;
        assert!((mean / expected - 1.0).abs() < 0.02, "{text}: {mean} flows, expected {expected}");
        let workload = generate(&text, &fabric, 10.0);
        let one: Vec<FlowSpec> = workload.flows.into_iter().filter(|flow| flow.src == fabric.hosts()[0]).collect();
        let one = Workload { flows: one, description: String::new(), notes: Vec::new(), jobs: Vec::new() };
        let bursty = dispersion(&times_s(&one), 10.0, 500);
        assert!(bursty > 1.5, "{text}: {bursty}");
    }
}

#[test]
fn on_off_loads_are_exact_for_short_runs_too() {
    // Each run has one or two periods, so only the mean over many runs is meaningful. If a process began with its ON
    // period, or with its gaps in phase, the load would be wrong by a third or more.
    let fabric = even(4, 16);
    let spec = TrafficSpec::parse("on-off:sizes=hadoop,load=0.4,on=100ms").unwrap();
    let flows = |seed| spec.generate(&fabric, Nanos::from_millis(20), seed, None).unwrap().flows.len();
    let runs = 100;
    let mean = (0..runs).map(flows).sum::<usize>() as f64 / runs as f64;
    let expected = 0.4 * 64e9 / 8.0 / SizeTable::published("hadoop").unwrap().mean_bytes() * 0.02;
    assert!((mean / expected - 1.0).abs() < 0.05, "{mean} {expected}");
}

#[test]
fn random_streams_are_independent() {
    let fabric = even(4, 4);
    for kind in ["web-search", "on-off"] {
        let short = generate(&format!("{kind}:load=0.4"), &fabric, 2.0);
        assert_eq!(short, generate(&format!("{kind}:load=0.4"), &fabric, 2.0));
        let long = generate(&format!("{kind}:load=0.4"), &fabric, 4.0);
        assert_eq!(short.flows[..], long.flows[..short.flows.len()], "{kind}");
    }
    let low = generate("web-search:load=0.4", &fabric, 2.0);
    let high = generate("web-search:load=0.8", &fabric, 2.0);
    let far = generate("web-search:load=0.4,pattern=inter-leaf,scale=2", &fabric, 4.0);
    for ((low, high), far) in low.flows.iter().zip(&high.flows).zip(&far.flows) {
        assert_eq!((low.src, low.dst, low.size_bytes), (high.src, high.dst, high.size_bytes));
        assert_eq!(low.src, far.src);
        let size = |flow: &FlowSpec| flow.size_bytes.unwrap() as f64;
        assert!((size(far) / size(low) - 2.0).abs() < 0.6, "{low:?} {far:?}");
    }
    let spec = TrafficSpec::parse("web-search").unwrap();
    let other_seed = spec.generate(&fabric, Nanos::from_secs(2), 2, None).unwrap();
    assert_ne!(low.flows[0], other_seed.flows[0]);
}

#[test]
fn scale_and_cut_change_sizes_and_keep_the_load() {
    let fabric = even(4, 4);
    let cut = generate("web-search:load=0.4,max_size=1MB", &fabric, 4.0);
    assert!(cut.flows.iter().all(|flow| flow.size_bytes <= Some(1_000_000)));
    assert!(cut.flows.iter().any(|flow| flow.size_bytes == Some(1_000_000)));
    let tenth = generate("web-search:load=0.4,scale=0.1", &fabric, 4.0);
    for workload in [cut, tenth] {
        let load = payload(&workload) * 8.0 / 16e9 / 4.0;
        assert!((load - 0.4).abs() < 0.02, "{load}: {}", workload.description);
    }
    // Most data-mining flows would be smaller than a byte.
    let bytes = generate("data-mining:load=0.01,scale=0.001,max_size=100B", &fabric, 0.02);
    assert!(bytes.flows.iter().all(|flow| (1..=100).contains(&flow.size_bytes.unwrap())));
    let load = payload(&bytes) * 8.0 / 16e9 / 0.02;
    assert!((load - 0.01).abs() < 0.001, "{load}: {}", bytes.description);
}

#[test]
fn a_users_table_is_used() {
    let fabric = even(2, 2);
    let text = "bytes,cdf\n1000,0.5\n1000,0.5\n3000,1\n";
    let workload = try_generate("sizes/mine.CSV:load=0.2", &fabric, 1.0, Some(text)).unwrap();
    assert!(workload.flows.iter().all(|flow| (1000..=3000).contains(&flow.size_bytes.unwrap())));
    assert!(workload.description.contains("sizes/mine.CSV, mean 1.5 KB"), "{}", workload.description);
    let on_off = try_generate("on-off:sizes=mine.csv,load=0.2", &fabric, 0.1, Some(text)).unwrap();
    assert!(on_off.flows.iter().all(|flow| (1000..=3000).contains(&flow.size_bytes.unwrap())));
}

#[test]
fn descriptions_say_what_was_generated() {
    let fabric = even(4, 4);
    let workload = generate("web-search:load=0.4", &fabric, 1.0);
    let description = &workload.description;
    for part in ["HPCC", "mean 1.711 MB", "467.", "flows/s at load 0.4", "random other host", "16 hosts of 1 Gbps"] {
        assert!(description.contains(part), "{part}: {description}");
    }
    let on_off = generate("on-off:load=0.4", &fabric, 1.0);
    assert!(on_off.description.contains("ON periods (mean 85.5"), "{}", on_off.description);
    assert!(on_off.notes.iter().any(|note| note.contains("publish no parameters")));
}

#[test]
fn a_seed_gives_the_same_flows_on_every_machine() {
    let fabric = even(4, 4);
    let first = |text: &str| {
        let workload = generate(text, &fabric, 1.0);
        let flow = |flow: &FlowSpec| (flow.start.clone(), pair(flow, &fabric), flow.size_bytes.unwrap());
        workload.flows[..2].iter().map(flow).collect::<Vec<_>>()
    };
    let at = |ns| Start::At(Nanos(ns));
    assert_eq!(first("web-search:load=0.4"), [(at(7_848_180), (15, 7), 1_990_405), (at(8_138_393), (7, 5), 182_404)]);
    assert_eq!(first("on-off:load=0.4"), [(at(181_742), (8, 2), 57_995), (at(485_405), (12, 13), 1_685_426)]);
}

#[test]
fn access_links_without_a_rate_are_refused() {
    let mut builder = FabricBuilder::new("dead");
    let tor = builder.switch("s", Tier::Tor, None);
    for rate_bps in [1_000_000, 0] {
        let host = builder.host(format!("h{rate_bps}"), None);
        builder.cable(host, tor, LinkSettings { rate_bps, delay_ps: 0, buffer_packets: 9 });
    }
    let fabric = builder.build().unwrap();
    for text in ["web-search", "on-off", "long-lived"] {
        assert!(message(text, &fabric, 1.0, None).contains("the access link of host h0 has rate 0"));
    }
}
