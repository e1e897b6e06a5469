//! The settings of a transport, and their text form: `newreno:iw=12KB,min_rto=200ms,…`.

use crate::ends::PacketSettings;
use crate::headers::{self, HEADER_BYTES};
use crate::mptcp::{self, MptcpSettings};
use crate::right_sizing;
use crate::roce::{self, RoceSettings};
use crate::streams::StreamSettings;
use crate::uec::{self, UnorderedSettings};
use crate::window::laws::{self, CongestionControl};
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::Nanos;
use serde::{Deserialize, Serialize};

/// Settings of a TCP connection.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// Payload bytes of a full segment.
    pub mss_bytes: u32,
    /// Bytes of a segment without its payload: [`HEADER_BYTES`], and [`crate::IPV6_MORE_BYTES`] more over IPv6.
    // Settings written before this option existed mean IPv4.
    #[serde(default = "headers::header_bytes", skip_serializing_if = "headers::is_ipv4")]
    pub header_bytes: u32,
    /// Initial congestion window (RFC 5681 §3.1; the papers use 12 KB).
    pub initial_window_bytes: u64,
    /// Receive window; limits the unacknowledged bytes. If receivers tune it, its maximum.
    pub receive_window_bytes: u64,
    /// Whether receivers tune the receive window, as Linux does.
    // Settings written before this option existed mean `false`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tunes_receive_window: bool,
    /// Initial slow-start threshold (RFC 5681 §3.1: "arbitrarily high").
    pub initial_ssthresh_bytes: u64,
    /// Minimum retransmission time-out (RFC 6298 §2.4 says 1 s, Linux 200 ms).
    pub min_rto: Nanos,
    /// Maximum retransmission time-out (RFC 6298 §2.5).
    pub max_rto: Nanos,
    /// Time-out before the first RTT sample (RFC 6298 §2.1).
    pub initial_rto: Nanos,
    /// Full segments per acknowledgement: 1 acknowledges each, 2 is RFC 5681 §4.2's delayed acknowledgement.
    pub ack_every: u32,
    /// Longest delay of an acknowledgement.
    pub delayed_ack: Nanos,
    /// Whether a connection begins with a SYN exchange.
    pub handshake: bool,
    /// Whether the transfers of a job, such as the steps of a collective, use connections that stand. If not, each of
    /// them is a new connection, as a request of a service always is.
    // Settings written before this option existed mean `false`.
    #[serde(default)]
    pub standing: bool,
    /// Whether the first two duplicate acknowledgements allow new segments (RFC 3042).
    pub limited_transmit: bool,
    /// Whether only the first partial acknowledgement restarts the retransmission timer, so that a window with many
    /// losses ends in a time-out: the "Impatient" variant of RFC 6582 §4. Otherwise, as in Linux, one loss is
    /// repaired per round trip ("Slow-but-Steady").
    pub impatient: bool,
    /// Whether a connection has at most two segments in its host's network card at a time, as with Linux's TCP small
    /// queues. Then a host never fills the queue of its card, and acknowledgements pass in between. Otherwise the
    /// queue of the card is an ordinary queue, and drops packets when it is full.
    // Settings written before this option existed mean `false`.
    #[serde(default)]
    pub small_queues: bool,
    /// Whether slow start counts bytes (RFC 3465 without its limit, as in Linux): the window doubles in each round
    /// trip, even with few acknowledgements. Otherwise RFC 5681 §3.1 applies: at most one more segment per
    /// acknowledgement.
    #[serde(default)]
    pub byte_counting: bool,
    /// Whether receivers report data that arrived out of order, and senders use these reports to repair losses (RFC
    /// 2018, RFC 6675). Otherwise NewReno's recovery is used (RFC 6582).
    #[serde(default)]
    pub sack: bool,
    /// Whether senders also detect losses by the time since a segment was sent, and probe for losses at the end of a flight
    /// (RFC 8985). It has an effect only with selective acknowledgements, and only without `reordering`.
    // Settings written before this option existed mean `false`.
    #[serde(default)]
    pub rack: bool,
    /// When data that arrived out of order mean a loss. `None` for [`crate::DUP_THRESH`] segments, unless a scheme that
    /// sprays packets sets another value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reordering: Option<Reordering>,
    /// Congestion control: determines how far the window grows and shrinks.
    #[serde(default)]
    pub congestion: CongestionControl,
    /// Number of packets in a port's queue from which arriving packets are marked (K of RFC 8257 §3.1), if the
    /// congestion control uses marks. `None` selects a value that suits the rate of the port.
    #[serde(default)]
    pub mark_packets: Option<u32>,
    /// Before a host sends a packet on an idle card, it waits for a random time below this. Without it, flows with the
    /// same round-trip time stay synchronised, and a full queue always drops packets of the same flows (Floyd and
    /// Jacobson, On Traffic Phase Effects in Packet-Switched Gateways, 1992). `None` is the time that the card needs
    /// for a full frame: this breaks phases at every rate, because the packets of a busy link are a frame apart.
    // Settings written before this had a default mean no jitter.
    #[serde(default = "no_jitter")]
    pub jitter: Option<Nanos>,
    /// Whether retransmission timers expire at the ticks of their host's clock ([`crate::TimerClock`]), as in kernels. If
    /// not, they expire exactly at their times.
    // Settings written before this option existed mean `false`.
    #[serde(default)]
    pub coarse_timers: bool,
    /// Maximum rate of frames (with headers) into the network card.
    pub pace_bps: Option<u64>,
}

