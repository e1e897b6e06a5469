//! Seeded fault simulation. A seed draws a small fabric, a scheme with settings, a workload and a schedule of faults that may
//! overlap; the simulator runs it, and this crate says which of the promises below were broken.
//!
//! 1. No packet of a flow is lost but by a fault itself (`excuse.rs` says what that means), none goes in a loop, none is doubled,
//!    brought to another host or handed to a host with a tag on.
//! 2. Every flow that stands delivers again within a bound after the last repair, in both directions.
//! 3. When the flows have ended and their rules have run out, switches have the rules of a fabric that never had a flow: none
//!    leaked, none doubled, none missing, as many as the controller counts.
//! 4. Every hold has ended, and the controller knows no flow any more.
//!
//! Faults take place in simulated time, so a seed breaks the same promises every time. docs/faults.md is for users.

mod acts;
mod excuse;
mod fabrics;
mod run;
mod schedule;
mod settings;
mod shrink;
mod tables;
mod watch;

pub use acts::Act;
pub use run::{run, Sabotage, Verdict};
pub use schedule::{Schedule, Scope};
pub use shrink::shrink;
