//! One round: which flows are elephants, their natural demand, and their paths.

use super::job::{AnnealingJob, Answer, Job, Move};
use super::Annealing;
use crate::helpers::nics::Nics;
use crate::helpers::{draws, links};
use crate::path_book::PathBook;
use crate::solver_work::SolverWork;
use pathloom_allocation::natural_demand;
use pathloom_allocation::placement::{
    anneal, first_fit, AnnealedFlow, AnnealingSettings, Destination, Paths, Placed, Request,
};
use pathloom_model::{Address, Path};
use pathloom_scheme::{FlowId, FlowView, View};
use std::collections::BTreeMap;

/// Tolerance for rounding: ten flows of one NIC still count as a tenth of it each.
const ROUNDING: f64 = 1.0 - 1e-9;

/// A flow to be placed.
struct Elephant<'a> {
    id: FlowId,
    flow: &'a FlowView,
    /// Its ToR pair in the path book.
    pair: u32,
    demand_bps: u64,
}

/// Solves a job.
pub(super) fn place(view: &View, job: &Job) -> Answer {
    let mut book = PathBook::default();
    let (elephants, unroute, mut work) = elephants(view, job, &mut book);
    let capacity_bps = links::rates_bps(view);
    let mut slots = BTreeMap::new();
    let chosen = match &job.annealing {
        None => fit(view, &elephants, &book, &capacity_bps, &mut work),
        Some(settings) => {
            slots = settings.slots.clone();
            annealed(view, &elephants, &book, &capacity_bps, settings, &mut slots, &mut work)
        }
    };
    let mut moves = Vec::new();
    for (elephant, index) in elephants.iter().zip(chosen) {
        let path = index.and_then(|index| book.path(elephant.pair, index));
        let moved = path.filter(|path| {
            elephant.flow.intended_route() != Some(path)
                && book.count(elephant.pair) > 1
                && job.backing_off.binary_search(&elephant.id).is_err()
        });
        moves.extend(moved.map(|path| Move { flow: elephant.id, path, rate_bps: elephant.demand_bps }));
    }
    Answer { moves, unroute, slots, work }
}

/// Estimates the natural demand of the long flows and selects the elephants (Hedera §4.2). Also returns the flows that
/// have a path of their own and are no longer elephants.
fn elephants<'a>(view: &'a View, job: &Job, book: &mut PathBook) -> (Vec<Elephant<'a>>, Vec<FlowId>, SolverWork) {
    let mut nics = Nics::default();
    let mut known = Vec::new();
    for (id, flow) in view.long_flows() {
        if let Some((pair, nic_bps)) = nics.add(view, flow) {
            known.push((id, flow, pair, nic_bps));
        }
    }
    let natural = natural_demand(&nics.transmit, &nics.receive, &nics.pairs);
    let (mut elephants, mut small) = (Vec::new(), Vec::new());
    for (id, flow, nic_pair, nic_bps) in known {
        let demand = natural.demands[nic_pair];
        if flow.src_tor == flow.dst_tor {
            continue;
        }
        if demand >= job.nic_share * nic_bps as f64 * ROUNDING {
            let pair = book.pair(view, flow.src_tor, flow.dst_tor);
            elephants.push(Elephant { id, flow, pair, demand_bps: demand as u64 });
        } else if flow.intended_route().is_some() {
            small.push(id);
        }
    }
    (elephants, small, SolverWork { operations: natural.operations, flows: view.long_flows().count() as u64 })
}

/// Global First Fit. A flow counts as placed on its current or intended path, and on the path of a pair that has only
/// one.
fn fit(
    view: &View,
    elephants: &[Elephant<'_>],
    book: &PathBook,
    capacity_bps: &[u64],
    work: &mut SolverWork,
) -> Vec<Option<u64>> {
    let present = |elephant: &Elephant<'_>| {
        let routes = [&elephant.flow.pending, &elephant.flow.route];
        let route = routes.into_iter().flatten().find(|path| path.is_up(&view.links)).cloned();
        route.or_else(|| book.only_path(elephant.pair))
    };
    let numbers = |path: Path| path.links().iter().map(|link| link.0).collect::<Vec<u32>>();
    let present: Vec<Option<Vec<u32>>> = elephants.iter().map(|elephant| present(elephant).map(numbers)).collect();
    let requests: Vec<Request<'_>> = (elephants.iter().zip(&present))
        .map(|(elephant, present)| Request {
            pair: elephant.pair,
            demand_bps: elephant.demand_bps,
            present: present.as_deref(),
        })
        .collect();
    let result = first_fit(capacity_bps, &requests, book);
    work.operations += result.operations;
    let index = |placed| match placed {
        Placed::Path(index) => Some(index),
        Placed::Kept | Placed::Nowhere => None,
    };
    result.placed.into_iter().map(index).collect()
}

/// Simulated Annealing. `slots` holds the slots of the last round and gets those of this one. A new host starts with
/// its own number, so that the hosts of a pod start on different slots. Hosts swap slots within a pod, or, in a fabric
/// without pods, with all others.
fn annealed(
    view: &View,
    elephants: &[Elephant<'_>],
    book: &PathBook,
    capacity_bps: &[u64],
    job: &AnnealingJob,
    slots: &mut BTreeMap<Address, u32>,
    work: &mut SolverWork,
) -> Vec<Option<u64>> {
    let mut numbers: BTreeMap<Address, u32> = BTreeMap::new();
    let mut destinations: Vec<Destination> = Vec::new();
    let mut flows = Vec::with_capacity(elephants.len());
    for elephant in elephants {
        let address = elephant.flow.five_tuple.dst();
        let destination = *numbers.entry(address).or_insert_with(|| {
            let own_number = view.fabric.attachments().partition_point(|at| at.address < address) as u32;
            let slot = slots.get(&address).copied().unwrap_or(own_number);
            let group = view.fabric.node(elephant.flow.dst_tor).pod.unwrap_or(u32::MAX);
            destinations.push(Destination { slot, group });
            destinations.len() as u32 - 1
        });
        flows.push(AnnealedFlow { destination, pair: elephant.pair, demand_bps: elephant.demand_bps });
    }
    let unit_bps = elephants.iter().filter_map(|elephant| view.fabric.attachment(elephant.flow.five_tuple.src()));
    let unit_bps = unit_bps.map(|at| view.fabric.link(at.uplink).settings.rate_bps).max().unwrap_or(1);
    let Annealing { iterations, cooling } = job.settings;
    let settings = AnnealingSettings { iterations, cooling, unit_bps };
    let mut rng = draws::generator(job.seed, job.stream);
    let result = anneal(capacity_bps, &destinations, &flows, book, &settings, &mut rng);
    work.operations += result.operations;
    *slots = numbers.into_iter().map(|(address, number)| (address, result.slots[number as usize])).collect();
    result.paths
}
