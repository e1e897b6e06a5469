//! Hosts that use TCP: every transfer has one or more subflows, each with its own sender, receiver, card and timers.
//! [`members`] has what subflows of one MPTCP connection do together, [`blocks`] what parallel streams do.

mod blocks;
mod members;
mod multipath;
mod standing;
mod stopped;
mod streams;
mod subflow_log;
mod under_way;

use super::parts::{packet_of, timer_clocks, HostSettings};
use super::resolver::Waiter;
use super::shared::Shared;
use crate::agenda::Event;
use crate::interface::Interface;
use crate::link::{ps_per_byte, times};
use crate::network::pfc::can_stop;
use crate::packet::{Direction, Packet};
use crate::plan::Ends;
use crate::run::Run;
use crate::subflow::{Endpoints, Subflow, Subflows, NOT_KNOWN_YET};
use crate::tap::Tap;
use crate::time::{to_nanos, Ps, NEVER};
use multipath::Multipaths;
use pathloom_control::Enforcement;
use pathloom_model::{Fabric, FiveTuple, Headers, LinkId, MptcpOption, Nanos, TCP_ACK, TCP_SYN};
use pathloom_transport::{Settings, TimerClock};
use standing::StandingConnections;
use stopped::StoppedSubflows;
use streams::Streams;
use subflow_log::SubflowLog;

/// All subflows of a run, and what they belong to.
pub(super) struct Tcp {
    pub(super) subflows: Subflows,
    /// Transport settings of each subflow.
    pub(super) settings: Settings,
    multipaths: Multipaths,
    streams: Streams,
    standing: StandingConnections,
    pub(super) log: SubflowLog,
    /// Subflows whose data wait until a switch resumes their card.
    stopped: StoppedSubflows,
    /// Whether agents pace long transfers from their start: at the rates of their cards, until the controller sets
    /// another rate.
    paces: bool,
    /// By node, the clocks of the timers of hosts; empty if all timers are exact.
    timer_clocks: Vec<TimerClock>,
    /// Whether links mark packets.
    marking: bool,
}

/// See [`Multipaths::option`].
pub(super) fn mptcp_option(transfer: u32, member: Option<u32>) -> Option<MptcpOption> {
    Multipaths::option(transfer, member)
}

/// An acknowledgement that a host sends.
struct Ack {
    number: u64,
    flags: u8,
    /// Whether it echoes congestion marks as they were before the last change, and not as they are now.
    before: bool,
}

impl Ack {
    fn of(number: u64) -> Ack {
        Ack { number, flags: 0, before: false }
    }
}

impl Tcp {
    /// No subflows, for a run with so many transfers.
    pub(super) fn new(fabric: &Fabric, transfers: usize, settings: &HostSettings<'_>) -> Tcp {
        let HostSettings { transport, needs, control, deployment, seed, .. } = settings;
        let keeps_windows = transport.mptcp().is_none() && transport.streams().is_none();
        let own = &transport.settings_of_ends();
        // Switch programs find paths, and some schemes the subflows of a connection, by the SYN exchange.
        let stands = own.standing && deployment.is_none() && !needs.subflows;
        Tcp {
            subflows: Subflows::new(own),
            multipaths: Multipaths::new(transport.mptcp(), transfers),
            streams: Streams::new(transport.streams()),
            standing: StandingConnections::new(stands, keeps_windows),
            log: SubflowLog::default(),
            stopped: StoppedSubflows::default(),
            paces: needs.paces && control.enforcement != Enforcement::Meter,
            timer_clocks: if own.coarse_timers { timer_clocks(fabric, *seed) } else { Vec::new() },
            marking: own.reacts_to_marks(),
            settings: own.clone(),
        }
    }

    /// A packet has reached a host by this interface. Returns whether it belongs to a subflow of this interface.
    #[inline(always)]
    pub(super) fn deliver<T: Tap>(
        &mut self,
        shared: &mut Shared,
        run: &mut Run<'_, T>,
        packet: &Packet,
        interface: Interface,
    ) -> bool {
        let slot = packet.slot();
        let subflow = self.subflows.get(slot);
        if subflow.destination(packet) != interface {
            return false;
        }
        subflow.under_way -= 1;
        if subflow.closed {
            if subflow.under_way == 0 {
                self.release(run, slot);
            }
        } else if packet.direction() == Direction::Data {
            self.take_data(shared, run, packet);
        } else {
            self.take_ack(shared, run, packet);
        }
        true
    }

