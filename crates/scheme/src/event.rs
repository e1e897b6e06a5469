//! What a scheme is told.

use crate::{FlowId, State};
use pathloom_model::rules::Refusal;
use pathloom_model::{LinkId, Nanos, NodeId};
use serde::{Deserialize, Serialize};

/// Something that happened. Details of flows stand in the [`crate::View`]. More may be added: a scheme ignores what it does not
/// know.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The controller runs; also sent after a restart (before the adopted flows) and when the scheme takes over from
    /// another. The place for [`crate::Action::SetDefaults`].
    Started,
    /// A long flow was found by the scheme's kind of detection. `View` holds its size when it was announced.
    FlowArrived {
        /// The flow.
        flow: FlowId,
    },
    /// A further subflow of an MPTCP connection asked to be opened.
    SubflowArrived {
        /// The subflow, a flow of its own.
        flow: FlowId,
        /// What all subflows of the connection share; `None` while it is not known. `View` holds it from then on.
        token: Option<u32>,
    },
    /// A flow was found standing on a path: after a restart, or when the scheme took over. Its route is in `View`.
    FlowAdopted {
        /// The flow.
        flow: FlowId,
    },
    /// A flow ended. `View` holds it for the last time.
    FlowFinished {
        /// The flow.
        flow: FlowId,
    },
    /// A round of measurements is in `View`.
    RatesMeasured {
        /// Time since the round before.
        period: Nanos,
    },
    /// A link between two switches came up or went down (both directions are reported).
    LinkChanged {
        /// The link.
        link: LinkId,
        /// Its new state.
        up: bool,
    },
    /// Every switch has confirmed the path last asked for this flow: it is the flow's route now.
    RouteConfirmed {
        /// The flow.
        flow: FlowId,
    },
    /// The path last asked for this flow could not be set up; the flow stays where it was.
    RouteRejected {
        /// The flow.
        flow: FlowId,
        /// Why.
        why: Rejection,
    },
    /// The answer to [`crate::Action::Solve`].
    Solved {
        /// The scheme's own mark.
        ticket: u64,
        /// What the solver returned.
        answer: State,
    },
    /// The time that [`crate::Scheme::poll_timeout`] asked for has come.
    Timeout,
}

/// Why a path was not set up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Rejection {
    /// The path does not lead from the flow's source ToR to its destination ToR.
    #[error("the path does not join the flow's ToRs")]
    WrongEnds,
    /// The links do not make a loop-free path between switches.
    #[error("the links do not make a loop-free path")]
    Malformed,
    /// A link of the path is down.
    #[error("link {0:?} is down")]
    LinkDown(LinkId),
    /// No session to a switch of the path.
    #[error("switch {0:?} is not connected")]
    SwitchGone(NodeId),
    /// A switch refused a rule.
    #[error("switch {0:?} refused: {1}")]
    Refused(NodeId, Refusal),
    /// Rules of so many earlier paths of the flow still drain that a new one cannot be told from them.
    #[error("packets may still be under way on too many earlier paths of the flow")]
    Draining,
    /// The flow is not known, or has finished.
    #[error("the flow is not known")]
    UnknownFlow,
}
