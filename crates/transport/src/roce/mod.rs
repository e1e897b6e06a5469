//! RDMA over converged Ethernet ("RoCE", version 2): hosts number packets, receivers acknowledge them, and the card of the
//! sender paces each transfer at the rate that a [`RateControl`] sets. HPCC is one of the controls, with a window beside the rate. Losses are repaired by going back to the missing
//! packet, or by repeating it alone ([`Recovery`]).
//!
//! Formats are those of the InfiniBand Architecture Specification, volume 1, annex A17.

mod dcqcn;
mod hpcc;
mod law;
mod laws;
mod line;
mod receiver;
mod send_times;
mod sender;
mod settings;
#[cfg(test)]
mod tests;
mod timely;

pub use dcqcn::DcqcnSettings;
pub use hpcc::HpccSettings;
pub use laws::RateControl;
pub use receiver::RoceReceiver;
pub use sender::RoceSender;
pub(crate) use settings::{hpcc_keys, keys, ABOUT, HPCC, HPCC_ABOUT, HPCC_SOURCE, NAME, OTHER_NAME, SOURCE};
pub use settings::{Recovery, RoceSettings};
pub use timely::TimelySettings;

/// Bytes of a packet without its payload: Ethernet with a tag for the priority 18, IPv4 20, UDP 8, the base transport header
/// 12, and two check sequences of 4.
pub const HEADER_BYTES: u32 = 66;
/// Bytes of an acknowledgement, which has an extended header of 4.
pub const ACK_BYTES: u32 = HEADER_BYTES + 4;
/// Bytes of a congestion notification packet, which has 16 reserved ones.
pub const NOTICE_BYTES: u32 = HEADER_BYTES + 16;