fn no_jitter() -> Option<Nanos> {
    Some(Nanos::ZERO)
}

impl Settings {
    /// Bytes of a frame with a full segment.
    pub fn frame_bytes(&self) -> u64 {
        u64::from(self.mss_bytes + self.header_bytes)
    }

    /// Whether losses are also detected by time (RFC 8985). Under schemes that spray packets, much more of them overtake
    /// each other than RFC 8985 expects, so `reordering` decides alone.
    pub fn detects_by_time(&self) -> bool {
        self.rack && self.sack && self.reordering.is_none()
    }

    /// Whether the congestion control reacts to congestion marks (ECN).
    pub fn reacts_to_marks(&self) -> bool {
        self.congestion.reacts_to_marks()
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            mss_bytes: 1448,
            header_bytes: HEADER_BYTES,
            initial_window_bytes: 12_000,
            receive_window_bytes: 16 << 20,
            tunes_receive_window: false,
            initial_ssthresh_bytes: u64::MAX,
            min_rto: Nanos::from_millis(200),
            max_rto: Nanos::from_secs(60),
            initial_rto: Nanos::from_secs(1),
            ack_every: 2,
            delayed_ack: Nanos::from_millis(40),
            handshake: true,
            standing: true,
            limited_transmit: true,
            impatient: true,
            small_queues: true,
            byte_counting: false,
            sack: false,
            rack: true,
            reordering: None,
            congestion: CongestionControl::NewReno,
            mark_packets: None,
            jitter: None,
            coarse_timers: true,
            pace_bps: None,
        }
    }
}

/// How much reordering a sender tolerates: the data that must arrive after a missing segment before the segment counts
/// as lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reordering {
    /// This many segments (DupThresh of RFC 5681 §3.2 and RFC 6675 §2).
    Segments(u32),
    /// As many segments as are in flight when the first data arrive out of order, and at least [`crate::DUP_THRESH`] (RFC 4653
    /// §3.1, Careful Limited Transmit). It needs selective acknowledgements.
    Window,
}

/// Values of the key `handshake`: whether new connections begin with a SYN exchange, and whether the transfers of a job
/// use connections that stand. The words after the first three are those of every flag.
const HANDSHAKES: [(&str, [bool; 2]); 7] = [
    ("auto", [true, true]),
    ("on", [true, false]),
    ("off", [false, false]),
    ("true", [true, false]),
    ("false", [false, false]),
    ("yes", [true, false]),
    ("no", [false, false]),
];

