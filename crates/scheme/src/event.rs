//! Events that a controller reports to a scheme.

use crate::{FlowId, State};
use pathloom_model::rules::Refusal;
use pathloom_model::{LinkId, Nanos, NodeId};
use serde::{Deserialize, Serialize};

/// An event. The [`crate::View`] has the details of flows. Later versions may add events: a scheme ignores events
/// that it does not know.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The controller has started. Also sent after a restart (before the adopted flows), and when the scheme replaces
    /// another one. Schemes request [`crate::Action::SetDefaults`] here.
    Started,
    /// The scheme's method of detection found a long flow. `View` has its size if it was announced.
    FlowArrived {
        /// The flow.
        flow: FlowId,
    },
    /// A host opens a further subflow of an MPTCP connection.
    SubflowArrived {
        /// The subflow, which is a flow of its own.
        flow: FlowId,
        /// The token that all subflows of the connection share; `None` if it is unknown. `View` has it as soon as it
        /// is known.
        token: Option<u32>,
    },
    /// The controller found a flow on a path after a restart, or the scheme replaced another one while the flow
    /// existed. `View` has its route.
    FlowAdopted {
        /// The flow.
        flow: FlowId,
    },
    /// A flow has ended. `View` has it for the last time.
    FlowFinished {
        /// The flow.
        flow: FlowId,
    },
    /// A round of measurements has ended. `View` has the results.
    RatesMeasured {
        /// Time since the previous round.
        period: Nanos,
    },
    /// A link between two switches came up or went down (both directions are reported).
    LinkChanged {
        /// The link.
        link: LinkId,
        /// Whether the link is up now.
        up: bool,
    },
    /// Every switch has confirmed the path that was last requested for this flow. It is the flow's route now.
    RouteConfirmed {
        /// The flow.
        flow: FlowId,
    },
    /// The path that was last requested for this flow could not be set up. The flow stays on its present route.
    RouteRejected {
        /// The flow.
        flow: FlowId,
        /// The reason.
        why: Rejection,
    },
    /// The answer to [`crate::Action::Solve`].
    Solved {
        /// Identifier that the scheme chose for the job.
        ticket: u64,
        /// What the solver returned.
        answer: State,
    },
    /// The time that [`crate::Scheme::poll_timeout`] returned has come.
    Timeout,
}

/// The reason why a path was not set up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Rejection {
    /// The path does not lead from the flow's source ToR to its destination ToR.
    #[error("the path does not connect the flow's ToRs")]
    WrongEnds,
    /// The links do not make a loop-free path between switches.
    #[error("the links do not make a loop-free path")]
    Malformed,
    /// A link of the path is down.
    #[error("link {0:?} is down")]
    LinkDown(LinkId),
    /// The controller has no session to a switch of the path.
    #[error("switch {0:?} is not connected")]
    SwitchGone(NodeId),
    /// A switch refused a rule.
    #[error("switch {0:?} refused: {1}")]
    Refused(NodeId, Refusal),
    /// The budget of a switch has no rule left for the host that sends the flow.
    #[error("switch {0:?} has no rule left in its budget for the flow's host")]
    OverBudget(NodeId),
    /// Rules of too many earlier paths of the flow are still draining. A new path could not be distinguished from
    /// them.
    #[error("packets may still be under way on too many earlier paths of the flow")]
    Draining,
    /// The flow is unknown, or has ended.
    #[error("the flow is not known")]
    UnknownFlow,
}
