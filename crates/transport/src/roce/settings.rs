//! Settings of the transport.

use super::laws::ENTRIES;
use super::{DcqcnSettings, HpccSettings, RateControl, HEADER_BYTES};
use crate::listing::{key, TransportKey};
use crate::packets::{MOST_PORT_LOADS, PORT_LOAD_BYTES, TELEMETRY_BYTES};
use crate::settings::{optional_time, Settings};
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::Nanos;
use serde::{Deserialize, Serialize};

/// Name of the transport, and another name of it.
pub(crate) const NAME: &str = "roce";
pub(crate) const OTHER_NAME: &str = "dcqcn";
/// What listings say of it.
pub(crate) const ABOUT: &str =
    "RoCE version 2, also called dcqcn: hosts pace each transfer at the rate of DCQCN, go back to a \
                                missing packet, and expect a lossless fabric (pfc=on)";
pub(crate) const SOURCE: &str = "InfiniBand specification, annex A17; Zhu et al. 2015 (SIGCOMM)";

/// Name of the transport with HPCC, which has keys of its own, and what listings say of it.
pub(crate) const HPCC: &str = "hpcc";
pub(crate) const HPCC_ABOUT: &str =
    "HPCC: RoCE hosts whose window and rate follow the load of the links on the path, which switches write into packets \
     (in-band telemetry); expects a lossless fabric (pfc=on)";
pub(crate) const HPCC_SOURCE: &str = "Li et al. 2019 (SIGCOMM)";

/// How losses are repaired.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Recovery {
    /// A receiver takes packets in order only. The sender goes back to the first missing packet (InfiniBand, volume 1, §9.7).
    GoBackN,
    /// A receiver takes packets in any order, and the sender repeats those that are missing. The packets in flight are
    /// limited (Mittal et al., Revisiting Network Support for RDMA, SIGCOMM 2018: "IRN").
    Irn,
}

/// Values of the key `recovery`.
const RECOVERIES: [(&str, Recovery); 2] = [("gbn", Recovery::GoBackN), ("irn", Recovery::Irn)];

/// Settings of the transport.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RoceSettings {
    /// What every transport has: payload bytes of a full packet, jitter of the host, no handshake. Its settings of TCP
    /// windows and timers have no effect.
    pub common: Settings,
    /// The rate control.
    pub control: RateControl,
    /// How losses are repaired.
    pub recovery: Recovery,
    /// Payload bytes of a message; `None` if each transfer is one message. The last packet of a message is acknowledged.
    pub message_bytes: Option<u64>,
    /// Packets for each acknowledgement; `None` for 8, or 1 with [`Recovery::Irn`] and with HPCC.
    pub ack_every: Option<u32>,
    /// Least time between two congestion notices of a receiver for a transfer.
    pub notice_gap: Nanos,
    /// Most packets from the first unacknowledged one on; `None` for no limit, or with [`Recovery::Irn`] for the product of
    /// rate and round trip.
    pub most_packets: Option<u32>,
    /// Retransmission time-out; `None` for one that suits recovery and fabric.
    pub timeout: Option<Nanos>,
    /// The same with fewer than three packets in flight, with [`Recovery::Irn`].
    pub short_timeout: Nanos,
}

/// Payloads of a full packet that InfiniBand knows (volume 1, §10.6.2).
const MTUS: [u64; 5] = [256, 512, 1024, 2048, 4096];
/// Default of the key `mtu`.
const MTU: u64 = 4096;

/// Returns the keys of the transport, with those of all rate controls.
pub(crate) fn keys() -> Vec<TransportKey> {
    let mut keys = host_keys();
    keys.extend([
        key(
            "cc",
            "dcqcn",
            "what sets the rate of a transfer: dcqcn by congestion notices; hpcc by the load that switches write into packets; \
             timely by the slope of the round trip; none the rate of the card",
            "Zhu et al. 2015 (SIGCOMM); Li et al. 2019 (SIGCOMM); Mittal et al. 2015 (TIMELY)",
        ),
        key(
            "cnp",
            "50us",
            "least time between two congestion notification packets of a receiver for a transfer",
            "Zhu et al. 2015 §3.1",
        ),
    ]);
    ENTRIES.iter().for_each(|entry| keys.extend(entry.keys));
    keys
}

/// Returns the keys of the transport with HPCC.
pub(crate) fn hpcc_keys() -> Vec<TransportKey> {
    let own = ENTRIES.iter().filter(|entry| entry.name == HPCC).flat_map(|entry| entry.keys);
    host_keys().into_iter().chain(own.copied()).collect()
}

/// Returns the keys that hosts have with any rate control.
fn host_keys() -> Vec<TransportKey> {
    vec![
        key("mtu", "4096B", "payload of a full packet: 256B, 512B, 1024B, 2048B or 4096B", "InfiniBand, volume 1, §10.6.2"),
        key(
            "recovery",
            "gbn",
            "how losses are repaired: gbn goes back to the first missing packet; irn repeats only what is missing, and limits \
             the packets in flight",
            "InfiniBand, volume 1, §9.7; Mittal et al. 2018 (SIGCOMM)",
        ),
        key("message", "none", "payload of a message, whose last packet is acknowledged; none means the transfer", "this project"),
        key(
            "acks",
            "none",
            "packets per acknowledgement, 1 to 64; none means 8, or 1 with recovery=irn and with hpcc",
            "this project",
        ),
        key(
            "window",
            "none",
            "most packets from the first unacknowledged one on, 1 to 8000000; none means no limit, or with recovery=irn the \
             product of the card's rate and the longest round trip",
            "Mittal et al. 2018 §3.2",
        ),
        key(
            "rto",
            "none",
            "retransmission time-out, a time; none means 67.1ms on a fabric with pfc=, otherwise 320us, or 15us and six \
             times the time that a full queue takes to drain if that is longer",
            "InfiniBand, volume 1, §9.7.6.1.3; Mittal et al. 2018 §4.1",
        ),
        key("rto_low", "100us", "the same with fewer than three packets in flight and recovery=irn", "Mittal et al. 2018 §3.1"),
        key("jitter", "0s", "a host whose card is idle delays a packet for up to this time", "Floyd, Jacobson 1992"),
    ]
}

