//! The receiving end of a transfer.

use super::{Recovery, RoceSettings, HEADER_BYTES};
use crate::packets::{Arrived, PacketReceiver, Report, ReportKind};
use crate::uec::{Arrivals, Sizes};
use pathloom_model::Nanos;

/// Takes packets, acknowledges them, and gives notice of marked ones. With [`Recovery::GoBackN`] it discards what comes before
/// a missing packet, and says so once for each missing packet (InfiniBand, volume 1, §9.7.5.2.8).
#[derive(Clone, Debug)]
pub struct RoceReceiver {
    sizes: Sizes,
    recovery: Recovery,
    arrivals: Arrivals,
    /// One more than the highest number that was taken.
    highest: u64,
    /// Payload bytes of all packets taken, and the number of these packets.
    received: (u64, u64),
    reordered: u64,
    packets_per_ack: u32,
    /// Packets since the last report, and whether one of them was marked.
    unreported: u32,
    marked: bool,
    /// The missing packet that the last negative acknowledgement named.
    refused_at: Option<u64>,
    notice_gap: Nanos,
    /// When the next congestion notice may be sent.
    notice_at: Nanos,
}

impl RoceReceiver {
    /// Creates a receiver of a transfer of this many bytes, of which nothing has arrived.
    pub fn new(settings: &RoceSettings, bytes: u64) -> RoceReceiver {
        RoceReceiver {
            sizes: Sizes::with_header(settings.common.mss_bytes, HEADER_BYTES, bytes),
            recovery: settings.recovery,
            arrivals: Arrivals::default(),
            highest: 0,
            received: (0, 0),
            reordered: 0,
            packets_per_ack: settings.packets_per_ack(),
            unreported: 0,
            marked: false,
            refused_at: None,
            notice_gap: settings.notice_gap,
            notice_at: Nanos::ZERO,
        }
    }

    /// Number of packets that were taken, each counted once.
    pub fn received_packets(&self) -> u64 {
        self.received.1
    }

    /// Number of packets that were taken after one with a higher number (RFC 4737 §3.3).
    pub fn reordered_packets(&self) -> u64 {
        self.reordered
    }

    fn take(&mut self, number: u64) {
        self.received.0 += u64::from(self.sizes.payload(number));
        self.received.1 += 1;
        self.reordered += u64::from(number < self.highest);
        self.highest = self.highest.max(number + 1);
        self.arrivals.insert(number);
    }

    fn report(&mut self, arrived: &Arrived, kind: ReportKind) -> Report {
        self.unreported = 0;
        let expected = self.arrivals.expected();
        let selective = if self.arrivals.beyond() == 0 { 0 } else { self.arrivals.bits(expected + 1) };
        Report {
            kind,
            number: arrived.number,
            cumulative: expected,
            base: expected + 1,
            selective,
            received_bytes: self.sizes.frames_of(self.received),
            entropy: arrived.entropy,
            marked: std::mem::take(&mut self.marked),
            hops: arrived.hops,
            retransmission: arrived.retransmission,
        }
    }

    /// A packet arrives before one that is missing, in a transfer that goes back.
    fn refuse(&mut self, arrived: &Arrived) -> Option<Report> {
        let expected = self.arrivals.expected();
        if self.refused_at.replace(expected) == Some(expected) {
            return None;
        }
        Some(self.report(arrived, ReportKind::Missing))
    }
}

impl PacketReceiver for RoceReceiver {
    fn handle_data(&mut self, arrived: &Arrived) -> Option<Report> {
        let number = arrived.number;
        if number >= self.sizes.packets() || arrived.trimmed.is_some() {
            return None;
        }
        self.marked |= arrived.marked;
        if self.recovery == Recovery::GoBackN && number > self.arrivals.expected() {
            return self.refuse(arrived);
        }
        let is_new = !self.arrivals.has(number);
        if is_new {
            self.take(number);
            self.unreported += 1;
        }
        if self.arrivals.beyond() > 0 {
            return Some(self.report(arrived, ReportKind::Missing));
        }
        let is_due = !is_new || arrived.asks_report || self.unreported >= self.packets_per_ack;
        is_due.then(|| self.report(arrived, ReportKind::Ack))
    }

    /// Zhu et al. 2015, §3.1: one notice for the first marked packet, and then at most one in each gap.
    fn gives_notice(&mut self, now: Nanos, arrived: &Arrived) -> bool {
        let gives = arrived.marked && now >= self.notice_at;
        if gives {
            self.notice_at = now.saturating_add(self.notice_gap);
        }
        gives
    }

    fn wants_pull(&self) -> bool {
        false
    }

    fn pull(&mut self) -> u64 {
        0
    }

    fn received_bytes(&self) -> u64 {
        self.received.0
    }

    fn delivered_bytes(&self) -> u64 {
        self.sizes.payload_below(self.arrivals.expected())
    }
}
