//! Frames, as far as a controller reads and writes them.

pub mod arp;
mod ethernet;
mod headers;
pub mod lldp;

pub use ethernet::{Ethernet, BROADCAST};
pub use headers::headers;
