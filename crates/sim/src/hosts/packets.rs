//! Transfers over a transport that acknowledges packets ([`pathloom_transport::packets`]).
//!
//! A host takes a packet of a transfer only when its card is free, from one transfer after another. So a sender decides
//! as late as possible, and several transfers share a card fairly. Acknowledgements go to the card at once; they wait
//! for at most one packet. Every packet of such a run takes the slow path of the main loop when it reaches a host.

mod flow;

use super::shared::Shared;
use super::traits::{send_ps, traits_of};
use super::turns::{RankedBy, Turns};
use crate::agenda::{Agenda, Event};
use crate::interface::Interface;
use crate::kinds::{code_of, Exchanged, Kind};
use crate::lanes::NO_CONNECTION;
use crate::network::pfc::{can_stop, must_wait};
use crate::packet::{Direction, Packet};
use crate::plan::EPHEMERAL;
use crate::run::Run;
use crate::tap::Tap;
use crate::time::{to_nanos, Ps, NEVER};
use crate::transfers::Work;
use flow::{acknowledged, arrived, packet_of, Flow};
use pathloom_model::{Fabric, Headers, LinkId};
use pathloom_scheme::Ageing;
use pathloom_transport::ends::PacketSettings;
use pathloom_transport::packets::{Feedback, Outgoing, PacketReceiver, PacketSender, PortLoad};
use pathloom_transport::uec::NetworkTraits;
use pathloom_transport::{TimeoutWait, TransportSpec};
use std::collections::BTreeMap;

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
    /// Packets by kind.
    pub(super) exchanged: Exchanged,
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
        let exchanged = Exchanged::default();
        Some(Box::new(PacketFlows { settings, ageing, traits, slots, free, cards, pullers, seed, exchanged }))
    }

    fn get(&mut self, slot: usize) -> &mut Flow {
        &mut self.slots[slot]
    }

    /// Takes a slot for a new transfer.
    fn open(
        &mut self,
        (transfer, ranked_by): (u32, RankedBy),
        interfaces: [Interface; 2],
        size: Option<u64>,
        [rate_bps, receiver_bps]: [u64; 2],
    ) -> usize {
        let traits = NetworkTraits { rate_bps, ..self.traits };
        let pull_bps = (receiver_bps as f64 * self.settings.pull_rate()) as u64;
        let frame_ps = send_ps(self.settings.frame_bytes(), pull_bps) as Ps;
        let bytes = size.unwrap_or(flow::ENDLESS);
        let seed = self.seed ^ (u64::from(transfer) << 32 | 0x7565_6300);
        let flow = |use_count| {
            let ends = (self.settings.sender(&traits, bytes, seed), self.settings.receiver(&traits, bytes));
            Flow { ranked_by, frame_ps, ..Flow::new((transfer, use_count), interfaces, size, ends) }
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
        mut stopped: impl FnMut(usize) -> bool,
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

    /// Starts a transfer.
    pub(super) fn start<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>, transfer: u32) {
        let (ends, network) = (shared.transfers.subflows(transfer)[0], &mut *run.network);
        let in_use = |five_tuple: &_| network.links.lanes.slot(five_tuple).is_some();
        let five_tuple = shared.transfers.start(transfer, &ends, to_nanos(run.now), EPHEMERAL, in_use);
        let headers = Headers { tcp_flags: 0, ..shared.headers(transfer, five_tuple) };
        let rates_bps = [ends.src, ends.dst].map(|at| shared.rate_bps(at.uplink));
        let ranked_by = shared.ranked_by(transfer, shared.transfers.spec(transfer).standing);
        let interfaces = [ends.src, ends.dst].map(|at| Interface::of(at.uplink));
        let slot = self.open((transfer, ranked_by), interfaces, ends.size_bytes, rates_bps);
        network.open_slot(slot, headers);
        if !self.settings.chooses_entropy() {
            shared.entropies.open(slot);
        }
        if ends.size_bytes == Some(0) {
            self.finish(shared, run, slot);
        }
        self.proceed(shared, run, slot);
    }

    /// A packet has reached a host by this interface. Returns whether it belongs to a transfer of this interface.
    pub(super) fn deliver<T: Tap>(
        &mut self,
        shared: &mut Shared,
        run: &mut Run<'_, T>,
        packet: &Packet,
        interface: Interface,
    ) -> bool {
        let slot = packet.slot();
        if slot == NO_CONNECTION {
            return false;
        }
        let flow = self.get(slot);
        if flow.interfaces[usize::from(packet.direction() == Direction::Data)] != interface {
            return false;
        }
        flow.under_way -= 1;
        self.exchanged.arrived.add(Kind::of(packet), 1);
        let flow = self.get(slot);
        if flow.closed {
            self.release(run, slot);
        } else if packet.direction() == Direction::Data {
            self.take_data(shared, run, packet);
        } else {
            self.take_feedback(shared, run, packet);
        }
        true
    }

    /// Data have reached their receiver.
    fn take_data<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>, packet: &Packet) {
        let slot = packet.slot();
        let flow = &mut self.slots[slot];
        flow.entropy = packet.entropy();
        let arrived = arrived(packet);
        let loads = run.network.links.telemetry.as_mut().map_or_else(Vec::new, |telemetry| telemetry.take(packet));
        let received = flow.receiver.received_packets();
        let report = flow.receiver.handle_data(&arrived);
        let is_repeated = arrived.retransmission && flow.receiver.received_packets() == received;
        if is_repeated && arrived.trimmed.is_none() {
            flow.repeated += 1;
            flow.entropy = self.settings.way_back(flow.entropy, flow.repeated);
        }
        let notice = flow.receiver.gives_notice(to_nanos(run.now), &arrived);
        if !flow.delivered && flow.size.is_some_and(|size| flow.receiver.received_bytes() >= size) {
            self.finish(shared, run, slot);
        }
        if notice {
            self.answer(shared, run, slot, Feedback::Notice, Vec::new());
        }
        if let Some(report) = report {
            self.answer(shared, run, slot, Feedback::Report(report), loads);
        }
        self.ask_for_pull(shared, run, slot);
    }

    /// What a receiver tells has reached the sender.
    fn take_feedback<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>, packet: &Packet) {
        let (slot, nanos) = (packet.slot(), to_nanos(run.now));
        let flow = self.get(slot);
        let before = flow.sender.progress();
        match flow.reports.take(packet.seq) {
            Some(Feedback::Report(report)) => {
                if let Some(loads) = flow.telemetry.remove(&packet.seq) {
                    flow.sender.handle_telemetry(nanos, &report, &loads);
                }
                flow.sender.handle_report(nanos, &report);
                if let (Some(before), Some(after)) = (before, flow.sender.progress()) {
                    shared.entropies.acknowledged(run.now, slot, &acknowledged(&before, &after, report.marked));
                }
            }
            Some(Feedback::Pull(bytes)) => flow.sender.handle_pull(bytes),
            Some(Feedback::Notice) => flow.sender.handle_notice(nanos),
            None => {}
        }
        self.proceed(shared, run, slot);
    }

    /// Tells something to the sender of a transfer, with the telemetry that the sender wants. The packet takes a path by the
    /// entropy of the last one that arrived.
    fn answer<T: Tap>(
        &mut self,
        shared: &mut Shared,
        run: &mut Run<'_, T>,
        slot: usize,
        feedback: Feedback,
        loads: Vec<PortLoad>,
    ) {
        let flow = &mut self.slots[slot];
        flow.packets_sent += 1;
        let (link, number) = (flow.interfaces[1].uplink().0, flow.reports.put(feedback));
        let (entropy, wire) = (flow.entropy, self.settings.feedback_bytes(&feedback, loads.len()) as u16);
        if !loads.is_empty() {
            flow.keep_telemetry(number, loads);
        }
        let packet = Packet::new((slot as u32) << 1 | 1, number, code_of(&feedback), wire, 0).with_entropy(entropy);
        let packet = shared.aged(packet, || 0);
        self.exchanged.sent.add(Kind::of(&packet), 1);
        flow.under_way += i64::from(shared.hand_to_card(run, link, packet));
    }

    /// Gives a transfer a turn to be pulled, if its receiver wants a packet.
    fn ask_for_pull<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>, slot: usize) {
        let flow = &mut self.slots[slot];
        if flow.has_pull_turn || !flow.receiver.wants_pull() {
            return;
        }
        flow.has_pull_turn = true;
        let uplink = flow.interfaces[1].uplink();
        let puller = self.pullers.entry(uplink).or_default();
        puller.turns.add(flow.receiving_rank(self.ageing), slot as u32);
        self.pull(shared, run, uplink);
    }

    /// Pulls the packets that are due at a host: one at a time, as fast as they can arrive.
    fn pull<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>, uplink: LinkId) {
        while let Some(puller) = self.pullers.get_mut(&uplink).filter(|puller| !puller.turns.is_empty()) {
            if puller.next_at > run.now {
                if !std::mem::replace(&mut puller.is_armed, true) {
                    run.agenda.push(puller.next_at, Event::PullDue(uplink));
                }
                return;
            }
            let Some(slot) = puller.turns.next() else { return };
            let flow = &mut self.slots[slot as usize];
            flow.has_pull_turn = flow.receiver.wants_pull();
            if flow.has_pull_turn {
                puller.next_at = run.now + flow.frame_ps;
                puller.turns.keep(flow.receiving_rank(self.ageing), slot);
                let bytes = flow.receiver.pull();
                self.answer(shared, run, slot as usize, Feedback::Pull(bytes), Vec::new());
            }
        }
    }

    /// The host that sends into this link may pull a packet again.
    pub(super) fn pull_due<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>, uplink: LinkId) {
        if let Some(puller) = self.pullers.get_mut(&uplink) {
            puller.is_armed = false;
            self.pull(shared, run, uplink);
        }
    }

    /// The sender of a transfer may have something to send, or may have finished.
    fn proceed<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>, slot: usize) {
        if self.get(slot).sender.is_finished() {
            return self.close(shared, run, slot);
        }
        let uplink = self.give_turn(slot);
        self.serve_card(shared, run, uplink);
        self.get(slot).arm(run.now, run.agenda, slot as u32);
    }

    /// Sends the packets for which a card has room now: one at a time.
    pub(super) fn serve_card<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>, uplink: LinkId) {
        loop {
            let busy = run.network.links[uplink.index()].backlog(run.now);
            if busy > 0 {
                if let Some(at) = self.wants_event(uplink, run.now + busy) {
                    run.agenda.push(at, Event::CardFree(uplink));
                }
                return;
            }
            let (links, now) = (&mut run.network.links, run.now);
            let stopped = |slot: usize| can_stop(links) && must_wait(links, now, uplink.0, slot);
            let Some((slot, outgoing)) = self.next(now, run.agenda, uplink, stopped) else { return };
            let bytes_before = outgoing.number * self.settings.payload_bytes();
            let Flow { transfer, ranked_by, .. } = *self.get(slot);
            let mut packet = packet_of(slot, &outgoing, self.settings.header_bytes());
            if let Some(ageing) = self.ageing {
                shared.announce_aged(run, (slot, transfer), bytes_before, outgoing.payload_bytes);
                let level = ageing.level(ranked_by.bytes(bytes_before));
                self.slots[slot].sender.note_level(level);
                packet = packet.with_class_selector(ageing.class_selector(level));
            }
            self.exchanged.sent.add(Kind::of(&packet), 1);
            let taken = shared.hand_to_card(run, uplink.0, packet);
            let flow = self.get(slot);
            flow.under_way += i64::from(taken);
            flow.arm(run.now, run.agenda, slot as u32);
        }
    }

    /// The card that sends into this link is free.
    pub(super) fn card_free<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>, uplink: LinkId) {
        if let Some(card) = self.cards.get_mut(&uplink) {
            card.free_at = NEVER;
            self.serve_card(shared, run, uplink);
        }
    }

    /// Handles an event of a sender's timer. The timer may have moved to a later time.
    pub(super) fn timer_due<T: Tap>(
        &mut self,
        shared: &mut Shared,
        run: &mut Run<'_, T>,
        (slot, use_count): (u32, u32),
    ) {
        let flow = self.get(slot as usize);
        if flow.use_count != use_count || flow.closed {
            return;
        }
        if flow.timer <= run.now {
            flow.timer = NEVER;
        }
        let before = flow.sender.progress();
        flow.sender.handle_timeout(to_nanos(run.now));
        if flow.sender.progress().is_some_and(|after| before.is_some_and(|before| after.timeouts > before.timeouts)) {
            shared.timed_out(run.now, slot as usize);
        }
        self.proceed(shared, run, slot as usize);
    }

    /// The last byte of a transfer has arrived.
    fn finish<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>, slot: usize) {
        let flow = self.get(slot);
        flow.delivered = true;
        let ready = shared.transfers.deliver_connection(flow.transfer, TimeoutWait::default(), to_nanos(run.now));
        shared.arrived(run.now, run.agenda, ready);
    }

    /// The sender of a transfer has nothing left to do, or is stopped.
    fn close<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>, slot: usize) {
        let flow = &mut self.slots[slot];
        flow.closed = true;
        shared.transfers.end_packets(flow.transfer, flow.work());
        if std::mem::take(&mut flow.has_turn) {
            if let Some(card) = self.cards.get_mut(&flow.interfaces[0].uplink()) {
                card.turns.remove(slot as u32);
            }
        }
        if std::mem::take(&mut flow.has_pull_turn) {
            if let Some(puller) = self.pullers.get_mut(&flow.interfaces[1].uplink()) {
                puller.turns.remove(slot as u32);
            }
        }
        shared.announce_end(run, slot, flow.transfer);
        self.release(run, slot);
    }

    /// Frees the slot of a closed transfer, if none of its packets is in the network.
    fn release<T: Tap>(&mut self, run: &mut Run<'_, T>, slot: usize) {
        if self.get(slot).under_way == 0 {
            run.network.release_slot(slot);
            self.free.push(slot as u32);
        }
    }

    /// Packets of a transfer were lost; a negative number means that packets were added.
    pub(super) fn lose<T: Tap>(&mut self, run: &mut Run<'_, T>, slot: usize, packets: i32) {
        let flow = self.get(slot);
        flow.under_way -= i64::from(packets);
        if flow.closed {
            self.release(run, slot);
        }
    }

    /// Arrivals stop, and transfers without end do, too.
    pub(super) fn end_endless<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>) {
        let slots = self.slots.iter().enumerate().filter(|(_, flow)| flow.size.is_none() && !flow.closed);
        let slots: Vec<usize> = slots.map(|(slot, _)| slot).collect();
        slots.into_iter().for_each(|slot| self.close(shared, run, slot));
    }
}
