//! Max-min fair rates by progressive filling.
//!
//! All flows grow together, each in proportion to its weight; `level` is the present rate per unit of weight. A flow
//! stops when its demand is met or one of its links is full (Bertsekas and Gallager, Data Networks, §6.5.2). Links
//! are in a heap, ordered by the level at which they would be full if no more flows stopped. That level only rises
//! while flows stop elsewhere. So an entry may be too low but never too high, and it is checked again when it is at
//! the top. The total cost is O((hops + links) log links), where hops is the sum of all path lengths.

use crate::FlowSet;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// The reason why there is no allocation.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum AllocationError {
    /// A flow names a link without a capacity.
    #[error("flow {flow} crosses link {link}, but capacities are given for {links} links only")]
    UnknownLink {
        /// Index of the flow.
        flow: usize,
        /// Its link.
        link: u32,
        /// Number of capacities.
        links: usize,
    },
    /// A capacity is negative or not a number.
    #[error("link {link} has capacity {capacity}; expected a number that is at least 0")]
    BadCapacity {
        /// Index of the link.
        link: usize,
        /// Its capacity.
        capacity: f64,
    },
    /// A demand is negative or not a number.
    #[error("flow {flow} has demand {demand}; expected a number that is at least 0, or infinity")]
    BadDemand {
        /// Index of the flow.
        flow: usize,
        /// Its demand.
        demand: f64,
    },
    /// A weight is not a positive finite number.
    #[error("flow {flow} has weight {weight}; expected a positive number")]
    BadWeight {
        /// Index of the flow.
        flow: usize,
        /// Its weight.
        weight: f64,
    },
    /// A link without a capacity is named.
    #[error("link {link} does not exist; capacities are given for {links} links")]
    NoLink {
        /// The link.
        link: u32,
        /// Number of capacities.
        links: usize,
    },
    /// The share of a flow's rate that a link carries is not a positive finite number.
    #[error("flow {flow} takes {share} of its rate over link {link}; expected a positive number")]
    BadShare {
        /// Number of the flow.
        flow: usize,
        /// Its link.
        link: u32,
        /// The share.
        share: f64,
    },
    /// Nothing limits a flow: it has no demand and crosses no link of finite capacity.
    #[error("flow {flow} has no demand and no link of finite capacity, so its rate has no bound; give it a demand")]
    Unbounded {
        /// Index of the flow.
        flow: usize,
    },
}

/// What limits the rate of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// Its demand is met.
    Demand,
    /// This link is full, and no flow on it has a higher rate per unit of weight.
    Link(u32),
}

/// Max-min fair rates.
#[derive(Clone, PartialEq, Debug)]
pub struct MaxMin {
    /// Rate of each flow, in the unit of the capacities.
    pub rates: Vec<f64>,
    /// What limits each flow.
    pub limits: Vec<Limit>,
}

/// Computes the max-min fair rates of `flows` over links of these capacities. No flow could have more unless another
/// flow loses that has as little or less per unit of weight. Exact up to rounding, if weights are within a factor of
/// a million of each other. A flow that lists a link twice uses it twice.
pub fn max_min(capacity: &[f64], flows: &FlowSet) -> Result<MaxMin, AllocationError> {
    check(capacity, flows)?;
    let mut filling = Filling::new(capacity, flows);
    let demands = (0..flows.len()).filter(|&flow| flows.demand(flow).is_finite());
    let level = |flow: usize| flows.demand(flow) / flows.weight(flow);
    // A heap instead of a sorted list: if links are the limits, few of its entries are ever removed.
    let mut by_demand: BinaryHeap<At> =
        demands.map(|flow| At { level: level(flow), index: flow as u32 }).collect::<Vec<_>>().into();
    loop {
        let next_full = filling.next_full();
        match (by_demand.peek().copied(), next_full) {
            (Some(met), full) if full.is_none_or(|full| met.level <= full.level) => {
                by_demand.pop();
                filling.stop(met.index, flows.demand(met.index as usize), Limit::Demand);
            }
            (_, Some(full)) => filling.fill(full),
            _ => break,
        }
    }
    match filling.stopped.iter().position(|&stopped| !stopped) {
        Some(flow) => Err(AllocationError::Unbounded { flow }),
        None => Ok(MaxMin { rates: filling.rates, limits: filling.limits }),
    }
}

fn check(capacity: &[f64], flows: &FlowSet) -> Result<(), AllocationError> {
    if let Some(link) = capacity.iter().position(|c| c.is_nan() || *c < 0.0) {
        return Err(AllocationError::BadCapacity { link, capacity: capacity[link] });
    }
    for flow in 0..flows.len() {
        let (demand, weight) = (flows.demand(flow), flows.weight(flow));
        if demand.is_nan() || demand < 0.0 {
            return Err(AllocationError::BadDemand { flow, demand });
        }
        if !weight.is_finite() || weight <= 0.0 {
            return Err(AllocationError::BadWeight { flow, weight });
        }
        if let Some(&link) = flows.links(flow).iter().find(|&&link| link as usize >= capacity.len()) {
            return Err(AllocationError::UnknownLink { flow, link, links: capacity.len() });
        }
    }
    Ok(())
}

