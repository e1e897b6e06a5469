//! What drives the hub: sockets, TLS, files, the clock, threads for solvers, and etcd.

pub(crate) mod agents;
pub(crate) mod clock;
pub(crate) mod descriptors;
pub(crate) mod encrypted;
pub(crate) mod etcd;
pub(crate) mod failed_accepts;
pub(crate) mod listening;
pub(crate) mod load;
pub(crate) mod persist;
pub(crate) mod process;
mod process_command;
pub(crate) mod record;
pub(crate) mod secret;
pub(crate) mod session;
pub(crate) mod storing;
pub(crate) mod timers;
