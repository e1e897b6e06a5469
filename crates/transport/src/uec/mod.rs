//! The transport of the Ultra Ethernet Consortium ("UEC"): packets that take any path in any order, acknowledged one by
//! one; NSCC, a window that the sender controls by delay and marks ([`nscc`]); and the choice of an entropy per packet
//! ([`Entropies`]). Other transports have the same packets and another congestion control ([`laws`]): swift, ndp and eqds. What
//! they share is named `Unordered`, after the reliable unordered delivery of UEC.
//!
//! Formulas and constants are those of the consortium's simulator, uet-htsim (`htsim/sim/uec.cpp`, commit 40ccb05 of
//! 2025), which describes itself as close to, but not part of, the UEC specification 1.0.

mod arrivals;
mod entropies;
mod eqds;
pub(crate) mod law;
pub(crate) mod laws;
mod ndp;
mod nscc;
mod receiver;
mod sender;
mod settings;
mod sizes;
mod swift;
mod taken;
#[cfg(test)]
mod tests;

use arrivals::Arrivals;
pub use eqds::{Beginning, EqdsSettings};
pub use laws::PacketControl;
pub use ndp::NdpSettings;
pub use nscc::NsccSettings;
pub use receiver::UnorderedReceiver;
pub use sender::UnorderedSender;
pub(crate) use settings::keys;
pub use settings::{EntropyChoice, NetworkTraits, UnorderedSettings};
pub(crate) use sizes::Sizes;
pub use swift::SwiftSettings;
pub(crate) use taken::Taken;

/// Bytes of a packet without its payload; the size of a report and of a trimmed packet (uet-htsim, `_hdr_size` and
/// `ACKSIZE`).
pub const HEADER_BYTES: u32 = 64;

/// Most packets between the first one that is missing and the newest (uet-htsim, `uecMaxInFlightPkts`).
pub const MOST_AHEAD: u64 = 1 << 14;
