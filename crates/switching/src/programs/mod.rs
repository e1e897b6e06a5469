//! The switch programs: a learning switch, ARP-Path, TCP-Path and TFE.
//!
//! [`ArpPath`] is the default forwarding of [`TcpPath`], which owns one; TFE is a [`TcpPath`] for elephants alone.
//! What each does, its timers, limits and attacks: `docs/tcp-path.md`.

mod ageing;
mod arp_path;
pub mod broadcast_share;
mod budget;
mod connections;
mod counts;
mod hosts;
mod learning;
mod memory;
mod ports;
mod settings;
mod tcp_path;

#[cfg(test)]
mod tests;

pub use arp_path::ArpPath;
pub use learning::LearningSwitch;
pub use settings::{Elephants, Identity, PortRole, Selection, Settings};
pub use tcp_path::TcpPath;
