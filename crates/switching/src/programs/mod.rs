//! The switch programs: a learning switch, ARP-Path, TCP-Path and TFE.
//!
//! [`TcpPath`] contains an [`ArpPath`] as its default forwarding. TFE is a [`TcpPath`] for elephants only.
//! `docs/tcp-path.md` describes each program, its timers and limits, and attacks.

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
