//! The controller over live OpenFlow sessions: `pathloom_control::Controller` with sockets and a real clock. The load
//! generator that measures it (`bench/`) is a program of its own.
//!
//! The [`hub`] is a pure machine; its documentation has the contract with its driver (`session.rs`, `serve.rs`). One
//! thread runs everything except solvers and the API. A session reads all that has arrived in one call. The
//! hub handles it and puts the answers into the buffers of their sessions. When everything readable has been
//! handled, each buffer is sent in one write. So under load, hundreds of messages share a system call.

mod addresses;
mod answers;
mod api;
mod assigning;
pub mod bench;
pub mod clock;
pub mod config;
mod connection;
mod connections;
mod control_settings;
pub mod counts;
mod crowding;
mod current;
mod descriptors;
mod dhcp;
mod duration;
mod encrypted;
mod etcd;
mod failed_accepts;
mod gauges;
mod hash_steps;
mod hosts;
pub mod hub;
#[cfg(test)]
mod hub_tests;
mod incoming;
pub mod job;
mod live_discovery;
mod load;
mod log_limiter;
mod measured;
mod metrics;
mod newcomers;
mod numbers;
#[cfg(test)]
mod offenders_tests;
mod outgoing;
pub mod path_history;
mod persist;
mod places;
mod punts;
mod reading;
pub mod record;
mod refused;
mod registry;
mod reload;
mod roles;
pub mod serve;
mod session;
mod storing;
pub mod survey;
#[cfg(test)]
mod testing;
mod tls;
#[cfg(test)]
mod tls_tests;
mod upkeep;
mod verify;
#[cfg(test)]
mod virtual_time;

pub use api::{Api, Paths};
pub use etcd::{CheckedCluster, Cluster};
pub use reading::Foreign;
pub use tls::Tls;
