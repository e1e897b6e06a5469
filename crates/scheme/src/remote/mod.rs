//! Schemes that run in a process of their own, beside the controller: the words of the two, in a form for JSON.
//!
//! Each line is one JSON value. The controller begins with a [`Hello`]; the process answers with a [`Greeting`]. Then each
//! [`Ask`] of the controller is answered by one [`Told`], in the same order:
//!
//! 1. [`RemoteScheme`] is the scheme in the controller. It requests an [`Order`] for each event, as a job
//!    ([`crate::Action::Solve`]), and takes the [`Answer`] as the result of the job. So the controller never waits, and an
//!    event log has all that a replay needs.
//! 2. A driver passes orders to the process, and answers itself while there is none.
//! 3. [`Host`] is the other end, in the process: it keeps a view of its own and calls the scheme.

mod host;
mod scheme;
mod sender;

pub use host::Host;
pub use scheme::RemoteScheme;
pub use sender::ViewSender;

use crate::{Action, DefaultRoutes, Event, FlowId, FlowView, HopWeights, Needs, OptionU64, State};
use pathloom_model::{LinkId, Nanos, NodeId};
use serde::{Deserialize, Serialize};

/// Version of the lines. Both ends must have the same.
pub const PROTOCOL: u32 = 1;

/// The first line of the controller.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// The fabric as node-link JSON. Nodes and links have the same numbers in it as in all later lines.
    pub fabric: serde_json::Value,
    /// Seed of the scheme's random choices.
    pub seed: u64,
}

/// The first line of the process.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Greeting {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// What the scheme needs from the controller.
    pub needs: Needs,
}

/// A line of the controller after the first.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Ask {
    /// A number that the answer repeats.
    pub id: u64,
    /// The event, and what has changed since the last one.
    pub request: Request,
}

/// A line of the process after the first.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Told {
    /// The number of the question.
    pub id: u64,
    /// The answer.
    pub reply: Reply,
}

/// An event for the scheme.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Request {
    /// The controller's time.
    pub now: Nanos,
    /// What has changed in the view.
    pub view: ViewChange,
    /// A state that the scheme must restore before it gets the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<State>,
    /// The event.
    pub event: Event,
}

/// What the scheme does about an event.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Reply {
    /// Its actions, in order.
    #[serde(default)]
    pub actions: Vec<Action>,
    /// When it needs [`Event::Timeout`].
    #[serde(default)]
    pub timeout: Option<Nanos>,
    /// Its state, if that has changed since the last reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// An error of the scheme in one line. There are no actions then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What a driver does for [`RemoteScheme`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// To answer when the process has been started again after it ended.
    Watch,
    /// To ask the process.
    Ask(Box<Request>),
}

/// The answer to an [`Order`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// A new process runs. It knows nothing yet.
    Up,
    /// The process has answered.
    Reply(Reply),
    /// There is no process, or it ended before it answered.
    Lost,
}

impl Order {
    /// The order as the input of a job.
    pub fn to_state(&self) -> State {
        State(serde_json::to_value(self).unwrap_or_default())
    }

    /// The order in the input of a job; `None` if it is another one's.
    pub fn from_state(state: State) -> Option<Order> {
        serde_json::from_value(state.0).ok()
    }
}

impl Answer {
    /// The answer as the result of a job.
    pub fn to_state(&self) -> State {
        State(serde_json::to_value(self).unwrap_or_default())
    }

    /// The answer in the result of a job; `None` if it is another one's.
    pub fn from_state(state: &State) -> Option<Answer> {
        Answer::deserialize(&state.0).ok()
    }
}

/// What has changed in a [`crate::View`] since the last event. Fields without a change are left out.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ViewChange {
    /// Whether this is the first change: all before it is forgotten.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub fresh: bool,
    /// New flows, and flows that have changed, in ascending order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<(FlowId, FlowView)>,
    /// Flows that are gone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<FlowId>,
    /// Cables that went up or down, by one of their directions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<(LinkId, bool)>,
    /// The default routes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub defaults: Option<DefaultRoutes>,
    /// All weights of next hops.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<Vec<HopWeights>>,
    /// [`crate::View::busy_share`], as decimal digits, which lose nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy_share: Option<String>,
    /// Round-trip times to switches.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub switch_rtt: Vec<(NodeId, Option<Nanos>)>,
    /// [`crate::View::first_answer`], in a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_answer: Option<[Option<Nanos>; 1]>,
    /// Loads of links.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub link_load_bps: Vec<(LinkId, OptionU64)>,
}
