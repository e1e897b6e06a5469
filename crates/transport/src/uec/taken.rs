//! The packets of a transfer that a receiver has taken.

use super::{Arrivals, Sizes};

/// Which packets were taken, and counts of them.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    pub(crate) sizes: Sizes,
    pub(crate) arrivals: Arrivals,
    /// One more than the highest number that was taken.
    highest: u64,
    payload_bytes: u64,
    packets: u64,
    reordered: u64,
}

impl Taken {
    /// Nothing of a transfer in these packets.
    pub(crate) fn new(sizes: Sizes) -> Taken {
        Taken { sizes, arrivals: Arrivals::default(), highest: 0, payload_bytes: 0, packets: 0, reordered: 0 }
    }

    /// Takes a packet that was not taken before.
    pub(crate) fn take(&mut self, number: u64) {
        self.payload_bytes += u64::from(self.sizes.payload(number));
        self.packets += 1;
        self.reordered += u64::from(number < self.highest);
        self.highest = self.highest.max(number + 1);
        self.arrivals.insert(number);
    }

    /// Number of packets, each counted once.
    pub(crate) fn packets(&self) -> u64 {
        self.packets
    }

    /// Number of packets that were taken after one with a higher number (RFC 4737 §3.3).
    pub(crate) fn reordered(&self) -> u64 {
        self.reordered
    }

    pub(crate) fn payload_bytes(&self) -> u64 {
        self.payload_bytes
    }

    /// Bytes of these packets on the wire.
    pub(crate) fn frame_bytes(&self) -> u64 {
        self.sizes.frames_of((self.payload_bytes, self.packets))
    }

    /// Payload bytes before the first one that is missing.
    pub(crate) fn delivered_bytes(&self) -> u64 {
        self.sizes.payload_below(self.arrivals.expected())
    }
}
