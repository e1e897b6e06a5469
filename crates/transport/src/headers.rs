//! Lengths of headers over IPv4 and IPv6.

/// Ethernet, IPv4 and TCP headers with the timestamp option: 14 + 20 + 20 + 12. A frame is this much longer than its
/// payload. An acknowledgement has this length.
pub const HEADER_BYTES: u32 = 66;

/// An IPv6 header is this much longer than one of IPv4: 40 bytes (RFC 8200 §3), and 20 (RFC 791 §3.1).
pub const IPV6_MORE_BYTES: u32 = 20;

/// The header of settings that name none.
pub(crate) fn header_bytes() -> u32 {
    HEADER_BYTES
}

/// Whether a header of this length is of IPv4.
pub(crate) fn is_ipv4(header_bytes: &u32) -> bool {
    *header_bytes == HEADER_BYTES
}
