//! Seeded fault simulation. A seed draws a small fabric, a scheme with settings, a workload and a schedule of faults
//! that may overlap. The simulator runs it, and this crate reports which of the promises below were broken.
//!
//! 1. No packet of a flow is lost except by a fault itself (`explained_losses.rs` defines this). No packet loops, is
//!    duplicated, reaches another host, or is delivered to a host with a tag.
//! 2. Every long-lived flow delivers again within a bound after the last repair, in both directions.
//! 3. When the flows have ended and their rules have expired, switches have the rules of a fabric that never had a
//!    flow: no rule is left over, duplicated or missing, and the controller counts the same number of rules.
//! 4. Every hold has ended, and the controller knows no flow any more.
//!
//! Faults take place in simulated time, so a seed breaks the same promises every time. docs/faults.md is for users.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types))]

mod explained_losses;
mod fabrics;
mod operator_actions;
mod run;
mod schedule;
mod settings;
mod shrink;
mod tables;
mod watch;

pub use operator_actions::Act;
pub use run::{run, Sabotage, Verdict};
pub use schedule::{Schedule, Scope};
pub use shrink::shrink;
