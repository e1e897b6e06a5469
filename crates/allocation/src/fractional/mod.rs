//! Maximum concurrent flow: the greatest λ such that λ times every demand fits at once, split over any paths.
//!
//! The method uses multiplicative weights, as Garg and Könemann (SIAM J. Comput. 2007) and Fleischer (2000), after
//! Shahrokhi and Matula (1990). Capacities c(e) stay fixed. Every link has a length l(e) that grows multiplicatively
//! with its load, and traffic goes where it is shorter. Two differences make it fast. First, all demands are routed
//! at any time. Flow is *moved* from long paths to short ones, instead of being accumulated and scaled: l(e) =
//! (f(e)/c(e))^q / c(e), where q grows from round to round. Second, it stops by its own certificates. The loads give
//! the λ that is reached (the primal side). For any lengths, Σ c(e)·l(e) / Σ d·dist(l) is a bound that no routing
//! exceeds (the dual side).
//!
//! Every run begins with an even split over the next hops of shortest paths, and computes its certificates first. In
//! a healthy FatTree this split is optimal, and the links of the tightest cut prove it. Then the run ends, so the
//! symmetry of the fabric need not be detected.

mod bound;
mod bundles;
mod even;
mod shares;

use crate::routes::Routes;
use crate::Network;
use bound::Bound;
use bundles::Bundles;
pub use shares::{allocate, drawn, filled, Allocated, Share, Shares, Whole};
use std::collections::BTreeMap;

/// Number of paths listed per commodity before lengths show which others are needed.
const FIRST_PATHS: usize = 96;
/// q of the first round, as a power of two.
const FIRST_POWER: u32 = 4;
/// q, as a power of two, below which q grows whenever a bound was computed.
const ROUGH_POWER: u32 = 7;
/// q of the last rounds, as a power of two. Beyond it, the lengths of all but the fullest links are lost in rounding.
const LAST_POWER: u32 = 10;
/// Maximum number of rounds.
const MAX_ROUNDS: u32 = 400;
/// Target gap between λ and its bound, as a share of ε.
const TARGET_GAP: f64 = 0.2;

/// Traffic from one node to another that may be split over paths.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Commodity {
    /// Source node, as in [`crate::NetworkLink::ends`].
    pub src: u32,
    /// Destination node. A commodity from a node to itself uses no links.
    pub dst: u32,
    /// Demand in b/s.
    pub demand_bps: f64,
}

/// The reason why there is no λ.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
pub enum FractionalError {
    /// A demand is not a positive finite number.
    #[error("commodity {index} asks for {demand_bps} b/s; expected a positive, finite number")]
    BadDemand {
        /// Index of the commodity.
        index: usize,
        /// Its demand.
        demand_bps: f64,
    },
    /// ε is not above 0 and below 1.
    #[error("epsilon is {0}; expected a number above 0 and below 1, such as 0.05")]
    BadEpsilon(f64),
}

/// How the traffic of the commodities is split.
#[derive(Clone, PartialEq, Debug)]
pub enum Split {
    /// Evenly over all next hops at every node, as ECMP does with many small flows.
    Even,
    /// By commodity, the paths and the share of the demand on each. The shares of a commodity sum to 1. A commodity
    /// from a node to itself has no paths.
    Paths(Vec<Vec<Share>>),
}

/// A maximum concurrent flow, with the requested accuracy.
#[derive(Clone, PartialEq, Debug)]
pub struct Fractional {
    /// λ that the split reaches: the minimum over commodities of served / demanded traffic. Infinite if nothing
    /// limits it, 0 if a commodity has no path.
    pub lambda: f64,
    /// Upper bound of λ for any routing.
    pub bound: f64,
    /// How the demands are split.
    pub split: Split,
    /// Load of each link when every commodity sends λ times its demand, in b/s. At most its capacity.
    pub load_bps: Vec<f64>,
    /// Commodities without a path.
    pub cut_off: Vec<usize>,
    /// Number of rounds in which traffic was moved; 0 if the even split was good enough.
    pub rounds: u32,
    /// Number of links examined, as a measure of the work.
    pub operations: u64,
}

