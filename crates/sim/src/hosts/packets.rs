//! Transfers over a transport that acknowledges packets ([`pathloom_transport::packets`]).
//!
//! A host takes a packet of a transfer only when its card is free, from one transfer after another. So a sender decides
//! as late as possible, and several transfers share a card fairly. Acknowledgements go to the card at once; they wait
//! for at most one packet. Every packet of such a run takes the slow path of the main loop when it reaches a host.

use super::parts::aged;
use super::traits::{send_ps, traits_of};
use super::turns::{age, Rank, Turns};
use super::Hosts;
use crate::agenda::{Agenda, Event};
use crate::interface::Interface;
use crate::lanes::NO_CONNECTION;
use crate::network::pfc::{can_stop, is_stopped};
use crate::network::Network;
use crate::packet::{Direction, Packet};
use crate::reports::Reports;
use crate::subflow::wants;
use crate::tap::Tap;
use crate::time::{to_nanos, to_ps, Ps, NEVER};
use crate::transfers::{Work, EPHEMERAL};
use pathloom_control::Input;
use pathloom_model::{Fabric, Headers, LinkId};
use pathloom_scheme::{Acknowledged, Ageing};
use pathloom_transport::ends::{AnyReceiver, AnySender, PacketSettings, Progress};
use pathloom_transport::packets::{Arrived, Feedback, Outgoing, PacketReceiver, PacketSender};
use pathloom_transport::uec::NetworkTraits;
use pathloom_transport::{TimeoutWait, TransportSpec};
use std::collections::BTreeMap;

/// Bytes of a transfer without end: more than any run sends.
const ENDLESS: u64 = 1 << 60;
/// Bits of a data packet's number that say that it was sent before, and that its sender asks for a report.
const RETRANSMISSION: u64 = 1 << 63;
const ASKS_REPORT: u64 = 1 << 62;

/// All transfers of a run, with the cards of their hosts.
pub(super) struct PacketFlows {
    settings: PacketSettings,
    ageing: Option<Ageing>,
    traits: NetworkTraits,
    /// From slot 1 on; the place of slot 0 belongs to no transfer.
    slots: Vec<Flow>,
    free: Vec<u32>,
    /// By the link that a card sends into.
    cards: BTreeMap<LinkId, Card>,
    /// By the link that a receiving host sends into; only with a transport that pulls.
    pullers: BTreeMap<LinkId, Puller>,
    seed: u64,
}

/// A transfer under way.
struct Flow {
    transfer: u32,
    use_count: u32,
    /// Interface of the sending host, and interface of the receiving host.
    interfaces: [Interface; 2],
    /// Payload bytes; `None` for a transfer without end.
    size: Option<u64>,
    /// Packets in the network.
    under_way: i64,
    /// Packets sent in both directions, and those with data among them.
    packets_sent: u64,
    data_sent: u64,
    /// Whether it is a message of a job, whose connections stand.
    of_job: bool,
    delivered: bool,
    /// Whether the sender has nothing left to do.
    closed: bool,
    /// Whether it waits for its turn at the card.
    has_turn: bool,
    /// Whether it waits for its turn to be pulled.
    has_pull_turn: bool,
    /// Time that the receiver's link needs for a full packet, and entropy of the last packet that arrived.
    frame_ps: Ps,
    entropy: u32,
    /// Time of the sender's timer event in the agenda; [`NEVER`] if there is none.
    timer: Ps,
    sender: AnySender,
    receiver: AnyReceiver,
    reports: Reports,
}

/// The network card of a host.
struct Card {
    /// The transfers that may have something to send.
    turns: Turns,
    /// Time of the event in the agenda at which the card is free; [`NEVER`] if there is none.
    free_at: Ps,
}

/// A receiving host that pulls packets for its transfers, in turn, at the rate of its link.
#[derive(Default)]
struct Puller {
    /// The transfers that want a packet.
    turns: Turns,
    /// Time before which no further packet is pulled.
    next_at: Ps,
    /// Whether the agenda has an event for that time.
    is_armed: bool,
}

