//! The registry of schemes, one file per scheme.
//!
//! [`parse`] reads a specification such as `hedera:period=1s` into a [`SchemeSpec`]. This creates the central policy
//! and names the programs of hosts and switches. A new scheme is one file with an `ENTRY`, its two lines here and in
//! `registry.rs`, and one folder of recorded cases under `tests/conformance` (docs/new-scheme.md).
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types))]

pub mod allocation;
mod arp_path;
mod bitmap;
mod conga;
mod defaults_only;
mod drb;
mod drill;
mod ecmp;
mod encoding;
mod entry;
mod ethereal;
mod flowbender;
mod flowcut;
mod hedera;
mod hedera_sa;
pub mod helpers;
mod hula;
mod lessor;
mod letflow;
mod loom;
mod mixed;
mod mptcp;
mod mptcp_aware;
mod next_hop_choice;
mod oblivious;
mod ofpt;
mod parallel_tcp;
mod path_book;
mod periodic_moves;
mod placements;
mod plb;
mod presto;
mod program_settings;
mod registry;
mod rehashed;
mod remaining;
mod reps;
mod router;
mod rps;
mod solver_work;
mod sprayed;
mod spt;
mod tcp_path;
mod tfe;
mod ultra_ethernet;
mod vlb;
mod wcmp;

pub use encoding::{Carried, Encoding};
pub use entry::{EntryInfo, KeyInfo};
pub use pathloom_switching::deployment::Deployment;
pub use registry::{lasting, names, parse, Registry, SchemeSpec};
