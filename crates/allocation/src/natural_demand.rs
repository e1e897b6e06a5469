//! Natural demand: the rate that each flow would reach if only the NICs of its two hosts limited it, not the fabric.
//!
//! Hedera §4.2 (Al-Fares et al., NSDI 2010): every source divides its NIC among its flows. Every destination that
//! would get more than its NIC takes reduces its greatest flows to one level. Both repeat until nothing changes.
//! Here, the matrix of hosts is sparse, and NICs may differ.
//!
//! Estimates of a source only rise and those of a destination only fall, so the passes converge. Their limit is the
//! max-min fair allocation with the NICs as links.

use crate::{max_min, FlowSet};

/// Number of passes after which the exact result is computed instead. For a ring of hosts that limit one another,
/// each pass improves the result only by a constant factor. Flows of real traffic settle in a few passes.
const MAX_PASSES: u32 = 200;
/// Change, as a share of the NIC, that does not count as a change.
const SETTLED: f64 = 1e-12;

/// Long flows from one NIC to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostPair {
    /// Sending NIC: an index into the transmit capacities.
    pub src: u32,
    /// Receiving NIC: an index into the receive capacities.
    pub dst: u32,
    /// Number of flows. All have the same demand.
    pub flows: u32,
}

/// The result of [`natural_demand`].
#[derive(Clone, PartialEq, Debug)]
pub struct NaturalDemand {
    /// Demand of each single flow of each pair, in the unit of the capacities.
    pub demands: Vec<f64>,
    /// Number of passes over sources and destinations.
    pub passes: u32,
    /// Number of pairs examined over all passes, as a measure of the work.
    pub operations: u64,
}

/// Estimates the natural demand of the flows of each pair (Hedera §4.2, Fig. 5). `transmit` and `receive` are the NIC
/// capacities; a negative number or NaN counts as 0. A pair that names an unknown NIC gets demand 0.
pub fn natural_demand(transmit: &[f64], receive: &[f64], pairs: &[HostPair]) -> NaturalDemand {
    estimate(transmit, receive, pairs, MAX_PASSES)
}

fn estimate(transmit: &[f64], receive: &[f64], pairs: &[HostPair], max_passes: u32) -> NaturalDemand {
    let clean = |capacities: &[f64]| -> Vec<f64> { capacities.iter().map(|c| c.max(0.0)).collect() };
    let (transmit, receive) = (clean(transmit), clean(receive));
    let known = |pair: &HostPair| (pair.src as usize) < transmit.len() && (pair.dst as usize) < receive.len();
    let mut estimate = Estimate {
        pairs,
        of_src: group(transmit.len(), pairs, |pair| known(pair).then_some(pair.src)),
        of_dst: group(receive.len(), pairs, |pair| known(pair).then_some(pair.dst)),
        demands: vec![0.0; pairs.len()],
        converged: vec![false; pairs.len()],
        order: Vec::new(),
    };
    let counted = pairs.iter().filter(|pair| known(pair)).count() as u64;
    let (mut passes, mut operations) = (0, 0);
    loop {
        let mut changed = false;
        for (src, &capacity) in transmit.iter().enumerate() {
            changed |= estimate.source(src, capacity);
        }
        for (dst, &capacity) in receive.iter().enumerate() {
            changed |= estimate.destination(dst, capacity);
        }
        passes += 1;
        operations += 2 * counted;
        if !changed {
            return NaturalDemand { demands: estimate.demands, passes, operations };
        }
        if passes == max_passes {
            let demands = exact(&transmit, &receive, pairs, known);
            return NaturalDemand { demands, passes, operations: operations + counted };
        }
    }
}

/// Indices of pairs, grouped by a key below `keys`. Pairs without a key or without flows are omitted.
fn group(keys: usize, pairs: &[HostPair], key: impl Fn(&HostPair) -> Option<u32>) -> Vec<Vec<u32>> {
    let mut groups = vec![Vec::new(); keys];
    for (index, pair) in pairs.iter().enumerate() {
        if let Some(key) = key(pair).filter(|_| pair.flows > 0) {
            groups[key as usize].push(index as u32);
        }
    }
    groups
}

struct Estimate<'a> {
    pairs: &'a [HostPair],
    of_src: Vec<Vec<u32>>,
    of_dst: Vec<Vec<u32>>,
    demands: Vec<f64>,
    /// By pair, whether its destination limits it.
    converged: Vec<bool>,
    /// Buffer that is kept between calls to save allocations.
    order: Vec<u32>,
}

