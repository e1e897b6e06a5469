//! What goes into jobs and comes out, and what survives a restart, as the [`State`] that the contract carries.

use pathloom_scheme::{State, StateError};
use serde::de::DeserializeOwned;
use serde::Serialize;

/// Plain fields, and maps whose keys are numbers or addresses: JSON can say all of them. For [`Scheme::save`] too.
///
/// [`Scheme::save`]: pathloom_scheme::Scheme::save
pub fn pack(value: &impl Serialize) -> State {
    State(serde_json::to_value(value).unwrap_or_default())
}

/// What cannot be read is nothing: a job without flows, an answer that moves none.
pub fn unpack<T: DeserializeOwned + Default>(state: &State) -> T {
    T::deserialize(&state.0).unwrap_or_default()
}

/// What the scheme called `name` saved, for [`Scheme::restore`]. Its type should deny unknown fields, so that no state of
/// another scheme is taken for its own.
///
/// # Errors
/// It cannot be read.
///
/// [`Scheme::restore`]: pathloom_scheme::Scheme::restore
pub fn restore<T: DeserializeOwned>(name: &'static str, state: State) -> Result<T, StateError> {
    serde_json::from_value(state.0).map_err(|error| StateError { scheme: name, problem: error.to_string() })
}
