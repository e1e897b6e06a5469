//! The dual side: distances under given lengths, over all paths and not only over those in use.

use super::bundles::Bundles;
use super::Problem;

/// Share by which the bound is weakened so that links of length 0 get a positive length. This prefers paths with few
/// links, and saves the search from endless gains of 0.
const FLOOR: f64 = 1e-3;

/// Buffers of the search for distances.
pub(super) struct Bound {
    distance: Vec<f64>,
    /// The next link and the next node on the shortest path.
    next: Vec<(u32, u32)>,
    queue: Vec<u32>,
    queued: Vec<bool>,
    layers: Vec<Vec<u32>>,
}

impl Bound {
    pub(super) fn new(nodes: usize) -> Bound {
        Bound {
            distance: vec![f64::INFINITY; nodes],
            next: vec![(u32::MAX, u32::MAX); nodes],
            queue: Vec::new(),
            queued: vec![false; nodes],
            layers: Vec::new(),
        }
    }

    /// The bound on λ that these lengths prove: Σ c·l / Σ d·dist(l). Paths that are much shorter than those in use
    /// are added to `bundles`.
    pub(super) fn find(&mut self, problem: &mut Problem<'_>, lengths: &[f64], bundles: Option<&mut Bundles>) -> f64 {
        let whole: f64 = lengths.iter().zip(&problem.capacity).map(|(length, capacity)| length * capacity).sum();
        let capacity: f64 = problem.capacity.iter().sum();
        let floor = FLOOR * whole / capacity;
        let floored: Vec<f64> = (lengths.iter().zip(&problem.capacity))
            .map(|(&length, &capacity)| if capacity > 0.0 { length + floor } else { f64::INFINITY })
            .collect();
        let mut bundles = bundles;
        let (mut cost, mut operations) = (0.0, 0);
        for (dst, range) in problem.by_destination() {
            operations += self.distances(problem, dst, &floored);
            for index in range {
                let commodity = problem.merged[index];
                let distance = self.distance[commodity.src as usize];
                cost += commodity.demand * distance;
                if let Some(bundles) = &mut bundles {
                    bundles.offer(index, distance, &floored, || self.path(commodity.src, dst));
                }
            }
        }
        problem.operations += operations;
        whole * (1.0 + FLOOR) / cost
    }

    /// Computes the distances of all nodes to `dst`: first over the paths with the fewest hops, layer by layer, then
    /// over shorter detours. Returns the number of links examined.
    fn distances(&mut self, problem: &Problem<'_>, dst: u32, lengths: &[f64]) -> u64 {
        let Some(routes) = problem.routes.to(dst) else { return 0 };
        self.layers.iter_mut().for_each(Vec::clear);
        self.distance.fill(f64::INFINITY);
        for node in 0..self.distance.len() as u32 {
            if let Some(hops) = routes.hops(node) {
                if self.layers.len() <= hops as usize {
                    self.layers.resize(hops as usize + 1, Vec::new());
                }
                self.layers[hops as usize].push(node);
            }
        }
        self.distance[dst as usize] = 0.0;
        let mut operations = 0;
        for layer in self.layers.iter().skip(1) {
            for &node in layer {
                let (mut least, mut by) = (f64::INFINITY, (u32::MAX, u32::MAX));
                let members = routes.at(node);
                operations += members.len() as u64;
                for hop in members {
                    let distance = lengths[hop.link as usize] + self.distance[hop.node as usize];
                    if distance < least {
                        (least, by) = (distance, (hop.link, hop.node));
                    }
                }
                (self.distance[node as usize], self.next[node as usize]) = (least, by);
            }
        }
        self.queue.clear();
        for layer in &self.layers {
            self.queue.extend_from_slice(layer);
        }
        self.queue.iter().for_each(|&node| self.queued[node as usize] = true);
        operations + self.correct(problem, lengths)
    }

    /// Reduces distances until no link leads to a shorter one. Returns the number of links examined.
    fn correct(&mut self, problem: &Problem<'_>, lengths: &[f64]) -> u64 {
        let (mut next, mut operations) = (0, 0);
        while let Some(&node) = self.queue.get(next) {
            next += 1;
            self.queued[node as usize] = false;
            let here = self.distance[node as usize];
            let into = problem.network.entering(node);
            operations += into.len() as u64;
            for hop in into {
                let distance = lengths[hop.link as usize] + here;
                if distance < self.distance[hop.node as usize] {
                    self.distance[hop.node as usize] = distance;
                    self.next[hop.node as usize] = (hop.link, node);
                    if !std::mem::replace(&mut self.queued[hop.node as usize], true) {
                        self.queue.push(hop.node);
                    }
                }
            }
        }
        operations
    }

    fn path(&self, from: u32, to: u32) -> Vec<u32> {
        let (mut node, mut path) = (from, Vec::new());
        while node != to && path.len() < self.next.len() {
            let (link, next) = self.next[node as usize];
            path.push(link);
            node = next;
        }
        path
    }
}
