//! Identifiers of switches and ports as in OpenFlow messages.

use pathloom_model::PortNo;
use std::fmt;

/// Datapath identifier of a switch (OpenFlow 1.3.5 §7.3.1, `datapath_id`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dpid(pub u64);

/// A port of a switch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The switch.
    pub dpid: Dpid,
    /// OpenFlow number of the port.
    pub port: PortNo,
}

impl Place {
    /// Creates a place from numbers.
    pub const fn new(dpid: u64, port: u32) -> Place {
        Place { dpid: Dpid(dpid), port: PortNo(port) }
    }
}

impl fmt::Display for Dpid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Dpid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "d{:x}", self.0)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "switch {} port {}", self.dpid, self.port.0)
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}:{}", self.dpid, self.port.0)
    }
}