impl PacketFlows {
    /// No transfers; `None` if the transport does not acknowledge packets.
    pub(super) fn new(
        transport: &TransportSpec,
        ageing: Option<Ageing>,
        fabric: &Fabric,
        seed: u64,
    ) -> Option<Box<PacketFlows>> {
        let settings = transport.packets()?;
        let traits = traits_of(&settings, fabric);
        let (slots, free, cards, pullers) = (Vec::new(), Vec::new(), BTreeMap::new(), BTreeMap::new());
        Some(Box::new(PacketFlows { settings, ageing, traits, slots, free, cards, pullers, seed }))
    }

    fn get(&mut self, slot: usize) -> &mut Flow {
        &mut self.slots[slot]
    }

    /// Takes a slot for a new transfer.
    fn open(
        &mut self,
        (transfer, of_job): (u32, bool),
        interfaces: [Interface; 2],
        size: Option<u64>,
        [rate_bps, receiver_bps]: [u64; 2],
    ) -> usize {
        let traits = NetworkTraits { rate_bps, ..self.traits };
        let frame_ps = send_ps(self.settings.frame_bytes(), receiver_bps) as Ps;
        let bytes = size.unwrap_or(ENDLESS);
        let seed = self.seed ^ (u64::from(transfer) << 32 | 0x7565_6300);
        let flow = |use_count| Flow {
            transfer,
            use_count,
            interfaces,
            size,
            under_way: 0,
            packets_sent: 0,
            data_sent: 0,
            of_job,
            delivered: false,
            closed: false,
            has_turn: false,
            has_pull_turn: false,
            frame_ps,
            entropy: 0,
            timer: NEVER,
            sender: self.settings.sender(&traits, bytes, seed),
            receiver: self.settings.receiver(&traits, bytes),
            reports: Reports::default(),
        };
        if let Some(slot) = self.free.pop() {
            let slot = slot as usize;
            self.slots[slot] = flow(self.slots[slot].use_count + 1);
            return slot;
        }
        // The first place stays free: its slot belongs to frames of no connection.
        let slot = self.slots.len().max(NO_CONNECTION + 1);
        while self.slots.len() < slot {
            self.slots.push(Flow { closed: true, interfaces: [Interface::NONE; 2], ..flow(0) });
        }
        self.slots.push(flow(0));
        slot
    }

    /// Gives a transfer a turn at its card, unless it waits for one. Returns the card's link.
    fn give_turn(&mut self, slot: usize) -> LinkId {
        let flow = &mut self.slots[slot];
        let uplink = flow.interfaces[0].uplink();
        if !flow.has_turn {
            flow.has_turn = true;
            let card = self.cards.entry(uplink).or_insert(Card { turns: Turns::default(), free_at: NEVER });
            card.turns.add(flow.sending_rank(self.ageing, &self.settings), slot as u32);
        }
        uplink
    }

    /// The next packet that a card sends, and its transfer, which then has the last turn. Transfers that are `stopped` keep
    /// their turns.
    fn next(
        &mut self,
        now: Ps,
        agenda: &mut Agenda,
        uplink: LinkId,
        stopped: impl Fn(usize) -> bool,
    ) -> Option<(usize, Outgoing)> {
        let card = self.cards.get_mut(&uplink)?;
        let (mut found, mut waiting) = (None, Vec::new());
        while let Some(slot) = card.turns.next() {
            if stopped(slot as usize) {
                waiting.push(slot);
                continue;
            }
            let flow = &mut self.slots[slot as usize];
            let Some(outgoing) = flow.sender.poll_transmit(to_nanos(now)) else {
                flow.has_turn = false;
                // It may wait for a time that it did not know before.
                flow.arm(now, agenda, slot);
                continue;
            };
            flow.packets_sent += 1;
            flow.data_sent += 1;
            found = Some((slot as usize, outgoing));
            break;
        }
        let rank = |slot: u32| self.slots[slot as usize].sending_rank(self.ageing, &self.settings);
        waiting.into_iter().for_each(|slot| card.turns.add(rank(slot), slot));
        if let Some((slot, _)) = found {
            card.turns.keep(rank(slot as u32), slot as u32);
        }
        found
    }

