//! The receiving end of a transfer.

use super::{Recovery, RoceSettings};
use crate::packets::{Arrived, PacketReceiver, Report, ReportKind};
use crate::uec::{Sizes, Taken};
use pathloom_model::Nanos;

/// Takes packets, acknowledges them, and gives notice of marked ones. With [`Recovery::GoBackN`] it discards what comes before
/// a missing packet, and says so once for each missing packet (InfiniBand, volume 1, §9.7.5.2.8).
#[derive(Clone, Debug)]
pub struct RoceReceiver {
    taken: Taken,
    recovery: Recovery,
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
            taken: Taken::new(Sizes::with_header(settings.common.mss_bytes, settings.header_bytes(), bytes)),
            recovery: settings.recovery,
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
        self.taken.packets()
    }

    /// Number of packets that were taken after one with a higher number (RFC 4737 §3.3).
    pub fn reordered_packets(&self) -> u64 {
        self.taken.reordered()
    }

    fn report(&mut self, arrived: &Arrived, kind: ReportKind) -> Report {
        self.unreported = 0;
        let expected = self.taken.arrivals.expected();
        let selective = if self.taken.arrivals.beyond() == 0 { 0 } else { self.taken.arrivals.bits(expected + 1) };
        Report {
            kind,
            number: arrived.number,
            cumulative: expected,
            base: expected + 1,
            selective,
            received_bytes: self.taken.frame_bytes(),
            entropy: arrived.entropy,
            marked: std::mem::take(&mut self.marked),
            hops: arrived.hops,
            retransmission: arrived.retransmission,
        }
    }

    /// A packet arrives before one that is missing, in a transfer that goes back.
    fn refuse(&mut self, arrived: &Arrived) -> Option<Report> {
        let expected = self.taken.arrivals.expected();
        if self.refused_at.replace(expected) == Some(expected) {
            return None;
        }
        Some(self.report(arrived, ReportKind::Missing))
    }
}

impl PacketReceiver for RoceReceiver {
    fn handle_data(&mut self, arrived: &Arrived) -> Option<Report> {
        let number = arrived.number;
        if number >= self.taken.sizes.packets() || arrived.trimmed.is_some() {
            return None;
        }
        self.marked |= arrived.marked;
        if self.recovery == Recovery::GoBackN && number > self.taken.arrivals.expected() {
            return self.refuse(arrived);
        }
        let is_new = !self.taken.arrivals.has(number);
        if is_new {
            self.taken.take(number);
            self.unreported += 1;
        }
        if self.taken.arrivals.beyond() > 0 {
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
        self.taken.payload_bytes()
    }

    fn delivered_bytes(&self) -> u64 {
        self.taken.delivered_bytes()
    }
}
