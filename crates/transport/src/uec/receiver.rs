//! The receiving end: which packets have arrived, and when to report.

use super::arrivals::Arrivals;
use super::ndp::Pulls;
use super::{NetworkTraits, PacketControl, Sizes, UecSettings, MOST_AHEAD};
use crate::packets::{Arrived, PacketReceiver, Report, ReportKind};

/// Packets that a report covers beside the cumulative number.
const BITS: u64 = 64;

/// Notes which packets have arrived, and reports at once what the sender must know soon: the first packet, marked,
/// trimmed and repeated ones, and those that ask for it; otherwise after some bytes (uet-htsim, `UecSink::processData`).
#[derive(Clone, Debug)]
pub struct UecReceiver {
    sizes: Sizes,
    arrivals: Arrivals,
    /// One more than the highest number that has arrived.
    highest: u64,
    /// Payload bytes of all packets that have arrived, and the number of these packets.
    received: (u64, u64),
    /// Bytes of packets, with headers, since the last report.
    unreported: u64,
    ack_bytes: u64,
    /// Whether a packet asked for a report, and no report since then has said that nothing is missing.
    report_asked: bool,
    reordered: u64,
    /// What was pulled, if the transport pulls.
    pulls: Option<Pulls>,
}

impl UecReceiver {
    /// Creates a receiver of a transfer of this many bytes, of which nothing has arrived. It knows the network of its sender.
    pub fn new(settings: &UecSettings, network: &NetworkTraits, bytes: u64) -> UecReceiver {
        UecReceiver {
            sizes: Sizes::new(settings, bytes),
            arrivals: Arrivals::default(),
            highest: 0,
            received: (0, 0),
            unreported: 0,
            ack_bytes: settings.report_after_bytes(),
            report_asked: false,
            reordered: 0,
            pulls: match &settings.control {
                PacketControl::Ndp(own) => Some(Pulls::new(own, settings, network)),
                _ => None,
            },
        }
    }

    /// Number of packets that have arrived, each counted once.
    pub fn received_packets(&self) -> u64 {
        self.received.1
    }

    /// Number of packets that arrived after one with a higher number (RFC 4737 §3.3).
    pub fn reordered_packets(&self) -> u64 {
        self.reordered
    }

    /// Notes a packet that has not arrived before.
    fn take(&mut self, number: u64) {
        self.received.0 += u64::from(self.sizes.payload(number));
        self.received.1 += 1;
        self.reordered += u64::from(number < self.highest);
        self.highest = self.highest.max(number + 1);
        self.arrivals.insert(number);
    }

    /// The base of a report whose highest bit is this packet.
    fn base_below(&self, number: u64) -> u64 {
        number.saturating_sub(BITS - 1).max(self.arrivals.expected() + 1)
    }

    fn report(&self, arrived: &Arrived, kind: ReportKind, base: u64) -> Report {
        // A packet that asked for its own report may be one that was expected.
        let (cumulative, base) = (self.arrivals.expected(), base.max(self.arrivals.expected() + 1));
        Report {
            kind,
            number: arrived.number,
            cumulative,
            base,
            selective: self.arrivals.bits(base),
            received_bytes: self.sizes.frames_of(self.received),
            entropy: arrived.entropy,
            marked: arrived.marked,
            hops: arrived.hops,
            retransmission: arrived.retransmission,
        }
    }
}

impl PacketReceiver for UecReceiver {
    fn handle_data(&mut self, arrived: &Arrived) -> Option<Report> {
        let number = arrived.number;
        if number >= self.sizes.packets() || number >= self.arrivals.expected() + MOST_AHEAD {
            return None;
        }
        let is_new = !self.arrivals.has(number);
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
        let is_first = self.received.1 == 0;
        self.unreported += self.sizes.frame(number);
        let mut is_due = is_first || !is_new || arrived.marked || self.unreported >= self.ack_bytes;
        if is_new {
            self.take(number);
            self.report_asked |= arrived.asks_report;
            is_due |= arrived.asks_report || self.report_asked && self.arrivals.beyond() == 0;
            self.report_asked &= self.arrivals.beyond() > 0;
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
        let missing = self.sizes.packets() - self.received.1;
        self.pulls.as_ref().is_some_and(|pulls| pulls.is_wanted(missing))
    }

    fn pull(&mut self) -> u64 {
        self.pulls.as_mut().map_or(0, Pulls::pull)
    }

    fn received_bytes(&self) -> u64 {
        self.received.0
    }

    fn delivered_bytes(&self) -> u64 {
        self.sizes.payload_below(self.arrivals.expected())
    }
}
