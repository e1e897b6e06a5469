//! Local search that improves the result of the papers' walk.

use super::demand_limits::Cuts;
use super::negotiate::Negotiation;
use super::placer::Placer;
use super::recolour::recolour;
use super::state::Ledger;

/// Maximum number of sweeps over the overfull links. Each sweep except the last has moved something.
const MAX_SWEEPS: u32 = 8;
/// Maximum number of links examined by both kinds of search together: about 0.1 s, or 0.2 s on the largest fabrics.
const MOST_OPERATIONS: u64 = 12_000_000;
/// Minimum gain of a move, in the unit of [`cost`].
const LEAST_GAIN: f64 = 1e-9;

/// The cost of this load on a link of this capacity. The share by which the link is overfull counts more than in
/// proportion. Every load counts a little, so that equal paths are used equally.
fn cost(load_bps: i64, capacity_bps: i64) -> f64 {
    let share = load_bps as f64 / capacity_bps.max(1) as f64;
    let over = (share - 1.0).max(0.0);
    over * (1.0 + 0.5 * over) + 0.05 * share * share
}

/// Which flows may move.
pub(super) struct Budget {
    /// Number of placed flows that may still begin to move.
    left: usize,
    /// By slot, whether further moves are free, because the flow is new or has moved already.
    free: Vec<bool>,
    /// Slots that have moved, and their original paths.
    origins: Vec<(u32, Box<[u32]>)>,
}

impl Budget {
    /// `new` are the slots of flows that had no path. They may move freely.
    fn new(slots: usize, most_moves: usize, new: &[u32]) -> Budget {
        let mut free = vec![false; slots];
        new.iter().for_each(|&slot| free[slot as usize] = true);
        Budget { left: most_moves, free, origins: Vec::new() }
    }

    pub(super) fn allows(&self, slot: u32) -> bool {
        self.left > 0 || self.free[slot as usize]
    }

    /// Whether all of these may move, each once.
    pub(super) fn allows_all(&self, slots: impl Iterator<Item = u32>) -> bool {
        slots.filter(|&slot| !self.free[slot as usize]).count() <= self.left
    }

    /// Records that a flow left its path.
    pub(super) fn note(&mut self, slot: u32, before: &[u32]) {
        if !std::mem::replace(&mut self.free[slot as usize], true) {
            self.left -= 1;
            self.origins.push((slot, before.into()));
        }
    }
}

/// A search for better paths.
pub(super) struct Improvement<'a> {
    placer: &'a mut Placer,
    budget: Budget,
    /// Number of links examined in total at which the search ends.
    most: u64,
}

impl Improvement<'_> {
    /// Flows that had a path before may make at most `most_moves` moves. `new` are the slots of flows that had no path;
    /// these may move freely.
    pub(super) fn new<'a>(placer: &'a mut Placer, most_moves: usize, new: &[u32]) -> Improvement<'a> {
        let budget = Budget::new(placer.slots.len(), most_moves, new);
        let most = placer.operations() + MOST_OPERATIONS;
        Improvement { placer, budget, most }
    }

    /// Moves flows off overfull links as long as that helps. Returns the flows that had a path before and have
    /// another one now.
    pub(super) fn run(mut self) -> Vec<u64> {
        self.relieve();
        let Improvement { placer, budget, most } = &mut self;
        if !placer.ledger.overfull_links().is_empty() && !recolour(placer, budget) {
            let natural = placer.demands();
            if let Some(limited) = Cuts::of(placer).limited_demands(placer) {
                placer.set_demands(&limited);
            }
            Negotiation::new(placer).run(budget, *most);
            placer.set_demands(&natural);
        }
        let differs = |(slot, before): &(u32, Box<[u32]>)| placer.flow_state(*slot).path.as_ref() != Some(before);
        let moved = budget.origins.iter().filter(|origin| differs(origin));
        let mut ids: Vec<u64> = moved.map(|(slot, _)| placer.flow_state(*slot).id).collect();
        ids.sort_unstable();
        ids
    }

    /// Moves one flow at a time to a path with a lower cost.
    fn relieve(&mut self) {
        for _ in 0..MAX_SWEEPS {
            let mut changed = false;
            for link in self.placer.ledger.overfull_links() {
                if self.placer.operations() > self.most {
                    return;
                }
                for slot in self.placer.ledger.on_link(link).to_vec() {
                    if self.placer.ledger.left_bps(link) >= 0 {
                        break;
                    }
                    if self.budget.allows(slot) {
                        if let Some(before) = self.relocate(slot) {
                            self.budget.note(slot, &before);
                            changed = true;
                        }
                    }
                }
            }
            if !changed {
                break;
            }
        }
    }

    /// Moves a flow to the path with the lowest added cost, if that is better. Returns its previous path.
    fn relocate(&mut self, slot: u32) -> Option<Box<[u32]>> {
        let placer = &mut *self.placer;
        let ends = placer.flow_state(slot).ends?;
        let before = placer.flow_state(slot).path.clone()?;
        placer.lift(slot);
        let demand_bps = placer.flow_state(slot).demand_bps as i64;
        let here: f64 = before.iter().map(|&link| added_cost(&placer.ledger, link, demand_bps)).sum();
        let mut path = Vec::new();
        let there = placer.cheapest(ends, |ledger, link| added_cost(ledger, link, demand_bps), &mut path);
        if there.is_some_and(|there| there < here - LEAST_GAIN) {
            placer.put(slot, &path);
            Some(before)
        } else {
            placer.put(slot, &before);
            None
        }
    }
}

/// The cost that one more flow of this demand adds to a link.
fn added_cost(ledger: &Ledger, link: u32, demand_bps: i64) -> f64 {
    let capacity_bps = ledger.capacity_bps(link);
    let load_bps = capacity_bps - ledger.left_bps(link);
    cost(load_bps + demand_bps, capacity_bps) - cost(load_bps, capacity_bps)
}
