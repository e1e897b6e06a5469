//! What MPTCP can be told.

use crate::settings::{CongestionControl, Settings};
use pathloom_model::spec::{Spec, SpecError};
use serde::{Deserialize, Serialize};

/// The most subflows that a connection may have.
pub const MOST_SUBFLOWS: u32 = 64;

const DEFAULT_SUBFLOWS: u32 = 4;

/// Settings of MPTCP connections.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MptcpSettings {
    /// Those of each subflow.
    pub tcp: Settings,
    /// Which subflows there are.
    pub manager: PathManager,
    /// Subflows per pair of addresses, 1 to [`MOST_SUBFLOWS`].
    pub subflows: u32,
    /// How their windows grow together.
    pub coupling: Coupling,
    /// Which subflow sends next.
    pub scheduler: Scheduler,
}

/// Between which addresses the subflows of a connection run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PathManager {
    /// All between the two addresses of the first one; their ports tell them apart.
    #[default]
    Ndiffports,
    /// Over every pair of addresses of the two hosts.
    Fullmesh,
}

/// How the windows of the subflows of a connection grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Coupling {
    /// Linked increases (RFC 6356).
    #[default]
    Lia,
    /// Opportunistic linked increases (Khalili et al. 2012).
    Olia,
    /// Each by itself.
    Uncoupled,
}

/// Which of several subflows that have room sends next.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheduler {
    /// That of the least round-trip time, as Linux does by default.
    #[default]
    LowestRtt,
    /// One after the other, a segment each.
    RoundRobin,
}

impl Scheduler {
    /// How many chunks a subflow is given before the next one is asked.
    pub fn chunks(self) -> usize {
        match self {
            Scheduler::LowestRtt => usize::MAX,
            Scheduler::RoundRobin => 1,
        }
    }
}

/// What `cc=` may be, with the congestion control of each subflow.
const CONTROLS: [(&str, (Coupling, CongestionControl)); 4] = [
    ("lia", (Coupling::Lia, CongestionControl::Coupled)),
    ("olia", (Coupling::Olia, CongestionControl::Coupled)),
    ("uncoupled", (Coupling::Uncoupled, CongestionControl::NewReno)),
    ("cubic", (Coupling::Uncoupled, CongestionControl::Cubic)),
];

const MANAGERS: [(&str, PathManager); 2] =
    [("ndiffports", PathManager::Ndiffports), ("fullmesh", PathManager::Fullmesh)];

const SCHEDULERS: [(&str, Scheduler); 2] =
    [("lowest-rtt", Scheduler::LowestRtt), ("round-robin", Scheduler::RoundRobin)];

impl Default for MptcpSettings {
    fn default() -> MptcpSettings {
        MptcpSettings {
            tcp: Settings { sack: true, congestion: CongestionControl::Coupled, ..Settings::default() },
            manager: PathManager::default(),
            subflows: DEFAULT_SUBFLOWS,
            coupling: Coupling::default(),
            scheduler: Scheduler::default(),
        }
    }
}

impl MptcpSettings {
    /// Takes `subflows=`, `cc=`, `manager=` and `scheduler=` out of a specification; the settings of the subflows are those
    /// given, but for their congestion control.
    ///
    /// # Errors
    /// A value that makes no sense, with what was expected.
    pub fn read(spec: &Spec, tcp: Settings) -> Result<MptcpSettings, SpecError> {
        let subflows =
            spec.count("subflows", 1, u64::from(MOST_SUBFLOWS))?.map_or(DEFAULT_SUBFLOWS, |count| count as u32);
        let (coupling, congestion) =
            spec.choice("cc", &CONTROLS)?.unwrap_or((Coupling::Lia, CongestionControl::Coupled));
        Ok(MptcpSettings {
            tcp: Settings { congestion, ..tcp },
            manager: spec.choice("manager", &MANAGERS)?.unwrap_or_default(),
            subflows,
            coupling,
            scheduler: spec.choice("scheduler", &SCHEDULERS)?.unwrap_or_default(),
        })
    }
}
