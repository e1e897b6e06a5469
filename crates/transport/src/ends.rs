//! The two ends of a transfer over any transport that acknowledges packets, for drivers that run them all.

use crate::packets::{
    Arrived, Feedback, Outgoing, PacketCounters, PacketReceiver, PacketSender, PortLoad, Report, PORT_LOAD_BYTES,
    TELEMETRY_BYTES,
};
use crate::roce::{self, RoceReceiver, RoceSender, RoceSettings};
use crate::uec::{self, EntropyChoice, NetworkTraits, UnorderedReceiver, UnorderedSender, UnorderedSettings};
use pathloom_model::Nanos;

/// Settings of a transport that acknowledges packets.
#[derive(Clone, PartialEq, Debug)]
pub enum PacketSettings {
    /// Ultra Ethernet, and transports with the same packets.
    Uec(UnorderedSettings),
    /// RoCE.
    Roce(RoceSettings),
}

impl PacketSettings {
    /// Bytes of a full packet on the wire.
    pub fn frame_bytes(&self) -> u64 {
        match self {
            PacketSettings::Uec(settings) => settings.frame_bytes(),
            PacketSettings::Roce(settings) => settings.frame_bytes(),
        }
    }

    /// Payload bytes of a full packet.
    pub fn payload_bytes(&self) -> u64 {
        self.frame_bytes() - u64::from(self.header_bytes())
    }

    /// Bytes of a data packet without its payload.
    pub fn header_bytes(&self) -> u32 {
        match self {
            PacketSettings::Uec(_) => uec::HEADER_BYTES,
            PacketSettings::Roce(settings) => settings.header_bytes(),
        }
    }

    /// Bytes on the wire of what a receiver tells its sender, with the telemetry of this many ports.
    pub fn feedback_bytes(&self, feedback: &Feedback, ports: usize) -> u32 {
        let telemetry = if ports == 0 { 0 } else { TELEMETRY_BYTES + ports as u32 * PORT_LOAD_BYTES };
        let plain = match (self, feedback) {
            (PacketSettings::Uec(_), _) => uec::HEADER_BYTES,
            (PacketSettings::Roce(settings), Feedback::Notice) => roce::NOTICE_BYTES + settings.ipv6_bytes(),
            (PacketSettings::Roce(settings), _) => roce::ACK_BYTES + settings.ipv6_bytes(),
        };
        plain + telemetry
    }

    /// Share of the rate of its link that a receiver pulls at; 1 if it pulls nothing.
    pub fn pull_rate(&self) -> f64 {
        match self {
            PacketSettings::Uec(settings) => settings.pull_rate(),
            PacketSettings::Roce(_) => 1.0,
        }
    }

    /// Whether switches write the load of their ports into data packets.
    pub fn reads_telemetry(&self) -> bool {
        matches!(self, PacketSettings::Roce(settings) if settings.control.reads_telemetry())
    }

    /// Whether the sender chooses the entropy of each packet; otherwise the scheme of its host does.
    pub fn chooses_entropy(&self) -> bool {
        matches!(self, PacketSettings::Uec(_))
    }

    /// The entropy with which a receiver answers a packet of this entropy, if so many packets have arrived again. It is the
    /// same, except where senders keep away from failed paths: a packet comes again if its answer was lost, so its way back
    /// may have failed. Then the answer takes another one, which does not depend on the entropy of the packet alone.
    pub fn way_back(&self, entropy: u32, repeated: u32) -> u32 {
        match self {
            PacketSettings::Uec(settings) if entropy > 0 && settings.entropy == EntropyChoice::Freezing => {
                let count = settings.paths.max(1).next_power_of_two();
                // A multiple of the golden ratio: successive ones are far apart, and follow no short cycle.
                let shift = repeated.wrapping_mul(0x9E37_79B9) >> 16;
                (entropy - 1).wrapping_add(shift) % count + 1
            }
            _ => entropy,
        }
    }

    /// The sender of a transfer of this many bytes. The seed determines its random choices.
    pub fn sender(&self, network: &NetworkTraits, bytes: u64, seed: u64) -> AnySender {
        match self {
            PacketSettings::Uec(settings) => {
                AnySender::Uec(Box::new(UnorderedSender::new(settings, network, bytes, seed)))
            }
            PacketSettings::Roce(settings) => AnySender::Roce(Box::new(RoceSender::new(settings, network, bytes))),
        }
    }

    /// The receiver of a transfer of this many bytes.
    pub fn receiver(&self, network: &NetworkTraits, bytes: u64) -> AnyReceiver {
        match self {
            PacketSettings::Uec(settings) => AnyReceiver::Uec(UnorderedReceiver::new(settings, network, bytes)),
            PacketSettings::Roce(settings) => AnyReceiver::Roce(RoceReceiver::new(settings, bytes)),
        }
    }
}

