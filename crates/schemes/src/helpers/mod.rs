//! What most schemes need, in one place.
//!
//! - [`backoff`]: when to ask again for a path that a switch refused;
//! - [`draws`]: chance, from the seed of the run;
//! - [`links`]: rates and loads of links, and the path with the most room;
//! - [`state`]: what survives a restart, and what goes into jobs and comes out.

pub mod backoff;
pub mod draws;
pub mod links;
pub mod state;
