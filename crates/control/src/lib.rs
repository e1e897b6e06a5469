//! The controller as a pure state machine: network view, long-flow detection, rules from paths, moving flows without
//! loss, polling, and reconciliation with what switches have.
//!
//! [`Controller`] takes [`Input`]s and gives [`Output`]s, both of switches and hosts and neutral of any protocol. It has
//! no clock, no socket and no thread, so the simulator and live OpenFlow sessions drive the same code, and a log of one
//! world replays in the other.

mod aggregate;
mod arrivals;
mod assignments;
mod bound;
mod config;
mod context;
mod controller;
pub mod cookies;
mod counts;
mod defaults;
mod detection;
mod drain;
mod dry_run;
mod few;
mod fixed;
mod flows;
mod io;
mod labels;
mod link_loads;
mod links;
mod log;
mod orphans;
mod pacing;
mod places;
pub mod plan;
mod polling;
mod reasons;
mod reconcile;
mod returns;
mod review;
mod routing;
mod sessions;
pub mod sfmm;
mod snapshot;
mod spread;
mod sweep;
mod switches;
mod tables;
mod timers;
mod times;

pub use assignments::{
    AssignError, Assigned, AssignmentId, AssignmentLimits, Assignments, ClaimKey, Owner, PathRequest, PathSearch,
};
pub use config::{Config, Priorities};
pub use controller::Controller;
pub use cookies::{SOURCE_COOKIE, SOURCE_COOKIE_MASK};
pub use counts::Counts;
pub use defaults::FIRST_GROUP;
pub use drain::DrainError;
pub use dry_run::{dry_run, DefaultPaths, DryRun};
pub use io::*;
pub use log::{read_log, replay, Divergence, LogError, Message, Record, ReplayError, SchemeChange};
pub use pacing::{Enforcement, FIRST_METER};
pub use reasons::{Cause, Decision, Reason};
pub use snapshot::{RestoreError, Snapshot};
pub use tables::{Table, CONTROL, DEFAULTS, LONG_FLOWS, TABLES};
pub use times::{DurationHistogram, DURATION_BOUNDS};