/// The sender of any of these transports.
#[derive(Clone, Debug)]
pub enum AnySender {
    /// Ultra Ethernet.
    Uec(Box<UnorderedSender>),
    /// RoCE.
    Roce(Box<RoceSender>),
}

/// The receiver of any of these transports.
#[derive(Clone, Debug)]
pub enum AnyReceiver {
    /// Ultra Ethernet.
    Uec(UnorderedReceiver),
    /// RoCE.
    Roce(RoceReceiver),
}

/// Calls a method of whichever end it is.
macro_rules! of_any {
    ($kind:ident, $self:expr, $end:ident => $call:expr) => {
        match $self {
            $kind::Uec($end) => $call,
            $kind::Roce($end) => $call,
        }
    };
}

impl AnySender {
    /// What has happened so far.
    pub fn counters(&self) -> PacketCounters {
        of_any!(AnySender, self, end => end.counters())
    }

    /// Congestion window with headers; bytes in flight if the transport has a rate instead.
    pub fn window_bytes(&self) -> u64 {
        match self {
            AnySender::Uec(sender) => sender.window_bytes(),
            AnySender::Roce(sender) => sender.in_flight_bytes(),
        }
    }

    /// Payload bytes that were sent, each counted once, and those before the first one that is not acknowledged; `None` if
    /// the transport chooses paths by itself, and needs nobody who follows it.
    pub fn progress(&self) -> Option<Progress> {
        match self {
            AnySender::Uec(_) => None,
            AnySender::Roce(sender) => Some(Progress {
                acknowledged_bytes: sender.acknowledged_bytes(),
                sent_bytes: sender.sent_bytes(),
                timeouts: sender.counters().timeouts,
            }),
        }
    }
}

/// How far a sender has got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Payload bytes before the first one that is not acknowledged.
    pub acknowledged_bytes: u64,
    /// Payload bytes that were sent, each counted once.
    pub sent_bytes: u64,
    /// Retransmission time-outs.
    pub timeouts: u64,
}

impl AnyReceiver {
    /// Number of packets that have arrived and were taken, each counted once.
    pub fn received_packets(&self) -> u64 {
        of_any!(AnyReceiver, self, end => end.received_packets())
    }

    /// Number of packets that were taken after one with a higher number (RFC 4737 §3.3).
    pub fn reordered_packets(&self) -> u64 {
        of_any!(AnyReceiver, self, end => end.reordered_packets())
    }
}

impl PacketSender for AnySender {
    fn poll_transmit(&mut self, now: Nanos) -> Option<Outgoing> {
        of_any!(AnySender, self, end => end.poll_transmit(now))
    }

    fn note_level(&mut self, level: u8) {
        of_any!(AnySender, self, end => end.note_level(level));
    }

    fn handle_report(&mut self, now: Nanos, report: &Report) {
        of_any!(AnySender, self, end => end.handle_report(now, report));
    }

    fn handle_telemetry(&mut self, now: Nanos, report: &Report, loads: &[PortLoad]) {
        of_any!(AnySender, self, end => end.handle_telemetry(now, report, loads));
    }

    fn handle_pull(&mut self, bytes: u64) {
        of_any!(AnySender, self, end => end.handle_pull(bytes));
    }

    fn handle_notice(&mut self, now: Nanos) {
        of_any!(AnySender, self, end => end.handle_notice(now));
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        of_any!(AnySender, self, end => end.poll_timeout())
    }

    fn handle_timeout(&mut self, now: Nanos) {
        of_any!(AnySender, self, end => end.handle_timeout(now));
    }

    fn is_finished(&self) -> bool {
        of_any!(AnySender, self, end => end.is_finished())
    }
}

impl PacketReceiver for AnyReceiver {
    fn handle_data(&mut self, arrived: &Arrived) -> Option<Report> {
        of_any!(AnyReceiver, self, end => end.handle_data(arrived))
    }

    fn gives_notice(&mut self, now: Nanos, arrived: &Arrived) -> bool {
        of_any!(AnyReceiver, self, end => end.gives_notice(now, arrived))
    }

    fn wants_pull(&self) -> bool {
        of_any!(AnyReceiver, self, end => end.wants_pull())
    }

    fn pull(&mut self) -> u64 {
        of_any!(AnyReceiver, self, end => end.pull())
    }

    fn received_bytes(&self) -> u64 {
        of_any!(AnyReceiver, self, end => end.received_bytes())
    }

    fn delivered_bytes(&self) -> u64 {
        of_any!(AnyReceiver, self, end => end.delivered_bytes())
    }
}
