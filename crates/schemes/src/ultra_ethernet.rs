//! What schemes share whose hosts run the transport of Ultra Ethernet, which gives each packet an entropy.

use crate::defaults_only::DefaultsOnly;
use crate::entry::Parts;
use pathloom_scheme::DefaultRoutes;
use pathloom_transport::uec::{EntropyChoice, UnorderedSettings};
use pathloom_transport::TransportSpec;

/// Switches that hash the entropy, and hosts that choose it in this way.
pub(crate) fn parts(name: &'static str, choice: EntropyChoice) -> Parts {
    let central = Parts::central(move |_| Box::new(DefaultsOnly::by_flow(name, DefaultRoutes::Ecmp)));
    Parts { transport: TransportSpec::Uec(UnorderedSettings::choosing(choice)), ..central }
}
