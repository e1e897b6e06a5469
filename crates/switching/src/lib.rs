//! What a switch does with a frame: a match/action pipeline with counters, timers, groups and meters.
//!
//! A [`Switch`] has the meaning of an OpenFlow 1.3 switch (§5), cut to what Pathloom uses: frames start at table 0, the
//! matching rule of the highest priority acts, `goto` leads to a later table, a frame that no rule matches is dropped.
//! It sees parsed headers, never bytes, and time is an argument. [`Switch::decide`] says what becomes of a frame and
//! which rules it used; a driver that remembers decisions checks [`Switch::generation`] before it uses one again and
//! hands the frames it forwarded meanwhile to [`Switch::credit`] before counters are read or rules time out.

mod decision;
mod group;
mod meter;
mod switch;
mod table;

pub use decision::{Decision, Emission};
pub use switch::{Removed, Switch, SwitchSettings};
pub use table::RuleRef;
