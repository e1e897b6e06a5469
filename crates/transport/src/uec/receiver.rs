//! The receiving end: which packets have arrived, and when to report.

use super::ndp::Pulls;
use super::{NetworkTraits, PacketControl, Sizes, Taken, UnorderedSettings, MOST_AHEAD};
use crate::packets::{Arrived, PacketReceiver, Report, ReportKind};

/// Packets that a report covers beside the cumulative number.
const BITS: u64 = 64;

/// The receiver of uec, swift, ndp and eqds. Notes which packets have arrived, and reports at once what the sender must know
/// soon: the first packet, marked, trimmed and repeated ones, and those that ask for it; otherwise after some bytes
/// (uet-htsim, `UecSink::processData`).
#[derive(Clone, Debug)]
pub struct UnorderedReceiver {
    taken: Taken,
    /// Bytes of packets, with headers, since the last report.
    unreported: u64,
    ack_bytes: u64,
    /// Whether a packet asked for a report, and no report since then has said that nothing is missing.
    report_asked: bool,
    /// What was pulled, if the transport pulls.
    pulls: Option<Pulls>,
}

impl UnorderedReceiver {
    /// Creates a receiver of a transfer of this many bytes, of which nothing has arrived. It knows the network of its sender.
    pub fn new(settings: &UnorderedSettings, network: &NetworkTraits, bytes: u64) -> UnorderedReceiver {
        UnorderedReceiver {
            taken: Taken::new(Sizes::new(settings, bytes)),
            unreported: 0,
            ack_bytes: settings.report_after_bytes(),
            report_asked: false,
            pulls: match &settings.control {
                PacketControl::Ndp(own) => Some(Pulls::new(own, settings, network)),
                PacketControl::Eqds(own) => Some(Pulls::of_credit(own, settings, network)),
                _ => None,
            },
        }
    }

    /// Number of packets that have arrived, each counted once.
    pub fn received_packets(&self) -> u64 {
        self.taken.packets()
    }

    /// Number of packets that arrived after one with a higher number (RFC 4737 §3.3).
    pub fn reordered_packets(&self) -> u64 {
        self.taken.reordered()
    }

    /// The base of a report whose highest bit is this packet.
    fn base_below(&self, number: u64) -> u64 {
        number.saturating_sub(BITS - 1).max(self.taken.arrivals.expected() + 1)
    }

    fn report(&self, arrived: &Arrived, kind: ReportKind, base: u64) -> Report {
        // A packet that asked for its own report may be one that was expected.
        let (cumulative, base) = (self.taken.arrivals.expected(), base.max(self.taken.arrivals.expected() + 1));
        Report {
            kind,
            number: arrived.number,
            cumulative,
            base,
            selective: self.taken.arrivals.bits(base),
            received_bytes: self.taken.frame_bytes(),
            entropy: arrived.entropy,
            marked: arrived.marked,
            hops: arrived.hops,
            retransmission: arrived.retransmission,
        }
    }
}

impl PacketReceiver for UnorderedReceiver {
    fn handle_data(&mut self, arrived: &Arrived) -> Option<Report> {
        let number = arrived.number;
        if number >= self.taken.sizes.packets() || number >= self.taken.arrivals.expected() + MOST_AHEAD {
            return None;
        }
        let is_new = !self.taken.arrivals.has(number);
        // What was sent a second time without a pull takes the place of nothing that was pulled.
        if let Some(pulls) = self.pulls.as_mut().filter(|_| is_new) {
            pulls.note_arrival();
        }
        if let Some(place) = arrived.trimmed {
            return Some(match is_new {
                true => self.report(arrived, ReportKind::Nack(place), number),
                false => self.report(arrived, ReportKind::Ack, self.base_below(number)),
            });
        }
        let is_first = self.taken.packets() == 0;
        self.unreported += self.taken.sizes.frame(number);
        let mut is_due = is_first || !is_new || arrived.marked || self.unreported >= self.ack_bytes;
        if is_new {
            self.taken.take(number);
            self.report_asked |= arrived.asks_report;
            is_due |= arrived.asks_report || self.report_asked && self.taken.arrivals.beyond() == 0;
            self.report_asked &= self.taken.arrivals.beyond() > 0;
        }
        if !is_due {
            return None;
        }
        self.unreported = 0;
        let upwards = arrived.marked || is_new && arrived.asks_report;
        let base = if upwards { number } else { self.base_below(number) };
        Some(self.report(arrived, ReportKind::Ack, base))
    }

    fn wants_pull(&self) -> bool {
        let missing = self.taken.sizes.packets() - self.taken.packets();
        self.pulls.as_ref().is_some_and(|pulls| pulls.is_wanted(missing))
    }

    fn pull(&mut self) -> u64 {
        self.pulls.as_mut().map_or(0, Pulls::pull)
    }

    fn received_bytes(&self) -> u64 {
        self.taken.payload_bytes()
    }

    fn delivered_bytes(&self) -> u64 {
        self.taken.delivered_bytes()
    }
}
