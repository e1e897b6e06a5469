//! The primal side: the paths of each commodity, the traffic on each, and how traffic moves from long paths to short
//! ones. Commodities are merged ones here ([`super::MergedCommodity`]).

use super::{Problem, Share, Split, FIRST_PATHS, ROUGH_POWER};
use crate::routes::RoutesTo;

/// Maximum number of moves between two paths of one commodity in one sweep.
const MOVES: u32 = 24;
/// Lengths of a commodity's paths count as equal if their relative difference is less.
const EQUAL: f64 = 0.005;
/// The same in the first rounds.
const ROUGHLY_EQUAL: f64 = 0.05;
/// Number of halvings in the search for the amount to move, after doublings have found its order of magnitude.
const HALVINGS: u32 = 9;
/// A path is added to a commodity if all its other paths are longer by this share.
const SHORTER: f64 = 0.02;

/// The paths of one commodity.
#[derive(Clone, Debug)]
struct Bundle {
    /// Links of all paths, concatenated.
    links: Vec<u32>,
    /// End of each path in `links`.
    ends: Vec<u32>,
    /// Traffic on each path.
    flow: Vec<f64>,
}

impl Bundle {
    fn path(&self, index: usize) -> &[u32] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        &self.links[start..self.ends[index] as usize]
    }

    fn push(&mut self, path: &[u32], flow: f64) {
        self.links.extend_from_slice(path);
        self.ends.push(self.links.len() as u32);
        self.flow.push(flow);
    }
}

/// All bundles, the loads that they cause, and the lengths that follow from the loads.
pub(super) struct Bundles {
    bundles: Vec<Bundle>,
    load: Vec<f64>,
    /// 1 / capacity.
    inverse: Vec<f64>,
    length: Vec<f64>,
    /// 1 / (load over capacity of the fullest link), from the last computation of all lengths.
    scale: f64,
    power: u32,
}

impl Bundles {
    /// Lists shortest paths and spreads every demand evenly over them.
    pub(super) fn new(problem: &mut Problem<'_>) -> Bundles {
        let mut bundles = Vec::with_capacity(problem.merged.len());
        let mut load = vec![0.0; problem.capacity.len()];
        for (dst, range) in problem.by_destination() {
            let Some(routes) = problem.routes.to(dst) else { continue };
            for commodity in &problem.merged[range] {
                let mut bundle = Bundle { links: Vec::new(), ends: Vec::new(), flow: Vec::new() };
                list(routes, commodity.src, dst, &mut Vec::new(), &mut bundle);
                let flow = commodity.demand / bundle.ends.len() as f64;
                bundle.flow = vec![flow; bundle.ends.len()];
                bundle.links.iter().for_each(|&link| load[link as usize] += flow);
                bundles.push(bundle);
            }
        }
        problem.operations += bundles.iter().map(|bundle| bundle.links.len() as u64).sum::<u64>();
        let inverse: Vec<f64> =
            problem.capacity.iter().map(|&capacity| if capacity > 0.0 { 1.0 / capacity } else { 0.0 }).collect();
        let length = vec![0.0; load.len()];
        Bundles { bundles, load, inverse, length, scale: 1.0, power: 0 }
    }

    /// λ of the present split.
    pub(super) fn lambda(&self) -> f64 {
        1.0 / self.load.iter().zip(&self.inverse).map(|(load, inverse)| load * inverse).fold(0.0, f64::max)
    }

    /// The length l(e) of each link.
    pub(super) fn lengths(&self) -> &[f64] {
        &self.length
    }

    /// The bound that the present lengths would prove if all traffic were on shortest paths: Σ c·l / Σ f·l.
    pub(super) fn bound_if_shortest(&self) -> f64 {
        let links = self.length.iter().zip(&self.inverse).filter(|(_, &inverse)| inverse > 0.0);
        let whole: f64 = links.map(|(length, inverse)| length / inverse).sum();
        whole / self.load.iter().zip(&self.length).map(|(load, length)| load * length).sum::<f64>()
    }

    /// Computes all loads and lengths again, with q = 2^power.
    pub(super) fn sharpen(&mut self, power: u32) {
        self.load.fill(0.0);
        for bundle in &self.bundles {
            for (index, &flow) in bundle.flow.iter().enumerate().filter(|(_, &flow)| flow > 0.0) {
                bundle.path(index).iter().for_each(|&link| self.load[link as usize] += flow);
            }
        }
        self.scale = self.lambda();
        self.power = power;
        for link in 0..self.length.len() {
            self.length[link] = self.length_at(link, self.load[link]);
        }
    }

    /// The length l(e) of a link at a load.
    fn length_at(&self, link: usize, load: f64) -> f64 {
        let mut share = load.max(0.0) * self.inverse[link] * self.scale;
        for _ in 0..self.power {
            share *= share;
        }
        share * self.inverse[link]
    }

    /// Puts a commodity on these paths in these shares, in place of those that it has.
    pub(super) fn replace(&mut self, commodity: usize, demand: f64, shares: &[Share]) {
        let mut bundle = Bundle { links: Vec::new(), ends: Vec::new(), flow: Vec::new() };
        shares.iter().for_each(|(path, share)| bundle.push(path, share * demand));
        self.bundles[commodity] = bundle;
    }

    /// Moves traffic of each of `these` commodities once. Returns the number of links examined.
    pub(super) fn sweep(&mut self, these: impl Fn(usize) -> bool) -> u64 {
        let mut operations = 0;
        for index in (0..self.bundles.len()).filter(|&index| these(index)) {
            let mut bundle = std::mem::replace(
                &mut self.bundles[index],
                Bundle { links: Vec::new(), ends: Vec::new(), flow: Vec::new() },
            );
            for _ in 0..MOVES {
                operations += bundle.links.len() as u64;
                if !self.shift(&mut bundle) {
                    break;
                }
            }
            self.bundles[index] = bundle;
        }
        operations
    }

