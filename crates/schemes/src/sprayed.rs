//! What schemes share that send the packets of one flow over several paths.

use crate::defaults_only::DefaultsOnly;
use crate::entry::Parts;
use crate::next_hop_choice::NextHopChoice;
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::Nanos;
use pathloom_scheme::{DefaultRoutes, Entropy, Selection};
use pathloom_transport::{Reordering, TransportSpec};

/// Switches that choose among all shortest next hops for each packet.
pub(crate) fn parts(name: &'static str, entropy: Entropy, selection: Selection) -> Parts {
    parts_at(name, entropy, NextHopChoice::everywhere(selection))
}

/// As [`parts`], with the tier at which switches choose so.
pub(crate) fn parts_at(name: &'static str, entropy: Entropy, choice: NextHopChoice) -> Parts {
    let routes = DefaultRoutes::Ecmp;
    Parts::central(move |_| Box::new(DefaultsOnly { entropy, choice, ..DefaultsOnly::by_flow(name, routes) }))
}

/// TCP that tolerates a window of reordering. Otherwise most segments that overtake others would look like losses.
pub(crate) fn tolerant_tcp() -> TransportSpec {
    TransportSpec::default().tolerating(Some(Reordering::Window))
}

/// Reads a time that must be more than 0.
pub(crate) fn positive(spec: &Spec, key: &'static str, usual: Nanos) -> Result<Nanos, SpecError> {
    match spec.time(key)? {
        Some(Nanos::ZERO) => Err(spec.error(format!("{key} is 0; expected a time, such as 100us"))),
        given => Ok(given.unwrap_or(usual)),
    }
}
