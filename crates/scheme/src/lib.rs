//! The contract between a routing scheme and the code that drives it.
//!
//! A scheme works with flows and paths. It receives [`Event`]s and a [`View`] of what a controller can know, and
//! answers with [`Action`]s. It reads no clock, sees no packets and does not know its world: the simulator, the lab
//! and live switches drive it through the same `control::Controller`.
//!
//! A scheme may rely on the following:
//! - events come one at a time, in the order in which the controller learned of them;
//! - the actions of one [`Scheme::handle`] are carried out as one ordered batch;
//! - each requested path is answered by [`Event::RouteConfirmed`] or [`Event::RouteRejected`], unless the flow ends
//!   first. Until then the flow stays on its present route (a new flow on the default routes);
//! - [`View`] already reflects the event when `handle` is called.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types))]

mod action;
mod ageing;
mod event;
mod flow_map;
mod needs;
mod option_u64;
mod rehash;
pub mod remote;
mod shared;
mod view;

pub use action::{Action, DefaultRoutes, HopWeights};
pub use ageing::Ageing;
pub use event::{Event, Rejection};
pub use flow_map::FlowMap;
pub use needs::{Detection, Entropy, Migration, Needs, RuleSharing, Selection};
pub use option_u64::OptionU64;
pub use rehash::{Acknowledged, Rehash, Rounds};
pub use shared::Shared;
pub use view::{FlowView, PlannedWeights, View};

use pathloom_model::Nanos;
use serde::{Deserialize, Serialize};

/// Identifier of a flow. The controller assigns it, and never assigns it twice, even after a restart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FlowId(pub u64);

/// State that a scheme saves, in a form that survives a restart. Also the input or output of a job.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct State(pub serde_json::Value);

/// Error: a scheme could not restore a state, for example because another scheme saved it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("scheme {scheme} cannot read the saved state: {problem}; start it without the snapshot")]
pub struct StateError {
    /// Name of the scheme that should have restored it.
    pub scheme: &'static str,
    /// Description of the problem.
    pub problem: String,
}

/// A routing scheme: it receives events and returns actions. The author of a scheme implements only this trait.
pub trait Scheme: Send {
    /// The name in the registry.
    fn name(&self) -> &'static str;

    /// What the scheme needs from its controller. Called once, before [`Event::Started`].
    fn needs(&self) -> Needs;

    /// Handles one event. Appends the resulting actions in the order in which the controller must carry them out.
    fn handle(&mut self, now: Nanos, event: &Event, view: &View, actions: &mut Vec<Action>);

    /// The time at which the scheme needs [`Event::Timeout`], if no other event comes before.
    fn poll_timeout(&self) -> Option<Nanos> {
        None
    }

    /// Sizes of the scheme's data, by name, such as `("cached path sets", 56)`. They appear in results and metrics.
    fn sizes(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// The function that carries out a job of [`Action::Solve`]. It runs beside the controller (on a thread if the
    /// controller is live), so it is a plain function of an owned view and the job's input.
    fn solver(&self) -> fn(&View, &State) -> State {
        |_, input| input.clone()
    }

    /// Returns the state to save.
    fn save(&self) -> State {
        State::default()
    }

    /// Restores a state that [`Scheme::save`] returned. Called before any event.
    fn restore(&mut self, _state: State) -> Result<(), StateError> {
        Ok(())
    }
}
