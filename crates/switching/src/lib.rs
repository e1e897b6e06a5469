//! What a switch does with a frame: a match/action pipeline with counters, timers, groups and meters.
//!
//! A [`Switch`] has the meaning of an OpenFlow 1.3 switch (§5), cut to what Pathloom uses: frames start at table 0, the
//! matching rule of the highest priority acts, `goto` leads to a later table, a frame that no rule matches is dropped.
//! It sees parsed headers, never bytes, and time is an argument. [`Switch::decide`] says what becomes of a frame and
//! which rules it used. A driver that remembers decisions asks [`Switch::take_stale`] after each change which of them to
//! forget, and hands the frames it forwarded from memory to [`Switch::credit`] before counters are read or rules time out.
//!
//! A [`Program`] is a switch of another kind: it has no controller and finds its paths together with its neighbours.

mod decision;
pub mod deployment;
mod group;
mod meter;
pub mod program;
pub mod programs;
mod saved;
mod stale;
mod switch;
mod table;

pub use decision::{Decision, Emission};
pub use pathloom_model::Frame;
pub use program::{Outgoing, Program, Tables, Used, Verdict};
pub use saved::{Saved, SavedConnection, SavedHost, SavedNeighbour};
pub use stale::Stale;
pub use switch::{Removed, Switch, SwitchSettings};
pub use table::RuleRef;