/// Computes the maximum concurrent flow of these commodities. Ends as soon as λ ≥ (1 − ε/5)·bound, which is well
/// within ε, or after the maximum number of rounds; then `bound` shows how near λ came. Links of capacity 0 are down.
/// Access links are not a limit here.
pub fn fractional(network: &Network, commodities: &[Commodity], epsilon: f64) -> Result<Fractional, FractionalError> {
    check(commodities, epsilon)?;
    let problem = Problem::new(network, commodities);
    if problem.merged.is_empty() || !problem.cut_off.is_empty() {
        return Ok(problem.trivial());
    }
    Ok(problem.solve(epsilon))
}

/// Refuses demands and values of ε that have no meaning.
fn check(commodities: &[Commodity], epsilon: f64) -> Result<(), FractionalError> {
    if !(epsilon > 0.0 && epsilon < 1.0) {
        return Err(FractionalError::BadEpsilon(epsilon));
    }
    let bad = |commodity: &Commodity| !(commodity.demand_bps > 0.0 && commodity.demand_bps.is_finite());
    if let Some(index) = commodities.iter().position(bad) {
        return Err(FractionalError::BadDemand { index, demand_bps: commodities[index].demand_bps });
    }
    Ok(())
}

/// Whether λ is near enough to its bound.
fn good(lambda: f64, bound: f64, epsilon: f64) -> bool {
    lambda >= (1.0 - TARGET_GAP * epsilon) * bound
}

/// All demand between two nodes, given by node index. Demands are in units of the greatest capacity.
#[derive(Clone, Copy, PartialEq, Debug)]
struct MergedCommodity {
    src: u32,
    demand: f64,
}

/// The commodities, merged and grouped by destination, and the links. All rates are in units of the greatest
/// capacity.
struct Problem<'a> {
    network: &'a Network,
    routes: Routes,
    unit_bps: f64,
    /// Capacity of each link that paths may cross; 0 for others.
    capacity: Vec<f64>,
    /// Merged commodities in order of their destinations.
    merged: Vec<MergedCommodity>,
    /// Destinations, and the index of the first merged commodity of each. The last entry is the end of all of them.
    destinations: Vec<(u32, usize)>,
    /// Index in `merged` of each commodity.
    merged_of: Vec<Option<u32>>,
    cut_off: Vec<usize>,
    operations: u64,
}

impl<'a> Problem<'a> {
    fn new(network: &'a Network, commodities: &[Commodity]) -> Problem<'a> {
        let unit_bps = network.links().iter().map(|link| link.capacity_bps).max().unwrap_or(0).max(1) as f64;
        let share = |index: usize| {
            let link = &network.links()[index];
            link.ends.map_or(0.0, |_| link.capacity_bps as f64 / unit_bps)
        };
        let mut routes = Routes::new(network);
        let mut cut_off = Vec::new();
        let mut numbers: BTreeMap<(u32, u32), Vec<usize>> = BTreeMap::new();
        for (index, commodity) in commodities.iter().enumerate().filter(|(_, c)| c.src != c.dst) {
            match (network.node_index(commodity.src), network.node_index(commodity.dst)) {
                (Some(src), Some(dst)) => numbers.entry((dst, src)).or_default().push(index),
                _ => cut_off.push(index),
            }
        }
        let (mut merged, mut destinations, mut merged_of) = (Vec::new(), Vec::new(), vec![None; commodities.len()]);
        for ((dst, src), members) in numbers {
            routes.prepare(network, dst);
            if routes.to(dst).is_none_or(|routes| routes.hops(src).is_none()) {
                cut_off.extend(members);
                continue;
            }
            if destinations.last().is_none_or(|&(last, _)| last != dst) {
                destinations.push((dst, merged.len()));
            }
            members.iter().for_each(|&index| merged_of[index] = Some(merged.len() as u32));
            let demand_bps: f64 = members.iter().map(|&index| commodities[index].demand_bps).sum();
            merged.push(MergedCommodity { src, demand: demand_bps / unit_bps });
        }
        destinations.push((u32::MAX, merged.len()));
        cut_off.sort_unstable();
        let capacity = (0..network.links().len()).map(share).collect();
        Problem { network, routes, unit_bps, capacity, merged, destinations, merged_of, cut_off, operations: 0 }
    }

    /// The destinations, with the range of their merged commodities.
    fn by_destination(&self) -> impl Iterator<Item = (u32, std::ops::Range<usize>)> + '_ {
        self.destinations.windows(2).map(|pair| (pair[0].0, pair[0].1..pair[1].1))
    }

