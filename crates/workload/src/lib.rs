//! Flow sizes, arrivals, communication patterns and traces, turned into lists of flows.
//!
//! A [`TrafficSpec`] is read from the command line (`web-search:load=0.4,pattern=random`). From it, a fabric, a
//! duration and a seed, [`TrafficSpec::generate`] makes a [`Workload`]. Every quantity that is drawn has a random
//! stream of its own. So two runs that differ only in load have the same sizes, flow by flow, and a longer run begins
//! with the flows of a shorter one.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types))]

mod collectives;
mod delays;
mod error;
mod flow_csv;
mod flow_spec;
mod foreign;
mod fork;
mod generate;
mod hosts;
mod incast;
mod job;
mod long_lived;
mod names;
mod on_off;
mod pattern;
mod poisson;
mod quantity;
mod random;
mod ranks;
mod size_csv;
mod size_spec;
mod sizes;
mod spec;
mod tables;
#[cfg(test)]
mod tests;
mod training;

pub use error::WorkloadError;
pub use flow_spec::{FlowSpec, Start, UnderWay, Workload};
pub use job::{Access, Algorithm, Cost, Job};
pub use names::{traffic_names, TrafficKey, TrafficName};
pub use sizes::SizeTable;
pub use spec::{PartFiles, TrafficPart, TrafficSpec};
