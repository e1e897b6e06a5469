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

/// A negotiation.
pub(super) struct Negotiation<'a> {
    placer: &'a mut Placer,
    /// By link, how much more expensive it has become.
    prices: Vec<f64>,
    /// Sum of the rates in the best state so far.
    best: f64,
    /// Flows that have moved since the best state, each with its path before the move.
    undo: Vec<(u32, Box<[u32]>)>,
    /// Number of passes since the best state.
    vain: u32,
}

impl Negotiation<'_> {
    pub(super) fn new(placer: &mut Placer) -> Negotiation<'_> {
        let prices = vec![1.0f64; placer.network.links().len()];
        let mut negotiation = Negotiation { placer, prices, best: 0.0, undo: Vec::new(), vain: 0 };
        negotiation.best = negotiation.served();
        negotiation
    }

    /// Negotiates until no link is overfull or the passes are used up. Moves no more placed flows than the budget
    /// allows.
    pub(super) fn run(mut self, budget: &mut Budget, most: u64) {
        let total_demand: f64 = self.placer.slots.iter().flatten().map(|state| state.demand_bps as f64).sum();
        let passes = self.placer.settings.passes;
        for _ in 0..passes {
            let slots = self.raise_prices();
            if slots.is_empty()
                || self.best >= GOOD_ENOUGH * total_demand
                || self.vain > passes / 3
                || self.placer.operations() > most
            {
                break;
            }
            self.pass(&slots, budget);
        }
        for (slot, path) in self.undo.into_iter().rev() {
            self.placer.lift(slot);
            self.placer.put(slot, &path);
        }
    }

    /// Raises the prices of overfull links. Returns the flows on them.
    fn raise_prices(&mut self) -> Vec<u32> {
        let (ledger, mut slots) = (&self.placer.ledger, Vec::new());
        for link in ledger.overfull_links() {
            let over = -ledger.left_bps(link) as f64 / self.placer.network.capacity_bps(link).max(1) as f64;
            self.prices[link as usize] += PRICE_STEP * over;
            slots.extend_from_slice(ledger.on_link(link));
        }
        let mut known = vec![false; self.placer.slots.len()];
        slots.retain(|&slot: &u32| !std::mem::replace(&mut known[slot as usize], true));
        slots
    }

    /// Routes flows again, one after the other.
    fn pass(&mut self, slots: &[u32], budget: &mut Budget) {
        for &slot in slots {
            if budget.allows(slot) {
                if let Some(before) = self.reroute(slot) {
                    budget.note(slot, &before);
                    self.undo.push((slot, before));
                }
            }
        }
        let served = self.served();
        self.vain += 1;
        if served > self.best {
            (self.best, self.vain) = (served, 0);
            self.undo.clear();
        }
    }

    /// Puts a flow on the cheapest path at the present prices. Returns its previous path, if it has another one now.
    fn reroute(&mut self, slot: u32) -> Option<Box<[u32]>> {
        let Negotiation { placer, prices, .. } = self;
        let ends = placer.flow_state(slot).ends?;
        let demand_bps = placer.flow_state(slot).demand_bps as i64;
        let before = placer.flow_state(slot).path.clone()?;
        placer.lift(slot);
        let cost = |ledger: &Ledger, link: u32| {
            let (left, capacity) = (ledger.left_bps(link), ledger.capacity_bps(link));
            let over = (demand_bps - left.max(0)).max(0) as f64;
            let load = (capacity - left) as f64;
            0.02 * prices[link as usize] + (over * prices[link as usize] + 0.02 * load) / capacity.max(1) as f64
        };
        let mut path = Vec::new();
        let found = placer.cheapest(ends, cost, &mut path);
        if found.is_none() || *path == *before {
            placer.put(slot, &before);
            return None;
        }
        placer.put(slot, &path);
        Some(before)
    }

    /// The sum of max-min rates. With many flows, a quick estimate: the rates if each flow had its share, by demand,
    /// of its fullest link.
    fn served(&mut self) -> f64 {
        let placer = &mut *self.placer;
        // Every flow has two access links besides its path. Each link is examined once when the flow is set up and
        // once when it stops.
        let links = |state: &FlowState| 2 * (2 + state.path.as_deref().map_or(0, <[u32]>::len));
        placer.extra_operations += placer.slots.iter().flatten().map(links).sum::<usize>() as u64;
        if placer.len() <= EXACT {
            return placer.max_min_bps().into_iter().map(|(_, rate)| rate).sum();
        }
        let share = |&link: &u32| {
            let capacity = placer.ledger.capacity_bps(link) as f64;
            capacity / (capacity - placer.ledger.left_bps(link).min(0) as f64)
        };
        let served = |state: &FlowState| {
            let path = state.path.as_deref()?;
            Some(state.demand_bps as f64 * path.iter().map(share).fold(1.0, f64::min))
        };
        placer.slots.iter().flatten().filter_map(served).sum()
    }
}
