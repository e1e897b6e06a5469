//! Measures water-filling, demand estimation and placement at the size of a k=48 FatTree (27,648 hosts):
//! `cargo run --release -p pathloom-allocation --example scale`

use pathloom_allocation::placement::{
    anneal, first_fit, AnnealedFlow, AnnealingSettings, Destination, Paths, Placed, Request,
};
use pathloom_allocation::{max_min, natural_demand, FlowSet, HostPair};
use rand::RngExt;
use rand_pcg::Pcg64;
use std::time::Instant;

const HALF: u32 = 24;
const PODS: u32 = 2 * HALF;
const TORS: u32 = PODS * HALF;
const HOSTS: u32 = TORS * HALF;
const TIER: u32 = TORS * HALF;
const NIC_BPS: u64 = 1_000_000_000;

/// The paths of a FatTree, computed. Links: ToR up, aggregation up, aggregation down, ToR down, `TIER` of each.
struct FatTree;

impl Paths for FatTree {
    fn count(&self, pair: u32) -> u64 {
        let (from, to) = (pair / TORS, pair % TORS);
        u64::from(if from / HALF == to / HALF { HALF } else { HALF * HALF })
    }

    fn links(&self, pair: u32, index: u64, links: &mut Vec<u32>) {
        let (from, to, index) = (pair / TORS, pair % TORS, index as u32);
        if from / HALF == to / HALF {
            links.extend([from * HALF + index, 3 * TIER + to * HALF + index]);
            return;
        }
        let (aggregation, core) = (index / HALF, index % HALF);
        links.extend([
            from * HALF + aggregation,
            TIER + (from / HALF * HALF + aggregation) * HALF + core,
            2 * TIER + (to / HALF * HALF + aggregation) * HALF + core,
            3 * TIER + to * HALF + aggregation,
        ]);
    }
}

fn main() {
    let mut rng = Pcg64::new(1, 1);
    let pairs: Vec<HostPair> = (0..100_000)
        .map(|_| HostPair { src: rng.random_range(0..HOSTS), dst: rng.random_range(0..HOSTS), flows: 1 })
        .filter(|pair| pair.src / HALF != pair.dst / HALF)
        .collect();
    println!("{} flows between {HOSTS} hosts", pairs.len());

    let nics = vec![NIC_BPS as f64; HOSTS as usize];
    let start = Instant::now();
    let natural = natural_demand(&nics, &nics, &pairs);
    println!("natural_demand {:?}: {} passes, {} operations", start.elapsed(), natural.passes, natural.operations);

    let capacity_bps = vec![NIC_BPS; 4 * TIER as usize];
    let pair_of = |pair: &HostPair| pair.src / HALF * TORS + pair.dst / HALF;
    let demand_bps = |index: usize| natural.demands[index] as u64;
    let requests: Vec<Request> = (pairs.iter().enumerate())
        .map(|(index, pair)| Request { pair: pair_of(pair), demand_bps: demand_bps(index), present: None })
        .collect();
    let start = Instant::now();
    let fit = first_fit(&capacity_bps, &requests, &FatTree);
    let nowhere = fit.placed.iter().filter(|placed| **placed == Placed::Nowhere).count();
    println!("first_fit {:?}: {} operations, {nowhere} flows without a fitting path", start.elapsed(), fit.operations);

    let destinations: Vec<Destination> =
        (0..HOSTS).map(|host| Destination { slot: host % (HALF * HALF), group: host / HALF / HALF }).collect();
    let flows: Vec<AnnealedFlow> = (pairs.iter().enumerate())
        .map(|(index, pair)| AnnealedFlow { destination: pair.dst, pair: pair_of(pair), demand_bps: demand_bps(index) })
        .collect();
    let settings = AnnealingSettings { iterations: 100_000, cooling: 1000.0, unit_bps: NIC_BPS };
    let start = Instant::now();
    let cold = anneal(&capacity_bps, &destinations, &flows, &FatTree, &settings, &mut rng);
    println!(
        "anneal {:?}: {} operations, energy {} NICs",
        start.elapsed(),
        cold.operations,
        cold.energy_bps / u128::from(NIC_BPS)
    );

    let mut routed = FlowSet::new();
    for (pair, placed) in pairs.iter().zip(&fit.placed) {
        let index =
            if let Placed::Path(index) = placed { *index } else { u64::from(pair.src) % FatTree.count(pair_of(pair)) };
        let mut links = vec![4 * TIER + pair.src, 4 * TIER + HOSTS + pair.dst];
        FatTree.links(pair_of(pair), index, &mut links);
        routed.push(&links);
    }
    let capacity = vec![NIC_BPS as f64; (4 * TIER + 2 * HOSTS) as usize];
    let start = Instant::now();
    let allocation = max_min(&capacity, &routed);
    let total = allocation.map(|allocation| allocation.rates.iter().sum::<f64>());
    println!("max_min {:?}: {:.1} Tbit/s in total", start.elapsed(), total.unwrap_or(f64::NAN) / 1e12);
}
