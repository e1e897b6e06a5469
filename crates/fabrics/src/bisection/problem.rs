//! The graph to be cut: switches with their host ports, and the rates between neighbours.

use pathloom_model::{Fabric, LinkState};
use std::collections::BTreeMap;

/// Rates between two neighbouring switches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Arc {
    /// The neighbour's number.
    pub(super) to: u32,
    /// Bits per second towards the neighbour, over all parallel cables together.
    pub(super) out_bps: u128,
    /// Bits per second from the neighbour.
    pub(super) in_bps: u128,
}

/// Switches by number, in the order of the fabric.
pub(super) struct Problem {
    /// Host ports of each switch.
    pub(super) weight: Vec<u64>,
    /// Neighbours of each switch over links that are up, by number.
    pub(super) arcs: Vec<Vec<Arc>>,
    /// Host ports of the smaller side of a balanced cut.
    pub(super) least: u64,
    /// Host ports of the larger side; can be equal to `least`.
    pub(super) most: u64,
    /// A set of switches that holds `least` host ports.
    pub(super) balanced: Vec<bool>,
    /// Whether every cable that is up has the same rate in both directions.
    pub(super) symmetric: bool,
    /// Common divisor of all capacities.
    pub(super) unit_bps: u128,
}

impl Problem {
    pub(super) fn of(fabric: &Fabric, state: &LinkState) -> Problem {
        let mut number = vec![u32::MAX; fabric.nodes().len()];
        for (place, switch) in fabric.switches().iter().enumerate() {
            number[switch.index()] = place as u32;
        }
        let mut weight = vec![0; fabric.switches().len()];
        for attachment in fabric.attachments().iter().filter(|at| !fabric.is_inside_server(at.tor)) {
            weight[number[attachment.tor.index()] as usize] += 1;
        }
        let rate_bps = |link| if state.is_up(link) { u128::from(fabric.link(link).settings.rate_bps) } else { 0 };
        let mut unit_bps = 0;
        let arcs: Vec<Vec<Arc>> = fabric
            .switches()
            .iter()
            .map(|&switch| {
                let mut by_neighbour: BTreeMap<u32, Arc> = BTreeMap::new();
                for port in fabric.switch_ports(switch) {
                    let to = number[port.to.index()];
                    let arc = by_neighbour.entry(to).or_insert(Arc { to, out_bps: 0, in_bps: 0 });
                    arc.out_bps += rate_bps(port.link);
                    arc.in_bps += rate_bps(port.link.reverse());
                    unit_bps = greatest_common_divisor(unit_bps, rate_bps(port.link));
                }
                by_neighbour.into_values().filter(|arc| arc.out_bps + arc.in_bps > 0).collect()
            })
            .collect();
        let (least, balanced) = nearest_to_half(&weight);
        let most = weight.iter().sum::<u64>() - least;
        let symmetric = arcs.iter().flatten().all(|arc| arc.out_bps == arc.in_bps);
        Problem { weight, arcs, least, most, balanced, symmetric, unit_bps: unit_bps.max(1) }
    }

    /// Returns the number of switches.
    pub(super) fn len(&self) -> usize {
        self.weight.len()
    }

    /// Returns the capacity from the switches for which `first` is true to the others.
    pub(super) fn capacity(&self, first: &[bool]) -> u128 {
        let out = |(switch, arcs): (usize, &Vec<Arc>)| -> u128 {
            let across = arcs.iter().filter(|arc| first[switch] && !first[arc.to as usize]);
            across.map(|arc| arc.out_bps).sum()
        };
        self.arcs.iter().enumerate().map(out).sum()
    }
}

fn greatest_common_divisor(a: u128, b: u128) -> u128 {
    if b == 0 {
        a
    } else {
        greatest_common_divisor(b, a % b)
    }
}

/// Returns the largest sum of weights that is at most half of the total, and members that add up to it.
fn nearest_to_half(weight: &[u64]) -> (u64, Vec<bool>) {
    let mut members: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (place, &weight) in weight.iter().enumerate().filter(|(_, &weight)| weight > 0) {
        members.entry(weight).or_default().push(place);
    }
    let kinds: Vec<(u64, Vec<usize>)> = members.into_iter().collect();
    let half = (weight.iter().sum::<u64>() / 2) as usize;
    // For each sum: the kind of weight that reached it first, and how many weights of that kind it contains.
    let mut reached: Vec<Option<(u32, u32)>> = vec![None; half + 1];
    reached[0] = Some((u32::MAX, 0));
    for (kind, (weight, members)) in kinds.iter().enumerate() {
        for sum in *weight as usize..=half {
            let Some((last, count)) = reached[sum - *weight as usize].filter(|_| reached[sum].is_none()) else {
                continue;
            };
            let count = if last == kind as u32 { count } else { 0 };
            if (count as usize) < members.len() {
                reached[sum] = Some((kind as u32, count + 1));
            }
        }
    }
    let least = (0..=half).rev().find(|&sum| reached[sum].is_some()).unwrap_or(0);
    let mut chosen = vec![false; weight.len()];
    let mut sum = least;
    while let Some((kind, count)) = reached[sum].filter(|_| sum > 0) {
        let (weight, members) = &kinds[kind as usize];
        chosen[members[count as usize - 1]] = true;
        sum -= *weight as usize;
    }
    (least as u64, chosen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn halves_are_as_near_as_whole_racks_allow(weight in prop::collection::vec(0u64..12, 1..11)) {
            let total: u64 = weight.iter().sum();
            let sum = |set: u32| -> u64 { (0..weight.len()).filter(|&i| set >> i & 1 == 1).map(|i| weight[i]).sum() };
            let best = (0..1u32 << weight.len()).map(sum).filter(|&sum| sum <= total / 2).max().unwrap();
            let (least, chosen) = nearest_to_half(&weight);
            prop_assert_eq!(least, best);
            prop_assert_eq!(weight.iter().zip(&chosen).filter(|(_, &chosen)| chosen).map(|(w, _)| w).sum::<u64>(), best);
        }
    }
}
