//! Measures quality and speed of the stateful placer on FatTrees: `cargo run --release -p pathloom-allocation --example
//! placer`

#[path = "../tests/common/mod.rs"]
mod common;

use common::FatTree;
use pathloom_allocation::placement::{Placer, PlacerSettings};
use pathloom_allocation::{Network, NetworkLink};
use rand::RngExt;
use rand_pcg::Pcg64;
use std::time::{Duration, Instant};

const RATE_BPS: u64 = 1_000_000_000;

fn main() {
    if std::env::args().any(|argument| argument == "cost") {
        return costs();
    }
    if std::env::args().any(|argument| argument == "round") {
        return rounds();
    }
    for (k, share) in [(4, 0.0), (8, 0.0), (16, 0.0), (4, 0.05), (8, 0.05), (16, 0.05)] {
        for improve in [false, true] {
            quality(k, share, improve);
        }
    }
    [0.0, 0.05].into_iter().for_each(arrivals);
    costs();
    rounds();
}

fn costs() {
    for (k, flows) in [(4, 16), (8, 128), (8, 1000), (16, 1024), (16, 10_000), (48, 100_000)] {
        [0.0, 0.05].into_iter().for_each(|share| cost(k, share, flows));
    }
}

/// Measures rounds without and with a spare node on a cable of its own. With it, the network is not a FatTree, and
/// paths are searched as in any graph.
fn rounds() {
    for spare in [false, true] {
        [false, true].into_iter().for_each(|improve| round(improve, spare));
    }
}

/// Prints the mean max-min rate of a permutation, as a share of the NIC.
fn quality(k: u32, share: f64, improve: bool) {
    let tree = FatTree::new(k, RATE_BPS);
    let first: u64 = std::env::var("FIRST").map_or(0, |text| text.parse().expect("a number"));
    let (mut sum, mut worst, mut time) = (0.0, 1.0f64, 0.0);
    for seed in first..first + 10 {
        let mut rng = Pcg64::new(u128::from(seed), 5);
        let mut placer = Placer::new(tree.network(), PlacerSettings { improve, ..PlacerSettings::default() });
        for cable in tree.failures(share, &mut rng) {
            placer.set_link(cable, false);
            placer.set_link(cable + 1, false);
        }
        for (id, (src, dst)) in tree.permutation(&mut rng).into_iter().enumerate() {
            placer.wait(id as u64, tree.flow(src, dst)).expect("a new flow");
        }
        let start = cpu_time();
        placer.round(usize::MAX);
        time += (cpu_time() - start).as_secs_f64() / 10.0;
        let rates = placer.max_min_bps();
        let mean = rates.iter().map(|(_, rate)| rate / RATE_BPS as f64).sum::<f64>() / rates.len() as f64;
        sum += mean / 10.0;
        worst = worst.min(mean);
    }
    println!(
        "k={k} fail={share} improve={improve}: mean of 10 seeds {sum:.4}, worst {worst:.4}, round {:.3} ms",
        time * 1e3
    );
}

/// Prints the time of a round, including the creation of network and placer, and its number of operations.
fn cost(k: u32, share: f64, flows: u64) {
    let tree = FatTree::new(k, RATE_BPS);
    let mut rng = Pcg64::new(1, 5);
    let failures = tree.failures(share, &mut rng);
    let start = cpu_time();
    let mut placer = Placer::new(tree.network(), PlacerSettings::default());
    for cable in failures {
        placer.set_link(cable, false);
        placer.set_link(cable + 1, false);
    }
    let made = cpu_time();
    for id in 0..flows {
        let flow = tree.flow(rng.random_range(0..tree.hosts()), rng.random_range(0..tree.hosts()));
        placer.wait(id, flow).expect("a new flow");
    }
    let operations = placer.round(0).operations + placer.round(usize::MAX).operations;
    let rates = placer.max_min_bps().len();
    let end = cpu_time();
    println!(
        "k={k}, fail={share}, {flows} flows: {:?} to create it, {:?} for {operations} operations ({rates} rates)",
        made - start,
        end - made
    );
}

fn arrivals(share: f64) {
    let tree = FatTree::new(16, RATE_BPS);
    let mut rng = Pcg64::new(1, 5);
    let mut placer = Placer::new(tree.network(), PlacerSettings::default());
    for cable in tree.failures(share, &mut rng) {
        placer.set_link(cable, false);
        placer.set_link(cable + 1, false);
    }
    let mut arrive = |placer: &mut Placer, id: u64| {
        let flow = tree.flow(rng.random_range(0..tree.hosts()), rng.random_range(0..tree.hosts()));
        let start = Instant::now();
        placer.arrive(id, flow).expect("a new flow");
        start.elapsed()
    };
    for id in 0..10_000 {
        arrive(&mut placer, id);
    }
    placer.round(usize::MAX);
    let mut times: Vec<_> = (10_000..11_000)
        .map(|id| {
            let time = arrive(&mut placer, id);
            placer.depart(id);
            time
        })
        .collect();
    times.sort_unstable();
    println!(
        "k=16, fail={share}, 10,000 flows placed: one more takes {:?} (99th percentile {:?})",
        times[500], times[990]
    );
}

fn round(improve: bool, spare: bool) {
    let tree = FatTree::new(48, RATE_BPS);
    let mut rng = Pcg64::new(1, 5);
    let mut links = tree.links();
    if spare {
        let ends = [(0, u32::MAX), (u32::MAX, 0)];
        links.extend(ends.map(|ends| NetworkLink { ends: Some(ends), capacity_bps: RATE_BPS }));
    }
    let structure = if spare { "any graph" } else { "FatTree" };
    let mut placer = Placer::new(Network::new(links), PlacerSettings { improve, ..PlacerSettings::default() });
    for id in 0..100_000 {
        let flow = tree.flow(rng.random_range(0..tree.hosts()), rng.random_range(0..tree.hosts()));
        placer.wait(id, flow).expect("a new flow");
    }
    for what in ["on a fresh placer", "from nothing", "with all flows placed"] {
        if what == "from nothing" {
            placer.lift_all();
        }
        let start = cpu_time();
        let round = placer.round(usize::MAX);
        println!(
            "k=48, {structure}, improve={improve}, 100,000 flows {what}: a round takes {:?}, {} placed, {} moved, {} operations",
            cpu_time() - start,
            round.placed.len(),
            round.moved.len(),
            round.operations
        );
    }
    let rates: f64 = placer.max_min_bps().iter().map(|(_, rate)| rate).sum();
    let demands: u64 = (0..100_000).filter_map(|id| placer.demand_bps(id)).sum();
    println!("max-min rates are {:.4} of the demands", rates / demands as f64);
}

/// Processor time of this process.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0))
}
