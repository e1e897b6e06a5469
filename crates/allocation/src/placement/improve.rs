//! Local search that improves the result of the papers' walk.

use super::placer::Placer;
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

impl Placer {
    /// Moves flows off overfull links as long as that helps. Returns the flows that had a path before and have
    /// another one now, at most `most_moves`. `new` are the slots of flows that had no path; these may move freely.
    pub(super) fn improve(&mut self, most_moves: usize, new: &[u32]) -> Vec<u64> {
        let mut budget = Budget::new(self.slots.len(), most_moves, new);
        let most = self.operations() + MOST_OPERATIONS;
        self.relieve(&mut budget, most);
        if !self.overfull().is_empty() && !self.recolour(&mut budget) {
            let natural = self.demands();
            if let Some(limited) = self.limited_demands() {
                self.set_demands(&limited);
            }
            self.negotiate(&mut budget, most);
            self.set_demands(&natural);
        }
        let differs = |(slot, before): &(u32, Box<[u32]>)| self.flow_state(*slot).path.as_ref() != Some(before);
        let moved = budget.origins.iter().filter(|origin| differs(origin));
        let mut ids: Vec<u64> = moved.map(|(slot, _)| self.flow_state(*slot).id).collect();
        ids.sort_unstable();
        ids
    }

    /// Moves one flow at a time to a path with a lower cost, until the search has examined `most` links in total.
    fn relieve(&mut self, budget: &mut Budget, most: u64) {
        for _ in 0..MAX_SWEEPS {
            let mut changed = false;
            for link in self.overfull() {
                if self.operations() > most {
                    return;
                }
                for slot in self.ledger.on_link(link).to_vec() {
                    if self.ledger.left_bps(link) >= 0 {
                        break;
                    }
                    if budget.allows(slot) {
                        if let Some(before) = self.relocate(slot) {
                            budget.note(slot, &before);
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

    /// Links whose demand exceeds their capacity (by more than a thousandth), the most overfull first.
    pub(super) fn overfull(&self) -> Vec<u32> {
        let over = |&link: &u32| self.ledger.left_bps(link) < -self.ledger.capacity_bps(link) / 1000;
        let mut links: Vec<u32> = (0..self.network.links().len() as u32).filter(over).collect();
        links.sort_by_key(|&link| (self.ledger.left_bps(link), link));
        links
    }

    /// Moves a flow to the path with the lowest added cost, if that is better. Returns its previous path.
    fn relocate(&mut self, slot: u32) -> Option<Box<[u32]>> {
        let ends = self.flow_state(slot).ends?;
        let before = self.flow_state(slot).path.clone()?;
        self.lift(slot);
        let demand_bps = self.flow_state(slot).demand_bps as i64;
        let here: f64 = before.iter().map(|&link| added_cost(&self.ledger, link, demand_bps)).sum();
        let mut path = Vec::new();
        let there = self.cheapest(ends, |ledger, link| added_cost(ledger, link, demand_bps), &mut path);
        if there.is_some_and(|there| there < here - LEAST_GAIN) {
            self.put(slot, &path);
            Some(before)
        } else {
            self.put(slot, &before);
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
