//! Models of switches: a match/action pipeline with counters, timers, groups and meters, and switch programs.
//!
//! A [`Switch`] behaves like an OpenFlow 1.3 switch (§5), reduced to the features that Pathloom uses. A frame starts at
//! table 0, the matching rule with the highest priority acts, and `goto` leads to a later table. Processing ends at a
//! table without a matching rule. A switch handles parsed headers, not bytes, and time is an argument.
//! [`Switch::decide`] returns the ports by which a frame leaves, and the rules that it used. A driver may remember
//! decisions. After each change, it calls [`Switch::take_stale`], which returns the decisions that the driver must
//! forget. Before the driver reads counters or expires rules, it calls [`Switch::credit`] for the frames that it
//! forwarded from memory.
//!
//! Where several next hops are equal, a switch may choose among them for each packet ([`selection`]), or let a program do so
//! that exchanges what it measures with other switches ([`balancing`]).
//!
//! A [`Program`] is another kind of switch: it has no controller and finds paths together with its neighbours.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types))]

pub mod balancing;
mod decision;
pub mod deployment;
mod group;
mod meter;
pub mod program;
pub mod programs;
mod saved;
pub mod selection;
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