impl Default for RoceSettings {
    fn default() -> RoceSettings {
        RoceSettings {
            common: Settings {
                mss_bytes: MTU as u32,
                handshake: false,
                standing: false,
                jitter: Some(Nanos::ZERO),
                coarse_timers: false,
                ..Settings::default()
            },
            control: RateControl::Dcqcn(DcqcnSettings::default()),
            recovery: Recovery::GoBackN,
            message_bytes: None,
            ack_every: None,
            notice_gap: Nanos::from_micros(50),
            most_packets: None,
            timeout: None,
            short_timeout: Nanos::from_micros(100),
        }
    }
}

impl RoceSettings {
    /// Parses the keys of the transport ([`keys`]).
    ///
    /// # Errors
    /// A value is invalid; the message says what was expected.
    pub(crate) fn read(spec: &Spec) -> Result<RoceSettings, SpecError> {
        let names: Vec<(&str, usize)> = ENTRIES.iter().enumerate().map(|(place, entry)| (entry.name, place)).collect();
        let control = spec.choice("cc", &names)?.unwrap_or(0);
        // Keys of a control that is not chosen are read as well, so that they are checked.
        let control = ENTRIES.iter().map(|entry| (entry.read)(spec)).collect::<Result<Vec<_>, _>>()?[control];
        let notice_gap = spec.time("cnp")?;
        let hosts = RoceSettings::read_hosts(spec, control)?;
        Ok(RoceSettings { notice_gap: notice_gap.unwrap_or(hosts.notice_gap), ..hosts })
    }

    /// Parses the keys of the transport with HPCC ([`hpcc_keys`]).
    ///
    /// # Errors
    /// As [`RoceSettings::read`].
    pub(crate) fn read_hpcc(spec: &Spec) -> Result<RoceSettings, SpecError> {
        RoceSettings::read_hosts(spec, RateControl::Hpcc(HpccSettings::read(spec)?))
    }

    fn read_hosts(spec: &Spec, control: RateControl) -> Result<RoceSettings, SpecError> {
        let d = RoceSettings::default();
        let mtu = spec.size_bytes("mtu")?.unwrap_or(MTU);
        if !MTUS.contains(&mtu) {
            return Err(spec.error(format!("mtu: {mtu} B is not one of 256B, 512B, 1024B, 2048B, 4096B")));
        }
        let jitter = spec.time("jitter")?.or(d.common.jitter);
        let settings = RoceSettings {
            common: Settings { mss_bytes: mtu as u32, jitter, ..d.common },
            control,
            recovery: spec.choice("recovery", &RECOVERIES)?.unwrap_or(d.recovery),
            message_bytes: spec.size_bytes("message")?,
            ack_every: spec.count("acks", 1, 64)?.map(|packets| packets as u32),
            notice_gap: d.notice_gap,
            most_packets: spec.count("window", 1, MOST_PACKETS)?.map(|packets| packets as u32),
            timeout: optional_time(spec, "rto")?,
            short_timeout: optional_time(spec, "rto_low")?.unwrap_or(d.short_timeout),
        };
        spec.finish()?;
        match settings.message_bytes {
            Some(0) => Err(spec.error("message: 0 B is no message; expected a size such as 1MB")),
            _ => Ok(settings),
        }
    }

    /// Bytes of a full packet as its host sends it.
    pub fn frame_bytes(&self) -> u64 {
        u64::from(self.common.mss_bytes + self.header_bytes())
    }

    /// Bytes of a data packet without its payload, as its host sends it.
    pub fn header_bytes(&self) -> u32 {
        HEADER_BYTES + self.ipv6_bytes() + if self.control.reads_telemetry() { TELEMETRY_BYTES } else { 0 }
    }

    /// Bytes by which the header of IPv6 is longer; 0 over IPv4.
    pub(crate) fn ipv6_bytes(&self) -> u32 {
        self.common.header_bytes.saturating_sub(crate::HEADER_BYTES)
    }

    /// Bytes of the largest packet in the network: switches may have written to it.
    pub fn largest_bytes(&self) -> u64 {
        let written =
            if self.control.reads_telemetry() { MOST_PORT_LOADS as u64 * u64::from(PORT_LOAD_BYTES) } else { 0 };
        self.frame_bytes() + written
    }

    /// Packets for each acknowledgement.
    pub(super) fn packets_per_ack(&self) -> u32 {
        let usual = if self.recovery == Recovery::Irn || self.control.reads_telemetry() { 1 } else { 8 };
        self.ack_every.unwrap_or(usual)
    }
}

impl RateControl {
    /// Whether it needs the telemetry of switches. If so, it does not react to congestion marks.
    pub fn reads_telemetry(&self) -> bool {
        self.entry().reads_telemetry
    }
}

/// Half of the numbers that packets have: with more in flight, old and new ones could not be told apart.
const MOST_PACKETS: u64 = 8_000_000;
