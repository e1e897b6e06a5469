//! A round over all flows as a job: the papers' Algorithm 2, which runs beside the controller.

use super::fractional::Fractions;
use crate::helpers::state::pack;
use crate::placements::Placements;
use crate::solver_work::SolverWork;
use pathloom_allocation::placement::PlacerSettings;
use pathloom_model::Path;
use pathloom_scheme::{FlowId, FlowView, State, View};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The job's input besides the view.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Job {
    pub epsilon: f64,
    /// Minimum gain in satisfaction, per flow moved, for which flows with a path are moved.
    pub gain: f64,
    /// Announced size, in payload bytes, from which on a flow gets a path.
    pub long_bytes: u64,
    /// Maximum demand of flows, where it is less than the rate of their access links.
    pub most_bps: Vec<(FlowId, u64)>,
    /// Flows that the round ignores, ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<FlowId>,
    /// Flows that back off because a switch refused their path, ascending. The round does not move them.
    #[serde(default, rename = "resting", skip_serializing_if = "Vec::is_empty")] // The name in stored jobs.
    pub backing_off: Vec<FlowId>,
    /// With fractional shares, those of the job before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fractions: Option<Fractions>,
}

/// A flow and its intended path.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Wanted {
    pub flow: FlowId,
    pub path: Path,
    /// Its rate there.
    pub rate_bps: u64,
}

/// The job's output: the difference to the current paths (OFPT Alg. 3 line 1).
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub routes: Vec<Wanted>,
    #[serde(rename = "cost")] // The name in stored snapshots.
    pub work: SolverWork,
    /// The fractional shares, if flows were rounded onto them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fractions: Option<Fractions>,
}

/// The solver: a plain function of a view and a [`Job`]. Without a valid job it moves nothing.
pub(crate) fn solve(view: &View, input: &State) -> State {
    let answer = Job::deserialize(&input.0).map(|job| run(view, &job)).unwrap_or_default();
    pack(&answer)
}

/// Whether a flow is short: it was announced, and with less than `long_bytes`.
pub(crate) fn is_short(flow: &FlowView, long_bytes: u64) -> bool {
    flow.size_bytes.get().is_some_and(|size| size < long_bytes)
}

/// Operations per flow: to add it, to estimate its demand and to compute its rate.
const OPERATIONS_PER_FLOW: u64 = 100;
/// Operations per link: every job begins by building the network.
const OPERATIONS_PER_LINK: u64 = 8;
/// A smaller gain, as a share of a flow's demand, is a rounding error.
const LEAST_GAIN: f64 = 1e-6;

fn run(view: &View, job: &Job) -> Answer {
    let mut placements = Placements::new(view, PlacerSettings { epsilon: job.epsilon, ..PlacerSettings::default() });
    let is_backing_off = |id: FlowId| job.backing_off.binary_search(&id).is_ok();
    let takes_part = |&(id, flow): &(FlowId, &FlowView)| {
        let nowhere = is_backing_off(id) && flow.intended_route().is_none();
        !is_short(flow, job.long_bytes) && job.absent.binary_search(&id).is_err() && !nowhere
    };
    let flows = || view.long_flows().filter(takes_part);
    for (id, flow) in flows() {
        match flow.intended_route().is_some() {
            true => drop(placements.arrive(view, id)),
            false => placements.wait(view, id),
        }
    }
    limit(&mut placements, job, |_| true);
    let flow_count = flows().count() as u64;
    let links = view.fabric.links().len() as u64;
    let operations =
        OPERATIONS_PER_LINK * links + OPERATIONS_PER_FLOW * flow_count + placements.placer().round(0).operations;
    let mut work = SolverWork { operations, flows: flow_count };
    let mut standing = Outcome::of(&mut placements);
    let mut fractions = job.fractions.clone();
    // Shares are needed even if nothing is crowded: flows that arrive later are rounded onto them.
    if placements.is_crowded() || fractions.is_some() {
        let before = standing;
        let mut round = match &mut fractions {
            Some(fractions) => {
                let ids: Vec<FlowId> = flows().map(|(id, _)| id).collect();
                fractions.reallocate(&mut placements, view, &ids, job.epsilon)
            }
            None => placements.placer().round(usize::MAX),
        };
        work.operations += round.operations;
        // The gain must not depend on a flow that will not be moved. Otherwise the next round would undo the other
        // moves.
        let (back, moved): (Vec<u64>, Vec<u64>) = round.moved.drain(..).partition(|&id| is_backing_off(FlowId(id)));
        back.iter().for_each(|&id| placements.put_back(view, FlowId(id)));
        limit(&mut placements, job, is_backing_off);
        let after = Outcome::of(&mut placements);
        let gained = after.satisfaction - before.satisfaction;
        // The next round would undo moves without a gain, and so on forever.
        // Rounded shares stay the same while the flows do, so Algorithm 3 can carry out every difference.
        let all = fractions.is_some() && job.gain == 0.0;
        let better = all || (gained > LEAST_GAIN && gained >= job.gain * moved.len() as f64);
        standing = if better { after } else { before };
    }
    let differs = |id: &FlowId, path: &Path| view.flows[id].intended_route() != Some(path);
    let routes = standing.paths.into_iter().filter(|(id, (path, _))| differs(id, path));
    let routes = routes.map(|(flow, (path, rate_bps))| Wanted { flow, path, rate_bps }).collect();
    Answer { routes, work, fractions }
}

/// Sets the maximum demands in the placer.
fn limit(placements: &mut Placements, job: &Job, whom: impl Fn(FlowId) -> bool) {
    for &(id, most_bps) in job.most_bps.iter().filter(|&&(id, _)| whom(id)) {
        // It fails for flows that have ended.
        let _ = placements.placer().set_announced(id.0, Some(most_bps));
    }
}

/// Paths and rates of the flows.
struct Outcome {
    paths: BTreeMap<FlowId, (Path, u64)>,
    /// Satisfaction: the sum over flows of rate divided by demand.
    satisfaction: f64,
}

impl Outcome {
    fn of(placements: &mut Placements) -> Outcome {
        let mut outcome = Outcome { paths: BTreeMap::new(), satisfaction: 0.0 };
        for (id, rate) in placements.placer().max_min_bps() {
            let id = FlowId(id);
            let demand_bps = placements.demand_bps(id).unwrap_or(0).max(1);
            outcome.satisfaction += (rate / demand_bps as f64).min(1.0);
            if let Some(path) = placements.path(id) {
                outcome.paths.insert(id, (path, rate as u64));
            }
        }
        outcome
    }
}
