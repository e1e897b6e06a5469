//! The plan: how switches divide the traffic to each ToR among their next hops, for the long flows that are known.

use crate::helpers::nics::Nics;
use crate::helpers::state;
use pathloom_allocation::natural_demand;
use pathloom_allocation::splitting::{by_capacity, fitting, split, Destination, Hop, Place, Shares};
use pathloom_model::search::RouteTable;
use pathloom_model::{LinkId, NodeId};
use pathloom_scheme::{HopWeights, State, View};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Largest weight of a next hop. A next hop with less than half of the share of one unit gets nothing.
const MOST_WEIGHT: f64 = 32.0;
/// Most rounds of the solver.
const MOST_ROUNDS: u32 = 200;
/// Most passes, the least gain of a pass after which there is another one, and what a pass divides as a multiple of what fitted
/// after the one before.
const PASSES: u32 = 6;
const LEAST_GAIN: f64 = 0.002;
const ROOM_TO_GROW: f64 = 1.1;
/// Most ToRs to which traffic goes when the solver finds out whether paths differ, and the difference that comes from rounding.
const MOST_SAMPLES: usize = 16;
const ROUNDING: f64 = 1e-6;
/// Shares that differ by less than this, as a part of the largest one, count as equal.
const EQUAL: f64 = 0.04;

/// What the solver returns.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "snake_case")]
pub(super) enum Answer {
    /// Weights of next hops where there are several, and the work in visits of a next hop.
    Flows { weights: Vec<HopWeights>, visits: u64 },
    /// Whether all next hops of each switch are equally good.
    Everything { is_even: bool, visits: u64 },
}

impl Default for Answer {
    /// What an unreadable state says: nothing has to be planned.
    fn default() -> Answer {
        Answer::Everything { is_even: true, visits: 0 }
    }
}

/// What a job plans for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) enum Job {
    /// The long flows of the view.
    #[default]
    Flows,
    /// Equal traffic between all ToRs: whether anything has to be planned.
    Everything,
}

/// The solver: a plain function of a view and a [`Job`].
pub(super) fn solve(view: &View, input: &State) -> State {
    state::pack(&match state::unpack(input) {
        Job::Flows => weights(view, &of_flows(view)),
        Job::Everything => evenness(view),
    })
}

/// Traffic in bit/s from one ToR to another.
type Demands = BTreeMap<(NodeId, NodeId), f64>;

/// The natural demands of the long flows.
fn of_flows(view: &View) -> Demands {
    let mut nics = Nics::default();
    let pairs: Vec<(usize, NodeId, NodeId)> =
        view.long_flows().filter_map(|(_, flow)| Some((nics.add(view, flow)?.0, flow.src_tor, flow.dst_tor))).collect();
    let natural = natural_demand(&nics.transmit, &nics.receive, &nics.pairs);
    let mut demands = Demands::new();
    for (pair, from, to) in pairs.into_iter().filter(|(_, from, to)| from != to) {
        *demands.entry((from, to)).or_insert(0.0) += natural.demands[pair];
    }
    demands
}

/// Equal traffic from each ToR to some of the others, of which there are at most [`MOST_SAMPLES`]. A failure anywhere shows, because
/// traffic comes from all ToRs.
fn of_everything(view: &View) -> Demands {
    let tors = view.fabric.tors();
    let sample = tors.iter().step_by(tors.len().div_ceil(MOST_SAMPLES).max(1));
    let pairs = sample.flat_map(|&to| tors.iter().map(move |&from| (from, to))).filter(|(from, to)| from != to);
    pairs.map(|pair| (pair, 1.0)).collect()
}

/// Whether all next hops are equally good: the shares by capacity are equal, and no share wants to change.
fn evenness(view: &View) -> Answer {
    let (_, places) = graphs(view, &of_everything(view));
    let capacities = capacities(view);
    let found = split(&capacities, &places, &by_capacity(&capacities, &places), 2);
    let is_even = |shares: &Vec<f64>| shares.iter().all(|share| (share * shares.len() as f64 - 1.0).abs() < ROUNDING);
    let is_even = found.shares.iter().flatten().all(is_even);
    Answer::Everything { is_even, visits: visits(&places, found.rounds) }
}

/// Number of visits of a next hop in so many rounds.
fn visits(places: &[Destination], rounds: u32) -> u64 {
    u64::from(rounds) * places.iter().flatten().map(|place| place.hops.len() as u64).sum::<u64>()
}

fn capacities(view: &View) -> Vec<f64> {
    view.fabric.links().iter().map(|link| link.settings.rate_bps as f64).collect()
}

/// A ToR, and the switches that traffic to it passes, each before those that its next hops lead to.
type Names = (NodeId, Vec<NodeId>);

/// The graphs of these demands: their switches, and the places that the solver needs.
fn graphs(view: &View, demands: &Demands) -> (Vec<Names>, Vec<Destination>) {
    let routes = RouteTable::new(&view.fabric, &view.links);
    let mut by_tor: BTreeMap<NodeId, Vec<(NodeId, f64)>> = BTreeMap::new();
    for (&(from, to), &bps) in demands {
        by_tor.entry(to).or_default().push((from, bps));
    }
    by_tor.into_iter().filter_map(|(tor, from)| graph(view, &routes, tor, &from)).unzip()
}