/// A parsed `--transport`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransportSpec {
    /// TCP, with any congestion control.
    Tcp(Settings),
    /// MPTCP.
    Mptcp(MptcpSettings),
    /// Several TCP connections per transfer, each on its own path. Only schemes select it; no specification does.
    Streams(StreamSettings),
    /// Ultra Ethernet, and transports with the same packets and another congestion control.
    Uec(UnorderedSettings),
    /// RoCE: packets in order at a rate, for lossless fabrics.
    Roce(RoceSettings),
}

impl Default for TransportSpec {
    fn default() -> TransportSpec {
        TransportSpec::Tcp(Settings::default())
    }
}

impl TransportSpec {
    /// Parses `newreno:iw=12KB,…`, `cubic:…`, `dctcp:…`, `mptcp:subflows=4,…`, `uec:…`, `roce:…` or `hpcc:…`. [`crate::transports`] lists the
    /// keys.
    pub fn parse(text: &str) -> Result<TransportSpec, SpecError> {
        let spec = Spec::parse("transport", text)?;
        if let Some(entry) = uec::laws::ENTRIES.iter().find(|entry| entry.name == spec.name()) {
            return UnorderedSettings::read(&spec, entry).map(TransportSpec::Uec);
        }
        if [roce::NAME, roce::OTHER_NAME].contains(&spec.name()) {
            return RoceSettings::read(&spec).map(TransportSpec::Roce);
        }
        if spec.name() == roce::HPCC {
            return RoceSettings::read_hpcc(&spec).map(TransportSpec::Roce);
        }
        let law = laws::entries().find(|law| law.name == spec.name());
        let (congestion, sack) = match law {
            Some(law) => ((law.read)(&spec)?, law.sack),
            // The key `cc` determines the congestion control of the subflows. Hosts with MPTCP support selective
            // acknowledgements.
            None if spec.name() == mptcp::NAME => (CongestionControl::NewReno, true),
            None => {
                let names: Vec<&str> = crate::transports().iter().map(|transport| transport.name).collect();
                return Err(spec.unknown_name(&names));
            }
        };
        let d = Settings { sack, congestion, ..Settings::default() };
        let [handshake, standing] = spec.choice("handshake", &HANDSHAKES)?.unwrap_or([d.handshake, d.standing]);
        let (receive_window_bytes, tunes_receive_window) = right_sizing::read(&spec, d.receive_window_bytes)?;
        let settings = Settings {
            header_bytes: d.header_bytes,
            mss_bytes: spec.size_bytes("mss")?.map_or(Ok(d.mss_bytes), |mss| bounded_mss(&spec, mss))?,
            initial_window_bytes: spec.size_bytes("iw")?.unwrap_or(d.initial_window_bytes),
            receive_window_bytes,
            tunes_receive_window,
            initial_ssthresh_bytes: spec.size_bytes("ssthresh")?.unwrap_or(d.initial_ssthresh_bytes),
            min_rto: positive_time(&spec, "min_rto", d.min_rto)?,
            max_rto: positive_time(&spec, "max_rto", d.max_rto)?,
            initial_rto: positive_time(&spec, "initial_rto", d.initial_rto)?,
            ack_every: spec.count("acks", 1, 64)?.map_or(d.ack_every, |n| n as u32),
            delayed_ack: positive_time(&spec, "delayed_ack", d.delayed_ack)?,
            handshake,
            standing,
            limited_transmit: spec.flag("limited_transmit")?.unwrap_or(d.limited_transmit),
            impatient: spec.flag("impatient")?.unwrap_or(d.impatient),
            small_queues: spec.flag("small_queues")?.unwrap_or(d.small_queues),
            byte_counting: spec.flag("byte_counting")?.unwrap_or(d.byte_counting),
            sack: spec.flag("sack")?.unwrap_or(d.sack),
            rack: spec.flag("rack")?.unwrap_or(d.rack),
            reordering: reordering(&spec)?,
            congestion,
            mark_packets: match congestion.reacts_to_marks() {
                true => spec.count("mark", 1, 1_000_000)?.map(|packets| packets as u32),
                false => None,
            },
            jitter: spec.time("jitter")?.or(d.jitter),
            coarse_timers: spec.choice("timers", &[("coarse", true), ("exact", false)])?.unwrap_or(d.coarse_timers),
            pace_bps: spec.rate_bps("pace")?,
        };
        let mptcp = law.is_none().then(|| MptcpSettings::read(&spec, settings.clone())).transpose()?;
        spec.finish()?;
        if settings.reordering == Some(Reordering::Window) && !settings.sack {
            return Err(spec.error("reordering=window needs selective acknowledgements; add sack=on"));
        }
        if settings.min_rto > settings.max_rto {
            return Err(spec.error("min_rto is greater than max_rto"));
        }
        Ok(mptcp.map_or(TransportSpec::Tcp(settings), TransportSpec::Mptcp))
    }

