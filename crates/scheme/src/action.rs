//! What a scheme asks for.

use crate::{FlowId, State};
use pathloom_model::{Nanos, Path};
use serde::{Deserialize, Serialize};

/// How flows without a path of their own are routed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DefaultRoutes {
    /// One shortest path per destination ToR: a tree towards each ToR, its ties broken by a hash of switch and ToR.
    SinglePath,
    /// Every switch hashes the five-tuple over all shortest next hops.
    #[default]
    Ecmp,
    /// One spanning tree for all traffic, as bridges with IEEE 802.1D build it: all other links between switches idle.
    SpanningTree,
    /// A shortest path per destination host: the hosts of a ToR take the next hops in turn (OFPT §4.3: server-level
    /// load balancing over the spines).
    PerHost,
}

/// Something a scheme wants done.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Route flows without a path of their own like this.
    SetDefaults(DefaultRoutes),
    /// Put a flow on a path of its own, or on another one if it has one. The controller moves it without loss.
    Route {
        /// The flow.
        flow: FlowId,
        /// From its source ToR to its destination ToR.
        path: Path,
        /// The bandwidth that the scheme counts on for it; reported, and enforced only by [`Action::Pace`].
        rate_bps: Option<u64>,
    },
    /// Put a flow back on the default routes.
    Unroute {
        /// The flow.
        flow: FlowId,
    },
    /// Keep a flow from sending. It starts by itself when the lease is over: a lost controller holds nobody.
    Hold {
        /// The flow.
        flow: FlowId,
        /// How long at most.
        lease: Nanos,
    },
    /// Let a held flow send.
    Release {
        /// The flow.
        flow: FlowId,
    },
    /// Let a flow send at most at this rate; `None` lifts the limit.
    Pace {
        /// The flow.
        flow: FlowId,
        /// Limit on what it puts on its access link.
        rate_bps: Option<u64>,
    },
    /// Read the flow counters of the ToRs now, besides the periodic rounds. It counts as a round.
    Measure,
    /// Read them once more within the round under way (LESSOR §4.2: "recheck"). It counts as no round.
    MeasureAgain,
    /// Run the scheme's solver on a snapshot of the view. The answer comes as [`crate::Event::Solved`].
    Solve {
        /// The scheme's own mark.
        ticket: u64,
        /// What the solver gets.
        input: State,
        /// What the simulator charges for it; live controllers take as long as they take.
        modelled: Nanos,
    },
}

impl Action {
    /// The flow that it is about.
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
