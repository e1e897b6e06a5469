//! Measures updates of max-min rates on a FatTree: flows over random shortest paths come and go, each change followed by
//! an update.
//!
//! `cargo run --release -p pathloom-allocation --example incremental -- K FLOWS_PER_HOST CHANGES TOLERANCE_PPM`

use pathloom_allocation::incremental::{IncrementalMaxMin, LinkUse};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::time::Instant;

/// Directed links of a FatTree of `k` ports per switch: up and down between hosts and edges, edges and aggregation
/// switches, aggregation and core switches.
struct FatTree {
    half: u32,
}

impl FatTree {
    fn hosts(&self) -> u32 {
        2 * self.half * self.half * self.half
    }

    /// A shortest path between two hosts over random switches. Each of the three layers has as many cables as there
    /// are hosts.
    fn path(&self, src: u32, dst: u32, rng: &mut Pcg64) -> Vec<LinkUse> {
        let (half, hosts) = (self.half, self.hosts());
        let [edges, pods] = [[src, dst].map(|host| host / half), [src, dst].map(|host| host / (half * half))];
        let [up, down] = [0, 3 * hosts];
        let [aggregation, core] = [(); 2].map(|()| rng.random_range(0..half));
        let mut links = vec![up + src, down + dst];
        if edges[0] != edges[1] {
            links.extend([up + hosts + edges[0] * half + aggregation, down + hosts + edges[1] * half + aggregation]);
        }
        if pods[0] != pods[1] {
            let cable = |pod: u32| 2 * hosts + (pod * half + aggregation) * half + core;
            links.extend([up + cable(pods[0]), down + cable(pods[1])]);
        }
        links.into_iter().map(|link| LinkUse { link, share: 1.0 }).collect()
    }
}

fn main() {
    let mut words = std::env::args().skip(1).map(|word| word.parse::<u32>().expect("whole numbers"));
    let mut next = |usual| words.next().unwrap_or(usual);
    let (k, per_host, changes, tolerance_ppm) = (next(32), next(2), next(100_000), next(0));
    let (tree, mut rng) = (FatTree { half: k / 2 }, Pcg64::seed_from_u64(1));
    let hosts = tree.hosts();
    let mut network = IncrementalMaxMin::new(&vec![10e9; 6 * hosts as usize]).expect("finite capacities");
    network = network.with_tolerance(f64::from(tolerance_ppm) / 1e6);
    let mut flows = Vec::new();
    let add = |network: &mut IncrementalMaxMin, rng: &mut Pcg64, src: u32| {
        let dst = (src + rng.random_range(1..hosts)) % hosts;
        let path = tree.path(src, dst, rng);
        network.add(&path, f64::INFINITY, 1.0).expect("links of the tree")
    };
    for host in (0..per_host).flat_map(|_| 0..hosts) {
        flows.push(add(&mut network, &mut rng, host));
    }
    let began = Instant::now();
    network.update();
    println!("k={k}, {} flows: all rates in {:.1} ms", flows.len(), began.elapsed().as_secs_f64() * 1e3);
    let (began, mut changed) = (Instant::now(), 0);
    for _ in 0..changes / 2 {
        let place = rng.random_range(0..flows.len());
        network.remove(flows[place]);
        changed += network.update().len();
        let src = rng.random_range(0..hosts);
        flows[place] = add(&mut network, &mut rng, src);
        changed += network.update().len();
    }
    let took = began.elapsed().as_secs_f64();
    println!(
        "{changes} changes in {took:.2} s: {:.0} per second, {:.1} rates changed by each",
        f64::from(changes) / took,
        f64::from(changed as u32) / f64::from(changes)
    );
}
