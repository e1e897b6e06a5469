//! The job of one round as data: what goes into the solver, what comes out, and what it is taken to cost.

use super::{placing, Annealing};
use pathloom_model::{Nanos, Path};
use pathloom_scheme::{FlowId, State, View};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// What the solver gets beside the view.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Job {
    /// Least demand of a flow that is placed, as a share of its NIC.
    pub nic_share: f64,
    /// Flows that are left where they are.
    pub resting: Vec<FlowId>,
    /// Simulated Annealing; Global First Fit where `None`.
    pub annealing: Option<AnnealingJob>,
}

/// What Simulated Annealing needs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct AnnealingJob {
    pub settings: Annealing,
    pub seed: u64,
    /// Stream of the random generator, so that rounds differ.
    pub stream: u64,
    /// Slots of the last round.
    pub slots: BTreeMap<Ipv4Addr, u32>,
}

/// What comes out.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Answer {
    /// Flows to be put on another path than the one they are on.
    pub moves: Vec<Move>,
    /// Flows on a path of their own that are no elephants any more.
    pub unroute: Vec<FlowId>,
    /// Slots of Simulated Annealing.
    pub slots: BTreeMap<Ipv4Addr, u32>,
    /// What the job took.
    pub cost: Cost,
}

/// A flow and its new path.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Move {
    pub flow: FlowId,
    pub path: Path,
    /// Its natural demand.
    pub rate_bps: u64,
}

/// Work done: an operation is one look at one link of one path, or at one flow in one pass of demand estimation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Cost {
    pub operations: u64,
    pub flows: u64,
}

impl Cost {
    /// An operation takes 20 ns: a memory access that misses the caches, or two; what `pathloom-mcf`'s example `scale`
    /// measures at k=48.
    const NS_PER_OPERATION: u64 = 20;
    /// Operations per flow before any job has been done: some passes of estimation, a dozen paths of four links.
    const FIRST_GUESS: u64 = 64;

    /// Modelled time of a job for this many flows: as many operations per flow as in the job before. The work is known
    /// only when it is done, but the delay has to be charged when it begins.
    pub(super) fn foretell(self, flows: u64) -> Nanos {
        let operations = match self.flows {
            0 => Cost::FIRST_GUESS.saturating_mul(flows),
            before => {
                let operations = u128::from(self.operations) * u128::from(flows) / u128::from(before);
                u64::try_from(operations).unwrap_or(u64::MAX)
            }
        };
        Nanos(operations.saturating_mul(Cost::NS_PER_OPERATION))
    }
}

impl From<Job> for State {
    fn from(job: Job) -> State {
        State(serde_json::to_value(job).unwrap_or_default())
    }
}

impl From<&State> for Answer {
    /// What is no answer moves nothing.
    fn from(state: &State) -> Answer {
        Answer::deserialize(&state.0).unwrap_or_default()
    }
}

/// The solver: a plain function of a view and a [`Job`]. What is no job moves nothing.
pub(super) fn solve(view: &View, input: &State) -> State {
    let answer = Job::deserialize(&input.0).map(|job| placing::place(view, &job)).unwrap_or_default();
    State(serde_json::to_value(answer).unwrap_or_default())
}
