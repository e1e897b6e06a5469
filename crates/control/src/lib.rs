//! The controller as a pure state machine. It keeps the network view, detects long flows, makes rules from paths,
//! moves flows without loss, polls counters, and compares the rules of switches with those that they should have.
//!
//! [`Controller`] accepts [`Input`]s and returns [`Output`]s. Both concern switches and hosts and do not depend on a
//! protocol. The controller has no clock, no socket and no thread. Therefore the simulator and live OpenFlow sessions
//! run the same code, and a log that was recorded in one world can be replayed in the other.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types))]

mod active_scheme;
mod aggregate;
mod assign_error;
mod assignments;
mod base_rules;
mod budget;
mod config;
mod context;
mod controller;
pub mod cookies;
mod counts;
mod defaults;
mod detection;
mod drain;
mod dry_run;
mod durations;
mod explanations;
mod fan_out;
mod flow_rules;
mod flows;
mod io;
mod labels;
mod limits;
mod link_loads;
mod links;
mod log;
mod move_phase;
mod orphans;
mod path_requests;
mod places;
pub mod plan;
mod polling;
mod queries;
mod reasons;
mod review;
mod routes;
mod sessions;
pub mod sfmm;
mod short_list;
mod snapshot;
mod sweep;
mod switches;
mod tables;
mod timers;
mod watch;
mod weights;

pub use assign_error::AssignError;
pub use assignments::{Assignments, Listed};
pub use config::{AssignmentLimits, Config, Enforcement, Priorities};
pub use controller::Controller;
pub use cookies::{SOURCE_COOKIE, SOURCE_COOKIE_MASK};
pub use counts::Counts;
pub use defaults::FIRST_GROUP;
pub use drain::DrainError;
pub use dry_run::{dry_run, DefaultPaths, DryRun};
pub use durations::{DurationHistogram, DURATION_BOUNDS};
pub use explanations::{decision_text, link_name};
pub use io::*;
pub use limits::FIRST_METER;
pub use log::{read_log, replay, replay_observed, Divergence, LogError, Message, Record, ReplayError, SchemeChange};
pub use path_requests::{Assigned, AssignmentId, ClaimKey, Owner, PathRequest, PathSearch};
pub use reasons::{Cause, Decision, Reason};
pub use snapshot::{RestoreError, Snapshot, StoredDrains};
pub use tables::{Table, CONTROL, DEFAULTS, LONG_FLOWS, TABLES};