    /// Moves traffic of one commodity from its longest path in use to its shortest, until they are equally long.
    /// Returns whether there was anything to move.
    fn shift(&mut self, bundle: &mut Bundle) -> bool {
        let (mut long, mut short) = ((0, -1.0), (0, f64::INFINITY));
        let mut start = 0;
        for (index, &end) in bundle.ends.iter().enumerate() {
            let length: f64 = bundle.links[start..end as usize].iter().map(|&link| self.length[link as usize]).sum();
            start = end as usize;
            if length > long.1 && bundle.flow[index] > 0.0 {
                long = (index, length);
            }
            if length < short.1 {
                short = (index, length);
            }
        }
        let equal = if self.power < ROUGH_POWER { ROUGHLY_EQUAL } else { EQUAL };
        if long.1 <= short.1 * (1.0 + equal) {
            return false;
        }
        let (from, to) = (bundle.path(long.0), bundle.path(short.0));
        let flow = self.step(from, to, bundle.flow[long.0]);
        for (path, flow) in [(from, -flow), (to, flow)] {
            for &link in path {
                self.load[link as usize] += flow;
                self.length[link as usize] = self.length_at(link as usize, self.load[link as usize]);
            }
        }
        bundle.flow[long.0] -= flow;
        bundle.flow[short.0] += flow;
        true
    }

    /// How much of `most` must move from one path to another to make them equally long. The length of a path is
    /// nearly that of its fullest link. So the amount that makes these links equally full is a good answer, unless it
    /// is too small. Then the answer is found by bisection, because lengths are far from linear.
    fn step(&self, from: &[u32], to: &[u32], most: f64) -> f64 {
        let fullest = |path: &[u32], other: &[u32]| {
            let own = path.iter().filter(|link| !other.contains(link)).map(|&link| link as usize);
            let shares = own.map(|link| (self.load[link] * self.inverse[link], self.inverse[link]));
            shares.fold((0.0, 0.0), |most: (f64, f64), share| if share.0 > most.0 { share } else { most })
        };
        let ((full, inverse), (room, other_inverse)) = (fullest(from, to), fullest(to, from));
        let flow = (full - room) / (inverse + if other_inverse > 0.0 { other_inverse } else { inverse });
        if (full - room) * f64::from(1u32 << self.power) > full {
            return flow.min(most);
        }
        let own = |path: &[u32], other: &[u32], flow: f64| -> f64 {
            let own = path.iter().filter(|link| !other.contains(link));
            own.map(|&link| self.length_at(link as usize, self.load[link as usize] + flow)).sum()
        };
        let longer = |flow: f64| own(from, to, -flow) >= own(to, from, flow);
        // If its load changes by this amount, the length of a link changes by about a factor of e.
        let (mut low, mut high) = (0.0, full / inverse / f64::from(1u32 << self.power));
        while high < most && longer(high) {
            (low, high) = (high, 2.0 * high);
        }
        if high >= most {
            if longer(most) {
                return most;
            }
            high = most;
        }
        for _ in 0..HALVINGS {
            let middle = 0.5 * (low + high);
            if longer(middle) {
                low = middle;
            } else {
                high = middle;
            }
        }
        0.5 * (low + high)
    }

    /// Adds a path of this length to a commodity if all paths of the commodity are much longer.
    pub(super) fn offer(&mut self, commodity: usize, length: f64, lengths: &[f64], path: impl FnOnce() -> Vec<u32>) {
        let bundle = &mut self.bundles[commodity];
        let of = |index: usize| bundle.path(index).iter().map(|&link| lengths[link as usize]).sum::<f64>();
        if (0..bundle.ends.len()).all(|index| of(index) > length * (1.0 + SHORTER)) {
            bundle.push(&path(), 0.0);
        }
    }

    /// The present traffic on every path.
    pub(super) fn shares(&self) -> Vec<Vec<f64>> {
        self.bundles.iter().map(|bundle| bundle.flow.clone()).collect()
    }

    /// The split in which paths carry `flows`, and the loads that it causes.
    pub(super) fn finish(mut self, problem: &Problem<'_>, flows: Vec<Vec<f64>>) -> (Split, Vec<f64>) {
        for (bundle, flow) in self.bundles.iter_mut().zip(flows) {
            // Paths that were added since then carry nothing.
            bundle.flow.fill(0.0);
            bundle.flow[..flow.len()].copy_from_slice(&flow);
        }
        self.sharpen(self.power);
        let share = |commodity: u32| {
            let bundle = &self.bundles[commodity as usize];
            let demand: f64 = bundle.flow.iter().sum();
            let used = bundle.flow.iter().enumerate().filter(|(_, &flow)| flow > 0.0);
            used.map(|(index, flow)| (bundle.path(index).into(), flow / demand)).collect()
        };
        let paths = problem.merged_of.iter().map(|commodity| commodity.map_or_else(Vec::new, share)).collect();
        (Split::Paths(paths), self.load)
    }
}

/// Lists the first [`FIRST_PATHS`] shortest paths, in the order of their links.
fn list(routes: RoutesTo<'_>, node: u32, dst: u32, path: &mut Vec<u32>, bundle: &mut Bundle) {
    if node == dst {
        bundle.links.extend_from_slice(path);
        bundle.ends.push(bundle.links.len() as u32);
        return;
    }
    for hop in routes.at(node) {
        if bundle.ends.len() >= FIRST_PATHS {
            return;
        }
        path.push(hop.link);
        list(routes, hop.node, dst, path, bundle);
        path.pop();
    }
}