impl Estimate<'_> {
    /// EST-SRC: flows that are limited elsewhere keep their rates, and the others share the rest of the NIC.
    fn source(&mut self, src: usize, capacity: f64) -> bool {
        let (mut taken, mut others) = (0.0, 0u64);
        for &pair in &self.of_src[src] {
            let flows = self.pairs[pair as usize].flows;
            if self.converged[pair as usize] {
                taken += self.demands[pair as usize] * f64::from(flows);
            } else {
                others += u64::from(flows);
            }
        }
        let share = (capacity - taken).max(0.0) / others as f64;
        let mut changed = false;
        for &pair in &self.of_src[src] {
            let demand = &mut self.demands[pair as usize];
            if !self.converged[pair as usize] {
                changed |= (*demand - share).abs() > SETTLED * capacity;
                *demand = share;
            }
        }
        changed
    }

    /// EST-DST: if more would arrive than the NIC takes, reduces the greatest flows to one level. The paper finds
    /// that level by trial. In ascending order of demand, one pass finds it.
    fn destination(&mut self, dst: usize, capacity: f64) -> bool {
        let flows = |pair: u32| f64::from(self.pairs[pair as usize].flows);
        let offered: f64 = self.of_dst[dst].iter().map(|&pair| self.demands[pair as usize] * flows(pair)).sum();
        if offered <= capacity * (1.0 + SETTLED) {
            return false;
        }
        self.order.clear();
        self.order.extend_from_slice(&self.of_dst[dst]);
        self.order.sort_by(|&a, &b| self.demands[a as usize].total_cmp(&self.demands[b as usize]).then(a.cmp(&b)));
        let mut left = capacity;
        let mut count: f64 = self.order.iter().map(|&pair| flows(pair)).sum();
        let mut first_cut = 0;
        for &pair in &self.order {
            if self.demands[pair as usize] >= left / count {
                break;
            }
            left -= self.demands[pair as usize] * flows(pair);
            count -= flows(pair);
            first_cut += 1;
        }
        let level = left.max(0.0) / count;
        let mut changed = false;
        for &pair in &self.order[first_cut..] {
            let index = pair as usize;
            changed |= !self.converged[index] || (self.demands[index] - level).abs() > SETTLED * capacity;
            self.demands[index] = level;
            self.converged[index] = true;
        }
        changed
    }
}

/// The limit of the passes, by water-filling over the NICs. The flows of a pair are one flow, with their number as
/// weight.
fn exact(transmit: &[f64], receive: &[f64], pairs: &[HostPair], known: impl Fn(&HostPair) -> bool) -> Vec<f64> {
    let capacity: Vec<f64> = transmit.iter().chain(receive).copied().collect();
    let mut flows = FlowSet::new();
    let counted: Vec<usize> =
        (0..pairs.len()).filter(|&index| known(&pairs[index]) && pairs[index].flows > 0).collect();
    for &index in &counted {
        let pair = &pairs[index];
        flows.push_with(&[pair.src, transmit.len() as u32 + pair.dst], f64::INFINITY, f64::from(pair.flows));
    }
    let mut demands = vec![0.0; pairs.len()];
    if let Ok(allocation) = max_min(&capacity, &flows) {
        for (&index, rate) in counted.iter().zip(allocation.rates) {
            demands[index] = rate / f64::from(pairs[index].flows);
        }
    }
    demands
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_and_water_filling_agree() {
        // Sources 0 and 1 share destination 0. Source 1 then has more for destination 1 than in its first estimate.
        let pair = |src, dst, flows| HostPair { src, dst, flows };
        let pairs = [pair(0, 0, 3), pair(1, 0, 1), pair(1, 1, 1), pair(1, 9, 1), pair(0, 1, 0), pair(2, 1, 2)];
        let (transmit, receive) = ([3.0, 1.0, 4.0], [1.0, 3.0]);
        let by_passes = estimate(&transmit, &receive, &pairs, MAX_PASSES);
        let exactly = estimate(&transmit, &receive, &pairs, 1);
        assert!(by_passes.passes > 1 && by_passes.passes < MAX_PASSES);
        assert_eq!((exactly.passes, exactly.operations), (1, 2 * 5 + 5));
        for (index, (a, b)) in by_passes.demands.iter().zip(&exactly.demands).enumerate() {
            assert!((a - b).abs() < 1e-9, "pair {index}: {a} and {b}");
        }
    }
}
