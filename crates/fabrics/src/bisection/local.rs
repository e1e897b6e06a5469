//! Balanced cuts by local search (Fiduccia and Mattheyses, DAC 1982). From many starts, switches change sides one by
//! one, those with the largest gain first, and the best balanced cut on the way is kept.

use super::problem::Problem;
use rand::seq::SliceRandom;
use rand::SeedableRng;
use rand_pcg::Pcg64;
use std::collections::{BinaryHeap, VecDeque};

/// Limit on the moves of all starts together, each counted with the neighbours of the switch.
const MOST_STEPS: usize = 20_000_000;
const MOST_STARTS: usize = 64;
const MOST_PASSES: usize = 20;

/// Returns the capacity of the best balanced cut found.
pub(super) fn best_cut(problem: &Problem) -> u128 {
    let arcs: usize = problem.arcs.iter().map(Vec::len).sum();
    let starts = (MOST_STEPS / (MOST_PASSES * (problem.len() + arcs))).clamp(3, MOST_STARTS);
    let sources = starts.min(problem.len());
    let mut best = u128::MAX;
    let mut consider = |first: Vec<bool>| {
        if !problem.symmetric {
            best = best.min(Search::new(problem, first.iter().map(|first| !first).collect()).run());
        }
        best = best.min(Search::new(problem, first).run());
    };
    consider(problem.balanced.clone());
    consider(filled(problem, 0..problem.len()));
    for number in 0..sources {
        consider(filled(problem, by_distance(problem, number * problem.len() / sources)));
    }
    let mut order: Vec<usize> = (0..problem.len()).collect();
    let mut rng = Pcg64::seed_from_u64(1);
    for _ in 0..starts / 4 {
        order.shuffle(&mut rng);
        consider(filled(problem, order.iter().copied()));
    }
    best
}

/// Selects switches in the given order, as long as they hold at most half of the host ports.
fn filled(problem: &Problem, order: impl IntoIterator<Item = usize>) -> Vec<bool> {
    let mut first = vec![false; problem.len()];
    let mut left = problem.least;
    for switch in order {
        if left > 0 && problem.weight[switch] <= left {
            left -= problem.weight[switch];
            first[switch] = true;
        }
    }
    first
}

/// Returns all switches, nearest to `source` first. Switches that `source` does not reach come last.
fn by_distance(problem: &Problem, source: usize) -> Vec<usize> {
    let mut seen = vec![false; problem.len()];
    let mut order = Vec::with_capacity(problem.len());
    for start in [source].into_iter().chain(0..problem.len()) {
        let mut queue = VecDeque::from_iter((!std::mem::replace(&mut seen[start], true)).then_some(start));
        while let Some(switch) = queue.pop_front() {
            order.push(switch);
            for arc in &problem.arcs[switch] {
                if !std::mem::replace(&mut seen[arc.to as usize], true) {
                    queue.push_back(arc.to as usize);
                }
            }
        }
    }
    order
}

struct Search<'a> {
    problem: &'a Problem,
    /// Whether a switch is on the first side, which is the sending side.
    first: Vec<bool>,
    /// Host ports on the first side.
    held: u64,
    /// Range for the host ports on the first side, also between two balanced cuts.
    room: std::ops::RangeInclusive<u64>,
    cut: i128,
    /// Decrease of the cut if a switch changes sides.
    gain: Vec<i128>,
    locked: Vec<bool>,
    /// Switches that can move, by side and by whether they have hosts. An entry is stale if its gain is no longer
    /// that of its switch.
    waiting: [[BinaryHeap<(i128, u32)>; 2]; 2],
}

