//! Fake switches, a network of them with delays of its own choosing, flows in it, strategies and golden files: for tests alone.

mod golden;
mod network;
pub mod schemes;
mod scripted;
pub mod strategies;
mod switch;
pub mod tshark;
mod world;

pub use golden::{check_case, check_folder, play_case, CaseError};
pub use network::{Fate, Network, Report, Timing};
pub use scripted::Script;
pub use switch::{Entry, FakeSwitch, Gone, Verdict};
pub use world::{ms, World, LABEL, SECOND, SFMM, SHARED, SLOW};
