//! The smallest balanced cut, by dynamic programming over an order of the switches.
//!
//! Two partial divisions of the first switches are equivalent for the rest of the search if they agree in two things:
//! the sides of the frontier (switches that still have neighbours to come), and the number of host ports on the first
//! side. Only the one with the smaller cut is kept. A division whose cut is as large as a known balanced cut is
//! dropped. So if no division is left at the end, the known cut is the smallest. WANs and small fabrics have narrow
//! frontiers; if the frontier is wide, the search gives up.

use super::problem::Problem;

/// Limit on the partial divisions examined in all steps together.
const MOST_WAYS: usize = 8_000_000;
/// Widest frontier that fits into the bits of [`PartialCut::sides`].
const MOST_FRONTIER: usize = 64;
/// Number of switches that are tried as the start of an order.
const MOST_ORDERS: usize = 48;

/// A partial cut: it assigns each switch so far to a side.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct PartialCut {
    /// Side of each frontier switch, one bit per slot; 1 is the first side.
    sides: u64,
    /// Host ports on the first side.
    held: u64,
    /// Capacity from the first side to the other.
    cut: u128,
}

/// Returns the capacity of the smallest balanced cut, or `known` if no cut is smaller. `None` if the search takes too
/// long.
pub(super) fn smallest_cut(problem: &Problem, known: u128) -> Option<u128> {
    let order = narrow_order(problem)?;
    let mut partials = vec![PartialCut { sides: 0, held: 0, cut: 0 }];
    let mut place = vec![usize::MAX; problem.len()];
    let mut slots: Vec<Option<usize>> = Vec::new();
    let mut to_come: u64 = problem.weight.iter().sum();
    let mut looked_at = 0;
    for (step, &switch) in order.iter().enumerate() {
        place[switch] = step;
        to_come -= problem.weight[switch];
        let slot = slots.iter().position(Option::is_none).unwrap_or(slots.len());
        if slot == slots.len() {
            slots.push(None);
        }
        slots[slot] = Some(switch);
        looked_at += 2 * partials.len();
        if slot >= MOST_FRONTIER || looked_at > MOST_WAYS {
            return None;
        }
        // In a symmetric fabric, a cut with exchanged sides is the same cut.
        let sides: &[bool] = if step == 0 && problem.symmetric { &[true] } else { &[true, false] };
        let fits = |partial: &PartialCut| {
            partial.cut < known && partial.held <= problem.most && partial.held + to_come >= problem.least
        };
        let links = Links::of(problem, switch, &slots);
        let mut next: Vec<PartialCut> = Vec::with_capacity(2 * partials.len());
        for &first in sides {
            next.extend(
                partials.iter().map(|partial| links.add(partial, slot, first, problem.weight[switch])).filter(fits),
            );
        }
        let done = |switch: usize| problem.arcs[switch].iter().all(|arc| place[arc.to as usize] != usize::MAX);
        let mut kept = u64::MAX;
        for (slot, held) in slots.iter_mut().enumerate() {
            if held.is_some_and(done) {
                *held = None;
                kept &= !(1 << slot);
            }
        }
        next.iter_mut().for_each(|partial| partial.sides &= kept);
        next.sort_unstable();
        next.dedup_by(|next, kept| (next.sides, next.held) == (kept.sides, kept.held));
        partials = next;
    }
    let balanced = partials.iter().filter(|partial| partial.held == problem.least || partial.held == problem.most);
    Some(balanced.map(|partial| partial.cut).min().unwrap_or(known))
}

/// The links between a new switch and the frontier.
struct Links {
    /// For each link: slot of the other end, rate from the new switch to it, and rate in the opposite direction.
    ends: Vec<(usize, u128, u128)>,
}

impl Links {
    fn of(problem: &Problem, switch: usize, slots: &[Option<usize>]) -> Links {
        let slot = |to: u32| slots.iter().position(|&held| held == Some(to as usize));
        let ends = problem.arcs[switch].iter().filter_map(|arc| Some((slot(arc.to)?, arc.out_bps, arc.in_bps)));
        Links { ends: ends.collect() }
    }

    /// Returns the division with one more switch, on the first side or on the other.
    fn add(&self, partial: &PartialCut, slot: usize, first: bool, weight: u64) -> PartialCut {
        let across = |&(end, out_bps, in_bps): &(usize, u128, u128)| match (first, partial.sides >> end & 1 == 1) {
            (true, false) => out_bps,
            (false, true) => in_bps,
            _ => 0,
        };
        PartialCut {
            sides: partial.sides | u64::from(first) << slot,
            held: partial.held + if first { weight } else { 0 },
            cut: partial.cut + self.ends.iter().map(across).sum::<u128>(),
        }
    }
}

/// Returns an order with narrow frontiers, the best of several greedy ones. `None` if the frontiers of all are too
/// wide.
fn narrow_order(problem: &Problem) -> Option<Vec<usize>> {
    let starts = MOST_ORDERS.min(problem.len());
    // Cost of an order: the sum of two to the power of each frontier size.
    let orders = (0..starts).map(|number| greedy_order(problem, number * problem.len() / starts));
    let best = orders.min_by(|a, b| a.1.total_cmp(&b.1))?;
    (best.1.is_finite()).then_some(best.0)
}

/// Starts at `start`, and then always appends the switch that widens the frontier least. Stops with an infinite cost
/// if the frontier becomes too wide.
fn greedy_order(problem: &Problem, start: usize) -> (Vec<usize>, f64) {
    let mut placed = vec![false; problem.len()];
    // Number of neighbours of each switch that are not placed yet.
    let mut open: Vec<usize> = problem.arcs.iter().map(Vec::len).collect();
    let mut order: Vec<usize> = Vec::with_capacity(problem.len());
    let mut frontier: Vec<usize> = Vec::new();
    let mut cost = 0.0;
    let mut next = Some(start);
    while let Some(switch) = next {
        placed[switch] = true;
        order.push(switch);
        for arc in &problem.arcs[switch] {
            open[arc.to as usize] -= 1;
        }
        frontier.push(switch);
        frontier.retain(|&switch| open[switch] > 0);
        cost += 2f64.powi(frontier.len() as i32);
        if frontier.len() >= MOST_FRONTIER {
            return (order, f64::INFINITY);
        }
        // Growth of the frontier if a switch is added. Among equals, the neighbour of the oldest frontier switch is
        // chosen.
        let widening = |switch: usize| {
            let closes = |end: u32| placed[end as usize] && open[end as usize] == 1;
            let closed = problem.arcs[switch].iter().filter(|arc| closes(arc.to)).count();
            i64::from(open[switch] > 0) - closed as i64
        };
        let candidates = frontier
            .iter()
            .enumerate()
            .flat_map(|(age, &switch)| problem.arcs[switch].iter().map(move |arc| (age, arc.to as usize)));
        let candidates = candidates.filter(|&(_, switch)| !placed[switch]);
        let best = candidates.map(|(age, switch)| (widening(switch), age, switch)).min();
        next = best.map(|best| best.2).or_else(|| (0..problem.len()).find(|&switch| !placed[switch]));
    }
    (order, cost)
}
