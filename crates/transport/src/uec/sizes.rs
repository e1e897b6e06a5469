//! A transfer divided into packets.

use super::{UnorderedSettings, HEADER_BYTES};

/// Sizes of the packets of a transfer: all are full except the last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    bytes: u64,
    full: u64,
    header: u32,
}

impl Sizes {
    pub(super) fn new(settings: &UnorderedSettings, bytes: u64) -> Sizes {
        Sizes::with_header(settings.common.mss_bytes, HEADER_BYTES, bytes)
    }

    /// A transfer in packets of `full` payload bytes, each with a header of this many bytes.
    pub(crate) fn with_header(full: u32, header: u32, bytes: u64) -> Sizes {
        Sizes { bytes, full: u64::from(full.max(1)), header }
    }

    /// Number of packets.
    pub(crate) fn packets(&self) -> u64 {
        self.bytes.div_ceil(self.full)
    }

    /// Payload bytes of the packets below this number.
    pub(crate) fn payload_below(&self, number: u64) -> u64 {
        number.saturating_mul(self.full).min(self.bytes)
    }

    /// Payload bytes of a packet.
    pub(crate) fn payload(&self, number: u64) -> u32 {
        (self.payload_below(number + 1) - self.payload_below(number)) as u32
    }

    /// Bytes of a packet on the wire.
    pub(crate) fn frame(&self, number: u64) -> u64 {
        u64::from(self.payload(number) + self.header)
    }

    /// Bytes on the wire of this payload in this number of packets.
    pub(crate) fn frames_of(&self, (payload, packets): (u64, u64)) -> u64 {
        payload + packets * u64::from(self.header)
    }

    /// Bytes on the wire of the packets below this number.
    pub(crate) fn frames_below(&self, number: u64) -> u64 {
        self.frames_of((self.payload_below(number), number.min(self.packets())))
    }
}
