//! Shares of paths that are kept from one allocation to the next, so that only what changed is solved again (OFPT
//! Algorithm 3, line 1), and how whole flows are rounded onto them.

use super::bundles::Bundles;
use super::{good, Bound, Commodity, Fractional, FractionalError, Problem, Split};
use crate::Network;
use std::collections::BTreeMap;

/// The links of a path, and the share of a demand on it.
pub type Share = (Box<[u32]>, f64);

/// By source and destination node, the paths between them and the share of the demand on each. The shares of a pair sum
/// to 1.
pub type Shares = BTreeMap<(u32, u32), Vec<Share>>;

/// An allocation.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Allocated {
    /// The shares of every pair that has a demand and a path.
    pub shares: Shares,
    /// λ that the shares reach ([`Fractional::lambda`]).
    pub lambda: f64,
    /// Upper bound of λ for any routing.
    pub bound: f64,
    /// Whether the shares of the pairs that had some before had to change.
    pub all_solved: bool,
    /// Number of links examined.
    pub operations: u64,
}

/// Computes the maximum concurrent flow of `demands_bps`, from the shares `before`. First only pairs without shares are
/// solved, and pairs that lost a path. All others are solved again only if the result is more than ε/5 below its bound.
/// So the result is as good as that of [`super::fractional`]. Pairs without a path get no shares.
///
/// # Errors
/// As [`super::fractional`]; the index in an error is that of the demand, in ascending order of pairs.
pub fn allocate(
    network: &Network,
    demands_bps: &BTreeMap<(u32, u32), f64>,
    before: &Shares,
    epsilon: f64,
) -> Result<Allocated, FractionalError> {
    let mut pairs: Vec<((u32, u32), f64)> = demands_bps.iter().map(|(&pair, &demand_bps)| (pair, demand_bps)).collect();
    pairs.retain(|&((src, dst), _)| src != dst);
    let mut commodities: Vec<Commodity> =
        pairs.iter().map(|&((src, dst), demand_bps)| Commodity { src, dst, demand_bps }).collect();
    super::check(&commodities, epsilon)?;
    let mut problem = Problem::new(network, &commodities);
    if !problem.cut_off.is_empty() {
        let is_cut_off = |index: usize| problem.cut_off.binary_search(&index).is_ok();
        commodities = (0..commodities.len()).filter(|&at| !is_cut_off(at)).map(|at| commodities[at]).collect();
        problem = Problem::new(network, &commodities);
    }
    if problem.merged.is_empty() {
        return Ok(Allocated { lambda: f64::INFINITY, bound: f64::INFINITY, ..Allocated::default() });
    }
    let known: Vec<Option<&[Share]>> =
        commodities.iter().map(|commodity| usable(network, before.get(&(commodity.src, commodity.dst))?)).collect();
    let (found, all_solved) = match known.iter().any(Option::is_some) {
        true => problem.resume(&known, epsilon),
        false => (problem.solve(epsilon), true),
    };
    let Fractional { lambda, bound, split, operations, .. } = found;
    let paths = match split {
        Split::Paths(paths) => paths,
        Split::Even => super::even::paths(network, &commodities),
    };
    let mut shares: Shares = commodities.iter().map(|of| (of.src, of.dst)).zip(paths).collect();
    if !all_solved {
        // Those that stand are returned as they were, without rounding errors.
        for (of, _) in commodities.iter().zip(&known).filter(|(_, known)| known.is_some()) {
            let pair = (of.src, of.dst);
            shares.insert(pair, before[&pair].clone());
        }
    }
    Ok(Allocated { shares, lambda, bound, all_solved, operations })
}

/// Earlier shares; `None` if a link of one of the paths is down.
fn usable<'a>(network: &Network, shares: &'a [Share]) -> Option<&'a [Share]> {
    let is_up = |links: &[u32]| links.iter().all(|&link| network.capacity_bps(link) > 0);
    (!shares.is_empty() && shares.iter().all(|(links, _)| is_up(links))).then_some(shares)
}

