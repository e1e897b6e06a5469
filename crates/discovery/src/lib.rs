//! Discovery of the topology of live switches.
//!
//! - [`LinkDiscovery`]: finds the cables between switch ports, by signed LLDP frames that nobody can forge;
//! - [`HostLearning`]: finds the port of each host, by verified ARP frames;
//! - [`Discovery`]: combines both;
//! - [`cabling`]: compares the result with the configured cabling;
//! - [`wiring`]: finds cables at other ports than configured that can still be used;
//! - [`build_fabric`]: builds the fabric, if none is configured.
//!
//! These are state machines without sockets or clocks: `handle(now, input)`, `poll_output()`, `poll_timeout()`. A fault
//! raises an [`Alarm`] that names its place. Limits apply to the port at fault; all other ports are served as usual.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types))]

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

pub use alarm::{Alarm, AlarmKind};
pub use discovery::{Discovery, Input, Output};
pub use found::{build_fabric, FoundError, FoundFabric};
pub use hosts::{HostInput, HostLearning, HostOutput, HostSettings, KnownHost};
pub use limits::{PortLimiter, Rate};
pub use links::{LinkDiscovery, LinkInput, LinkLoss, LinkOutput, PortState, ProbeSettings};
pub use names::{Dpid, Place};
pub use pathloom_model::Mac;
