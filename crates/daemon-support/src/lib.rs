//! Code shared by the daemons for Linux machines, `pathloom-hostd` and `pathloom-switch`: compilation and loading of
//! BPF programs, netlink, network namespaces and clocks, files and sockets, and one-line errors.
//!
//! Nothing here depends on the purpose of a daemon. Both daemons use each module, except `attached`, which is for the host agent.

#[cfg(feature = "drivers")]
pub mod attached;
pub mod compile;
#[cfg(feature = "drivers")]
pub mod config;
#[cfg(feature = "drivers")]
pub mod files;
#[cfg(feature = "drivers")]
pub mod netlink;
#[cfg(feature = "drivers")]
pub mod pins;
#[cfg(feature = "drivers")]
pub mod report;
#[cfg(feature = "drivers")]
pub mod system;
