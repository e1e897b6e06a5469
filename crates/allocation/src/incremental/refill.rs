//! The rates of some flows, while all others keep theirs: progressive filling of what the others leave.

use super::{Crossing, Flow, IncrementalMaxMin, Link, Use};
use crate::max_min::At;
use crate::Limit;
use std::collections::BinaryHeap;

/// A flow that an update recomputes, and its rate before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) flow: u32,
    pub(super) before: f64,
}

/// A link that some member uses.
#[derive(Clone, Copy, Debug)]
struct Local {
    link: u32,
    /// Number of uses by members that still grow.
    growing: u32,
    /// Capacity that is not taken.
    left: f64,
    /// Sum of weight times share of the members that still grow.
    weight: f64,
    /// The level at which it was full and stopped members; infinite if it did not.
    full_at: f64,
    /// The highest level of a member.
    top: f64,
    /// The most that all members together could take, if each had the rest of its links to itself.
    most: f64,
}

/// A link fills if the members could take at least this part of what is left; the rest is for rounding.
const ALMOST: f64 = 1.0 - 1e-6;

/// State of an update. Its buffers are used again by the next one.
#[derive(Clone, Debug, Default)]
pub(super) struct Refill {
    /// Number of this update, and of this round among all rounds.
    update: u64,
    round: u64,
    members: Vec<Member>,
    /// The links of all members before any of them has a rate, and as they are filled.
    locals: Vec<Local>,
    filled: Vec<Local>,
    links: BinaryHeap<At>,
    demands: BinaryHeap<At>,
}

impl Refill {
    /// Begins an update, without members.
    pub(super) fn begin(&mut self) {
        self.update += 1;
        self.members.clear();
        self.locals.clear();
    }

    /// Number of members.
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// Finds the most that the members could take of each link. Most links can never fill, such as those that carry few
    /// acknowledgements, and need no place in the heap.
    fn find_most(&mut self, flows: &[Flow], links: &[Link]) {
        let filled = &mut self.filled;
        for member in &self.members {
            let flow = &flows[member.flow as usize];
            let local_of = |of: &Use| links[of.link as usize].local as usize;
            let alone = flow.uses.iter().map(|of| filled[local_of(of)].left.max(0.0) / of.share);
            let most = alone.fold(flow.demand, f64::min);
            flow.uses.iter().for_each(|of| filled[local_of(of)].most += most * of.share);
        }
    }

    /// The flows that the update recomputes.
    pub(super) fn members(&self) -> &[Member] {
        &self.members
    }
}

impl IncrementalMaxMin {
    /// Lets a flow be recomputed. Its rate is taken from its links.
    pub(super) fn join(&mut self, flow: u32) {
        let update = self.refill.update;
        let of = &mut self.flows[flow as usize];
        if !of.is_live || std::mem::replace(&mut of.joined, update) == update {
            return;
        }
        self.refill.members.push(Member { flow, before: of.rate });
        for place in 0..of.uses.len() {
            let of = &self.flows[flow as usize];
            let Use { link, share, .. } = of.uses[place];
            if self.links[link as usize].update == update {
                let local = &mut self.refill.locals[self.links[link as usize].local as usize];
                local.left += of.rate * share;
                local.weight += of.weight * share;
                local.growing += 1;
            } else {
                self.involve(link);
            }
        }
    }

    /// Begins to consider a link. Of the flows that have joined, only the last one uses it.
    fn involve(&mut self, link: u32) {
        let (update, number) = (self.refill.update, self.refill.locals.len() as u32);
        let of = &mut self.links[link as usize];
        (of.update, of.local) = (update, number);
        let mut local = Local {
            link,
            growing: 0,
            left: of.capacity,
            weight: 0.0,
            full_at: f64::INFINITY,
            top: f64::NEG_INFINITY,
            most: 0.0,
        };
        for &Crossing { flow, which } in &of.crossing {
            let flow = &self.flows[flow as usize];
            let share = flow.uses[which as usize].share;
            if flow.joined == update {
                local.weight += flow.weight * share;
                local.growing += 1;
            } else {
                local.left -= flow.rate * share;
            }
        }
        self.refill.locals.push(local);
    }

