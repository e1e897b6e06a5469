//! Settings of the transport, and what it must know of its network.

use super::HEADER_BYTES;
use crate::conflicts::{conflict, word};
use crate::settings::{positive_time, Settings, MOST_PAYLOAD};
use pathloom_model::spec::{Spec, SpecError};
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

impl EntropyChoice {
    /// Bytes of packets between two reports by default. A sender that uses entropies again needs a report on each
    /// packet; otherwise it is the value of uet-htsim.
    fn usual_ack_bytes(self) -> u64 {
        match self {
            EntropyChoice::Reps | EntropyChoice::Mixed => 1,
            EntropyChoice::Single | EntropyChoice::Oblivious | EntropyChoice::Bitmap => 16_384,
        }
    }
}

/// Settings of the transport.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct UecSettings {
    /// What every transport has: payload bytes of a full packet, jitter of the host, no handshake. Its settings of TCP
    /// windows and timers have no effect.
    pub common: Settings,
    /// How the entropy of a packet is chosen.
    pub entropy: EntropyChoice,
    /// Number of different entropies, a power of two.
    pub paths: u32,
    /// Bytes of packets, with headers, that arrive between two reports; `None` for a value that suits `entropy`.
    pub ack_bytes: Option<u64>,
    /// Initial window, with headers; `None` for the maximum window, 1.5 times the product of rate and round trip.
    pub initial_window_bytes: Option<u64>,
    /// Queueing delay that the window aims at; `None` for three quarters of the round trip if the network trims
    /// packets, otherwise the whole round trip.
    pub target_delay: Option<Nanos>,
    /// Time after which an unacknowledged packet is sent again; `None` for [`NetworkTraits::timeout`].
    pub timeout: Option<Nanos>,
}

/// Default of the key `mtu`: with 14 B of Ethernet and 40 B of IPv6, a payload of 4 KiB (uet-htsim, `-mtu`).
const MTU: u32 = 4150;
/// Most different entropies: they fit the source port of a UDP packet.
const MOST_PATHS: u64 = 1 << 16;

const ENTROPIES: [(&str, EntropyChoice); 5] = [
    ("single", EntropyChoice::Single),
    ("oblivious", EntropyChoice::Oblivious),
    ("bitmap", EntropyChoice::Bitmap),
    ("reps", EntropyChoice::Reps),
    ("mixed", EntropyChoice::Mixed),
];

impl Default for UecSettings {
    fn default() -> UecSettings {
        UecSettings {
            common: Settings {
                mss_bytes: MTU - HEADER_BYTES,
                handshake: false,
                standing: false,
                jitter: Some(Nanos::ZERO),
                coarse_timers: false,
                ..Settings::default()
            },
            entropy: EntropyChoice::Mixed,
            paths: 64,
            ack_bytes: None,
            initial_window_bytes: None,
            target_delay: None,
            timeout: None,
        }
    }
}

impl UecSettings {
    /// Parses `mtu`, `entropy`, `paths`, `ack_bytes`, `iw`, `target_delay`, `rto` and `jitter`.
    ///
    /// # Errors
    /// A value is invalid; the message says what was expected.
    pub fn read(spec: &Spec) -> Result<UecSettings, SpecError> {
        let d = UecSettings::default();
        let time = |key| spec.time(key)?.map(|_| positive_time(spec, key, Nanos::ZERO)).transpose();
        let settings = UecSettings {
            common: Settings {
                mss_bytes: spec.size_bytes("mtu")?.map_or(Ok(MTU), |mtu| bounded_mtu(spec, mtu))? - HEADER_BYTES,
                jitter: spec.time("jitter")?.or(d.common.jitter),
                ..d.common
            },
            entropy: spec.choice("entropy", &ENTROPIES)?.unwrap_or(d.entropy),
            paths: spec.count("paths", 1, MOST_PATHS)?.map_or(d.paths, |paths| paths as u32),
            ack_bytes: spec.size_bytes("ack_bytes")?,
            initial_window_bytes: spec.size_bytes("iw")?,
            target_delay: time("target_delay")?,
            timeout: time("rto")?,
        };
        spec.finish()?;
        match settings.paths.is_power_of_two() {
            true => Ok(settings),
            false => Err(spec.error(format!("paths: {} is not a power of two, such as 64", settings.paths))),
        }
    }

    /// The default settings, with this choice of entropies.
    pub fn choosing(entropy: EntropyChoice) -> UecSettings {
        UecSettings { entropy, ..UecSettings::default() }
    }

    /// Bytes of packets, with headers, that arrive between two reports.
    pub fn report_after_bytes(&self) -> u64 {
        self.ack_bytes.unwrap_or(self.entropy.usual_ack_bytes())
    }

    /// Returns these settings with those of `given`, except the entropy, which belongs to the scheme
    /// ([`TransportSpec::refined_by`](crate::TransportSpec::refined_by)).
    pub(crate) fn refined_by(self, given: UecSettings) -> Result<UecSettings, String> {
        // A scheme states its entropy even where it is the default.
        let default = UecSettings::default().entropy;
        if given.entropy != default && given.entropy != self.entropy {
            return Err(conflict("entropy", word(&ENTROPIES, self.entropy), word(&ENTROPIES, given.entropy)));
        }
        Ok(UecSettings { entropy: self.entropy, ..given })
    }

    /// Bytes of a full packet on the wire.
    pub fn frame_bytes(&self) -> u64 {
        u64::from(self.common.mss_bytes + HEADER_BYTES)
    }
}

fn bounded_mtu(spec: &Spec, mtu: u64) -> Result<u32, SpecError> {
    let (least, most) = (HEADER_BYTES + 100, HEADER_BYTES + MOST_PAYLOAD);
    let fits = u32::try_from(mtu).ok().filter(|mtu| (least..=most).contains(mtu));
    fits.ok_or_else(|| spec.error(format!("mtu: {mtu} B is not from {least} B to {most} B")))
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