    /// Time for which a card needs an event because it is busy, unless the agenda has one or nobody waits.
    fn wants_event(&mut self, uplink: LinkId, free_at: Ps) -> Option<Ps> {
        let card = self.cards.get_mut(&uplink)?;
        if card.turns.is_empty() || card.free_at != NEVER {
            return None;
        }
        card.free_at = free_at;
        Some(free_at)
    }

    /// Results of the transfers that are not closed.
    pub(super) fn work(&self) -> impl Iterator<Item = (u32, Work)> + '_ {
        self.slots.iter().filter(|flow| !flow.closed).map(|flow| (flow.transfer, flow.work()))
    }
}

impl Flow {
    /// Puts the sender's timer into the agenda, unless it has an event that is early enough.
    fn arm(&mut self, now: Ps, agenda: &mut Agenda, slot: u32) {
        if let Some(at) = wants(self.sender.poll_timeout(), &mut self.timer) {
            agenda.push(at.max(now), Event::PacketTimer { slot, use_count: self.use_count });
        }
    }

    /// Its rank at its card, by the bytes sent, repeated ones included. All packets count as full.
    fn sending_rank(&self, ageing: Option<Ageing>, settings: &PacketSettings) -> Rank {
        Rank::of(ageing, self.data_sent * settings.payload_bytes(), self.of_job)
    }

    /// Its rank among those that its receiver pulls.
    fn receiving_rank(&self, ageing: Option<Ageing>) -> Rank {
        Rank::of(ageing, self.receiver.received_bytes(), self.of_job)
    }

