//! The agent of a host, without sockets, files or a clock: the state machine ([`agent`]), its protocol with the controller
//! ([`protocol`]), and its messages to programs ([`messages`]). `pathloom-hostd` drives it on a host, `pathloom-testnet` in virtual time.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types))]

pub mod agent;
pub mod messages;
pub mod protocol;
