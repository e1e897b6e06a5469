//! Conversion to and from [`State`], the type in which the contract carries state over a restart and input and output
//! of jobs.

use pathloom_scheme::{State, StateError};
use serde::de::DeserializeOwned;
use serde::Serialize;

/// Packs a value into a state, also for [`Scheme::save`]. It may have plain fields, and maps whose keys are numbers or
/// addresses, which JSON can all represent.
///
/// [`Scheme::save`]: pathloom_scheme::Scheme::save
pub fn pack(value: &impl Serialize) -> State {
    State(serde_json::to_value(value).unwrap_or_default())
}

/// Reads a state. An unreadable state gives the default: a job without flows, an answer that moves none.
pub fn unpack<T: DeserializeOwned + Default>(state: &State) -> T {
    T::deserialize(&state.0).unwrap_or_default()
}

/// Reads the state that the scheme `name` saved, for [`Scheme::restore`]. Its type should deny unknown fields, so that
/// it does not accept a state of another scheme.
///
/// # Errors
/// It cannot be read.
///
/// [`Scheme::restore`]: pathloom_scheme::Scheme::restore
pub fn restore<T: DeserializeOwned>(name: &'static str, state: State) -> Result<T, StateError> {
    serde_json::from_value(state.0).map_err(|error| StateError { scheme: name, problem: error.to_string() })
}
