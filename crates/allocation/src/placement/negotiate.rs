//! Negotiation over full links: flows on overfull links are removed and routed again, one after the other, in several
//! passes. Links that stay overfull become more expensive from pass to pass.
//!
//! Signals on FPGAs are routed in this way (McMurchie and Ebeling, "PathFinder", FPGA 1995). A flow that has another
//! path gives way sooner or later; a flow that has none stays. This solves cases in which every flow that moves
//! displaces another one, so that moving one flow at a time does not help. The best state found is kept. If cuts show
//! beforehand that not all demands can be met, the demands of some flows have been limited.

use super::improve::Budget;
use super::placer::Placer;
use super::state::{FlowState, Ledger};

/// Increase of the price, per pass, of a link that is overfull by all of its capacity.
const PRICE_STEP: f64 = 0.5;
/// Maximum number of flows for which max-min rates are computed after every pass.
const EXACT: usize = 2_000;
/// Share of all demands above which no further pass is made.
const GOOD_ENOUGH: f64 = 0.9995;

impl Placer {
    /// Negotiates until no link is overfull or the passes are used up. Moves no more placed flows than the budget
    /// allows.
    pub(super) fn negotiate(&mut self, budget: &mut Budget, most: u64) {
        let links = self.network.links().len();
        let mut prices = vec![1.0f64; links];
        let mut best = self.served();
        let total_demand: f64 = self.slots.iter().flatten().map(|state| state.demand_bps as f64).sum();
        let mut undo: Vec<(u32, Option<Box<[u32]>>)> = Vec::new();
        let mut vain = 0;
        for _ in 0..self.settings.passes {
            let mut slots: Vec<u32> = Vec::new();
            for link in self.overfull() {
                let ledger = &self.ledger;
                let over = -ledger.left_bps(link) as f64 / self.network.capacity_bps(link).max(1) as f64;
                prices[link as usize] += PRICE_STEP * over;
                slots.extend_from_slice(ledger.on_link(link));
            }
            let mut known = vec![false; self.slots.len()];
            slots.retain(|&slot| !std::mem::replace(&mut known[slot as usize], true));
            if slots.is_empty()
                || best >= GOOD_ENOUGH * total_demand
                || vain > self.settings.passes / 3
                || self.operations() > most
            {
                break;
            }
            for slot in slots {
                if budget.allows(slot) {
                    if let Some(before) = self.reroute(slot, &prices) {
                        budget.note(slot, &before);
                        undo.push((slot, Some(before)));
                    }
                }
            }
            let served = self.served();
            vain += 1;
            if served > best {
                (best, vain) = (served, 0);
                undo.clear();
            }
        }
        for (slot, path) in undo.into_iter().rev() {
            self.lift(slot);
            if let Some(path) = path {
                self.put(slot, &path);
            }
        }
    }

    /// Puts a flow on the cheapest path at these prices. Returns its previous path, if it has another one now.
    fn reroute(&mut self, slot: u32, prices: &[f64]) -> Option<Box<[u32]>> {
        let ends = self.flow_state(slot).ends?;
        let demand_bps = self.flow_state(slot).demand_bps as i64;
        let before = self.flow_state(slot).path.clone()?;
        self.lift(slot);
        let cost = |ledger: &Ledger, link: u32| {
            let (left, capacity) = (ledger.left_bps(link), ledger.capacity_bps(link));
            let over = (demand_bps - left.max(0)).max(0) as f64;
            let load = (capacity - left) as f64;
            0.02 * prices[link as usize] + (over * prices[link as usize] + 0.02 * load) / capacity.max(1) as f64
        };
        let mut path = Vec::new();
        let found = self.cheapest(ends, cost, &mut path);
        if found.is_none() || *path == *before {
            self.put(slot, &before);
            return None;
        }
        self.put(slot, &path);
        Some(before)
    }

    /// The sum of max-min rates. With many flows, a quick estimate: the rates if each flow had its share, by demand,
    /// of its fullest link.
    fn served(&mut self) -> f64 {
        // Every flow has two access links besides its path. Each link is examined once when the flow is set up and
        // once when it stops.
        let links = |state: &FlowState| 2 * (2 + state.path.as_deref().map_or(0, <[u32]>::len));
        self.extra_operations += self.slots.iter().flatten().map(links).sum::<usize>() as u64;
        if self.len() <= EXACT {
            return self.max_min_bps().into_iter().map(|(_, rate)| rate).sum();
        }
        let share = |&link: &u32| {
            let capacity = self.ledger.capacity_bps(link) as f64;
            capacity / (capacity - self.ledger.left_bps(link).min(0) as f64)
        };
        let served = |state: &FlowState| {
            let path = state.path.as_deref()?;
            Some(state.demand_bps as f64 * path.iter().map(share).fold(1.0, f64::min))
        };
        self.slots.iter().flatten().filter_map(served).sum()
    }
}
