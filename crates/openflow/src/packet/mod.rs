//! Frames, as far as a controller reads and writes them.

mod ethernet;
mod headers;
pub mod mptcp;

pub use ethernet::Ethernet;
pub use headers::headers;
