//! A round over all flows: demands, the papers' walk for those without a path, improvement, rates.

use super::improve::Improvement;
use super::placer::{Placer, Round};
use super::state::FlowState;
use crate::{max_min, FlowSet};

impl Placer {
    /// Runs one round, as the papers do in every polling period and when flows arrive or depart. It estimates all
    /// demands exactly and places the flows that have no path, in the papers' order. Then it moves flows to paths
    /// with more free capacity, but at most `most_moves` of those that had a path before. Flows on good paths stay
    /// there.
    pub fn round(&mut self, most_moves: usize) -> Round {
        let operations = self.operations();
        self.estimate_demands();
        let mut waiting: Vec<u32> = (0..self.slots.len() as u32).filter(|&slot| self.is_waiting(slot)).collect();
        self.order(&mut waiting);
        let mut round = Round::default();
        for &slot in &waiting {
            let placed = self.place(slot);
            let id = self.flow_state(slot).id;
            if placed { &mut round.placed } else { &mut round.stranded }.push(id);
        }
        if self.settings.improve {
            round.moved = Improvement::new(self, most_moves, &waiting).run();
        }
        round.placed.sort_unstable();
        round.stranded.sort_unstable();
        round.operations = self.operations() - operations;
        round
    }

    /// The bandwidth of each flow as the papers give it. In the order of minimum remaining time, each takes the
    /// available bandwidth of its path up to its demand, b_f = min(b, B_f). A late flow may get nothing; then it must
    /// be held. Ascending by flow; flows without a path get nothing.
    pub fn shares_bps(&self) -> Vec<(u64, u64)> {
        let mut slots: Vec<u32> =
            (0..self.slots.len() as u32).filter(|&slot| self.slots[slot as usize].is_some()).collect();
        slots.sort_by_cached_key(|&slot| self.remaining_time(slot));
        let mut left: Vec<u64> = self.network.links().iter().map(|link| link.capacity_bps).collect();
        let mut shares = Vec::with_capacity(slots.len());
        for slot in slots {
            let state = self.flow_state(slot);
            let path = state.path.as_deref();
            let room = path.map(|path| self.links_of(slot, path).map(|link| left[link as usize]).min());
            let share = room.map_or(0, |room| room.unwrap_or(u64::MAX).min(state.demand_bps));
            if let Some(path) = path {
                self.links_of(slot, path).for_each(|link| left[link as usize] -= share);
            }
            shares.push((state.id, share));
        }
        shares.sort_unstable();
        shares
    }

    /// Max-min fair rates of the flows on their paths and access links, up to the announced rates: the rates that TCP
    /// would give them. Ascending by flow; flows without a path get 0.
    pub fn max_min_bps(&self) -> Vec<(u64, f64)> {
        let capacity: Vec<f64> = self.network.links().iter().map(|link| link.capacity_bps as f64).collect();
        let (mut flows, mut ids, mut rates) = (FlowSet::new(), Vec::new(), Vec::new());
        for slot in 0..self.slots.len() as u32 {
            let Some(state) = &self.slots[slot as usize] else { continue };
            let Some(path) = state.path.as_deref() else {
                rates.push((state.id, 0.0));
                continue;
            };
            let links: Vec<u32> = self.links_of(slot, path).collect();
            let most = state.flow.announced_bps.map_or(f64::INFINITY, |bps| bps as f64);
            flows.push_with(&links, most, 1.0);
            ids.push(state.id);
        }
        // Every link is one of the network's, every weight is 1, and every flow has an access link or an announced rate.
        if let Ok(allocation) = max_min(&capacity, &flows) {
            rates.extend(ids.into_iter().zip(allocation.rates));
        }
        rates.sort_unstable_by_key(|&(id, _)| id);
        rates
    }

    /// Access links and path of a flow.
    fn links_of<'a>(&self, slot: u32, path: &'a [u32]) -> impl Iterator<Item = u32> + use<'a> {
        self.flow_state(slot).flow.access().into_iter().flatten().chain(path.iter().copied())
    }

    /// Estimates the natural demand of every flow, up to its announced rate: max-min rates with the access links as
    /// the only limits (Hedera §4.2).
    fn estimate_demands(&mut self) {
        let used: Vec<u32> = (0..self.slots.len() as u32).filter(|&slot| self.slots[slot as usize].is_some()).collect();
        let capacity: Vec<f64> = self.network.links().iter().map(|link| link.capacity_bps as f64).collect();
        let mut flows = FlowSet::new();
        for &slot in &used {
            let flow = &self.flow_state(slot).flow;
            let [src, dst] = flow.access();
            let links = [src.unwrap_or(0), dst.unwrap_or(0)];
            let links = match (src, dst) {
                (Some(_), Some(_)) => &links[..],
                (Some(_), None) => &links[..1],
                (None, Some(_)) => &links[1..],
                (None, None) => &[],
            };
            flows.push_with(links, flow.announced_bps.map_or(f64::INFINITY, |bps| bps as f64), 1.0);
        }
        if let Ok(natural) = max_min(&capacity, &flows) {
            for (slot, rate) in used.into_iter().zip(natural.rates) {
                // Rounded down, because three thirds of a link must fit on it. The tolerance covers rounding errors.
                self.set_demand(slot, (rate + 1e-6) as u64);
            }
        }
    }

    /// Sorts slots in the papers' order: ToR pair by ToR pair, and within a pair minimum remaining time first. Pairs
    /// between the same two pods follow each other, and otherwise pairs with one destination, so that data of the
    /// search can be reused.
    pub(super) fn order(&mut self, slots: &mut [u32]) {
        let first = slots.iter().find_map(|&slot| self.flow_state(slot).ends);
        let tree = first.and_then(|(from, _)| self.tree(from));
        let pod = |node_index: u32| tree.as_ref().and_then(|tree| tree.tor_at(node_index).map(|tor| tree.pod_of(tor)));
        let key = |slot: &u32| {
            let FlowState { flow, ends, .. } = self.flow_state(*slot);
            let pods = ends.and_then(|(from, to)| pod(to).zip(pod(from)));
            (pods, flow.dst_tor, flow.src_tor)
        };
        slots.sort_by_cached_key(|slot| (key(slot), self.remaining_time(*slot)));
    }

    /// Sort key: minimum remaining time first, unknown sizes last, then by identifier.
    fn remaining_time(&self, slot: u32) -> (u64, u64) {
        let FlowState { flow, demand_bps, id, .. } = self.flow_state(slot);
        let bytes = flow.remaining_bytes.map_or(f64::INFINITY, |bytes| bytes as f64);
        // The bits of non-negative floating-point numbers are in the order of the numbers.
        ((bytes / (*demand_bps).max(1) as f64).to_bits(), *id)
    }
}
