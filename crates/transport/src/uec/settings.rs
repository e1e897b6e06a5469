//! Settings of the transport, and what it must know of its network.

use super::law::PacketEntry;
use super::{NsccSettings, PacketControl, HEADER_BYTES};
use crate::conflicts::{conflict, word};
use crate::listing::{key, TransportKey};
use crate::settings::{optional_time, Settings, MOST_PAYLOAD};
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
    /// All in turn; after a loss, for some time only those of packets that have arrived.
    Freezing,
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
            EntropyChoice::Single | EntropyChoice::Oblivious | EntropyChoice::Freezing | EntropyChoice::Bitmap => {
                16_384
            }
        }
    }
}

/// Settings of the transports whose packets may arrive in any order: uec, swift, ndp and eqds. They differ in the congestion
/// control.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct UnorderedSettings {
    /// What every transport has: payload bytes of a full packet, jitter of the host, no handshake. Its settings of TCP
    /// windows and timers have no effect.
    pub common: Settings,
    /// The congestion control.
    pub control: PacketControl,
    /// How the entropy of a packet is chosen.
    pub entropy: EntropyChoice,
    /// Number of different entropies, a power of two.
    pub paths: u32,
    /// Bytes of packets, with headers, that arrive between two reports; `None` for a value that suits transport and `entropy`.
    pub ack_bytes: Option<u64>,
    /// Initial window, with headers; `None` for the largest window of the congestion control.
    pub initial_window_bytes: Option<u64>,
    /// Time after which an unacknowledged packet is sent again; `None` for [`NetworkTraits::timeout`].
    pub timeout: Option<Nanos>,
}

/// Default of the key `mtu`: with 14 B of Ethernet and 40 B of IPv6, a payload of 4 KiB (uet-htsim, `-mtu`).
const MTU: u32 = 4150;
/// Most different entropies: they fit the source port of a UDP packet. Hashes then spread the packets of a transfer as if each
/// drew its path.
pub(super) const MOST_PATHS: u32 = 1 << 16;
/// Default of the key `paths` where nothing else is published (uet-htsim and htsim_eqds, `-paths`).
pub(super) const USUAL_PATHS: u32 = 64;

/// Values of the key `entropy`.
const ENTROPIES: [(&str, EntropyChoice); 6] = [
    ("single", EntropyChoice::Single),
    ("oblivious", EntropyChoice::Oblivious),
    ("freezing", EntropyChoice::Freezing),
    ("bitmap", EntropyChoice::Bitmap),
    ("reps", EntropyChoice::Reps),
    ("mixed", EntropyChoice::Mixed),
];

/// Returns the keys of a transport: those that all of this kind have, and its own.
pub(crate) fn keys(entry: &PacketEntry) -> Vec<TransportKey> {
    let entropy = word(&ENTROPIES, entry.entropy);
    let mut keys = vec![
        key("mtu", "4150B", "bytes of a full packet, 64 B of headers included; 164 B to 32831 B", "uet-htsim"),
        key(
            "entropy",
            entropy,
            "how a sender chooses the entropy of each packet, and so its path: single always the same; oblivious all \
             in turn; freezing the same, but after losses as of a failed path only those that have worked, for 2 ms or \
             more; bitmap all in turn without those that had marks or trimming; reps and mixed those of unmarked acknowledgements again, \
             otherwise at random or as bitmap",
            "uet-htsim; Bonato et al. 2024 (REPS); freezing: this project",
        ),
        key(
            "paths",
            "none",
            "number of different entropies, a power of two up to 65536; none means 65536 with ndp and \
             entropy=oblivious, so that packets go over all paths evenly, and 64 otherwise",
            "uet-htsim; Handley et al. 2017 (ndp)",
        ),
        key(
            "ack_bytes",
            "none",
            "bytes of packets that arrive between two acknowledgements, a size; none means 1B (each packet) for reps \
             and mixed, which learn from them, and for swift, ndp and eqds; otherwise 16384B",
            "uet-htsim",
        ),
        key(
            "iw",
            "none",
            "initial window, a size; none means 1.5 times the product of rate and round trip with uec, that product \
             with ndp and eqds, and the product of rate and target with swift",
            "uet-htsim",
        ),
        key(
            "rto",
            "none",
            "retransmission time-out, a time; none means 15us and six times the time that a full queue takes to drain",
            "uet-htsim",
        ),
        key("jitter", "0s", "a host whose card is idle delays a packet for up to this time", "Floyd, Jacobson 1992"),
    ];
    keys.extend(entry.keys);
    keys
}