    /// Returns the name of the transport in specifications.
    pub fn name(&self) -> &'static str {
        match self {
            TransportSpec::Mptcp(_) => mptcp::NAME,
            TransportSpec::Uec(settings) => settings.control.entry().name,
            TransportSpec::Roce(settings) if settings.control.reads_telemetry() => roce::HPCC,
            TransportSpec::Roce(_) => roce::NAME,
            TransportSpec::Tcp(settings) | TransportSpec::Streams(StreamSettings { tcp: settings, .. }) => {
                settings.congestion.entry().map_or("newreno", |law| law.name)
            }
        }
    }

    /// Returns the settings of each TCP connection of the transport, or those that other transports share with TCP.
    pub fn settings(&self) -> &Settings {
        match self {
            TransportSpec::Tcp(settings) => settings,
            TransportSpec::Mptcp(settings) => &settings.tcp,
            TransportSpec::Streams(settings) => &settings.tcp,
            TransportSpec::Uec(settings) => &settings.common,
            TransportSpec::Roce(settings) => &settings.common,
        }
    }

    /// Returns the settings of the ends of each TCP connection: as [`TransportSpec::settings`], but the receive window that
    /// receivers of MPTCP tune is that of the connection (RFC 8684 §3.3.4), so subflows have its maximum.
    pub fn settings_of_ends(&self) -> Settings {
        let own = self.settings();
        Settings { tunes_receive_window: own.tunes_receive_window && self.mptcp().is_none(), ..own.clone() }
    }

    /// Returns this transport with the TCP settings of `given`, including those that `given` leaves at their
    /// defaults. MPTCP's own keys (subflows, path manager, coupling, scheduler) come from the side that states them. MPTCP
    /// also keeps selective acknowledgements if `given` is `newreno`, which has none by default; `mptcp:sack=off` disables
    /// them. Parallel streams keep their own keys. Plain TCP is replaced by `given`, except that it keeps its tolerance of
    /// reordering if `given` sets none. `uec` keeps its choice of entropies, and has no setting in common with the other
    /// transports, so these change nothing.
    ///
    /// # Errors
    /// The given transport does not fit: MPTCP accepts only `newreno` and `mptcp`, and parallel streams accept only TCP.
    /// Or both state a key with different values. The message says what was expected.
    pub fn refined_by(self, given: TransportSpec) -> Result<TransportSpec, String> {
        match self {
            TransportSpec::Tcp(own) => Ok(given.tolerating(own.reordering)),
            TransportSpec::Mptcp(own) => own.refined_by(given).map(TransportSpec::Mptcp),
            TransportSpec::Streams(own) => match given {
                TransportSpec::Tcp(tcp) => Ok(TransportSpec::Streams(StreamSettings { tcp, ..own })),
                _ => Err("expected a TCP transport for each stream".to_string()),
            },
            TransportSpec::Uec(own) => match given {
                TransportSpec::Uec(given) => own.refined_by(given).map(TransportSpec::Uec),
                _ => Ok(TransportSpec::Uec(own)),
            },
            TransportSpec::Roce(_) => Ok(given),
        }
    }

    /// Returns the transport with this tolerance of reordering, if it has none of its own.
    pub fn tolerating(mut self, usual: Option<Reordering>) -> TransportSpec {
        let tcp = self.tcp_mut();
        tcp.reordering = tcp.reordering.or(usual);
        tcp.sack |= tcp.reordering == Some(Reordering::Window);
        self
    }

    fn tcp_mut(&mut self) -> &mut Settings {
        match self {
            TransportSpec::Tcp(tcp) => tcp,
            TransportSpec::Mptcp(mptcp) => &mut mptcp.tcp,
            TransportSpec::Streams(streams) => &mut streams.tcp,
            TransportSpec::Uec(uec) => &mut uec.common,
            TransportSpec::Roce(roce) => &mut roce.common,
        }
    }

    /// Returns the transport with a minimum retransmission time-out of at most `most`.
    pub fn with_min_rto_at_most(mut self, most: Nanos) -> TransportSpec {
        let tcp = self.tcp_mut();
        tcp.min_rto = tcp.min_rto.min(most);
        self
    }

    /// Returns the MPTCP settings, if the transport is MPTCP.
    pub fn mptcp(&self) -> Option<&MptcpSettings> {
        match self {
            TransportSpec::Mptcp(settings) => Some(settings),
            _ => None,
        }
    }

    /// Returns the settings of parallel streams, if the transport uses them.
    pub fn streams(&self) -> Option<&StreamSettings> {
        match self {
            TransportSpec::Streams(settings) => Some(settings),
            _ => None,
        }
    }

    /// Returns how hosts send packets, if the transport acknowledges packets instead of bytes.
    pub fn packets(&self) -> Option<PacketSettings> {
        match self {
            TransportSpec::Uec(settings) => Some(PacketSettings::Uec(settings.clone())),
            TransportSpec::Roce(settings) => Some(PacketSettings::Roce(settings.clone())),
            _ => None,
        }
    }

    /// Whether senders learn of congestion marks (ECN), so that a scheme can choose the paths of flows by them. Ultra
    /// Ethernet and its relatives choose paths themselves.
    pub fn echoes_marks(&self) -> bool {
        match self {
            TransportSpec::Roce(roce) => !roce.control.reads_telemetry(),
            other => other.settings().reacts_to_marks(),
        }
    }

    /// Returns the settings of Ultra Ethernet and its relatives, if the transport is one of them.
    pub fn uec(&self) -> Option<&UnorderedSettings> {
        match self {
            TransportSpec::Uec(settings) => Some(settings),
            _ => None,
        }
    }
}

