//! The job of one round as data: the solver's input, its output, and its work.

use super::{placing, Annealing};
use crate::helpers::state::pack;
use crate::solver_work::SolverWork;
use pathloom_model::{Address, Path};
use pathloom_scheme::{FlowId, State, View};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The solver's input besides the view.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Job {
    /// Minimum demand of a flow that is placed, as a share of its NIC.
    pub nic_share: f64,
    /// Flows that back off, ascending. They are not moved.
    #[serde(rename = "resting")] // The name in stored jobs.
    pub backing_off: Vec<FlowId>,
    /// Settings of Simulated Annealing; `None` for Global First Fit.
    pub annealing: Option<AnnealingJob>,
}

/// The input of Simulated Annealing.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct AnnealingJob {
    pub settings: Annealing,
    pub seed: u64,
    /// Stream of the random generator, so that rounds differ.
    pub stream: u64,
    /// Slots of the last round.
    pub slots: BTreeMap<Address, u32>,
}

/// The solver's output.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Answer {
    /// Flows to be moved to another path.
    pub moves: Vec<Move>,
    /// Flows on a path of their own that are no longer elephants.
    pub unroute: Vec<FlowId>,
    /// Slots of Simulated Annealing.
    pub slots: BTreeMap<Address, u32>,
    /// The work of the job.
    #[serde(rename = "cost")] // The name in stored snapshots.
    pub work: SolverWork,
}

/// A flow and its new path.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Move {
    pub flow: FlowId,
    pub path: Path,
    /// Its natural demand.
    pub rate_bps: u64,
}

/// The solver: a plain function of a view and a [`Job`]. Without a valid job it moves nothing.
pub(super) fn solve(view: &View, input: &State) -> State {
    let answer = Job::deserialize(&input.0).map(|job| placing::place(view, &job)).unwrap_or_default();
    pack(&answer)
}
