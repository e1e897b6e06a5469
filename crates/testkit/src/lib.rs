//! For tests only: fake switches, a network of them with drawn delays, flows in it, strategies and golden files.

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
pub use switch::{Entry, FakeSwitch, RemovedRule, Verdict};
pub use world::{ms, World, LABEL, SECOND, SFMM, SHARED, SLOW};
