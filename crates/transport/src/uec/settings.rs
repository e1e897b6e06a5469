//! Settings of the transport, and what it must know of its network.

use super::HEADER_BYTES;
use pathloom_model::Nanos;
use serde::{Deserialize, Serialize};

/// How a sender chooses the entropy of each packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntropyChoice {
    /// The same for all packets of a transfer: one path.
    Single,
    /// All in turn, whatever the reports say.
    Oblivious,
    /// All in turn, but those with bad reports are skipped for some rounds.
    Bitmap,
    /// Those of unmarked acknowledgements again, others at random (REPS).
    Reps,
    /// Those of unmarked acknowledgements again, others as [`EntropyChoice::Bitmap`].
    Mixed,
}

/// Settings of the transport.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct UecSettings {
    /// Payload bytes of a full packet.
    pub payload_bytes: u32,
    /// How the entropy of a packet is chosen.
    pub entropy: EntropyChoice,
    /// Number of different entropies, a power of two.
    pub paths: u32,
    /// Bytes of packets, with headers, that arrive between two reports.
    pub ack_bytes: u32,
    /// Initial window, with headers; `None` for the maximum window, 1.5 times the product of rate and round trip.
    pub initial_window_bytes: Option<u64>,
    /// Queueing delay that the window aims at; `None` for three quarters of the round trip if the network trims
    /// packets, otherwise the whole round trip.
    pub target_delay: Option<Nanos>,
    /// Time after which an unacknowledged packet is sent again; `None` for [`NetworkTraits::timeout`].
    pub timeout: Option<Nanos>,
}

impl Default for UecSettings {
    fn default() -> UecSettings {
        UecSettings {
            payload_bytes: 4086,
            entropy: EntropyChoice::Mixed,
            paths: 64,
            ack_bytes: 16_384,
            initial_window_bytes: None,
            target_delay: None,
            timeout: None,
        }
    }
}

impl UecSettings {
    /// Bytes of a full packet on the wire.
    pub fn frame_bytes(&self) -> u64 {
        u64::from(self.payload_bytes + HEADER_BYTES)
    }
}

/// What a sender knows of its network at the start.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NetworkTraits {
    /// Rate of the sender's card, bit/s.
    pub rate_bps: u64,
    /// Round trip of a full packet and its report over the longest path, without queueing. A sender lowers its own
    /// estimate when it measures less.
    pub round_trip: Nanos,
    /// Whether full queues trim packets.
    pub trims: bool,
    /// Retransmission time-out. uet-htsim: 15 µs and six times the time that a full queue takes to drain.
    pub timeout: Nanos,
}