impl<'a> Search<'a> {
    fn new(problem: &'a Problem, first: Vec<bool>) -> Search<'a> {
        let held = first.iter().zip(&problem.weight).filter(|(&first, _)| first).map(|(_, weight)| weight).sum();
        let cut = problem.capacity(&first) as i128;
        let largest = problem.weight.iter().copied().max().unwrap_or(0);
        let room = problem.least.saturating_sub(largest)..=problem.most + largest;
        let waiting = Default::default();
        Search { problem, first, held, room, cut, gain: Vec::new(), locked: Vec::new(), waiting }
    }

    /// Repeats passes as long as they improve the cut. Returns `u128::MAX` if no balanced cut was found.
    fn run(mut self) -> u128 {
        let mut best = if self.is_balanced() { self.cut } else { i128::MAX };
        for _ in 0..MOST_PASSES {
            let found = self.pass();
            if found >= best {
                break;
            }
            best = found;
        }
        u128::try_from(best).ok().filter(|_| best < i128::MAX).unwrap_or(u128::MAX)
    }

    fn is_balanced(&self) -> bool {
        self.held == self.problem.least || self.held == self.problem.most
    }

    /// Moves every switch once, then returns to the best balanced cut on the way. Returns the capacity of that cut.
    fn pass(&mut self) -> i128 {
        self.gain = (0..self.problem.len()).map(|switch| self.gain_of(switch)).collect();
        self.locked = vec![false; self.problem.len()];
        self.waiting = Default::default();
        for switch in 0..self.problem.len() {
            self.wait(switch);
        }
        let mut moved: Vec<usize> = Vec::new();
        let (mut best, mut kept) = (if self.is_balanced() { self.cut } else { i128::MAX }, 0);
        while let Some(switch) = self.next() {
            self.cross(switch);
            moved.push(switch);
            if self.is_balanced() && self.cut < best {
                (best, kept) = (self.cut, moved.len());
            }
        }
        for &switch in moved[kept..].iter().rev() {
            self.cross(switch);
        }
        best
    }

    fn gain_of(&self, switch: usize) -> i128 {
        let here = self.first[switch];
        let change = |arc: &super::problem::Arc| match (here, self.first[arc.to as usize]) {
            (true, true) => -(arc.in_bps as i128),
            (true, false) => arc.out_bps as i128,
            (false, true) => arc.in_bps as i128,
            (false, false) => -(arc.out_bps as i128),
        };
        self.problem.arcs[switch].iter().map(change).sum()
    }

    fn wait(&mut self, switch: usize) {
        let heap = &mut self.waiting[usize::from(self.first[switch])][usize::from(self.problem.weight[switch] > 0)];
        heap.push((self.gain[switch], switch as u32));
    }

    /// Takes the switch with the largest gain whose move keeps the sides within one rack of balance.
    fn next(&mut self) -> Option<usize> {
        let mut best: Option<(i128, bool, u32, usize, usize)> = None;
        for side in 0..2 {
            for kind in 0..2 {
                let heap = &mut self.waiting[side][kind];
                while let Some(&(gain, switch)) = heap.peek() {
                    let place = switch as usize;
                    if self.locked[place] || gain != self.gain[place] || usize::from(self.first[place]) != side {
                        heap.pop();
                        continue;
                    }
                    let weight = self.problem.weight[place];
                    let then = if side == 1 { self.held - weight } else { self.held + weight };
                    // Among equal gains, prefer the move towards balance.
                    let nearer = (side == 1) == (self.held >= self.problem.most) && weight > 0;
                    if self.room.contains(&then) && best.is_none_or(|(g, n, ..)| (gain, nearer) > (g, n)) {
                        best = Some((gain, nearer, switch, side, kind));
                    }
                    break;
                }
            }
        }
        let (_, _, switch, side, kind) = best?;
        self.waiting[side][kind].pop();
        self.locked[switch as usize] = true;
        Some(switch as usize)
    }

    /// Moves a switch to the other side, and updates the gains of its neighbours.
    fn cross(&mut self, switch: usize) {
        let weight = self.problem.weight[switch];
        self.cut -= self.gain[switch];
        self.held = if self.first[switch] { self.held - weight } else { self.held + weight };
        self.first[switch] = !self.first[switch];
        self.gain[switch] = -self.gain[switch];
        let arcs = &self.problem.arcs[switch];
        for arc in arcs {
            let other = arc.to as usize;
            // If the two switches are now on the same side, a move of `other` adds their links to the cut in one
            // direction. Otherwise, it removes their links from the cut in the other direction.
            let both = (arc.out_bps + arc.in_bps) as i128;
            self.gain[other] += if self.first[other] == self.first[switch] { -both } else { both };
            if !self.locked[other] {
                self.wait(other);
            }
        }
    }
}
