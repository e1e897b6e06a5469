//! A transfer divided into packets.

use super::{UecSettings, HEADER_BYTES};

/// Sizes of the packets of a transfer: all are full except the last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    bytes: u64,
    full: u64,
}

impl Sizes {
    pub(super) fn new(settings: &UecSettings, bytes: u64) -> Sizes {
        Sizes { bytes, full: u64::from(settings.common.mss_bytes.max(1)) }
    }

    /// Number of packets.
    pub(super) fn packets(&self) -> u64 {
        self.bytes.div_ceil(self.full)
    }

    /// Payload bytes of the packets below this number.
    pub(super) fn payload_below(&self, number: u64) -> u64 {
        number.saturating_mul(self.full).min(self.bytes)
    }

    /// Payload bytes of a packet.
    pub(super) fn payload(&self, number: u64) -> u32 {
        (self.payload_below(number + 1) - self.payload_below(number)) as u32
    }

    /// Bytes of a packet on the wire.
    pub(super) fn frame(&self, number: u64) -> u64 {
        u64::from(self.payload(number) + HEADER_BYTES)
    }

    /// Bytes on the wire of this payload in this number of packets.
    pub(super) fn frames_of(&self, (payload, packets): (u64, u64)) -> u64 {
        payload + packets * u64::from(HEADER_BYTES)
    }

    /// Bytes on the wire of the packets below this number.
    pub(super) fn frames_below(&self, number: u64) -> u64 {
        self.frames_of((self.payload_below(number), number.min(self.packets())))
    }
}
