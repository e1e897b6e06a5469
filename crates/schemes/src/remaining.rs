//! Minimum remaining time first (MRTF): what a flow has still to send, and how long that takes.
//!
//! OFPT and LESSOR order flows by remaining bytes over rate. The bytes are known where the application announced a
//! size. Where it did not, what a flow has sent so far stands for what it has still to send: of the heavy-tailed sizes
//! of a datacenter, the more has come the more is to be expected.

use pathloom_model::Nanos;
use pathloom_scheme::FlowView;

/// Payload and size of a full data frame.
const PAYLOAD: u64 = 1448;
const FRAME: u64 = 1514;

/// Payload in so many bytes as switches count them.
pub(crate) fn payload_bytes(counted: u64) -> u64 {
    // Frame by frame, so that no product is too large.
    counted / FRAME * PAYLOAD + counted % FRAME * PAYLOAD / FRAME
}

/// Payload bytes of a flow that are still to come, if its size was announced.
pub(crate) fn remaining_bytes(flow: &FlowView) -> Option<u64> {
    flow.size_bytes.get().map(|size| size.saturating_sub(payload_bytes(flow.bytes)))
}

/// Time that a flow still takes at `rate_bps`: known, or guessed from what it has sent.
pub(crate) fn remaining_time(flow: &FlowView, rate_bps: u64) -> Nanos {
    let bytes = remaining_bytes(flow).unwrap_or_else(|| payload_bytes(flow.bytes));
    let ns = u128::from(bytes) * 8_000_000_000 / u128::from(rate_bps.max(1));
    Nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}
