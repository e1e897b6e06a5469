//! The controller over live OpenFlow sessions: `pathloom_control::Controller` with sockets and a real clock. The load
//! generator that measures it (`crates/controller-bench`) is a program of its own.
//!
//! Each folder uses only those before it:
//!
//! 1. `config`: the configuration file, and the files that it names.
//! 2. `hub`: sessions of switches and agents as a pure machine; its documentation has the contract with its driver.
//! 3. `drivers`: sockets, files, the clock and etcd.
//! 4. `api`: the HTTP API.
//! 5. `commands`: what the program does.
//! 6. `embed`: what other programs can embed.
//!
//! One thread runs everything except solvers and the API. A session reads all that has arrived in one call. The
//! hub handles it and puts the answers into the buffers of their sessions. When everything readable has been
//! handled, each buffer is sent in one write. So under load, hundreds of messages share a system call.

mod api;
pub mod commands;
pub mod config;
mod drivers;
pub mod embed;
#[cfg_attr(not(test), deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types))]
mod hub;
#[cfg(test)]
mod tests;
