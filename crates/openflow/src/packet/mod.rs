//! Frames that controllers and switches read and write.

mod ethernet;
mod headers;
pub mod mptcp;
pub mod path;

pub use ethernet::Ethernet;
pub use headers::headers;
