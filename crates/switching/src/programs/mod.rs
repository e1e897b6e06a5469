//! The switch programs: a learning switch, ARP-Path, TCP-Path and TFE.
//!
//! [`TcpPath`] contains an [`ArpPath`] as its default forwarding. TFE is a [`TcpPath`] for elephants only.
//! `docs/tcp-path.md` describes each program, its timers and limits, and attacks.

mod arp_path;
pub mod broadcast_share;
mod check_queue;
mod connections;
mod counts;
mod decision_cache;
mod fair_share;
mod hosts;
mod learning;
mod moves;
mod ports;
mod settings;
mod shared_limit;
mod tcp_path;
mod token_bucket;

#[cfg(test)]
mod tests;

pub use arp_path::ArpPath;
pub use learning::LearningSwitch;
pub use settings::{Elephants, Identity, PortRole, Selection, Settings};
pub use tcp_path::TcpPath;
