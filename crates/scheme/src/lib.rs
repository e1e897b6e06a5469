//! The contract between a routing scheme and whatever drives it.
//!
//! A scheme speaks of flows and paths. It sees [`Event`]s and a [`View`] of what a controller can truly know, and answers
//! with [`Action`]s. It never reads a clock, never sees a byte and never learns which world it runs in: the simulator,
//! the lab and live switches drive it through the same `control::Controller`.
//!
//! What a scheme may rely on:
//! - events come one at a time, in the order in which the controller learned of them;
//! - the actions of one [`Scheme::handle`] are carried out as one ordered batch;
//! - a path it asks for is answered by [`Event::RouteConfirmed`] or [`Event::RouteRejected`], unless the flow finishes
//!   first; until then the flow stays on the route it has (the default routes for a new one);
//! - [`View`] already reflects the event when `handle` is called.

mod action;
mod event;
mod flow_map;
mod known;
mod needs;
mod shared;
mod view;

pub use action::{Action, DefaultRoutes};
pub use event::{Event, Rejection};
pub use flow_map::FlowMap;
pub use known::Known;
pub use needs::{Detection, Migration, Needs, RuleSharing};
pub use shared::Shared;
pub use view::{FlowView, View};

use pathloom_model::Nanos;
use serde::{Deserialize, Serialize};

/// Name of a flow, given by the controller; never given twice, not even after a restart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FlowId(pub u64);

/// What a scheme remembers between two events, in a form that survives a restart.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct State(pub serde_json::Value);

/// A state that a scheme could not take back, for example because it was saved by another scheme.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("scheme {scheme} cannot read the saved state: {problem}; start it without the snapshot")]
pub struct StateError {
    /// The scheme that was asked.
    pub scheme: &'static str,
    /// What was wrong.
    pub problem: String,
}

/// A routing scheme: events in, actions out. This is all a scheme's author writes.
pub trait Scheme: Send {
    /// The name in the registry.
    fn name(&self) -> &'static str;

    /// What the controller must do for it. Asked once, before [`Event::Started`].
    fn needs(&self) -> Needs;

    /// Takes one event and appends the actions it leads to, in the order in which they are to be carried out.
    fn handle(&mut self, now: Nanos, event: &Event, view: &View, actions: &mut Vec<Action>);

    /// When the scheme wants [`Event::Timeout`], if nothing else happens before.
    fn poll_timeout(&self) -> Option<Nanos> {
        None
    }

    /// How much the scheme keeps, by what it is, such as `("cached path sets", 56)`: for results and metrics.
    fn sizes(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Carries out a job of [`Action::Solve`]. It runs beside the controller (on a thread when live), so it is a plain
    /// function of an owned view and the job's input.
    fn solver(&self) -> fn(&View, &State) -> State {
        |_, input| input.clone()
    }

    /// What it remembers.
    fn save(&self) -> State {
        State::default()
    }

    /// Takes back what [`Scheme::save`] gave. Called before any event.
    fn restore(&mut self, _state: State) -> Result<(), StateError> {
        Ok(())
    }
}
