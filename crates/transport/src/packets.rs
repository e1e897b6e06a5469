//! The seam between a driver and transports that acknowledge packets instead of bytes.
//!
//! The packets of a transfer are numbered from 0. A sender decides when to send which of them, and with which entropy. A
//! receiver answers packets with [`Report`]s, and may also pull packets ([`Feedback`]). A network may also cut a packet down to its header instead of dropping it
//! ("trimming"); the receiver then reports it as missing at once.

use pathloom_model::Nanos;

/// A data packet that a sender wants to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outgoing {
    /// Number of the packet in its transfer.
    pub number: u64,
    /// Payload bytes.
    pub payload_bytes: u32,
    /// Value that switches hash to choose a path; 0 for none.
    pub entropy: u32,
    /// Whether the packet was sent before.
    pub retransmission: bool,
    /// Whether the receiver should report at once.
    pub asks_report: bool,
    /// Whether only the header leaves, as a request to send ([`TrimmedAt::Sender`]).
    pub only_header: bool,
}

/// A data packet, or the header of one, that arrives at a receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrived {
    /// Number of the packet in its transfer.
    pub number: u64,
    /// Payload bytes; those that it had before it was trimmed.
    pub payload_bytes: u32,
    /// As its sender set it.
    pub entropy: u32,
    /// As its sender set it.
    pub retransmission: bool,
    /// As its sender set it.
    pub asks_report: bool,
    /// Whether a queue on the way marked it (ECN).
    pub marked: bool,
    /// Switches that it passed, as the time to live of its IP header says.
    pub hops: u8,
    /// Whether only the header arrives, and where it was trimmed.
    pub trimmed: Option<TrimmedAt>,
}

impl From<Outgoing> for Arrived {
    /// The packet as it arrives if nothing happens to it on its way.
    fn from(sent: Outgoing) -> Arrived {
        Arrived {
            number: sent.number,
            payload_bytes: sent.payload_bytes,
            entropy: sent.entropy,
            retransmission: sent.retransmission,
            asks_report: sent.asks_report,
            marked: false,
            hops: 0,
            trimmed: sent.only_header.then_some(TrimmedAt::Sender),
        }
    }
}

/// Where a packet was trimmed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrimmedAt {
    /// At a link between switches.
    Fabric,
    /// At the link to the receiver, where no other path helps.
    LastHop,
    /// At the sender, which asks whether it may send the packet.
    Sender,
}

/// What a report says of the packet that caused it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReportKind {
    /// It has arrived.
    Ack,
    /// It was trimmed.
    Nack(TrimmedAt),
    /// It has arrived, but a packet before it is missing: the one with the number [`Report::cumulative`].
    Missing,
}

/// Events of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PacketCounters {
    /// Packets sent again.
    pub retransmissions: u64,
    /// Retransmission time-outs. Transports with a timer for each packet count packets.
    pub timeouts: u64,
    /// Reports of trimmed or missing packets.
    pub nacks: u64,
}

/// What a receiver reports: the content of an acknowledgement or of a negative one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    /// What happened to the packet that caused the report.
    pub kind: ReportKind,
    /// Number of the packet that caused the report.
    pub number: u64,
    /// All packets below this number have arrived.
    pub cumulative: u64,
    /// Number of the packet of the lowest bit of `selective`.
    pub base: u64,
    /// Packets from `base` on that have arrived out of order, one per bit.
    pub selective: u64,
    /// Bytes of all packets that have arrived, with headers, each packet counted once.
    pub received_bytes: u64,
    /// Entropy of the packet that caused the report.
    pub entropy: u32,
    /// Whether that packet was marked.
    pub marked: bool,
    /// Switches that it passed.
    pub hops: u8,
    /// Whether that packet was a retransmission.
    pub retransmission: bool,
}