impl Default for UnorderedSettings {
    fn default() -> UnorderedSettings {
        UnorderedSettings {
            common: Settings {
                mss_bytes: MTU - HEADER_BYTES,
                handshake: false,
                standing: false,
                jitter: Some(Nanos::ZERO),
                coarse_timers: false,
                ..Settings::default()
            },
            control: PacketControl::Nscc(NsccSettings::default()),
            entropy: EntropyChoice::Mixed,
            paths: USUAL_PATHS,
            ack_bytes: None,
            initial_window_bytes: None,
            timeout: None,
        }
    }
}

impl UnorderedSettings {
    /// Parses the keys of a transport ([`keys`]).
    ///
    /// # Errors
    /// A value is invalid; the message says what was expected.
    pub(crate) fn read(spec: &Spec, entry: &PacketEntry) -> Result<UnorderedSettings, SpecError> {
        let d = UnorderedSettings::default();
        let entropy = spec.choice("entropy", &ENTROPIES)?.unwrap_or(entry.entropy);
        let usual_paths = if entropy == entry.entropy { entry.paths } else { USUAL_PATHS };
        let settings = UnorderedSettings {
            common: Settings {
                mss_bytes: spec.size_bytes("mtu")?.map_or(Ok(MTU), |mtu| bounded_mtu(spec, mtu))? - HEADER_BYTES,
                jitter: spec.time("jitter")?.or(d.common.jitter),
                ..d.common
            },
            control: (entry.read)(spec)?,
            entropy,
            paths: spec.count("paths", 1, u64::from(MOST_PATHS))?.map_or(usual_paths, |paths| paths as u32),
            ack_bytes: spec.size_bytes("ack_bytes")?,
            initial_window_bytes: spec.size_bytes("iw")?,
            timeout: optional_time(spec, "rto")?,
        };
        spec.finish()?;
        match settings.paths.is_power_of_two() {
            true => Ok(settings),
            false => Err(spec.error(format!("paths: {} is not a power of two, such as 64", settings.paths))),
        }
    }

    /// The default settings, with this choice of entropies.
    pub fn choosing(entropy: EntropyChoice) -> UnorderedSettings {
        UnorderedSettings { entropy, ..UnorderedSettings::default() }
    }

    /// Bytes of packets, with headers, that arrive between two reports.
    pub fn report_after_bytes(&self) -> u64 {
        let usual = if self.control.entry().reports_each { 1 } else { self.entropy.usual_ack_bytes() };
        self.ack_bytes.unwrap_or(usual)
    }

    /// Returns these settings with those of `given`, except the entropy, which belongs to the scheme
    /// ([`TransportSpec::refined_by`](crate::TransportSpec::refined_by)).
    pub(crate) fn refined_by(self, given: UnorderedSettings) -> Result<UnorderedSettings, String> {
        // A scheme states its entropy even where it is the default.
        let default = given.control.entry().entropy;
        if given.entropy != default && given.entropy != self.entropy {
            return Err(conflict("entropy", word(&ENTROPIES, self.entropy), word(&ENTROPIES, given.entropy)));
        }
        Ok(UnorderedSettings { entropy: self.entropy, ..given })
    }

    /// Share of the rate of its link that a receiver pulls at.
    pub fn pull_rate(&self) -> f64 {
        match &self.control {
            PacketControl::Eqds(own) => own.credit_rate,
            _ => 1.0,
        }
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
    /// What one switch on the path adds to the round trip, without queueing.
    pub hop: Nanos,
    /// Whether full queues trim packets.
    pub trims: bool,
    /// Whether switches pause their senders, so that full queues drop nothing.
    pub lossless: bool,
    /// Retransmission time-out. uet-htsim: 15 µs and six times the time that a full queue takes to drain.
    pub timeout: Nanos,
}
