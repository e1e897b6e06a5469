//! Measures the time of the maximum concurrent flow on FatTrees: `cargo run --release -p pathloom-allocation --example
//! fractional`

#[path = "../tests/common/mod.rs"]
mod common;

use common::FatTree;
use pathloom_allocation::fractional::{fractional, Commodity};
use pathloom_allocation::Network;
use rand::RngExt;
use rand_pcg::Pcg64;
use std::time::Instant;

fn main() {
    for k in [4, 8, 16] {
        let tree = FatTree::new(k, 1_000_000_000);
        for share in [0.0, 0.05] {
            for four in [false, true] {
                for seed in 0..3 {
                    let mut rng = Pcg64::new(seed, 5);
                    let mut links = tree.links();
                    for cable in tree.failures(share, &mut rng) {
                        links[cable as usize].capacity_bps = 0;
                        links[cable as usize + 1].capacity_bps = 0;
                    }
                    let pairs = if four {
                        (0..4 * tree.hosts()).map(|i| (i / 4, rng.random_range(0..tree.hosts()))).collect()
                    } else {
                        tree.permutation(&mut rng)
                    };
                    let demand_bps = if four { 2.5e8 } else { 1e9 };
                    let commodities: Vec<Commodity> = (pairs.iter())
                        .map(|&(src, dst)| Commodity { src: tree.tor_of(src), dst: tree.tor_of(dst), demand_bps })
                        .collect();
                    let network = Network::new(links);
                    let mut times = Vec::new();
                    for _ in 0..5 {
                        let start = Instant::now();
                        fractional(&network, &commodities, 0.05).expect("good demands");
                        times.push(start.elapsed());
                    }
                    times.sort_unstable();
                    let found = fractional(&network, &commodities, 0.05).expect("good demands");
                    println!(
                        "k={k} fail={share} {}: {:?}, λ {:.4}, bound {:.4}, {:.4}, {} rounds, {} operations",
                        if four { "4-way" } else { "permutation" },
                        times[0],
                        found.lambda,
                        found.bound,
                        found.lambda / found.bound,
                        found.rounds,
                        found.operations
                    );
                }
            }
        }
    }
}