/// What a receiver tells a sender, in a packet of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Feedback {
    /// What has arrived.
    Report(Report),
    /// The sender may send more: the receiver has asked for this many bytes so far, with headers. A later pull stands in
    /// for one that is lost.
    Pull(u64),
    /// A packet was marked on its way (a congestion notification packet).
    Notice,
}

/// Load of a port at the moment when a packet begins to leave it, as the switch writes it into the packet (in-band network
/// telemetry).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortLoad {
    /// Number that identifies the port.
    pub port: u32,
    /// Time on the clock of the switch, in ps.
    pub at_ps: u64,
    /// Bytes that the port has sent before this packet, headers included.
    pub sent_bytes: u64,
    /// Bytes that wait at the port behind this packet.
    pub queue_bytes: u64,
    /// Rate of the port, bit/s.
    pub rate_bps: u64,
}

/// Bytes of the telemetry in a packet that no switch has written to: the number of entries, and an identifier of the path (Li
/// et al., HPCC, SIGCOMM 2019, §4.1).
pub const TELEMETRY_BYTES: u32 = 2;
/// Bytes of the entry of one port.
pub const PORT_LOAD_BYTES: u32 = 8;
/// Most entries of a packet: their number has four bits.
pub const MOST_PORT_LOADS: usize = 15;

/// The sending end of a transfer. A driver calls [`PacketSender::poll_transmit`] whenever the network card is free, so
/// that the sender chooses packet and entropy as late as possible.
pub trait PacketSender {
    /// Returns the next packet, if the window allows one.
    fn poll_transmit(&mut self, now: Nanos) -> Option<Outgoing>;

    /// Notes the level of the packet that was sent last, if hosts give packets priorities: queues send lower levels first, so
    /// such a packet overtakes those of higher ones. Without a call it is 0.
    fn note_level(&mut self, _level: u8) {}

    /// Handles a report. Reports that cannot be true change nothing.
    fn handle_report(&mut self, now: Nanos, report: &Report);

    /// Handles the telemetry of the packet that caused a report, in the order of the ports on its path. The report itself comes
    /// afterwards, to [`PacketSender::handle_report`]. Senders that did not ask for telemetry ignore it.
    fn handle_telemetry(&mut self, _now: Nanos, _report: &Report, _loads: &[PortLoad]) {}

    /// Handles a pull ([`Feedback::Pull`]). Senders that are not pulled ignore it.
    fn handle_pull(&mut self, bytes: u64);

    /// Handles a notice of congestion ([`Feedback::Notice`]). Senders whose reports say what was marked ignore it.
    fn handle_notice(&mut self, _now: Nanos) {}

    /// Returns the time when [`PacketSender::handle_timeout`] or [`PacketSender::poll_transmit`] is due, if the sender waits.
    fn poll_timeout(&self) -> Option<Nanos>;

    /// Handles the timers of the sender; does nothing before one is due.
    fn handle_timeout(&mut self, now: Nanos);

    /// Whether all packets are acknowledged.
    fn is_finished(&self) -> bool;
}

/// The receiving end of a transfer.
pub trait PacketReceiver {
    /// Handles a packet or the header of one. Returns a report to send, if one is due.
    fn handle_data(&mut self, arrived: &Arrived) -> Option<Report>;

    /// Whether the sender should get a notice of congestion ([`Feedback::Notice`]) because of this packet, which arrives now.
    fn gives_notice(&mut self, _now: Nanos, _arrived: &Arrived) -> bool {
        false
    }

    /// Whether a further packet should be pulled. The receiver's host pulls for all its transfers in turn, at the rate of its
    /// link, with [`PacketReceiver::pull`].
    fn wants_pull(&self) -> bool;

    /// Pulls one packet. Returns the bytes of all pulls so far ([`Feedback::Pull`]).
    fn pull(&mut self) -> u64;

    /// Payload bytes that have arrived, each counted once.
    fn received_bytes(&self) -> u64;

    /// Payload bytes of the packets before the first one that is missing.
    fn delivered_bytes(&self) -> u64;
}
