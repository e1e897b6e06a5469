//! When links mark packets instead of letting queues grow: an ECN threshold, as DCTCP requires (RFC 8257 §3.1).

use crate::time::Ps;
use pathloom_fabrics::round_trip_ps;
use pathloom_model::units::PS_PER_S;
use pathloom_model::{Fabric, Link};
use pathloom_scheme::Needs;
use pathloom_transport::{Settings, TransportSpec};

/// What hosts understand of what ports tell them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Signals {
    pub(crate) marks: Marks,
    /// Whether receivers understand headers without their payload.
    pub(crate) headers: bool,
    /// Bytes of the largest frame that hosts send.
    pub(crate) frame_bytes: u64,
    /// Number of queues that ports have at least, because hosts mark packets for as many.
    pub(crate) queues: u8,
    /// Whether switches write the load of their ports into data packets.
    pub(crate) telemetry: bool,
}

impl Signals {
    pub(crate) fn of(transport: &TransportSpec, needs: &Needs, fabric: &Fabric) -> Signals {
        let queues = needs.ageing.map_or(1, |ageing| ageing.levels);
        match transport {
            TransportSpec::Uec(uec) => {
                let marks = Marks::by_rate(fabric);
                Signals { marks, headers: true, frame_bytes: uec.frame_bytes(), queues, telemetry: false }
            }
            TransportSpec::Roce(roce) => {
                let telemetry = roce.control.reads_telemetry();
                let marks = if telemetry { Marks::Never } else { Marks::by_rate(fabric) };
                Signals { marks, headers: false, frame_bytes: roce.largest_bytes(), queues, telemetry }
            }
            other => Signals {
                marks: Marks::of(other.settings(), fabric),
                headers: false,
                frame_bytes: other.settings().frame_bytes(),
                queues,
                telemetry: false,
            },
        }
    }

    pub(crate) fn reacts_to_marks(self) -> bool {
        self.marks != Marks::Never
    }
}

/// When links mark packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Marks {
    /// Never: the transport ignores marks.
    Never,
    /// Above a threshold that follows from a link's rate and buffer, and from the longest round trip of the fabric with
    /// empty queues.
    ByRate {
        /// That round trip, of full frames.
        round_trip: Ps,
    },
    /// If more than this many packets wait.
    Above(u32),
}

/// Least threshold K for links of up to 1 Gbit/s, and for faster links (Alizadeh et al., Data Center TCP, SIGCOMM 2010,
/// §3.4: 20 packets at 1 Gbit/s, 65 at 10 Gbit/s). These were measured on hosts that send in bursts.
const AT_GIGABIT: u32 = 20;
const FASTER: u32 = 65;
/// A queue with a smaller threshold than the packets of a round trip divided by this becomes empty (§3.4, equation 13).
const SHARE_OF_ROUND_TRIP: u128 = 7;
/// Length of a full frame.
const FRAME_BITS: u128 = 1514 * 8;

impl Marks {
    fn of(transport: &Settings, fabric: &Fabric) -> Marks {
        match transport.mark_packets {
            _ if !transport.reacts_to_marks() => Marks::Never,
            Some(packets) => Marks::Above(packets),
            None => Marks::by_rate(fabric),
        }
    }

    fn by_rate(fabric: &Fabric) -> Marks {
        Marks::ByRate { round_trip: round_trip_ps(fabric).map_or(0, |(idle, _full)| idle) }
    }

    /// Number of packets that may wait for `link` before arriving packets are marked. If no threshold is given, it is
    /// at most half of the buffer.
    pub(crate) fn threshold(self, link: &Link) -> Option<u32> {
        let settings = &link.settings;
        match self {
            Marks::Never => None,
            Marks::ByRate { round_trip } => {
                let usual = if settings.rate_bps > 1_000_000_000 { FASTER } else { AT_GIGABIT };
                let bits = u128::from(settings.rate_bps) * u128::from(round_trip) / u128::from(PS_PER_S);
                let needed = u32::try_from(bits.div_ceil(FRAME_BITS * SHARE_OF_ROUND_TRIP)).unwrap_or(u32::MAX);
                Some(usual.max(needed).min(settings.buffer_packets / 2).max(1))
            }
            Marks::Above(packets) => Some(packets),
        }
    }
}
