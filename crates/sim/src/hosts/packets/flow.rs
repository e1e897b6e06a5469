//! A transfer over a transport that acknowledges packets, and its packets on the wire.

use crate::agenda::{Agenda, Event};
use crate::hosts::turns::{Rank, RankedBy};
use crate::interface::Interface;
use crate::packet::Packet;
use crate::reports::{Reports, MOST_REPORTS};
use crate::subflow::wants;
use crate::time::{Ps, NEVER};
use crate::transfers::Work;
use pathloom_scheme::{Acknowledged, Ageing};
use pathloom_transport::ends::{AnyReceiver, AnySender, PacketSettings, Progress};
use pathloom_transport::packets::{Arrived, Outgoing, PacketReceiver, PacketSender, PortLoad, TrimmedAt};
use std::collections::BTreeMap;

/// Bytes of a transfer without end: more than any run sends.
pub(super) const ENDLESS: u64 = 1 << 60;
/// Bits of a data packet's number that say that it was sent before, and that its sender asks for a report.
const RETRANSMISSION: u64 = 1 << 63;
const ASKS_REPORT: u64 = 1 << 62;

/// A transfer under way.
pub(super) struct Flow {
    pub(super) transfer: u32,
    pub(super) use_count: u32,
    /// Interface of the sending host, and interface of the receiving host.
    pub(super) interfaces: [Interface; 2],
    /// Payload bytes; `None` for a transfer without end.
    pub(super) size: Option<u64>,
    /// Packets in the network.
    pub(super) under_way: i64,
    /// Packets sent in both directions, and those with data among them.
    pub(super) packets_sent: u64,
    pub(super) data_sent: u64,
    pub(super) ranked_by: RankedBy,
    pub(super) delivered: bool,
    /// Whether the sender has nothing left to do.
    pub(super) closed: bool,
    /// Whether it waits for its turn at the card.
    pub(super) has_turn: bool,
    /// Whether it waits for its turn to be pulled.
    pub(super) has_pull_turn: bool,
    /// Time that the receiver's link needs for a full packet, and entropy of the last packet that arrived.
    pub(super) frame_ps: Ps,
    pub(super) entropy: u32,
    /// Number of packets that have arrived again.
    pub(super) repeated: u32,
    /// Time of the sender's timer event in the agenda; [`NEVER`] if there is none.
    pub(super) timer: Ps,
    pub(super) sender: AnySender,
    pub(super) receiver: AnyReceiver,
    pub(super) reports: Reports,
    /// The telemetry that reports bring, by their numbers.
    pub(super) telemetry: BTreeMap<u64, Vec<PortLoad>>,
}

impl Flow {
    /// A transfer that has not sent anything, with its sender and its receiver.
    pub(super) fn new(
        (transfer, use_count): (u32, u32),
        interfaces: [Interface; 2],
        size: Option<u64>,
        (sender, receiver): (AnySender, AnyReceiver),
    ) -> Flow {
        Flow {
            transfer,
            use_count,
            interfaces,
            size,
            under_way: 0,
            packets_sent: 0,
            data_sent: 0,
            ranked_by: RankedBy::Sent,
            delivered: false,
            closed: false,
            has_turn: false,
            has_pull_turn: false,
            frame_ps: 0,
            entropy: 0,
            repeated: 0,
            timer: NEVER,
            sender,
            receiver,
            reports: Reports::default(),
            telemetry: BTreeMap::new(),
        }
    }

    /// Keeps the telemetry that goes with a report until the report arrives. That of old reports is forgotten: they were lost.
    pub(super) fn keep_telemetry(&mut self, number: u64, loads: Vec<PortLoad>) {
        self.telemetry.insert(number, loads);
        if self.telemetry.len() > MOST_REPORTS {
            self.telemetry.pop_first();
        }
    }

    /// Puts the sender's timer into the agenda, unless it has an event that is early enough.
    pub(super) fn arm(&mut self, now: Ps, agenda: &mut Agenda, slot: u32) {
        if let Some(at) = wants(self.sender.poll_timeout(), &mut self.timer) {
            agenda.push(at.max(now), Event::PacketTimer { slot, use_count: self.use_count });
        }
    }

    /// Its rank at its card, by the bytes sent, repeated ones included. All packets count as full.
    pub(super) fn sending_rank(&self, ageing: Option<Ageing>, settings: &PacketSettings) -> Rank {
        Rank::of(ageing, self.ranked_by, self.data_sent * settings.payload_bytes())
    }

    /// Its rank among those that its receiver pulls.
    pub(super) fn receiving_rank(&self, ageing: Option<Ageing>) -> Rank {
        Rank::of(ageing, self.ranked_by, self.receiver.received_bytes())
    }

    pub(super) fn work(&self) -> Work {
        let counters = self.sender.counters();
        Work {
            delivered_bytes: self.receiver.delivered_bytes(),
            arrived_bytes: self.receiver.received_bytes(),
            window_bytes: self.sender.window_bytes(),
            retransmits: counters.retransmissions as u32,
            timeouts: counters.timeouts as u32,
            packets: self.packets_sent,
            segments: self.receiver.received_packets() as u32,
            reordered: self.receiver.reordered_packets() as u32,
            ..Work::default()
        }
    }
}

pub(super) fn packet_of(slot: usize, outgoing: &Outgoing, header_bytes: u32) -> Packet {
    let flag = |bit: u64, set: bool| if set { bit } else { 0 };
    let number =
        outgoing.number | flag(RETRANSMISSION, outgoing.retransmission) | flag(ASKS_REPORT, outgoing.asks_report);
    let (payload, wire) = (outgoing.payload_bytes as u16, (outgoing.payload_bytes + header_bytes) as u16);
    let mut packet = Packet::new((slot as u32) << 1, number, payload, wire, 0).with_entropy(outgoing.entropy);
    if outgoing.only_header {
        packet.trim(header_bytes as u16, TrimmedAt::Sender);
    }
    packet
}

/// What a report told a sender, for those who choose the path of its flow.
pub(super) fn acknowledged(before: &Progress, after: &Progress, marked: bool) -> Acknowledged {
    let bytes = after.acknowledged_bytes - before.acknowledged_bytes;
    Acknowledged { bytes, marked, una: after.acknowledged_bytes, sent: after.sent_bytes }
}

pub(super) fn arrived(packet: &Packet) -> Arrived {
    Arrived {
        number: packet.seq & !(RETRANSMISSION | ASKS_REPORT),
        payload_bytes: u32::from(packet.payload()),
        entropy: packet.entropy(),
        retransmission: packet.seq & RETRANSMISSION != 0,
        asks_report: packet.seq & ASKS_REPORT != 0,
        marked: packet.is_marked(),
        hops: packet.hop(),
        trimmed: packet.trimmed_at(),
    }
}
