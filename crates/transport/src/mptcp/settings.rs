//! The settings of MPTCP.

use crate::conflicts::{stated, word};
use crate::listing::{key, TransportKey};
use crate::settings::{Settings, TransportSpec};
use crate::CongestionControl;
use pathloom_model::spec::{Spec, SpecError};
use serde::{Deserialize, Serialize};

/// Largest number of subflows of a connection.
pub const MOST_SUBFLOWS: u32 = 64;

const DEFAULT_SUBFLOWS: u32 = 4;

/// Name of the transport in specifications.
pub(crate) const NAME: &str = "mptcp";

/// Keys of the transport beside those of TCP.
pub(crate) const KEYS: &[TransportKey] = &[
    key("subflows", "4", "subflows per pair of addresses, 1 to 64", "RFC 8684 §2"),
    key(
        "cc",
        "lia",
        "how windows grow: lia or olia coupled; uncoupled (NewReno) or cubic independently",
        "RFC 6356; Khalili et al. 2012; RFC 5681; RFC 9438",
    ),
    key(
        "manager",
        "ndiffports",
        "addresses of subflows: ndiffports the first two, with other ports; fullmesh every pair of the two hosts",
        "RFC 8684 §3.2; the path managers of the Linux MPTCP project",
    ),
    key(
        "scheduler",
        "lowest-rtt",
        "which subflow with room sends next: lowest-rtt or round-robin",
        "Linux's default; Paasch et al. 2014",
    ),
];

/// Settings of MPTCP connections.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MptcpSettings {
    /// Settings of each subflow.
    pub tcp: Settings,
    /// How the addresses of subflows are selected.
    pub manager: PathManager,
    /// Subflows per pair of addresses, 1 to [`MOST_SUBFLOWS`].
    pub subflows: u32,
    /// How the windows of the subflows grow together.
    pub coupling: Coupling,
    /// Which subflow sends next.
    pub scheduler: Scheduler,
}

/// How the addresses of a connection's subflows are selected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PathManager {
    /// All subflows use the two addresses of the first one; their ports differ.
    #[default]
    Ndiffports,
    /// Subflows use every pair of addresses of the two hosts.
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
    /// Each window grows independently.
    Uncoupled,
}

/// Which of several subflows with room sends next.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheduler {
    /// The subflow with the least round-trip time, as Linux does by default.
    #[default]
    LowestRtt,
    /// One subflow after the other, one segment each.
    RoundRobin,
}

impl Scheduler {
    /// Returns the number of chunks that a subflow gets before the next one is asked.
    pub fn chunks(self) -> usize {
        match self {
            Scheduler::LowestRtt => usize::MAX,
            Scheduler::RoundRobin => 1,
        }
    }
}

/// Values of `cc=`, with the coupling and the congestion control of each subflow.
const CONTROLS: [(&str, (Coupling, CongestionControl)); 4] = [
    ("lia", (Coupling::Lia, CongestionControl::Coupled)),
    ("olia", (Coupling::Olia, CongestionControl::Coupled)),
    ("uncoupled", (Coupling::Uncoupled, CongestionControl::NewReno)),
    ("cubic", (Coupling::Uncoupled, CongestionControl::Cubic)),
];

const DEFAULT_CONTROL: (Coupling, CongestionControl) = CONTROLS[0].1;

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
    /// Parses `subflows=`, `cc=`, `manager=` and `scheduler=`. The subflows have the settings `tcp`, except for the
    /// congestion control.
    ///
    /// # Errors
    /// A value is invalid; the message says what was expected.
    pub fn read(spec: &Spec, tcp: Settings) -> Result<MptcpSettings, SpecError> {
        let subflows =
            spec.count("subflows", 1, u64::from(MOST_SUBFLOWS))?.map_or(DEFAULT_SUBFLOWS, |count| count as u32);
        let (coupling, congestion) = spec.choice("cc", &CONTROLS)?.unwrap_or(DEFAULT_CONTROL);
        Ok(MptcpSettings {
            tcp: Settings { congestion, ..tcp },
            manager: spec.choice("manager", &MANAGERS)?.unwrap_or_default(),
            subflows,
            coupling,
            scheduler: spec.choice("scheduler", &SCHEDULERS)?.unwrap_or_default(),
        })
    }

    /// Returns these settings with the TCP settings of `given`, and the keys of MPTCP from the side that states them
    /// ([`TransportSpec::refined_by`]).
    pub(crate) fn refined_by(self, given: TransportSpec) -> Result<MptcpSettings, String> {
        let given = match given {
            TransportSpec::Mptcp(given) => given,
            TransportSpec::Tcp(tcp) if tcp.congestion == CongestionControl::NewReno => {
                let tcp = Settings { sack: tcp.sack || self.tcp.sack, ..tcp };
                MptcpSettings { tcp, ..MptcpSettings::default() }.with_control(DEFAULT_CONTROL)
            }
            _ => return Err("expected newreno:… or mptcp:…, whose keys apply to MPTCP's subflows".to_string()),
        };
        let control = stated("cc", self.control(), given.control(), DEFAULT_CONTROL, |value| word(&CONTROLS, value))?;
        let settings = MptcpSettings {
            manager: stated("manager", self.manager, given.manager, PathManager::default(), |v| word(&MANAGERS, v))?,
            subflows: stated("subflows", self.subflows, given.subflows, DEFAULT_SUBFLOWS, |v| v)?,
            scheduler: stated("scheduler", self.scheduler, given.scheduler, Scheduler::default(), |v| {
                word(&SCHEDULERS, v)
            })?,
            ..given
        };
        Ok(settings.with_control(control))
    }

    fn control(&self) -> (Coupling, CongestionControl) {
        (self.coupling, self.tcp.congestion)
    }

    fn with_control(mut self, (coupling, congestion): (Coupling, CongestionControl)) -> MptcpSettings {
        self.coupling = coupling;
        self.tcp.congestion = congestion;
        self
    }
}