fn weights(view: &View, demands: &Demands) -> Answer {
    let (names, places) = graphs(view, demands);
    let (shares, rounds) = divide(&capacities(view), &places);
    let mut weights = Vec::new();
    for (((tor, switches), places), shares) in names.iter().zip(&places).zip(&shares) {
        for ((&switch, place), shares) in switches.iter().zip(places).zip(shares) {
            if shares.len() > 1 {
                let links = place.hops.iter().map(|hop| LinkId(hop.link));
                weights.push(HopWeights { switch, tor: *tor, weights: links.zip(rounded(shares)).collect() });
            }
        }
    }
    Answer::Flows { weights, visits: visits(&places, rounds) }
}

/// Shares of next hops by which as much as possible fits, and the number of rounds that it took. Traffic that does not fit
/// anyway, as that of a ToR that has lost half of its links, must not push aside traffic that would: the next pass
/// divides little more than what fits.
fn divide(capacities: &[f64], places: &[Destination]) -> (Shares, u32) {
    let mut wanted = places.to_vec();
    let mut best = by_capacity(capacities, places);
    let mut fits = fitting(capacities, places, &best);
    let (mut most, mut rounds) = (sum(&fits), 0);
    for pass in 0..PASSES {
        let found = split(capacities, &wanted, &best, MOST_ROUNDS);
        rounds += found.rounds;
        let fitting = fitting(capacities, places, &found.shares);
        // The first pass may be worse than shares by capacity, because it makes room for traffic that does not fit.
        let least = if pass == 0 { 1.0 - ROUNDING } else { 1.0 + LEAST_GAIN };
        if sum(&fitting) > most * least {
            (best, most, fits) = (found.shares, sum(&fitting), fitting);
            if found.utilisation.iter().all(|&used| used <= 1.0) {
                break;
            }
        } else if pass > 0 {
            break;
        }
        for (wanted, (places, fits)) in wanted.iter_mut().zip(places.iter().zip(&fits)) {
            for (wanted, (place, fits)) in wanted.iter_mut().zip(places.iter().zip(fits)) {
                wanted.entering = place.entering.min(fits * ROOM_TO_GROW);
            }
        }
    }
    (best, rounds)
}

/// All of this traffic together.
fn sum(traffic: &[Vec<f64>]) -> f64 {
    traffic.iter().flatten().sum()
}

/// The graph of shortest paths from these ToRs to another one; `None` if there is no path.
fn graph(view: &View, routes: &RouteTable, tor: NodeId, from: &[(NodeId, f64)]) -> Option<(Names, Destination)> {
    let index = view.fabric.tor_index(tor)?;
    let next = |switch: NodeId| routes.next_hops(switch, index).iter().map(|&link| (link, view.fabric.link(link).to));
    // All paths from a switch to the ToR have the same length, so a search by levels meets each switch after all those
    // before it.
    let mut levels = distances(view, tor, from.iter().map(|&(from, _)| from), next);
    levels.sort_unstable_by_key(|&(switch, hops)| (std::cmp::Reverse(hops), switch));
    let place_of: BTreeMap<NodeId, u32> = (0..).zip(&levels).map(|(place, &(switch, _))| (switch, place)).collect();
    let end = levels.len() as u32;
    let entering: BTreeMap<NodeId, f64> = from.iter().copied().collect();
    let place = |&(switch, _): &(NodeId, u32)| Place {
        entering: entering.get(&switch).copied().unwrap_or(0.0),
        hops: next(switch)
            .map(|(link, to)| Hop { link: link.0, next: place_of.get(&to).copied().unwrap_or(end) })
            .collect(),
    };
    let places: Destination = levels.iter().map(place).collect();
    (!places.is_empty()).then(|| ((tor, levels.iter().map(|&(switch, _)| switch).collect()), places))
}

/// Switches on shortest paths from some ToRs to another one, without that one, with their distance from it.
fn distances<I: Iterator<Item = (LinkId, NodeId)>>(
    view: &View,
    tor: NodeId,
    from: impl Iterator<Item = NodeId>,
    next: impl Fn(NodeId) -> I,
) -> Vec<(NodeId, u32)> {
    let distances = pathloom_model::search::distances_to(&view.fabric, &view.links, tor);
    let mut found: BTreeMap<NodeId, u32> = BTreeMap::new();
    let mut left: Vec<NodeId> = from.collect();
    while let Some(switch) = left.pop() {
        let Some(hops) = distances.hops(switch).filter(|&hops| hops > 0) else { continue };
        if found.insert(switch, hops).is_none() {
            left.extend(next(switch).map(|(_, to)| to));
        }
    }
    found.into_iter().collect()
}

/// Weights for shares.
fn rounded(shares: &[f64]) -> Vec<u16> {
    let largest = shares.iter().copied().fold(0.0, f64::max);
    if shares.iter().all(|share| *share >= largest * (1.0 - EQUAL)) {
        return vec![1; shares.len()];
    }
    shares.iter().map(|share| (share / largest * MOST_WEIGHT).round() as u16).collect()
}

#[cfg(test)]
mod tests;
