//! The list of schemes, and how a specification becomes a scheme.

use crate::entry::{Central, Entry, EntryInfo, FabricCheck, Parts};
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::Fabric;
use pathloom_scheme::remote::RemoteScheme;
use pathloom_scheme::{Needs, Scheme};
use pathloom_switching::deployment::Deployment;
use pathloom_transport::TransportSpec;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// Every scheme, in the order in which they are listed.
const ENTRIES: &[Entry] = &[
    crate::spt::ENTRY,
    crate::ecmp::ENTRY,
    crate::wcmp::ENTRY,
    crate::vlb::ENTRY,
    crate::mptcp::ENTRY,
    crate::rps::ENTRY,
    crate::letflow::ENTRY,
    crate::drill::ENTRY,
    crate::conga::ENTRY,
    crate::hula::ENTRY,
    crate::flowcut::ENTRY,
    crate::presto::ENTRY,
    crate::drb::ENTRY,
    crate::ethereal::ENTRY,
    crate::flowbender::ENTRY,
    crate::plb::ENTRY,
    crate::oblivious::ENTRY,
    crate::bitmap::ENTRY,
    crate::reps::ENTRY,
    crate::mixed::ENTRY,
    crate::loom::ENTRY,
    crate::hedera::ENTRY,
    crate::hedera_sa::ENTRY,
    crate::ofpt::ENTRY,
    crate::lessor::ENTRY,
    crate::mptcp_aware::ENTRY,
    crate::parallel_tcp::ENTRY,
    crate::tcp_path::ENTRY,
    crate::tfe::ENTRY,
    crate::arp_path::ENTRY,
];

/// Schemes only for tests of the controller and of the lab.
const TEST_ENTRIES: &[Entry] = &[crate::periodic_moves::ENTRY];

/// Which schemes a user can name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Registry {
    /// Only the schemes for users.
    #[default]
    Shipped,
    /// Also the schemes for tests. Otherwise nothing lists, suggests or accepts them.
    WithTestSchemes,
}

impl Registry {
    /// The environment variable that enables the schemes for tests, with the value 1. So tests of the lab run the
    /// shipped programs.
    pub const VARIABLE: &'static str = "PATHLOOM_TEST_SCHEMES";

    /// The registry that a value of [`Registry::VARIABLE`] selects.
    pub fn of_variable(value: Option<&OsStr>) -> Registry {
        match value.is_some_and(|value| value == "1") {
            true => Registry::WithTestSchemes,
            false => Registry::Shipped,
        }
    }

    fn all(self) -> impl Iterator<Item = &'static Entry> {
        let others: &[Entry] = match self {
            Registry::Shipped => &[],
            Registry::WithTestSchemes => TEST_ENTRIES,
        };
        ENTRIES.iter().chain(others)
    }

    /// The description of each scheme, in the order in which they are listed.
    pub fn entries(self) -> impl Iterator<Item = &'static EntryInfo> {
        self.all().map(|entry| &entry.info)
    }

    /// The names of the schemes.
    pub fn names(self) -> Vec<&'static str> {
        self.entries().map(|info| info.name).collect()
    }

    /// Reads `name:key=value,...`.
    ///
    /// # Errors
    /// An unknown name or key, with the nearest known one and the list of them; an invalid value, with what was
    /// expected.
    pub fn parse(self, text: &str) -> Result<SchemeSpec, SpecError> {
        let spec = Spec::parse("scheme", text)?;
        let entry = self.all().find(|entry| entry.info.name == spec.name());
        let entry = entry.ok_or_else(|| spec.unknown_name(&self.names()))?;
        let Parts { central, transport, deployment, check } = (entry.read)(&spec)?;
        spec.finish()?;
        Ok(SchemeSpec { name: entry.info.name, label: spec.text().to_owned(), central, transport, deployment, check })
    }
}

/// A scheme with its settings, ready to run any number of times.
#[derive(Clone)]
pub struct SchemeSpec {
    /// The name in the registry.
    pub name: &'static str,
    /// The specification as given. It distinguishes two settings of one scheme.
    pub label: String,
    central: Option<Central>,
    transport: TransportSpec,
    deployment: Option<Deployment>,
    check: Option<FabricCheck>,
}

