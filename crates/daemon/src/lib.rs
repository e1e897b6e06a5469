//! What the daemons of Linux machines share, `pathloom-hostd` and `pathloom-switch`: how BPF programs are compiled and loaded,
//! netlink, network namespaces and clocks, configuration files, and errors in one line.
//!
//! Nothing here knows what a daemon is for. Each module is used by both.

pub mod compile;
#[cfg(feature = "drivers")]
pub mod config;
#[cfg(feature = "drivers")]
pub mod netlink;
#[cfg(feature = "drivers")]
pub mod pins;
#[cfg(feature = "drivers")]
pub mod report;
#[cfg(feature = "drivers")]
pub mod system;
