//! Types for switches, ports and hardware addresses as on the wire.

use pathloom_model::PortNo;
use std::fmt;

/// A switch as OpenFlow names it (OpenFlow 1.3.5 §7.3.1, `datapath_id`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dpid(pub u64);

/// A port of a switch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The switch.
    pub dpid: Dpid,
    /// Its port, by its OpenFlow number.
    pub port: PortNo,
}

/// A hardware (Ethernet) address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

impl Place {
    /// A port of a switch, by numbers.
    pub const fn new(dpid: u64, port: u32) -> Place {
        Place { dpid: Dpid(dpid), port: PortNo(port) }
    }
}

impl Mac {
    /// The broadcast address.
    pub const BROADCAST: Mac = Mac([0xff; 6]);
    /// No address.
    pub const ZERO: Mac = Mac([0; 6]);

    /// Whether it is a group or broadcast address, which cannot be a sender (IEEE 802-2014 §8.2.2).
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 == 1
    }

    /// Whether it can be the address of a sender.
    pub fn is_station(self) -> bool {
        !self.is_group() && self != Mac::ZERO
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

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
