//! The controller over live OpenFlow sessions: `pathloom_control::Controller` with sockets and a real clock. The load
//! generator that measures it (`bench/`) makes a program of its own.
//!
//! One thread runs everything but solvers. A session reads whatever has arrived in one call, the [`hub`] works it off
//! and leaves the answers in the buffers of the sessions they are for, and each buffer goes out in one write when all
//! that was readable has been read: under load, system calls are shared by hundreds of messages.

mod addresses;
mod answers;
mod api;
pub mod bench;
pub mod clock;
pub mod config;
mod connection;
mod connections;
pub mod counts;
mod crowding;
mod current;
mod dhcp;
mod duration;
mod encrypted;
mod gauges;
mod hosts;
pub mod hub;
#[cfg(test)]
mod hub_tests;
mod incoming;
mod load;
mod metrics;
mod newcomers;
mod numbers;
#[cfg(test)]
mod offenders_tests;
mod outgoing;
mod persist;
mod places;
mod punts;
mod quiet;
mod reading;
pub mod record;
mod refused;
mod registry;
mod reload;
mod scout;
pub mod serve;
mod session;
pub mod survey;
#[cfg(test)]
mod testing;
mod tls;
#[cfg(test)]
mod tls_tests;
mod upkeep;
mod verify;

pub use api::Api;
pub use reading::Foreign;
pub use tls::Tls;
