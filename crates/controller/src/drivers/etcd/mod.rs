//! The connection with etcd, if several controllers hold a fabric: `[cluster]` in the configuration, etcd's JSON gateway,
//! and the driver of `pathloom_cluster::Member`.

mod client;
mod election;
mod epoch;
mod format;
mod hand_over;
mod json;
mod members;
mod membership;
mod restored;
mod state;

pub use client::Client;
pub(crate) use membership::{Elected, Membership};
pub(crate) use restored::restored;
pub use restored::Restored;
pub(crate) use state::StateStore;
