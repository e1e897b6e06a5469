//! Actions that a scheme requests from its controller.

use crate::{FlowId, State};
use pathloom_model::{LinkId, Nanos, NodeId, Path};
use serde::{Deserialize, Serialize};

/// How flows without a path of their own are routed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DefaultRoutes {
    /// One shortest path per destination ToR: a tree towards each ToR. A hash of switch and ToR breaks ties.
    SinglePath,
    /// Every switch hashes the five-tuple over all shortest next hops.
    #[default]
    Ecmp,
    /// One spanning tree for all traffic, as bridges with IEEE 802.1D build it. All other links between switches are
    /// idle.
    SpanningTree,
    /// One shortest path per destination host. The hosts of a ToR use the next hops in turn (OFPT §4.3: server-level
    /// load balancing over the spines).
    PerHost,
    /// As [`DefaultRoutes::Ecmp`], but next hops have weights by the capacity behind them (WCMP: Zhou et al. 2014).
    Weighted,
}

/// How one switch divides the traffic to the hosts of one ToR among its next hops. These are on shortest paths, or lead sideways:
/// to a switch that is as far from the ToR, and has a lower [`pathloom_model::search::rank`]. So no weights make a loop, not even
/// while some switches have older weights than others.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HopWeights {
    /// The switch.
    pub switch: NodeId,
    /// The ToR of the destinations.
    pub tor: NodeId,
    /// Links by which the traffic leaves, each with its weight; all others get nothing. Those that are down, lead away from the ToR, or
    /// sideways against the ranks, are left out. If none is left, the next hops have the weights of [`DefaultRoutes::Weighted`].
    pub weights: Vec<(LinkId, u16)>,
}

/// An action that a scheme requests.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Routes flows without a path of their own in this way.
    SetDefaults(DefaultRoutes),
    /// Sets the weights of next hops for [`DefaultRoutes::Weighted`]. They take the place of all that were set before. Switches
    /// without them keep the weights by capacity.
    SetWeights(Vec<HopWeights>),
    /// Puts a flow on a path of its own, or moves it to another path. The controller moves it without loss.
    Route {
        /// The flow.
        flow: FlowId,
        /// The path from the flow's source ToR to its destination ToR.
        path: Path,
        /// The bandwidth that the scheme reserves for the flow. It is reported; only [`Action::Pace`] enforces it.
        rate_bps: Option<u64>,
    },
    /// Puts a flow back on the default routes.
    Unroute {
        /// The flow.
        flow: FlowId,
    },
    /// Stops a flow. The flow starts again by itself when the lease ends, so that no flow stays held if the
    /// controller is lost.
    Hold {
        /// The flow.
        flow: FlowId,
        /// Maximum time for which the flow is held.
        lease: Nanos,
    },
    /// Lets a held flow send.
    Release {
        /// The flow.
        flow: FlowId,
    },
    /// Limits the rate at which a flow sends; `None` removes the limit.
    Pace {
        /// The flow.
        flow: FlowId,
        /// Maximum rate at which the flow sends on its access link.
        rate_bps: Option<u64>,
    },
    /// Reads the flow counters of the ToRs now, in addition to the periodic rounds. This counts as a round.
    Measure,
    /// Reads the counters once more within the current round (LESSOR §4.2: "recheck"). This does not count as a
    /// round.
    MeasureAgain,
    /// Runs the scheme's solver on a snapshot of the view. The answer arrives as [`crate::Event::Solved`].
    Solve {
        /// Identifier that the scheme chooses for the job.
        ticket: u64,
        /// Input of the solver, besides the view.
        input: State,
        /// Time that the simulator charges for the job. With a live controller, the job takes its real time.
        modelled: Nanos,
    },
}

impl Action {
    /// The flow that the action affects; `None` if it affects no single flow.
    pub fn flow(&self) -> Option<FlowId> {
        match *self {
            Action::Route { flow, .. }
            | Action::Unroute { flow }
            | Action::Hold { flow, .. }
            | Action::Release { flow }
            | Action::Pace { flow, .. } => Some(flow),
            _ => None,
        }
    }
}
