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
    /// The cut of the links of a ToR (by node index) or of a pod, inbound or outbound, without flows.
    fn new(placer: &Placer, tree: Option<&FatTree>, (pod, into, number): (bool, bool, usize)) -> Cut {
        let mut cut = Cut::default();
        match (pod, tree) {
            (true, Some(tree)) => {
                for plane in 0..tree.planes {
                    for core in 0..tree.cores {
                        let cable = tree.core_cable(number, plane, core);
                        cut.add(placer, if into { cable.down } else { cable.up });
                    }
                }
            }
            _ if into => placer.network.entering(number as u32).iter().for_each(|hop| cut.add(placer, hop.link)),
            _ => placer.network.out(number as u32).iter().for_each(|hop| cut.add(placer, hop.link)),
        }
        cut
    }

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

/// The cuts that are examined.
pub(super) struct Cuts {
    cuts: Vec<Cut>,
    /// By slot, the cuts that each flow crosses.
    of: Vec<Vec<usize>>,
    /// By slot, the demand of each flow.
    demands_bps: Vec<u64>,
}

impl Cuts {
    /// The cuts around the flows of a placer.
    pub(super) fn of(placer: &mut Placer) -> Cuts {
        let first = placer.slots.iter().flatten().find_map(|state| state.ends);
        let tree = first.and_then(|(from, _)| placer.tree(from));
        let mut numbers: BTreeMap<(bool, bool, usize), usize> = BTreeMap::new();
        let (mut cuts, mut of) = (Vec::<Cut>::new(), vec![Vec::new(); placer.slots.len()]);
        let demands_bps = placer.demands();
        for (slot, state) in placer.slots.iter().enumerate() {
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
                    cuts.push(Cut::new(placer, tree.as_deref(), key));
                    cuts.len() - 1
                });
                cuts[number].slots.push(slot as u32);
                cuts[number].demand_bps = cuts[number].demand_bps.saturating_add(demands_bps[slot]);
                of[slot].push(number);
            }
        }
        Cuts { cuts, of, demands_bps }
    }

    /// By slot, the demand of each flow after limiting; `None` if no cut is exceeded.
    pub(super) fn limited_demands(mut self, placer: &mut Placer) -> Option<Vec<u64>> {
        if !self.cuts.iter().any(Cut::is_exceeded) {
            return None;
        }
        for index in 0..self.cuts.len() {
            for _ in 0..MOST_SHARING {
                if self.cuts[index].is_exceeded() {
                    placer.extra_operations += self.cuts[index].slots.len() as u64;
                    self.limit(index);
                }
            }
        }
        Some(self.demands_bps)
    }

    /// Limits the demands of the flows of a cut once, until they fit. Flows come first whose demand, times the number
    /// of exceeded cuts that they cross, is greatest.
    fn limit(&mut self, index: usize) {
        let Cuts { cuts, of, demands_bps } = self;
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
}
