//! A network of OpenFlow switches, hosts and cables in virtual time, for tests of the live controller.
//!
//! [`Network`] runs a [`Machine`], which is the controller without its sockets, and everything around it in one event
//! loop. The controller and its switches exchange the bytes of OpenFlow. Frames of hosts, and the controller's probes,
//! travel through the rules that the switches have at that moment. A seed determines all delays and all divisions of
//! byte streams, so the same seed gives the same bytes.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types))]

mod agents;
mod device;
mod frame;
mod host;
mod machine;
mod network;
mod report;
mod roles;
mod sessions;
mod tables;

pub use device::{Device, Faults};
pub use frame::Frame;
pub use host::Host;
pub use machine::Machine;
pub use network::{End, Network};
pub use report::{Fate, Report, Timing};
pub use roles::Roles;
pub use sessions::Peer;
pub use tables::Tables;