    /// Gives all members their rates.
    pub(super) fn refill(&mut self) {
        self.refill.round += 1;
        let refill = &mut self.refill;
        refill.filled.clone_from(&refill.locals);
        refill.find_most(&self.flows, &self.links);
        refill.links.clear();
        let may_fill = refill.filled.iter().zip(0..).filter(|(local, _)| local.most >= local.left.max(0.0) * ALMOST);
        refill.links.extend(may_fill.map(|(local, index)| At { level: level_of(local), index }));
        refill.demands.clear();
        let bounded = refill.members.iter().map(|member| (member.flow, &self.flows[member.flow as usize]));
        let bounded = bounded.filter(|(_, flow)| flow.demand.is_finite());
        refill.demands.extend(bounded.map(|(index, flow)| At { level: flow.demand / flow.weight, index }));
        loop {
            let full = self.next_full();
            match self.refill.demands.peek().copied() {
                Some(met) if full.is_none_or(|full| met.level <= full.level) => {
                    self.refill.demands.pop();
                    let demand = self.flows[met.index as usize].demand;
                    self.stop(met.index, demand, Limit::Demand);
                }
                _ => match full {
                    Some(full) => self.fill(full),
                    None => break,
                },
            }
        }
    }

    /// The link that is full next, by its local number, with the exact level.
    fn next_full(&mut self) -> Option<At> {
        loop {
            let At { level, index } = *self.refill.links.peek()?;
            let local = &self.refill.filled[index as usize];
            if local.growing == 0 {
                self.refill.links.pop();
                continue;
            }
            let right = level_of(local);
            if right <= level {
                return Some(At { level: right, index });
            }
            self.refill.links.pop();
            self.refill.links.push(At { level: right, index });
        }
    }

    /// Stops every member that still grows on a full link.
    fn fill(&mut self, full: At) {
        let local = &mut self.refill.filled[full.index as usize];
        local.full_at = full.level;
        let link = local.link;
        for place in 0..self.links[link as usize].crossing.len() {
            let flow = self.links[link as usize].crossing[place].flow;
            let of = &self.flows[flow as usize];
            if of.joined == self.refill.update {
                let rate = full.level * of.weight;
                self.stop(flow, rate, Limit::Link(link));
            }
        }
    }

    fn stop(&mut self, flow: u32, rate: f64, limit: Limit) {
        let of = &mut self.flows[flow as usize];
        if std::mem::replace(&mut of.stopped, self.refill.round) == self.refill.round {
            return;
        }
        // The rate of a full link may exceed the demand by rounding.
        of.rate = rate.min(of.demand);
        of.level = of.rate / of.weight;
        of.limit = limit;
        for of_link in &of.uses {
            let local = &mut self.refill.filled[self.links[of_link.link as usize].local as usize];
            local.left -= of.rate * of_link.share;
            local.weight -= of.weight * of_link.share;
            local.growing -= 1;
            local.top = local.top.max(of.level);
        }
    }

    /// Lets the flows join that may have more, or must have less, now that the members have their rates. Returns
    /// whether there are any.
    pub(super) fn join_affected(&mut self) -> bool {
        let (before, tolerance) = (self.refill.len(), self.tolerance);
        for index in 0..self.refill.filled.len() {
            let Local { link, left, full_at, top, .. } = self.refill.filled[index];
            let is_full = left <= self.links[link as usize].capacity * tolerance;
            for place in 0..self.links[link as usize].crossing.len() {
                let flow = self.links[link as usize].crossing[place].flow;
                let of = &self.flows[flow as usize];
                if of.joined == self.refill.update {
                    continue;
                }
                let has_too_much = of.level > full_at * (1.0 + tolerance);
                let may_have_more = of.limit == Limit::Link(link) && (!is_full || top > of.level * (1.0 + tolerance));
                if has_too_much || may_have_more {
                    self.join(flow);
                }
            }
        }
        self.refill.len() > before
    }
}

/// The level at which a link is full if no more members stop elsewhere.
fn level_of(local: &Local) -> f64 {
    if local.growing == 0 {
        return f64::INFINITY;
    }
    local.left.max(0.0) / local.weight
}