/// Reads the key `reordering`: a number of segments, or `window`.
fn reordering(spec: &Spec) -> Result<Option<Reordering>, SpecError> {
    if spec.text_of("reordering") == Some("window") {
        return Ok(Some(Reordering::Window));
    }
    let segments = spec.count("reordering", 1, 1_000_000);
    let segments = segments.map_err(|problem| spec.error(format!("{}, or window", problem.problem)))?;
    Ok(segments.map(|segments| Reordering::Segments(segments as u32)))
}

/// Most payload bytes of a packet. Simulated packets have 15 bits for them.
pub(crate) const MOST_PAYLOAD: u32 = u16::MAX as u32 >> 1;

/// Checks the segment size.
fn bounded_mss(spec: &Spec, mss: u64) -> Result<u32, SpecError> {
    let most = u64::from(MOST_PAYLOAD);
    match (100..=most).contains(&mss) {
        true => Ok(mss as u32),
        false => Err(spec.error(format!("mss: {mss} B is not from 100 B to {most} B"))),
    }
}

pub(crate) fn positive_time(spec: &Spec, key: &'static str, default: Nanos) -> Result<Nanos, SpecError> {
    match spec.time(key)? {
        Some(Nanos(0)) => Err(spec.error(format!("{key}: must be more than 0s"))),
        given => Ok(given.unwrap_or(default)),
    }
}

