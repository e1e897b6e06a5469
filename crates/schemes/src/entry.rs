//! What each scheme declares of itself: its name, its keys, and the programs that it runs.

use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::Fabric;
use pathloom_scheme::Scheme;
use pathloom_switching::deployment::Deployment;
use pathloom_transport::TransportSpec;
use std::sync::Arc;

/// A key of a scheme's specification: its name, its default as text, and what it does.
pub type KeyInfo = (&'static str, &'static str, &'static str);

/// The description of a scheme for users.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryInfo {
    /// The name in specifications.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// The publication that describes it.
    pub paper: &'static str,
    /// Its keys.
    pub keys: &'static [KeyInfo],
}

/// Creates a central policy from a seed.
pub(crate) type Central = Arc<dyn Fn(u64) -> Box<dyn Scheme> + Send + Sync>;

/// Whether the names in the settings of a scheme are in a fabric. The error says which is not.
pub(crate) type FabricCheck = Arc<dyn Fn(&Fabric) -> Result<(), String> + Send + Sync>;

/// The registration of a scheme.
pub(crate) struct Entry {
    pub(crate) info: EntryInfo,
    /// Reads the scheme's keys from the specification.
    pub(crate) read: fn(&Spec) -> Result<Parts, SpecError>,
}

/// The three programs that make a scheme.
pub(crate) struct Parts {
    pub(crate) central: Option<Central>,
    /// The transport of the hosts, if no other one is requested.
    pub(crate) transport: TransportSpec,
    /// The program of the switches; `None` if they run the rules of the controller.
    pub(crate) deployment: Option<Deployment>,
    /// For schemes whose settings name switches.
    pub(crate) check: Option<FabricCheck>,
}

impl Parts {
    /// A central policy over rule-driven switches and hosts that run TCP NewReno.
    pub(crate) fn central(make: impl Fn(u64) -> Box<dyn Scheme> + Send + Sync + 'static) -> Parts {
        let transport = TransportSpec::default();
        Parts { central: Some(Arc::new(make)), transport, deployment: None, check: None }
    }
}
