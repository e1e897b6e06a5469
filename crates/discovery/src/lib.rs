//! What hangs where on live switches, found out and kept true: which cable joins which ports ([`LinkDiscovery`], by LLDP
//! that nobody can forge), which host is where ([`HostLearning`], by ARP that is not believed blindly), both together
//! ([`Discovery`]), how that compares with the cabling that is configured ([`cabling`]), what of it can be used though it
//! is at other ports ([`wiring`]), and what fabric it is where none is configured ([`build_fabric`]).
//!
//! State machines without sockets or clocks: `handle(now, input)`, `poll_output()`, `poll_timeout()`. What is wrong is an
//! [`Alarm`] that names the place; the offender is limited, everyone else goes on.

mod agenda;
mod alarm;
pub mod arp;
pub mod cabling;
mod damping;
mod discovery;
mod found;
mod hosts;
mod limits;
mod links;
pub mod lldp;
mod names;
pub mod wiring;

pub use alarm::{Alarm, Trouble};
pub use discovery::{Discovery, Input, Output};
pub use found::{build_fabric, FoundError, FoundFabric};
pub use hosts::{HostInput, HostLearning, HostOutput, HostSettings, KnownHost};
pub use limits::{PortLimiter, Rate};
pub use links::{LinkDiscovery, LinkInput, LinkLoss, LinkOutput, PortState, ProbeSettings};
pub use names::{Dpid, Mac, Place};