/// Reads a time that has no default, and is not zero.
pub(crate) fn optional_time(spec: &Spec, key: &'static str) -> Result<Option<Nanos>, SpecError> {
    spec.time(key)?.map(|_| positive_time(spec, key, Nanos::ZERO)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn min_rto_of_every_transport_can_be_limited() {
        for spec in ["newreno", "cubic", "dctcp", "mptcp:subflows=2"] {
            let least = |most| {
                let bounded = TransportSpec::parse(spec).unwrap().with_min_rto_at_most(Nanos::from_millis(most));
                bounded.settings().min_rto
            };
            assert_eq!([least(1), least(1000)], [Nanos::from_millis(1), Nanos::from_millis(200)], "{spec}");
        }
    }

    #[test]
    fn documented_keys_are_parsed() {
        let spec = TransportSpec::parse("newreno:iw=15KB,acks=1,min_rto=10ms,handshake=off,pace=1Gbps").unwrap();
        let s = spec.settings();
        assert_eq!((s.initial_window_bytes, s.ack_every, s.min_rto), (15_000, 1, Nanos::from_millis(10)));
        assert_eq!((s.handshake, s.pace_bps), (false, Some(1_000_000_000)));
        assert_eq!(TransportSpec::parse("newreno").unwrap(), TransportSpec::default());
        let settings = |text: &str| TransportSpec::parse(text).unwrap().settings().clone();
        assert!(settings("cubic").sack && !settings("cubic:sack=off").sack && settings("newreno:sack=on").sack);
        let dctcp = settings("dctcp:mark=30");
        assert_eq!((dctcp.congestion, dctcp.mark_packets), (CongestionControl::Dctcp { gain: 0.0625 }, Some(30)));
    }

    #[test]
    fn a_scheme_that_reorders_keeps_its_tolerance() {
        let parse = |text: &str| TransportSpec::parse(text).unwrap();
        let own = parse("newreno:sack=on,reordering=window");
        let refined = |text: &str| own.clone().refined_by(parse(text)).unwrap().settings().clone();
        let (plain, mptcp, given) = (refined("newreno"), refined("mptcp"), refined("dctcp:reordering=5"));
        assert_eq!((plain.reordering, plain.sack), (Some(Reordering::Window), true));
        assert_eq!(mptcp.reordering, Some(Reordering::Window));
        assert_eq!(given.reordering, Some(Reordering::Segments(5)));
        assert_eq!(parse("newreno").refined_by(parse("cubic")), Ok(parse("cubic")));
        let refused = |text: &str| TransportSpec::parse(text).unwrap_err().to_string();
        assert!(refused("newreno:reordering=window").contains("add sack=on"));
        for bad in ["0", "x", "-1"] {
            let message = refused(&format!("newreno:reordering={bad}"));
            assert!(message.contains("reordering") && message.contains("window"), "{message}");
        }
    }

    #[test]
    fn reads_mptcp() {
        use crate::mptcp::{Coupling, PathManager, Scheduler};
        assert_eq!(TransportSpec::parse("mptcp").unwrap().mptcp(), Some(&MptcpSettings::default()));
        let text = "mptcp:subflows=8,cc=olia,manager=fullmesh,scheduler=round-robin,iw=15KB";
        let spec = TransportSpec::parse(text).unwrap();
        let m = spec.mptcp().unwrap();
        assert_eq!((m.subflows, m.coupling, m.manager), (8, Coupling::Olia, PathManager::Fullmesh));
        assert_eq!((m.scheduler, m.tcp.initial_window_bytes), (Scheduler::RoundRobin, 15_000));
        let congestion = |cc: &str| {
            let spec = TransportSpec::parse(&format!("mptcp:cc={cc}")).unwrap();
            (spec.mptcp().unwrap().coupling, spec.settings().congestion)
        };
        assert_eq!(congestion("lia"), (Coupling::Lia, CongestionControl::Coupled));
        assert_eq!(congestion("uncoupled"), (Coupling::Uncoupled, CongestionControl::NewReno));
        assert_eq!(congestion("cubic"), (Coupling::Uncoupled, CongestionControl::Cubic));
        let newreno = TransportSpec::parse("newreno:sack=on").unwrap();
        let sole = TransportSpec::parse("mptcp:cc=uncoupled").unwrap();
        assert_eq!(sole.settings(), newreno.settings(), "only the subflows differ");
    }

    #[test]
    fn each_key_of_mptcp_comes_from_the_side_that_states_it() {
        let parse = |text: &str| TransportSpec::parse(text).unwrap();
        let own = parse("mptcp:subflows=2,cc=olia");
        let both = parse("mptcp:subflows=2,cc=olia,min_rto=10ms");
        assert_eq!(own.clone().refined_by(parse("newreno:min_rto=10ms,sack=on")), Ok(both.clone()));
        assert_eq!(own.clone().refined_by(parse("newreno:min_rto=10ms")), Ok(both.clone()), "MPTCP's hosts have SACK");
        assert!(!own.clone().refined_by(parse("mptcp:sack=off")).unwrap().settings().sack);
        assert_eq!(own.clone().refined_by(parse("mptcp:subflows=2,min_rto=10ms")), Ok(both.clone()));
        for same in ["mptcp:subflows=8,cc=uncoupled", "mptcp:manager=fullmesh,scheduler=round-robin", "mptcp:cc=cubic"]
        {
            assert_eq!(parse("mptcp").refined_by(parse(same)), Ok(parse(same)));
        }
        let joined = own.clone().refined_by(parse("mptcp:scheduler=round-robin"));
        assert_eq!(joined, Ok(parse("mptcp:subflows=2,cc=olia,scheduler=round-robin")));
        for (text, key) in
            [("mptcp:subflows=7", "subflows=2"), ("mptcp:cc=uncoupled", "cc=olia"), ("mptcp:cc=cubic", "cc=olia")]
        {
            let refused = own.clone().refined_by(parse(text)).unwrap_err();
            assert!(refused.contains(key), "{refused}");
        }
        assert_eq!(parse("newreno").refined_by(both.clone()), Ok(both));
        assert!(own.refined_by(parse("dctcp")).unwrap_err().contains("expected newreno"));
    }

    #[test]
    fn refined_streams_keep_their_own_keys() {
        let parse = |text: &str| TransportSpec::parse(text).unwrap();
        let spec = Spec::parse("scheme", "parallel-tcp:streams=7").unwrap();
        let own = TransportSpec::Streams(StreamSettings::read(&spec, Settings::default()).unwrap());
        let cubic = own.clone().refined_by(parse("cubic")).unwrap();
        assert_eq!((cubic.name(), cubic.streams().unwrap().streams), ("cubic", 7));
        assert!(own.refined_by(parse("mptcp")).unwrap_err().contains("expected a TCP"));
    }

    #[test]
    fn reads_uec_and_keeps_the_entropy_of_a_scheme() {
        use crate::uec::EntropyChoice;
        let parse = |text: &str| TransportSpec::parse(text).unwrap();
        let spec = parse("uec:entropy=reps,paths=128,ack_bytes=1B,mtu=9000B,rto=1ms,iw=10KB");
        let uec = spec.uec().unwrap();
        assert_eq!((uec.entropy, uec.paths, uec.ack_bytes), (EntropyChoice::Reps, 128, Some(1)));
        let ack_bytes = |text: &str| parse(text).uec().map(UnorderedSettings::report_after_bytes);
        let by_entropy = ["uec", "uec:entropy=reps", "uec:entropy=bitmap", "uec:ack_bytes=8KB"].map(ack_bytes);
        assert_eq!(by_entropy, [1, 1, 16_384, 8000].map(Some));
        assert_eq!((spec.settings().mss_bytes, uec.frame_bytes()), (8936, 9000));
        assert_eq!((uec.timeout, uec.initial_window_bytes), (Some(Nanos::from_millis(1)), Some(10_000)));
        let refined = spec.clone().refined_by(parse("uec:paths=16")).unwrap();
        let refined = refined.uec().unwrap();
        assert_eq!((refined.entropy, refined.paths), (EntropyChoice::Reps, 16));
        assert!(spec.clone().refined_by(parse("uec:entropy=single")).unwrap_err().contains("entropy=reps"));
        assert_eq!(spec.clone().refined_by(parse("dctcp:min_rto=1ms")), Ok(spec));
        let own = TransportSpec::Uec(UnorderedSettings::choosing(EntropyChoice::Bitmap));
        let refined =
            |text: &str| own.clone().refined_by(parse(text)).unwrap().uec().map(UnorderedSettings::report_after_bytes);
        assert_eq!(["uec", "uec:entropy=bitmap", "uec:ack_bytes=8KB"].map(refined), [16_384, 16_384, 8000].map(Some));
        let paths = |text: &str| parse(text).uec().map(|uec| uec.paths);
        let by_transport = ["uec", "eqds", "swift", "ndp", "ndp:paths=64", "ndp:entropy=bitmap"].map(paths);
        assert_eq!(by_transport, [64, 64, 64, 65_536, 64, 64].map(Some));
        for (text, words) in [
            ("uec:paths=3", "not a power of two"),
            ("uec:paths=0", "from 1 to 65536"),
            ("uec:mtu=64B", "from 164 B"),
            ("uec:mtu=1MB", "to 32831 B"),
            ("uec:rto=0s", "more than 0s"),
            ("uec:entropy=rep", "did you mean `reps`"),
            ("uec:mss=1KB", "unknown key `mss`"),
        ] {
            let message = TransportSpec::parse(text).unwrap_err().to_string();
            assert!(message.contains(words), "{message}");
        }
    }

    #[test]
    fn errors_name_the_problem() {
        let message = |text: &str| TransportSpec::parse(text).unwrap_err().to_string();
        assert!(message("newrno").contains("did you mean `newreno`"));
        assert!(message("newreno:iv=1KB").contains("did you mean `iw`"));
        for (key, meant) in [("rto_min", "min_rto"), ("RTO_initial", "initial_rto"), ("ack_delayed", "delayed_ack")] {
            let error = message(&format!("newreno:{key}=1ms"));
            assert!(error.contains(&format!("unknown key `{key}`; did you mean `{meant}`?")), "{error}");
        }
        assert!(message("newreno:mss=1B").contains("mss"));
        for count in ["0", "65", "-1", "many"] {
            let error = message(&format!("mptcp:subflows={count}"));
            assert!(error.contains("subflows") && !error.contains('\n'), "{error}");
        }
        assert!(
            message("mptcp:cc=olla").contains("`olla` is not one of lia, olia, uncoupled, cubic; did you mean `olia`?")
        );
        assert!(message("mptcp:manager=mesh").contains("is not one of ndiffports, fullmesh"));
        assert!(message("newreno:subflows=2").contains("unknown key `subflows`"));
        assert!(message("newreno:mark=20").contains("unknown key `mark`"));
        assert!(message("dctcp:gain=2").contains("gain"));
        assert!(message("newreno:min_rto=0s").contains("more than 0s"));
        assert!(message("newreno:min_rto=2s,max_rto=1s").contains("greater than max_rto"));
    }
}
