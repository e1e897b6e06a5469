//! The plan: how switches divide the traffic to each ToR among their next hops, for the long flows that are known.

use crate::helpers::nics::Nics;
use crate::helpers::state;
use pathloom_allocation::natural_demand;
use pathloom_allocation::splitting::{by_capacity, fitting, split, Destination, Hop, Place, Shares};
use pathloom_model::search::{rank, RouteTable};
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
/// The part of the traffic of a switch that the solver sends sideways at first.
const SIDEWAYS: f64 = 0.1;
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
    let graphs = graphs(view, &of_everything(view));
    let capacities = capacities(view);
    let found = split(&capacities, &graphs.places, &graphs.seeded(&capacities), 2);
    let is_even = |shares: &Vec<f64>| shares.iter().all(|share| (share * shares.len() as f64 - 1.0).abs() < ROUNDING);
    let is_even = found.shares.iter().flatten().all(is_even);
    Answer::Everything { is_even, visits: visits(&graphs.places, found.rounds) }
}

/// Number of visits of a next hop in so many rounds.
fn visits(places: &[Destination], rounds: u32) -> u64 {
    u64::from(rounds) * places.iter().flatten().map(|place| place.hops.len() as u64).sum::<u64>()
}

fn capacities(view: &View) -> Vec<f64> {
    view.fabric.links().iter().map(|link| link.settings.rate_bps as f64).collect()
}

/// The ways to each ToR, and the demands that enter them.
#[derive(Default)]
struct Graphs {
    /// By ToR: the ToR, and the switches that traffic to it passes, each before those that its next hops lead to.
    names: Vec<(NodeId, Vec<NodeId>)>,
    /// The same as the solver needs it.
    places: Vec<Destination>,
    /// By next hop of these places: whether it leads sideways.
    sideways: Vec<Vec<Vec<bool>>>,
}

impl Graphs {
    /// Shares by capacity, with this part for the next hops that lead sideways.
    fn shares(&self, capacities: &[f64], aside: f64) -> Shares {
        let mut shares = by_capacity(capacities, &self.places);
        let all = shares.iter_mut().flatten().zip(self.sideways.iter().flatten());
        for (shares, sideways) in all {
            let part =
                |side: bool| shares.iter().zip(sideways).filter(|(_, &is)| is == side).map(|(share, _)| share).sum();
            let (near, far): (f64, f64) = (part(false), part(true));
            if far <= 0.0 {
                continue;
            }
            // Ways that lead nearer may all be without capacity.
            let aside = if near > 0.0 { aside } else { 1.0 };
            for (share, &is) in shares.iter_mut().zip(sideways) {
                *share *= if is {
                    aside / far
                } else if near > 0.0 {
                    (1.0 - aside) / near
                } else {
                    0.0
                };
            }
        }
        shares
    }

    /// Shares of shortest paths by capacity.
    fn shortest(&self, capacities: &[f64]) -> Shares {
        self.shares(capacities, 0.0)
    }

    /// Shares from which the solver starts. No next hop with capacity has 0, because 0 stays 0.
    fn seeded(&self, capacities: &[f64]) -> Shares {
        self.shares(capacities, SIDEWAYS)
    }
}

/// The graphs of these demands.
fn graphs(view: &View, demands: &Demands) -> Graphs {
    let routes = RouteTable::with_sideways(&view.fabric, &view.links);
    let mut by_tor: BTreeMap<NodeId, Vec<(NodeId, f64)>> = BTreeMap::new();
    for (&(from, to), &bps) in demands {
        by_tor.entry(to).or_default().push((from, bps));
    }
    let mut graphs = Graphs::default();
    by_tor.into_iter().for_each(|(tor, from)| graphs.add(view, &routes, tor, &from));
    graphs
}

fn weights(view: &View, demands: &Demands) -> Answer {
    let graphs = graphs(view, demands);
    let (shares, rounds) = divide(&capacities(view), &graphs);
    let mut weights = Vec::new();
    for (((tor, switches), places), shares) in graphs.names.iter().zip(&graphs.places).zip(&shares) {
        for ((&switch, place), shares) in switches.iter().zip(places).zip(shares) {
            if shares.len() > 1 {
                let links = place.hops.iter().map(|hop| LinkId(hop.link));
                weights.push(HopWeights { switch, tor: *tor, weights: links.zip(rounded(shares)).collect() });
            }
        }
    }
    Answer::Flows { weights, visits: visits(&graphs.places, rounds) }
}

/// Shares of next hops by which as much as possible fits, and the number of rounds that it took. Traffic that does not fit
/// anyway, as that of a ToR that has lost half of its links, must not push aside traffic that would: the next pass
/// divides little more than what fits.
fn divide(capacities: &[f64], graphs: &Graphs) -> (Shares, u32) {
    let places = &graphs.places;
    let mut wanted = places.clone();
    let (mut first, mut best) = (graphs.seeded(capacities), graphs.shortest(capacities));
    let mut fits = fitting(capacities, places, &best);
    let (mut most, mut rounds) = (sum(&fits), 0);
    for pass in 0..PASSES {
        let found = split(capacities, &wanted, &first, MOST_ROUNDS);
        rounds += found.rounds;
        let fitting = fitting(capacities, places, &found.shares);
        // The first pass may be worse than shares by capacity, because it makes room for traffic that does not fit.
        let least = if pass == 0 { 1.0 - ROUNDING } else { 1.0 + LEAST_GAIN };
        if sum(&fitting) > most * least {
            (most, fits) = (sum(&fitting), fitting);
            first.clone_from(&found.shares);
            best = found.shares;
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

impl Graphs {
    /// Adds the ways from these ToRs to another one. There may be none.
    fn add(&mut self, view: &View, routes: &RouteTable, tor: NodeId, from: &[(NodeId, f64)]) {
        let Some(index) = view.fabric.tor_index(tor) else { return };
        let next =
            |switch: NodeId| routes.next_hops(switch, index).iter().map(|&link| (link, view.fabric.link(link).to));
        let mut levels = distances(view, tor, from.iter().map(|&(from, _)| from), next);
        // Each next hop is nearer, or as near and of a lower rank.
        levels.sort_unstable_by_key(|&(switch, hops)| std::cmp::Reverse((hops, rank(switch, tor))));
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
        let hops_of = |place: u32| levels.get(place as usize).map_or(0, |&(_, hops)| hops);
        let is_sideways = |(place, &(_, hops)): (&Place, &(NodeId, u32))| {
            place.hops.iter().map(|hop| hops_of(hop.next) == hops).collect()
        };
        if !places.is_empty() {
            self.sideways.push(places.iter().zip(&levels).map(is_sideways).collect());
            self.places.push(places);
            self.names.push((tor, levels.iter().map(|&(switch, _)| switch).collect()));
        }
    }
}

/// Switches on ways from some ToRs to another one, without that one, with their distance from it.
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
