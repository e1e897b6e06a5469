//! What goes into jobs and comes out, as the [`State`] that the contract carries.

use pathloom_scheme::State;
use serde::de::DeserializeOwned;
use serde::Serialize;

/// Plain fields, and maps whose keys are numbers or addresses: there is nothing in them that JSON cannot say.
pub(crate) fn pack(value: &impl Serialize) -> State {
    State(serde_json::to_value(value).unwrap_or_default())
}

/// What cannot be read is nothing: a job without flows, an answer that moves none.
pub(crate) fn unpack<T: DeserializeOwned + Default>(state: &State) -> T {
    T::deserialize(&state.0).unwrap_or_default()
}
