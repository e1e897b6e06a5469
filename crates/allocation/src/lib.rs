//! Allocation as pure computation: links are indices with a capacity, and flows are lists of links. No fabric, no
//! clock.
//!
//! - [`max_min`]: exact (weighted) max-min fair rates of flows with one path each.
//! - [`incremental`]: the same rates, kept up to date while flows come, go and move.
//! - [`natural_demand`]: the rate that each flow would get if the hosts' NICs were the only limits (Hedera §4.2).
//! - [`fractional`]: the maximum concurrent flow of demands that may be split, with the bound that proves it.
//! - [`splitting`]: how switches divide the traffic to each destination among their next hops.
//! - [`placement`]: the path of each flow (Hedera §4.3: Global First Fit, Simulated Annealing; OFPT and LESSOR
//!   Algorithm 2).
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types))]

mod fat_tree;
mod flow_set;
pub mod fractional;
pub mod incremental;
mod max_min;
mod natural_demand;
mod network;
pub mod placement;
mod routes;
pub mod splitting;

pub use flow_set::FlowSet;
pub use max_min::{max_min, AllocationError, Limit, MaxMin};
pub use natural_demand::{natural_demand, HostPair, NaturalDemand};
pub use network::{Network, NetworkLink};
