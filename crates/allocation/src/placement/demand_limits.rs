//! Maximum demands of flows where links have failed, computed before paths are chosen.
//!
//! If a ToR has three links left, four flows that demand a link each cannot all have one: two of them will have half.
//! As long as each demands a whole link, none of the three links looks better than another, and negotiation does not
//! settle. So this module decides beforehand which flows give way. It examines every ToR, and every pod of a FatTree.
//! If the flows demand more than the links carry, demands are limited to the share of a link that a flow would have
//! with one more flow on it. If that is not enough, they are limited to the share with another one, until the rest
//! fits.
//! Flows that must give way at both ends come first: that is one loss instead of two.

use super::placer::Placer;
use crate::fat_tree::FatTree;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Maximum number of additional flows that are assumed to share a link.
const MOST_SHARING: u32 = 8;

/// The links into or out of a part of the network, and the flows that must cross one of them.
#[derive(Default)]
struct Cut {
    /// Total capacity of the links that are up.
    capacity_bps: u64,
    /// Greatest capacity of one of these links.
    link_bps: u64,
    /// Total demand of the flows.
    demand_bps: u64,
    slots: Vec<u32>,
}

impl Cut {
    fn add(&mut self, placer: &Placer, link: u32) {
        if placer.routes.is_up(link) {
            let bps = placer.network.capacity_bps(link);
            self.capacity_bps = self.capacity_bps.saturating_add(bps);
            self.link_bps = self.link_bps.max(bps);
        }
    }

    /// Whether the demand exceeds the capacity by more than a thousandth.
    fn is_exceeded(&self) -> bool {
        self.link_bps > 0 && self.demand_bps > self.capacity_bps + self.capacity_bps / 1000
    }
}

/// Limits the demands of the flows of a cut once, until they fit. Flows come first whose demand, times the number of
/// exceeded cuts that they cross, is greatest.
fn limit_demands(cuts: &mut [Cut], of: &[Vec<usize>], demands_bps: &mut [u64], index: usize) {
    let mut slots = std::mem::take(&mut cuts[index].slots);
    let burden = |slot: u32| of[slot as usize].iter().filter(|&&cut| cuts[cut].is_exceeded()).count() as u64;
    slots.sort_by_cached_key(|&slot| {
        let bps = demands_bps[slot as usize];
        (Reverse(bps.saturating_mul(burden(slot))), Reverse(bps), slot)
    });
    for &slot in &slots {
        if !cuts[index].is_exceeded() {
            break;
        }
        let before_bps = demands_bps[slot as usize];
        let sharing = cuts[index].link_bps / before_bps.max(1) + 1;
        let after_bps = before_bps.min(cuts[index].link_bps / sharing);
        demands_bps[slot as usize] = after_bps;
        of[slot as usize].iter().for_each(|&cut| cuts[cut].demand_bps -= before_bps - after_bps);
    }
    cuts[index].slots = slots;
}

impl Placer {
    /// By slot, the demand of each flow after limiting; `None` if no cut is exceeded.
    pub(super) fn limited_demands(&mut self) -> Option<Vec<u64>> {
        let (mut cuts, of) = self.cuts();
        let mut demands_bps = self.demands();
        for cut in &mut cuts {
            cut.demand_bps = cut.slots.iter().map(|&slot| demands_bps[slot as usize]).fold(0, u64::saturating_add);
        }
        if !cuts.iter().any(Cut::is_exceeded) {
            return None;
        }
        for index in 0..cuts.len() {
            for _ in 0..MOST_SHARING {
                if cuts[index].is_exceeded() {
                    self.extra_operations += cuts[index].slots.len() as u64;
                    limit_demands(&mut cuts, &of, &mut demands_bps, index);
                }
            }
        }
        Some(demands_bps)
    }

    /// By slot, the demand of each flow.
    pub(super) fn demands(&self) -> Vec<u64> {
        self.slots.iter().map(|state| state.as_ref().map_or(0, |state| state.demand_bps)).collect()
    }

    /// Sets the demand of each flow, by slot.
    pub(super) fn set_demands(&mut self, demands_bps: &[u64]) {
        for (slot, &demand_bps) in (0..).zip(demands_bps) {
            if self.slots[slot as usize].is_some() {
                self.set_demand(slot, demand_bps);
            }
        }
    }

    /// The cuts that are examined, and by slot the cuts that each flow crosses.
    fn cuts(&mut self) -> (Vec<Cut>, Vec<Vec<usize>>) {
        let first = self.slots.iter().flatten().find_map(|state| state.ends);
        let tree = first.and_then(|(from, _)| self.tree(from));
        let mut numbers: BTreeMap<(bool, bool, usize), usize> = BTreeMap::new();
        let (mut cuts, mut of) = (Vec::<Cut>::new(), vec![Vec::new(); self.slots.len()]);
        for (slot, state) in self.slots.iter().enumerate() {
            let Some((flow, (from, to))) = state.as_ref().and_then(|one| Some((one.flow, one.ends?))) else {
                continue;
            };
            if flow.src_tor == flow.dst_tor {
                continue;
            }
            let pods = tree.as_ref().and_then(|tree| {
                let pod = |node_index| tree.tor_at(node_index).map(|tor| tree.pod_of(tor));
                pod(from).zip(pod(to)).filter(|(from, to)| from != to)
            });
            let tors = [(false, false, from as usize), (false, true, to as usize)];
            let pods = pods.map(|(from, to)| [(true, false, from), (true, true, to)]);
            for key in tors.into_iter().chain(pods.into_iter().flatten()) {
                let number = *numbers.entry(key).or_insert_with(|| {
                    cuts.push(self.cut(tree.as_deref(), key));
                    cuts.len() - 1
                });
                cuts[number].slots.push(slot as u32);
                of[slot].push(number);
            }
        }
        (cuts, of)
    }

    /// The cut of the links of a ToR (by node index) or of a pod, inbound or outbound, without flows.
    fn cut(&self, tree: Option<&FatTree>, (pod, into, number): (bool, bool, usize)) -> Cut {
        let mut cut = Cut::default();
        match (pod, tree) {
            (true, Some(tree)) => {
                for plane in 0..tree.planes {
                    for core in 0..tree.cores {
                        let cable = tree.core_cable(number, plane, core);
                        cut.add(self, if into { cable.down } else { cable.up });
                    }
                }
            }
            _ if into => self.network.entering(number as u32).iter().for_each(|hop| cut.add(self, hop.link)),
            _ => self.network.out(number as u32).iter().for_each(|hop| cut.add(self, hop.link)),
        }
        cut
    }
}