    fn work(&self) -> Work {
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

impl Hosts {
    /// Whether transfers use a transport that acknowledges packets.
    pub(crate) fn acknowledge_packets(&self) -> bool {
        self.packets.is_some()
    }

    /// Starts a transfer.
    pub(super) fn start_packets<T: Tap>(
        &mut self,
        now: Ps,
        network: &mut Network<T>,
        agenda: &mut Agenda,
        transfer: u32,
    ) {
        let ends = self.transfers.subflows(transfer)[0];
        let in_use = |five_tuple: &_| network.lanes.slot(five_tuple).is_some();
        let five_tuple = self.transfers.start(transfer, &ends, to_nanos(now), EPHEMERAL, in_use);
        let headers = Headers { tcp_flags: 0, ..self.headers(transfer, five_tuple) };
        let rates_bps = [ends.src, ends.dst].map(|at| self.fabric.link(at.uplink).settings.rate_bps);
        let of_job = self.transfers.spec(transfer).standing;
        let Some(packets) = &mut self.packets else { return };
        let interfaces = [ends.src, ends.dst].map(|at| Interface::of(at.uplink));
        let slot = packets.open((transfer, of_job), interfaces, ends.size_bytes, rates_bps);
        let follows_scheme = !packets.settings.chooses_entropy();
        network.open_slot(slot, headers);
        if follows_scheme {
            self.entropies.open(slot);
        }
        if ends.size_bytes == Some(0) {
            self.finish_packets(now, agenda, slot);
        }
        self.continue_packets(now, network, agenda, slot);
    }

    /// A packet has reached a host by this interface.
    pub(crate) fn deliver_packet<T: Tap>(
        &mut self,
        now: Ps,
        network: &mut Network<T>,
        agenda: &mut Agenda,
        packet: &Packet,
        interface: Interface,
    ) {
        let slot = packet.slot();
        let Some(packets) = self.packets.as_mut().filter(|_| slot != NO_CONNECTION) else {
            return self.turn_away(now, network, agenda, packet, interface);
        };
        let flow = packets.get(slot);
        let destination = flow.interfaces[usize::from(packet.direction() == Direction::Data)];
        if destination != interface {
            return self.turn_away(now, network, agenda, packet, interface);
        }
        flow.under_way -= 1;
        if flow.closed {
            return self.release_packets(network, slot);
        }
        match packet.direction() {
            Direction::Data => {
                flow.entropy = packet.entropy();
                let arrived = arrived(packet);
                let report = flow.receiver.handle_data(&arrived);
                let notice = flow.receiver.gives_notice(to_nanos(now), &arrived);
                if !flow.delivered && flow.size.is_some_and(|size| flow.receiver.received_bytes() >= size) {
                    self.finish_packets(now, agenda, slot);
                }
                if notice {
                    self.answer(now, network, slot, Feedback::Notice);
                }
                if let Some(report) = report {
                    self.answer(now, network, slot, Feedback::Report(report));
                }
                self.ask_for_pull(now, network, agenda, slot);
            }
            Direction::Ack => {
                let before = flow.sender.progress();
                match flow.reports.take(packet.seq) {
                    Some(Feedback::Report(report)) => {
                        flow.sender.handle_report(to_nanos(now), &report);
                        if let (Some(before), Some(after)) = (before, flow.sender.progress()) {
                            self.entropies.acknowledged(now, slot, &acknowledged(&before, &after, report.marked));
                        }
                    }
                    Some(Feedback::Pull(bytes)) => flow.sender.handle_pull(bytes),
                    Some(Feedback::Notice) => flow.sender.handle_notice(to_nanos(now)),
                    None => {}
                }
                self.continue_packets(now, network, agenda, slot);
            }
        }
    }

    /// Tells something to the sender of a transfer. The packet takes a path by the entropy of the last one that arrived.
    fn answer<T: Tap>(&mut self, now: Ps, network: &mut Network<T>, slot: usize, feedback: Feedback) {
        let Some(packets) = &mut self.packets else { return };
        let flow = packets.get(slot);
        flow.packets_sent += 1;
        let (link, number) = (flow.interfaces[1].uplink().0, flow.reports.put(feedback));
        let (entropy, wire) = (flow.entropy, packets.settings.feedback_bytes(&feedback) as u16);
        let packet = Packet::new((slot as u32) << 1 | 1, number, 0, wire, 0).with_entropy(entropy);
        let packet = aged(self.ageing, packet, 0);
        let taken = self.hand_to_card(now, network, link, packet);
        self.note_sent(slot, taken);
    }

    /// Gives a transfer a turn to be pulled, if its receiver wants a packet.
    fn ask_for_pull<T: Tap>(&mut self, now: Ps, network: &mut Network<T>, agenda: &mut Agenda, slot: usize) {
        let Some(packets) = &mut self.packets else { return };
        let flow = &mut packets.slots[slot];
        if flow.has_pull_turn || !flow.receiver.wants_pull() {
            return;
        }
        flow.has_pull_turn = true;
        let uplink = flow.interfaces[1].uplink();
        let puller = packets.pullers.entry(uplink).or_default();
        puller.turns.add(flow.receiving_rank(packets.ageing), slot as u32);
        self.pull(now, network, agenda, uplink);
    }

    /// Pulls the packets that are due at a host: one at a time, as fast as they can arrive.
    fn pull<T: Tap>(&mut self, now: Ps, network: &mut Network<T>, agenda: &mut Agenda, uplink: LinkId) {
        while let Some(packets) = &mut self.packets {
            let Some(puller) = packets.pullers.get_mut(&uplink).filter(|puller| !puller.turns.is_empty()) else {
                return;
            };
            if puller.next_at > now {
                if !std::mem::replace(&mut puller.is_armed, true) {
                    agenda.push(puller.next_at, Event::PullDue(uplink));
                }
                return;
            }
            let Some(slot) = puller.turns.next() else { return };
            let flow = &mut packets.slots[slot as usize];
            flow.has_pull_turn = flow.receiver.wants_pull();
            if flow.has_pull_turn {
                puller.next_at = now + flow.frame_ps;
                puller.turns.keep(flow.receiving_rank(packets.ageing), slot);
                let bytes = flow.receiver.pull();
                self.answer(now, network, slot as usize, Feedback::Pull(bytes));
            }
        }
    }

    /// The host that sends into this link may pull a packet again.
    pub(crate) fn pull_due<T: Tap>(&mut self, now: Ps, network: &mut Network<T>, agenda: &mut Agenda, uplink: LinkId) {
        if let Some(puller) = self.packets.as_mut().and_then(|packets| packets.pullers.get_mut(&uplink)) {
            puller.is_armed = false;
            self.pull(now, network, agenda, uplink);
        }
    }

    /// Notes that the card has taken a packet of a transfer.
    fn note_sent(&mut self, slot: usize, taken: bool) {
        if let Some(packets) = &mut self.packets {
            packets.get(slot).under_way += i64::from(taken);
        }
    }

    /// The sender of a transfer may have something to send, or may have finished.
    fn continue_packets<T: Tap>(&mut self, now: Ps, network: &mut Network<T>, agenda: &mut Agenda, slot: usize) {
        let Some(packets) = &mut self.packets else { return };
        if packets.get(slot).sender.is_finished() {
            return self.close_packets(now, network, agenda, slot);
        }
        let uplink = packets.give_turn(slot);
        self.serve_card(now, network, agenda, uplink);
        self.arm_packet_timer(now, agenda, slot);
    }

    /// Sends the packets for which a card has room now: one at a time.
    pub(super) fn serve_card<T: Tap>(
        &mut self,
        now: Ps,
        network: &mut Network<T>,
        agenda: &mut Agenda,
        uplink: LinkId,
    ) {
        while let Some(packets) = &mut self.packets {
            let busy = network.links[uplink.index()].backlog(now);
            if busy > 0 {
                if let Some(at) = packets.wants_event(uplink, now + busy) {
                    agenda.push(at, Event::CardFree(uplink));
                }
                return;
            }
            let stopped = |slot: usize| can_stop(network) && is_stopped(network, uplink.0, slot);
            let Some((slot, outgoing)) = packets.next(now, agenda, uplink, stopped) else { return };
            let bytes_before = outgoing.number * packets.settings.payload_bytes();
            let Flow { transfer, of_job, .. } = *packets.get(slot);
            let packet = packet_of(slot, &outgoing, packets.settings.header_bytes());
            if self.ageing.is_some() {
                self.announce_aged(now, network, agenda, (slot, transfer), bytes_before, outgoing.payload_bytes);
            }
            let packet = aged(self.ageing, packet, age(bytes_before, of_job));
            let taken = self.hand_to_card(now, network, uplink.0, packet);
            self.note_sent(slot, taken);
            self.arm_packet_timer(now, agenda, slot);
        }
    }

    /// The card that sends into this link is free.
    pub(crate) fn card_free<T: Tap>(&mut self, now: Ps, network: &mut Network<T>, agenda: &mut Agenda, uplink: LinkId) {
        if let Some(card) = self.packets.as_mut().and_then(|packets| packets.cards.get_mut(&uplink)) {
            card.free_at = NEVER;
            self.serve_card(now, network, agenda, uplink);
        }
    }

    /// A switch has resumed a priority of the card that sends into this link.
    pub(crate) fn card_resumed<T: Tap>(
        &mut self,
        now: Ps,
        network: &mut Network<T>,
        agenda: &mut Agenda,
        uplink: LinkId,
    ) {
        if self.acknowledge_packets() {
            return self.serve_card(now, network, agenda, uplink);
        }
        // What the card held comes first. Until then, it has no room for more.
        let free_at = now + network.links[uplink.index()].backlog(now);
        for (slot, use_count) in self.stopped.take(uplink) {
            agenda.push(free_at, Event::CardReady { slot, use_count });
        }
    }

    fn arm_packet_timer(&mut self, now: Ps, agenda: &mut Agenda, slot: usize) {
        let Some(packets) = &mut self.packets else { return };
        packets.get(slot).arm(now, agenda, slot as u32);
    }

    /// Handles an event of a sender's timer. The timer may have moved to a later time.
    pub(crate) fn packet_timer<T: Tap>(
        &mut self,
        now: Ps,
        network: &mut Network<T>,
        agenda: &mut Agenda,
        (slot, use_count): (u32, u32),
    ) {
        let Some(packets) = &mut self.packets else { return };
        let flow = packets.get(slot as usize);
        if flow.use_count != use_count || flow.closed {
            return;
        }
        if flow.timer <= now {
            flow.timer = NEVER;
        }
        let before = flow.sender.progress();
        flow.sender.handle_timeout(to_nanos(now));
        if flow.sender.progress().is_some_and(|after| before.is_some_and(|before| after.timeouts > before.timeouts)) {
            self.entropies.timed_out(now, slot as usize, &mut self.rng);
        }
        self.continue_packets(now, network, agenda, slot as usize);
    }

    /// The last byte of a transfer has arrived.
    fn finish_packets(&mut self, now: Ps, agenda: &mut Agenda, slot: usize) {
        let Some(packets) = &mut self.packets else { return };
        let flow = packets.get(slot);
        flow.delivered = true;
        let transfer = flow.transfer;
        for (next, delay) in self.transfers.deliver_connection(transfer, TimeoutWait::default(), to_nanos(now)) {
            agenda.push(now + to_ps(delay), Event::Start(next));
        }
        if now >= self.duration {
            self.stop_if_finished(agenda);
        }
    }

    /// The sender of a transfer has nothing left to do, or is stopped.
    fn close_packets<T: Tap>(&mut self, now: Ps, network: &mut Network<T>, agenda: &mut Agenda, slot: usize) {
        let Some(packets) = &mut self.packets else { return };
        let flow = &mut packets.slots[slot];
        flow.closed = true;
        self.transfers.end_packets(flow.transfer, flow.work());
        if std::mem::take(&mut flow.has_turn) {
            let uplink = flow.interfaces[0].uplink();
            if let Some(card) = packets.cards.get_mut(&uplink) {
                card.turns.remove(slot as u32);
            }
        }
        if std::mem::take(&mut flow.has_pull_turn) {
            if let Some(puller) = packets.pullers.get_mut(&flow.interfaces[1].uplink()) {
                puller.turns.remove(slot as u32);
            }
        }
        let transfer = flow.transfer;
        if self.announces && self.is_known_long(transfer) {
            let five_tuple = network.lanes.five_tuple(slot);
            self.tell(now, agenda, Input::TransferEnded { five_tuple });
        }
        self.release_packets(network, slot);
    }

    /// Frees the slot of a closed transfer, if none of its packets is in the network.
    fn release_packets<T: Tap>(&mut self, network: &mut Network<T>, slot: usize) {
        let Some(packets) = &mut self.packets else { return };
        if packets.get(slot).under_way == 0 {
            network.release_slot(slot);
            packets.free.push(slot as u32);
        }
    }

    /// Packets of a transfer were lost; a negative number means that packets were added.
    pub(super) fn lose_packets<T: Tap>(&mut self, network: &mut Network<T>, slot: usize, lost: i32) {
        let Some(packets) = &mut self.packets else { return };
        let flow = packets.get(slot);
        flow.under_way -= i64::from(lost);
        if flow.closed {
            self.release_packets(network, slot);
        }
    }

    /// Arrivals stop, and transfers without end do, too.
    pub(super) fn end_endless_packets<T: Tap>(&mut self, now: Ps, network: &mut Network<T>, agenda: &mut Agenda) {
        let Some(packets) = &self.packets else { return };
        let slots = packets.slots.iter().enumerate().filter(|(_, flow)| flow.size.is_none() && !flow.closed);
        let slots: Vec<usize> = slots.map(|(slot, _)| slot).collect();
        slots.into_iter().for_each(|slot| self.close_packets(now, network, agenda, slot));
    }
}

fn packet_of(slot: usize, outgoing: &Outgoing, header_bytes: u32) -> Packet {
    let flag = |bit: u64, set: bool| if set { bit } else { 0 };
    let number =
        outgoing.number | flag(RETRANSMISSION, outgoing.retransmission) | flag(ASKS_REPORT, outgoing.asks_report);
    let (payload, wire) = (outgoing.payload_bytes as u16, (outgoing.payload_bytes + header_bytes) as u16);
    Packet::new((slot as u32) << 1, number, payload, wire, 0).with_entropy(outgoing.entropy)
}

/// What a report told a sender, for those who choose the path of its flow.
fn acknowledged(before: &Progress, after: &Progress, marked: bool) -> Acknowledged {
    let bytes = after.acknowledged_bytes - before.acknowledged_bytes;
    Acknowledged { bytes, marked, una: after.acknowledged_bytes, sent: after.sent_bytes }
}

fn arrived(packet: &Packet) -> Arrived {
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