impl Problem<'_> {
    /// As [`Problem::solve`], from the shares of some commodities. Returns also whether all were solved again.
    fn resume(mut self, known: &[Option<&[Share]>], epsilon: f64) -> (Fractional, bool) {
        let mut bundles = Bundles::new(&mut self);
        let mut is_new = vec![true; self.merged.len()];
        for (index, shares) in known.iter().enumerate() {
            if let (Some(shares), Some(merged)) = (shares, self.merged_of[index]) {
                bundles.replace(merged as usize, self.merged[merged as usize].demand, shares);
                is_new[merged as usize] = false;
            }
        }
        let mut bound = Bound::new(self.network.node_count());
        let mut least_bound = f64::INFINITY;
        for power in super::FIRST_POWER..=super::LAST_POWER {
            bundles.sharpen(power);
            self.operations += bundles.sweep(|index| is_new[index]);
            bundles.sharpen(power);
            if power < super::ROUGH_POWER {
                continue;
            }
            let lengths = bundles.lengths().to_vec();
            least_bound = least_bound.min(bound.find(&mut self, &lengths, None));
            if good(bundles.lambda(), least_bound, epsilon) {
                let (lambda, shares) = (bundles.lambda(), bundles.shares());
                let (split, load) = bundles.finish(&self, shares);
                return (self.finish(lambda, least_bound, load, split, 0), false);
            }
        }
        (self.balance(bundles, bound, least_bound, epsilon), true)
    }
}

/// The path at a point of the shares laid end to end, 0 ≤ `point` < 1: a point drawn evenly takes each path with the
/// probability of its share (randomised rounding, Raghavan and Thompson 1987). A flow that keeps its point keeps its
/// path while the shares stay the same. `None` without paths.
pub fn drawn(paths: &[Share], point: f64) -> Option<usize> {
    let mut end = 0.0;
    let at = paths.iter().position(|(_, share)| {
        end += share;
        point < end
    });
    // The sum of shares may be slightly below 1.
    at.or_else(|| paths.iter().rposition(|(_, share)| *share > 0.0))
}

/// A flow that takes one path of its pair.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Whole {
    /// Index of its pair.
    pub pair: usize,
    /// Its demand in b/s.
    pub demand_bps: f64,
    /// Index of the path that it is on.
    pub present: Option<usize>,
}

/// Puts flows onto paths of their pairs, in the order given. A flow takes a path whose share of the pair's demand is not
/// used up, so that no path gets more than its share plus one flow. Of these it takes the one with the most bandwidth
/// left on its tightest link; it stays where it is if no other path has more. A flow that comes later counts on its
/// present path; without one, with its shares. `None` for flows whose pair has no paths.
pub fn filled(network: &Network, pairs: &[&[Share]], flows: &[Whole]) -> Vec<Option<usize>> {
    let mut room: Vec<f64> = network.links().iter().map(|link| link.capacity_bps as f64).collect();
    let mut quota: Vec<Vec<f64>> = pairs.iter().map(|paths| vec![0.0; paths.len()]).collect();
    for flow in flows {
        (pairs[flow.pair].iter().zip(&mut quota[flow.pair]))
            .for_each(|((_, share), left)| *left += share * flow.demand_bps);
        expect(&mut room, pairs[flow.pair], flow, -1.0);
    }
    let mut choose = |flow: &Whole| {
        let (paths, quota) = (pairs[flow.pair], &mut quota[flow.pair]);
        expect(&mut room, paths, flow, 1.0);
        let tightest = |at: usize| paths[at].0.iter().map(|&link| room[link as usize]).fold(f64::INFINITY, f64::min);
        let free = |&at: &usize| quota[at] > 0.0;
        // Of equal ones, the first.
        let best = (0..paths.len()).rev().filter(free).max_by(|&a, &b| tightest(a).total_cmp(&tightest(b)));
        // Quotas of a pair sum to the demands of the flows that are left, so one is above 0 but for rounding errors.
        let best = best.or_else(|| (0..paths.len()).rev().max_by(|&a, &b| quota[a].total_cmp(&quota[b])))?;
        let stays = |at: &usize| free(at) && tightest(*at) + EQUAL * flow.demand_bps >= tightest(best);
        let chosen = flow.present.filter(|&at| at < paths.len()).filter(stays).unwrap_or(best);
        quota[chosen] -= flow.demand_bps;
        paths[chosen].0.iter().for_each(|&link| room[link as usize] -= flow.demand_bps);
        Some(chosen)
    };
    flows.iter().map(&mut choose).collect()
}

/// A smaller difference between paths, as a share of a flow's demand, is a rounding error.
const EQUAL: f64 = 1e-6;

/// Adds `sign` times the demand of a flow to the links of its present path, or else to those of all paths by share.
fn expect(room: &mut [f64], paths: &[Share], flow: &Whole, sign: f64) {
    let mut add = |path: &[u32], bps: f64| path.iter().for_each(|&link| room[link as usize] += sign * bps);
    match flow.present.and_then(|at| paths.get(at)) {
        Some((path, _)) => add(path, flow.demand_bps),
        None => paths.iter().for_each(|(path, share)| add(path, share * flow.demand_bps)),
    }
}
