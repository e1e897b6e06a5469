//! State that a program saves for its next start. If the kernel of the switch continues to forward meanwhile, the
//! neighbours do not notice the restart.

use pathloom_model::{Conversation, FiveTuple, Heard, Mac, PortNo, Tier};
use serde::{Deserialize, Serialize};

/// The part of a program's tables that is saved. It contains only confirmed connections.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Saved {
    /// The highest number of an exploration that this switch began.
    pub last_number: u64,
    /// Neighbouring switches with working links in both directions.
    pub neighbours: Vec<SavedNeighbour>,
    /// Hosts whose port is known.
    pub hosts: Vec<SavedHost>,
    /// Confirmed connections.
    #[serde(skip)]
    pub connections: Vec<SavedConnection>,
    /// Decisions of the default forwarding that a driver still remembers: five-tuple, source and destination station.
    #[serde(skip)]
    pub remembered: Vec<(FiveTuple, Mac, Mac)>,
}

/// A neighbouring switch at a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SavedNeighbour {
    /// Port of this switch.
    pub port: PortNo,
    /// Address of the neighbour.
    pub switch: Mac,
    /// Port of the neighbour.
    pub its_port: PortNo,
    /// Number of the start of the neighbour's program.
    pub boot: u64,
    /// Tier of the neighbour, if known.
    pub tier: Option<Tier>,
}

impl SavedNeighbour {
    /// Returns the neighbour in the form that a Hello contains.
    pub fn heard(&self) -> Heard {
        Heard { switch: self.switch, port: self.its_port, boot: self.boot }
    }
}

/// The way to a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SavedHost {
    /// The host.
    pub mac: Mac,
    /// The port that leads to it.
    pub port: PortNo,
    /// Number of the last exploration of the host that was accepted.
    pub number: u64,
    /// Whether the host itself is at the port.
    pub local: bool,
}

/// The path of a connection in one switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SavedConnection {
    /// The conversation, seen from the source of the exploration.
    pub conversation: Conversation,
    /// Number of the exploration.
    pub exploration: u64,
    /// Port towards the source.
    pub to_source: PortNo,
    /// Port towards the destination.
    pub to_destination: PortNo,
}
