//! Minimum remaining time first (MRTF): the remaining bytes of a flow, and their time.
//!
//! OFPT and LESSOR order flows by remaining bytes divided by rate. The remaining bytes are known if the application
//! announced a size. Otherwise the bytes sent so far are the estimate: sizes in a datacenter are heavy-tailed, so the
//! more a flow has sent, the more it will probably still send.

use pathloom_model::Nanos;
use pathloom_scheme::FlowView;

/// Payload and size of a full data frame.
const PAYLOAD: u64 = 1448;
const FRAME: u64 = 1514;

/// The payload in this many bytes, as counted by switches.
pub(crate) fn payload_bytes(counted: u64) -> u64 {
    // Divided first, so that no product overflows.
    counted / FRAME * PAYLOAD + counted % FRAME * PAYLOAD / FRAME
}

/// Remaining payload bytes of a flow, if its size was announced.
pub(crate) fn remaining_bytes(flow: &FlowView) -> Option<u64> {
    flow.size_bytes.get().map(|size| size.saturating_sub(payload_bytes(flow.bytes)))
}

/// Remaining time of a flow at `rate_bps`: known, or estimated from the bytes sent.
pub(crate) fn remaining_time(flow: &FlowView, rate_bps: u64) -> Nanos {
    let bytes = remaining_bytes(flow).unwrap_or_else(|| payload_bytes(flow.bytes));
    let ns = u128::from(bytes) * 8_000_000_000 / u128::from(rate_bps.max(1));
    Nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}
