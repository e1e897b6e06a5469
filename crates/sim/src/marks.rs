//! When links mark packets instead of letting queues grow: an ECN threshold, as DCTCP requires (RFC 8257 §3.1).

use pathloom_model::Link;
use pathloom_transport::{CongestionControl, Settings};

/// When links mark packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Marks {
    /// Never: the transport ignores marks.
    Never,
    /// Above a threshold that follows from a link's rate and buffer.
    ByRate,
    /// If more than this many packets wait.
    Above(u32),
}

/// Threshold K for links of up to 1 Gbit/s, and for faster links (Alizadeh et al., Data Center TCP, SIGCOMM 2010,
/// §3.4: 20 packets at 1 Gbit/s, 65 at 10 Gbit/s).
const AT_GIGABIT: u32 = 20;
const FASTER: u32 = 65;

impl Marks {
    pub(crate) fn of(transport: &Settings) -> Marks {
        match (transport.congestion, transport.mark_packets) {
            (CongestionControl::Dctcp { .. }, None) => Marks::ByRate,
            (CongestionControl::Dctcp { .. }, Some(packets)) => Marks::Above(packets),
            _ => Marks::Never,
        }
    }

    /// Number of packets that may wait for `link` before arriving packets are marked. If no threshold is given, it is
    /// at most half of the buffer.
    pub(crate) fn threshold(self, link: &Link) -> Option<u32> {
        let settings = &link.settings;
        let usual = if settings.rate_bps > 1_000_000_000 { FASTER } else { AT_GIGABIT };
        match self {
            Marks::Never => None,
            Marks::ByRate => Some(usual.min(settings.buffer_packets / 2).max(1)),
            Marks::Above(packets) => Some(packets),
        }
    }
}