    /// The result if there is nothing to split, or if a commodity has no path.
    fn trivial(self) -> Fractional {
        let lambda = if self.cut_off.is_empty() { f64::INFINITY } else { 0.0 };
        Fractional {
            lambda,
            bound: lambda,
            split: Split::Even,
            load_bps: vec![0.0; self.capacity.len()],
            cut_off: self.cut_off,
            rounds: 0,
            operations: self.operations,
        }
    }

    fn solve(mut self, epsilon: f64) -> Fractional {
        let load = self.even();
        let fullest = self.fullest(&load);
        let mut bound = Bound::new(self.network.node_count());
        let lengths = self.tightest(&load, fullest);
        let least_bound = bound.find(&mut self, &lengths, None);
        if good(1.0 / fullest, least_bound, epsilon) {
            return self.finish(1.0 / fullest, least_bound, load, Split::Even, 0);
        }
        let bundles = Bundles::new(&mut self);
        self.balance(bundles, bound, least_bound, epsilon)
    }

    /// Moves traffic of all commodities, round by round, until λ is near enough to its bound.
    fn balance(mut self, mut bundles: Bundles, mut bound: Bound, mut least_bound: f64, epsilon: f64) -> Fractional {
        let (mut rounds, mut power) = (0, FIRST_POWER);
        let mut best = (0.0, Vec::new());
        loop {
            let before = bundles.lambda();
            bundles.sharpen(power);
            self.operations += bundles.sweep(|_| true);
            rounds += 1;
            let lambda = bundles.lambda();
            if lambda > best.0 {
                best = (lambda, bundles.shares());
            }
            // While rounds gain much, the bound is not needed.
            if lambda > before * (1.0 + TARGET_GAP * epsilon) && rounds % 4 != 0 {
                continue;
            }
            bundles.sharpen(power);
            let lengths = bundles.lengths().to_vec();
            let found = bound.find(&mut self, &lengths, Some(&mut bundles));
            least_bound = least_bound.min(found);
            if good(best.0, least_bound, epsilon) || rounds >= MAX_ROUNDS {
                break;
            }
            // If nearly all traffic is on shortest paths, further rounds prove little more at this q. The first
            // values of q only prepare the later ones.
            if power < ROUGH_POWER || bundles.bound_if_shortest() >= found * (1.0 - TARGET_GAP * epsilon) {
                power = (power + 1).min(LAST_POWER);
            }
        }
        let (lambda, shares) = best;
        let (split, load) = bundles.finish(&self, shares);
        self.finish(lambda, least_bound, load, split, rounds)
    }

    /// Load over capacity of the fullest link.
    fn fullest(&self, load: &[f64]) -> f64 {
        load.iter()
            .zip(&self.capacity)
            .map(|(&load, &capacity)| if load > 0.0 { load / capacity } else { 0.0 })
            .fold(0.0, f64::max)
    }

    /// Length 1 / capacity for the fullest links and 0 for others: the lengths that q = ∞ would give.
    fn tightest(&self, load: &[f64], fullest: f64) -> Vec<f64> {
        let length = |(&load, &capacity): (&f64, &f64)| {
            if load > 0.0 && load >= fullest * capacity * (1.0 - 1e-9) {
                1.0 / capacity
            } else {
                0.0
            }
        };
        load.iter().zip(&self.capacity).map(length).collect()
    }

    fn finish(self, lambda: f64, bound: f64, load: Vec<f64>, split: Split, rounds: u32) -> Fractional {
        Fractional {
            lambda,
            // Because of rounding, an optimal split may seem better than its bound.
            bound: bound.max(lambda),
            split,
            load_bps: load.into_iter().map(|load| load * lambda * self.unit_bps).collect(),
            cut_off: self.cut_off,
            rounds,
            operations: self.operations,
        }
    }
}
