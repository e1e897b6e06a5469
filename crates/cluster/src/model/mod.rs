//! For tests: an etcd in memory, and a world of members in virtual time.

mod etcd;
mod world;

pub use etcd::Etcd;
pub use world::{Clock, Timing, World};
