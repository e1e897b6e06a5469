//! Functions that most schemes need.
//!
//! - [`backoff`]: when to request a path again after a switch refused it;
//! - [`draws`]: random draws, from the seed of the run;
//! - [`links`]: rates and loads of links, and the path with the most free capacity;
//! - `nics`: the NICs of long flows, for the estimate of natural demands;
//! - [`state`]: state that survives a restart, and input and output of jobs.

pub mod backoff;
pub mod draws;
pub mod links;
pub(crate) mod nics;
pub mod state;