    /// Data have reached their receiver.
    #[inline(always)]
    fn take_data<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>, packet: &Packet) {
        let slot = packet.slot();
        if shared.entropies.follow_senders() {
            shared.entropies.arrived(packet);
        }
        // With payload, it is the first segment of a transfer on a connection that stands.
        if packet.flags() & TCP_SYN != 0 && packet.payload() == 0 {
            return self.send_ack(shared, run, slot, &Ack { number: 0, flags: TCP_SYN | TCP_ACK, before: false });
        }
        if self.marking {
            self.note_mark(shared, run, slot, packet.is_marked());
        }
        let subflow = self.subflows.get(slot);
        let mut ack = subflow.receiver.handle_data(to_nanos(run.now), packet.seq, u32::from(packet.payload()));
        if subflow.receiver.delivered_bytes() >= subflow.size && !subflow.delivered {
            // The last segment carries the FIN.
            ack = Some(subflow.receiver.handle_fin());
            self.finish(shared, run, slot);
        } else if subflow.is_member() {
            ack = self.deliver_to_connection(shared, run, slot, ack);
        }
        match ack {
            Some(number) => self.send_ack(shared, run, slot, &Ack::of(number)),
            None => self.arm_receiver(run, slot),
        }
    }

    /// An acknowledgement has reached its sender.
    #[inline(always)]
    fn take_ack<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>, packet: &Packet) {
        let (slot, nanos) = (packet.slot(), to_nanos(run.now));
        let subflow = self.subflows.get(slot);
        if subflow.is_member() {
            return self.member_answered(shared, run, slot, packet);
        }
        if packet.flags() & TCP_SYN != 0 {
            subflow.sender.handle_syn_ack(nanos);
        } else {
            let before = subflow.sender.acked_bytes();
            subflow.handle_ack(nanos, packet);
            if shared.entropies.follow_senders() {
                let ack = subflow.acknowledged(before, packet.is_marked());
                shared.entropies.acknowledged(run.now, slot, &ack);
            }
        }
        self.pump(shared, run, slot);
    }

    /// Packets of a slot were lost; a negative number means that packets were added.
    pub(super) fn lose<T: Tap>(&mut self, run: &mut Run<'_, T>, slot: usize, packets: i32) {
        let subflow = self.subflows.get(slot);
        subflow.under_way -= i64::from(packets);
        if subflow.is_over() {
            self.release(run, slot);
        }
    }

    /// Sends what the sender of a subflow has ready to send, and sets its timer.
    #[inline]
    pub(super) fn pump<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>, slot: usize) {
        let now = run.now;
        loop {
            if can_stop(&run.network.links) && self.stopped.waits(run.network, now, slot, self.subflows.get(slot)) {
                break;
            }
            let subflow = self.subflows.get(slot);
            if let Err(again) = subflow.card_has_room(now) {
                let ready = Event::CardReady { slot: slot as u32, use_count: subflow.use_count };
                if let Some(at) = again {
                    run.agenda.push(at, ready);
                }
                break;
            }
            let Some(segment) = subflow.sender.poll_transmit(to_nanos(now)) else {
                let (is_member, takes_blocks) = (subflow.is_member(), subflow.takes_blocks());
                if is_member && self.multipaths.feed(&mut self.subflows, slot) {
                    continue;
                }
                if takes_blocks && self.take_block(shared, run, slot) {
                    continue;
                }
                break;
            };
            subflow.packets_sent += 1;
            let (transfer, link, of_job) = (subflow.transfer, subflow.interfaces[0].uplink().0, subflow.stands);
            let packet = packet_of(slot, &segment, subflow.stands, self.settings.header_bytes);
            let packet = shared.aged(packet, || shared.ranked_by(transfer, of_job).bytes(segment.seq));
            if shared.ages() {
                shared.announce_aged(run, (slot, transfer), segment.seq, segment.len);
            }
            if shared.hand_to_card(run, link, packet) {
                let leaves_card = now + run.network.links[link as usize].backlog(now);
                let subflow = self.subflows.get(slot);
                subflow.under_way += 1;
                subflow.card_took(leaves_card);
            }
        }
        let subflow = self.subflows.get(slot);
        if let Some(at) = subflow.sender_wants() {
            let timer = Event::SenderTimer { slot: slot as u32, use_count: subflow.use_count };
            run.agenda.push(at.max(now), timer);
        }
        if subflow.sender.is_finished() {
            self.close(shared, run, slot);
        }
    }

    /// Data arrive with or without a congestion mark. If that changes, earlier data are acknowledged first.
    #[inline(never)]
    fn note_mark<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>, slot: usize, marked: bool) {
        if let Some(number) = self.subflows.get(slot).receiver.handle_mark(marked) {
            self.send_ack(shared, run, slot, &Ack { before: true, ..Ack::of(number) });
        }
    }

    #[inline(always)]
    fn send_ack<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>, slot: usize, ack: &Ack) {
        let subflow = self.subflows.get(slot);
        subflow.packets_sent += 1;
        let echo = subflow.receiver.echoes() != ack.before;
        let lane = (slot as u32) << 1 | 1;
        let (option, option_bytes) = subflow.sack_option();
        let mut packet =
            Packet::new(lane, ack.number, option, self.settings.header_bytes as u16 + option_bytes, ack.flags);
        if echo {
            packet.mark();
        }
        let link = subflow.interfaces[1].uplink().0;
        let packet = shared.aged(packet, || 0);
        if shared.hand_to_card(run, link, packet) {
            self.subflows.get(slot).under_way += 1;
        }
    }

    fn arm_receiver<T: Tap>(&mut self, run: &mut Run<'_, T>, slot: usize) {
        let subflow = self.subflows.get(slot);
        if let Some(at) = subflow.receiver_wants() {
            let timer = Event::ReceiverTimer { slot: slot as u32, use_count: subflow.use_count };
            run.agenda.push(at, timer);
        }
    }

    /// The last byte of a subflow has arrived.
    #[inline(never)]
    fn finish<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>, slot: usize) {
        let subflow = self.subflows.get(slot);
        subflow.delivered = true;
        let ready = shared.transfers.deliver(subflow, to_nanos(run.now));
        shared.arrived(run.now, run.agenda, ready);
    }

    /// The sender of a subflow has nothing left to do.
    #[inline(never)]
    fn close<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>, slot: usize) {
        let subflow = self.subflows.get(slot);
        if subflow.closed {
            return;
        }
        let has_others = shared.transfers.subflows(subflow.transfer).len() > 1;
        self.log.note(run.network, slot, subflow, has_others);
        self.standing.keep(slot, subflow);
        shared.transfers.close(subflow, to_nanos(run.now));
        subflow.closed = true;
        let (transfer, is_over) = (subflow.transfer, subflow.is_over());
        shared.announce_end(run, slot, transfer);
        if is_over {
            self.release(run, slot);
        }
        if self.streams.are_used() {
            self.streams.closed(shared, run, transfer);
        }
    }

    #[inline(never)]
    fn release<T: Tap>(&mut self, run: &mut Run<'_, T>, slot: usize) {
        run.network.release_slot(slot);
        self.subflows.close_slot(slot);
    }

    /// A transfer is added after the start of the run.
    pub(super) fn expect_one(&mut self) {
        self.multipaths.expect_one();
    }

    /// Starts a transfer: all its subflows, or the first subflow of a connection that others join. Parallel streams
    /// start only after the controller has assigned their paths.
    pub(super) fn start<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>, transfer: u32) {
        if self.multipaths.are_used() {
            return self.start_connection(shared, run, transfer);
        }
        if self.streams.are_used() {
            return self.streams.ask_for_paths(shared, run, transfer);
        }
        for index in 0..shared.transfers.subflows(transfer).len() {
            let ends = shared.transfers.subflows(transfer)[index];
            let slot = self.open_subflow(shared, run, transfer, &ends, None);
            self.pump(shared, run, slot);
        }
    }

    /// Opens a subflow: a member of a connection that shares the transfer among its members, or one with a part of
    /// its own. Returns its slot.
    fn open_subflow<T: Tap>(
        &mut self,
        shared: &mut Shared,
        run: &mut Run<'_, T>,
        transfer: u32,
        ends: &Ends,
        member: Option<u32>,
    ) -> usize {
        let nanos = to_nanos(run.now);
        let in_use = |five_tuple: &FiveTuple| run.network.links.lanes.slot(five_tuple).is_some();
        let ports = shared.source_ports(ends.size_bytes);
        let five_tuple = shared.transfers.start(transfer, ends, nanos, ports, in_use);
        let interfaces = [ends.src, ends.dst].map(|at| Interface::of(at.uplink));
        // Nobody knows in advance how much of the transfer a member will carry.
        let size = ends.size_bytes.filter(|_| member.is_none());
        let takes_blocks = size.is_some() && self.streams.are_used();
        let endpoints = Endpoints { transfer, size, interfaces, member, takes_blocks };
        let slot = self.subflows.open_slot(&self.settings, &endpoints);
        let mptcp = Multipaths::option(transfer, member);
        if self.standing.serve(shared.transfers.spec(transfer)) {
            let round_trip = shared.transfers.idle_round_trip(transfer);
            self.standing.resume(nanos, &self.settings, &mut self.subflows, slot, round_trip);
        }
        // Where a SYN exchange prepares the path, a transfer under way begins again.
        let continues = member.is_none() && self.standing.are_used();
        if let Some(state) = shared.transfers.spec(transfer).under_way.as_ref().filter(|_| continues) {
            let is_paced = self.paces || self.settings.pace_bps.is_some();
            let subflow = self.subflows.get(slot);
            under_way::continue_transfer(run, (slot, subflow), state, &self.settings, is_paced);
        }
        if let Some(&clock) = self.timer_clocks.get(ends.src.host.index()) {
            self.subflows.get(slot).sender.set_timer_clock(clock);
        }
        run.network.open_slot(slot, Headers { mptcp, ..shared.headers(transfer, five_tuple) });
        shared.entropies.open(slot);
        shared.entropies.name_path(slot, ends.entropy);
        shared.announce(run.now, run.agenda, (transfer, five_tuple), size);
        if self.paces && shared.is_known_long(transfer) {
            let card_bps = shared.rate_bps(ends.src.uplink);
            let pace_bps = self.settings.pace_bps.map_or(card_bps, |pace_bps| pace_bps.min(card_bps));
            self.subflows.get(slot).sender.set_pace(nanos, Some(pace_bps));
        }
        self.open_sender(shared, run, slot);
        slot
    }

    /// Lets a subflow send, once its host has resolved the address of the other host.
    fn open_sender<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>, slot: usize) {
        let subflow = self.subflows.get(slot);
        let (interface, waiter) = (subflow.interfaces[0], (slot as u32, subflow.use_count));
        let address = run.network.links.lanes.five_tuple(slot).dst();
        if shared.arp.as_mut().is_none_or(|arp| arp.resolves(run, interface, address, waiter)) {
            subflow.sender.open(to_nanos(run.now));
        }
    }

    /// Subflows that have waited for the address of the other host may send.
    pub(super) fn resolved<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>, ready: Vec<Waiter>) {
        for (slot, use_count) in ready {
            if let Some(subflow) = self.subflows.current(slot, use_count) {
                subflow.sender.open(to_nanos(run.now));
                self.pump(shared, run, slot as usize);
            }
        }
    }

    /// Handles an event of a subflow's retransmission or pacing timer. The timer may have moved to a later time.
    pub(super) fn sender_timer<T: Tap>(
        &mut self,
        shared: &mut Shared,
        run: &mut Run<'_, T>,
        (slot, use_count): (u32, u32),
    ) {
        let Some(subflow) = self.subflows.current(slot, use_count) else { return };
        if subflow.sender_timer <= run.now {
            subflow.sender_timer = NEVER;
        }
        if subflow.is_member() {
            return self.member_timer(shared, run, slot as usize);
        }
        let before = subflow.sender.timeouts();
        subflow.sender.handle_timeout(to_nanos(run.now));
        if shared.entropies.follow_senders() && subflow.sender.timeouts() > before {
            shared.timed_out(run.now, slot as usize);
        }
        self.pump(shared, run, slot as usize);
    }

    /// Handles an event of a subflow's timer for delayed acknowledgements. The timer may have moved to a later time.
    pub(super) fn receiver_timer<T: Tap>(
        &mut self,
        shared: &mut Shared,
        run: &mut Run<'_, T>,
        (slot, use_count): (u32, u32),
    ) {
        let Some(subflow) = self.subflows.current(slot, use_count) else { return };
        if subflow.receiver_timer <= run.now {
            subflow.receiver_timer = NEVER;
        }
        match subflow.receiver.handle_timeout(to_nanos(run.now)) {
            Some(number) => self.send_ack(shared, run, slot as usize, &Ack::of(number)),
            None => self.arm_receiver(run, slot as usize),
        }
    }

    /// A host's card has room again.
    pub(super) fn card_ready<T: Tap>(
        &mut self,
        shared: &mut Shared,
        run: &mut Run<'_, T>,
        (slot, use_count): (u32, u32),
    ) {
        if self.subflows.current(slot, use_count).is_some() {
            self.pump(shared, run, slot as usize);
        }
    }

    /// A switch has resumed a priority of the card that sends into this link. What the card held comes first. Until
    /// then, it has no room for more.
    pub(super) fn card_resumed<T: Tap>(&mut self, run: &mut Run<'_, T>, uplink: LinkId) {
        let free_at = run.now + run.network.links[uplink.index()].backlog(run.now);
        for (slot, use_count) in self.stopped.take(uplink) {
            run.agenda.push(free_at, Event::CardReady { slot, use_count });
        }
    }

    /// See [`Multipaths::translate`].
    pub(super) fn translate_connection(&mut self, transfer: u32, by: Nanos, bytes: u64) -> bool {
        self.multipaths.translate(transfer, by, bytes)
    }

    /// See [`Multipaths::unassigned_bytes`].
    pub(super) fn unassigned_bytes(&self, transfer: u32) -> Option<u64> {
        self.multipaths.unassigned_bytes(transfer)
    }

    /// See [`Multipaths::delivered`].
    pub(super) fn delivered_by_connections(&self) -> impl Iterator<Item = (u32, [u64; 2])> + '_ {
        self.multipaths.delivered()
    }

    /// Lower bound of the time until the last open transfer finishes: its missing bytes must arrive at the rate of
    /// its host's link.
    pub(super) fn least_time_left(&self, shared: &Shared) -> Ps {
        let open = self.subflows.live().filter(|(_, subflow)| !subflow.closed && subflow.size < NOT_KNOWN_YET);
        let left = open.map(|(_, subflow)| {
            let rate_bps = shared.rate_bps(subflow.interfaces[1].uplink().reverse());
            let missing = subflow.size.saturating_sub(subflow.receiver.arrived_bytes());
            // One segment may be about to arrive.
            times(missing.saturating_sub(Packet::MOST_PAYLOAD), ps_per_byte(rate_bps))
        });
        left.max().unwrap_or(0)
    }

    /// Arrivals stop, and long-lived transfers end.
    pub(super) fn end_endless<T: Tap>(&mut self, shared: &mut Shared, run: &mut Run<'_, T>) {
        for transfer in self.multipaths.long_lived() {
            self.end_connection(shared, run, transfer);
        }
        let long_lived =
            |(slot, one): (usize, &Subflow)| (one.size == u64::MAX && !one.closed && !one.is_member()).then_some(slot);
        let slots: Vec<usize> = self.subflows.live().filter_map(long_lived).collect();
        for slot in slots {
            self.close(shared, run, slot);
        }
    }
}