/// A link and the level at which it will be full, or a flow and the level at which its demand is met.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct At {
    pub(crate) level: f64,
    pub(crate) index: u32,
}

impl Eq for At {}

impl Ord for At {
    /// The lowest level comes out of a max-heap first; of equal levels, the lowest index.
    fn cmp(&self, other: &At) -> Ordering {
        other.level.total_cmp(&self.level).then(other.index.cmp(&self.index))
    }
}

impl PartialOrd for At {
    fn partial_cmp(&self, other: &At) -> Option<Ordering> {
        Some(self.cmp(other))
    }

    // The heap calls this one. The default goes through `partial_cmp`.
    fn le(&self, other: &At) -> bool {
        self.cmp(other) != Ordering::Greater
    }
}

struct Filling<'a> {
    flows: &'a FlowSet,
    /// Capacity not taken by flows that have stopped, by link.
    left: Vec<f64>,
    /// Weight of the flows that still grow, by link.
    growing_weight: Vec<f64>,
    /// Number of these flows. It distinguishes an empty link from one whose weight is a rounding error.
    growing: Vec<u32>,
    /// Flows of each link: those of link `l` are `crossing[crossing_starts[l]..crossing_starts[l + 1]]`.
    crossing_starts: Vec<u32>,
    crossing: Vec<u32>,
    heap: BinaryHeap<At>,
    stopped: Vec<bool>,
    rates: Vec<f64>,
    limits: Vec<Limit>,
}

impl<'a> Filling<'a> {
    fn new(capacity: &[f64], flows: &'a FlowSet) -> Filling<'a> {
        let links = capacity.len();
        let mut growing = vec![0u32; links];
        let mut growing_weight = vec![0.0; links];
        for flow in 0..flows.len() {
            for &link in flows.links(flow) {
                growing[link as usize] += 1;
                growing_weight[link as usize] += flows.weight(flow);
            }
        }
        let mut crossing_starts = vec![0u32; links + 1];
        for link in 0..links {
            crossing_starts[link + 1] = crossing_starts[link] + growing[link];
        }
        let mut crossing = vec![0u32; crossing_starts[links] as usize];
        let mut next = crossing_starts.clone();
        for flow in 0..flows.len() {
            for &link in flows.links(flow) {
                crossing[next[link as usize] as usize] = flow as u32;
                next[link as usize] += 1;
            }
        }
        let entries =
            (0..links as u32).filter(|&link| growing[link as usize] > 0 && capacity[link as usize] < f64::MAX);
        let heap = entries
            .map(|link| At { level: capacity[link as usize] / growing_weight[link as usize], index: link })
            .collect::<Vec<_>>()
            .into();
        let (stopped, rates) = (vec![false; flows.len()], vec![0.0; flows.len()]);
        let limits = vec![Limit::Demand; flows.len()];
        let left = capacity.to_vec();
        Filling { flows, left, growing_weight, growing, crossing_starts, crossing, heap, stopped, rates, limits }
    }

    /// The link that is full first, with its exact level.
    fn next_full(&mut self) -> Option<At> {
        loop {
            let At { level, index: link } = *self.heap.peek()?;
            let index = link as usize;
            if self.growing[index] == 0 {
                self.heap.pop();
                continue;
            }
            let right = self.left[index].max(0.0) / self.growing_weight[index];
            if right <= level {
                // From the capacity that is left now, not from the earlier estimate: rounding must not overfill the
                // link.
                return Some(At { level: right, index: link });
            }
            self.heap.pop();
            self.heap.push(At { level: right, index: link });
        }
    }

    /// Stops every flow that still grows on a full link.
    fn fill(&mut self, full: At) {
        let link = full.index as usize;
        for position in self.crossing_starts[link]..self.crossing_starts[link + 1] {
            let flow = self.crossing[position as usize];
            let rate = full.level * self.flows.weight(flow as usize);
            self.stop(flow, rate, Limit::Link(full.index));
        }
    }

    fn stop(&mut self, flow: u32, rate: f64, limit: Limit) {
        let index = flow as usize;
        if std::mem::replace(&mut self.stopped[index], true) {
            return;
        }
        // The rate of a full link may exceed the demand by rounding.
        self.rates[index] = rate.min(self.flows.demand(index));
        self.limits[index] = limit;
        for &link in self.flows.links(index) {
            self.left[link as usize] -= self.rates[index];
            self.growing[link as usize] -= 1;
            self.growing_weight[link as usize] -= self.flows.weight(index);
        }
    }
}