impl SchemeSpec {
    /// A scheme in a process of its own, which has told these needs. Its name is its specification.
    pub fn of_process(spec: &str, needs: Needs) -> SchemeSpec {
        let name = lasting(spec);
        let Parts { central, transport, deployment, check } =
            Parts::central(move |_| Box::new(RemoteScheme::new(name, needs)));
        SchemeSpec { name, label: spec.to_owned(), central, transport, deployment, check }
    }

    /// A new central policy, if the scheme has one. All its random draws come from `seed`.
    pub fn central(&self, seed: u64) -> Option<Box<dyn Scheme>> {
        self.central.as_ref().map(|make| make(seed))
    }

    /// As [`SchemeSpec::central`], for live controllers, which require one.
    ///
    /// # Errors
    /// The scheme has none, or only simulated switches and hosts run it: it sends the packets of one flow over several paths. The
    /// message names the scheme.
    pub fn require_central(&self, seed: u64) -> Result<Box<dyn Scheme>, String> {
        let label = &self.label;
        let central = self.central(seed).ok_or_else(|| {
            format!(
                "{label} has no central part: its switches find their paths themselves, so there is nothing to control"
            )
        })?;
        match central.needs().takes_several_paths() || self.transport.uec().is_some() {
            false => Ok(central),
            true => Err(format!(
                "{label} sends the packets of one flow over several paths, but rules of OpenFlow switches hash only \
                 five-tuples, so it runs only in the simulator; use ecmp or mptcp"
            )),
        }
    }

    /// Checks that the settings name what the fabric has. Names that it does not have are ignored by [`SchemeSpec::central`].
    ///
    /// # Errors
    /// The settings name a switch or a cable that the fabric does not have. The message names it.
    pub fn check_fabric(&self, fabric: &Fabric) -> Result<(), String> {
        self.check.as_ref().map_or(Ok(()), |check| check(fabric))
    }

    /// The transport of its hosts, if no other one is requested.
    pub fn transport(&self) -> &TransportSpec {
        &self.transport
    }

    /// The transport of its hosts with these requested settings of connections ([`TransportSpec::refined_by`]).
    ///
    /// # Errors
    /// The scheme's hosts cannot run it. The message says what was expected.
    pub fn transport_with(&self, given: Option<TransportSpec>) -> Result<TransportSpec, String> {
        let own = self.transport.clone();
        let Some(given) = given else { return Ok(own) };
        let refuse = |expected: &str| format!("--transport with scheme {}: {expected}", self.name);
        let refined = own.clone().refined_by(given).map_err(|problem| refuse(&problem))?;
        // Only schemes that react to marks bring a TCP that does.
        match own.settings().reacts_to_marks() && !refined.echoes_marks() {
            false => Ok(refined),
            true => Err(refuse("expected dctcp:… or roce:…, because its senders need congestion marks")),
        }
    }

    /// The program of its switches; `None` if they run the controller's rules.
    pub fn deployment(&self) -> Option<Deployment> {
        self.deployment.clone()
    }
}

impl fmt::Debug for SchemeSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SchemeSpec")
            .field("name", &self.name)
            .field("label", &self.label)
            .field("central", &self.central.is_some())
            .field("transport", &self.transport)
            .field("deployment", &self.deployment)
            .finish()
    }
}

/// A copy of a name that lasts as long as this program. There are few: one per scheme that a user names.
pub fn lasting(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name) {
        return known;
    }
    let name: &'static str = name.to_owned().leak();
    names.insert(name);
    name
}

/// Reads the specification of a scheme for users ([`Registry::parse`]).
///
/// # Errors
/// As [`Registry::parse`].
pub fn parse(text: &str) -> Result<SchemeSpec, SpecError> {
    Registry::Shipped.parse(text)
}

/// The names of all schemes for users.
pub fn names() -> Vec<&'static str> {
    Registry::Shipped.names()
}
