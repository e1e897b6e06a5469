//! Behaviour of hosts: they start transfers, send and receive packets, run their timers, and follow the controller's
//! orders ([`orders`]).

mod arp;
mod cards;
mod multipath;
mod orders;
mod packets;
mod parts;
mod resolver;
mod standing;
mod streams;
mod subflow_log;
mod traits;
mod turns;

use crate::agenda::{Agenda, Event, Origin};
use crate::agents::Agents;
use crate::entropies::Entropies;
use crate::interface::Interface;
use crate::lanes::NO_CONNECTION;
use crate::link::{ps_per_byte, times};
use crate::network::pfc::can_stop;
use crate::network::Network;
use crate::outcome::{FlowOutcome, SubflowOutcome, SubflowPath};
use crate::packet::{Direction, Packet};
use crate::subflow::{Endpoints, Subflow, Subflows, NOT_KNOWN_YET};
use crate::tap::Tap;
use crate::time::{to_nanos, to_ps, Ps, NEVER};
use crate::transfers::{Ends, Transfers};
use cards::StoppedSubflows;
use multipath::Multipaths;
use packets::PacketFlows;
pub(crate) use parts::HostSettings;
use parts::{addresses, aged, packet_of, timer_clocks};
use pathloom_control::{Enforcement, Input};
use pathloom_model::{Fabric, FiveTuple, Headers, Nanos, LONG_FLOW_DSCP, TCP_ACK, TCP_SYN};
use pathloom_scheme::{Ageing, Detection};
use pathloom_switching::deployment::{Mark, Marking};
use pathloom_transport::{Settings, TimerClock, HEADER_BYTES};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use resolver::Resolver;
use standing::StandingConnections;
use std::net::Ipv4Addr;
use std::sync::Arc;
use streams::Streams;
use subflow_log::SubflowLog;
use turns::age;

/// All hosts of a run, with their transfers and subflows.
pub(crate) struct Hosts {
    fabric: Arc<Fabric>,
    agents: Agents,
    subflows: Subflows,
    pub(crate) transfers: Transfers,
    pub(crate) entropies: Entropies,
    /// How packets are marked by the age of their message; `None` if they are not.
    ageing: Option<Ageing>,
    /// Transport settings of each subflow.
    transport: Settings,
    multipaths: Multipaths,
    streams: Streams,
    standing: StandingConnections,
    /// The transfers, if the transport acknowledges packets. There are no subflows then.
    packets: Option<Box<PacketFlows>>,
    pub(crate) log: SubflowLog,
    /// Subflows whose data wait until a switch resumes their card.
    stopped: StoppedSubflows,
    /// The ARP caches, if switches run programs. Rule-driven switches need no Ethernet addresses.
    resolver: Option<Resolver>,
    /// Addresses of interfaces, by the links that they send into. Empty if there is no resolver.
    addresses: Vec<Option<Ipv4Addr>>,
    /// Which transfers hosts mark as elephants, and how; `None` if they mark none.
    elephants: Option<Marking>,
    /// Whether agents announce long transfers to the controller.
    announces: bool,
    /// Whether agents pace long transfers from their start: at the rates of their cards, until the controller sets
    /// another rate.
    paces: bool,
    long_bytes: u64,
    /// Time that a message to the controller takes.
    control_delay: Ps,
    /// Random numbers for the time that a host works on a packet.
    rng: Pcg64,
    /// Longest time that a host works on a packet; `None` is the time that its card needs for a full frame.
    jitter: Option<Ps>,
    /// By node, the clocks of the timers of hosts; empty if all timers are exact.
    timer_clocks: Vec<TimerClock>,
    /// Whether links mark packets.
    marking: bool,
    /// Time when arrivals stop. After it, the run ends with the last transfer.
    duration: Ps,
    /// Whether the run continues after the last transfer.
    pub(crate) keeps_going: bool,
}

impl Hosts {
    /// Hosts that have not started anything.
    pub(crate) fn new(fabric: Arc<Fabric>, transfers: Transfers, settings: HostSettings<'_>) -> Hosts {
        let HostSettings { transport, needs, control, agents, deployment, duration, seed } = settings;
        let (multipaths, streams) =
            (Multipaths::new(transport.mptcp(), transfers.len()), Streams::new(transport.streams()));
        let packets = PacketFlows::new(transport, needs.ageing, &fabric, seed);
        let keeps_windows = transport.mptcp().is_none() && transport.streams().is_none();
        let transport = transport.settings().clone();
        // Switch programs find paths, and some schemes the subflows of a connection, by the SYN exchange.
        let stands = transport.standing && deployment.is_none() && !needs.subflows;
        Hosts {
            agents,
            subflows: Subflows::new(&transport),
            transfers,
            entropies: Entropies::new(needs.entropy),
            ageing: needs.ageing,
            announces: needs.detection == Detection::Announced,
            paces: needs.paces && control.enforcement != Enforcement::Meter,
            long_bytes: control.long_bytes,
            control_delay: to_ps(control.delay),
            rng: Pcg64::seed_from_u64(seed),
            jitter: transport.jitter.map(to_ps),
            timer_clocks: if transport.coarse_timers { timer_clocks(&fabric, seed) } else { Vec::new() },
            marking: transport.reacts_to_marks(),
            transport,
            multipaths,
            streams,
            standing: StandingConnections::new(stands, keeps_windows),
            packets,
            log: SubflowLog::default(),
            stopped: StoppedSubflows::default(),
            resolver: deployment.map(|deployment| Resolver::new(deployment.arp_age, deployment.arp_retry)),
            addresses: deployment.map(|_| addresses(&fabric)).unwrap_or_default(),
            elephants: deployment.and_then(|deployment| deployment.elephants.clone()),
            duration,
            keeps_going: false,
            fabric,
        }
    }

    /// Prefetches the data that a packet will touch when it reaches its host. Affects only speed.
    #[inline(always)]
    pub(crate) fn fetch(&self, packet: &Packet) {
        self.subflows.fetch(packet.slot(), packet.direction());
    }

    /// A packet has reached a host by this interface.
    #[inline(always)]
    pub(crate) fn deliver<T: Tap>(
        &mut self,
        now: Ps,
        network: &mut Network<T>,
        agenda: &mut Agenda,
        packet: &Packet,
        interface: Interface,
    ) {
        let slot = packet.slot();
        let subflow = self.subflows.get(slot);
        if subflow.destination(packet) != interface {
            return self.turn_away(now, network, agenda, packet, interface);
        }
        subflow.under_way -= 1;
        if subflow.closed {
            if subflow.under_way == 0 {
                self.release(network, slot);
            }
            return;
        }
        let nanos = to_nanos(now);
        if packet.direction() == Direction::Data {
            if self.entropies.follow_senders() {
                self.entropies.arrived(packet);
            }
            // With payload, it is the first segment of a transfer on a connection that stands.
            if packet.flags() & TCP_SYN != 0 && packet.payload() == 0 {
                return self.send_ack(now, network, slot, 0, TCP_SYN | TCP_ACK);
            }
            if self.marking {
                self.note_mark(now, network, slot, packet.is_marked());
            }
            let subflow = self.subflows.get(slot);
            let mut ack = subflow.receiver.handle_data(nanos, packet.seq, u32::from(packet.payload()));
            if subflow.receiver.delivered_bytes() >= subflow.size && !subflow.delivered {
                // The last segment carries the FIN.
                ack = Some(subflow.receiver.handle_fin());
                self.finish(now, agenda, slot);
            } else if subflow.is_member() {
                ack = self.deliver_to_connection(now, agenda, slot, ack);
            }
            match ack {
                Some(number) => self.send_ack(now, network, slot, number, 0),
                None => self.arm_receiver(agenda, slot),
            }
        } else if subflow.is_member() {
            self.member_answered(now, network, agenda, slot, packet);
        } else {
            if packet.flags() & TCP_SYN != 0 {
                subflow.sender.handle_syn_ack(nanos);
            } else {
                let before = subflow.sender.acked_bytes();
                subflow.handle_ack(nanos, packet);
                if self.entropies.follow_senders() {
                    let ack = subflow.acknowledged(before, packet.is_marked());
                    self.entropies.acknowledged(now, slot, &ack);
                }
            }
            self.pump(now, network, agenda, slot);
        }
    }

    /// A host has received a packet that belongs to no connection of this interface. Any host handles the frames of
    /// no connection that reach it.
    #[cold]
    #[inline(never)]
    fn turn_away<T: Tap>(
        &mut self,
        now: Ps,
        network: &mut Network<T>,
        agenda: &mut Agenda,
        packet: &Packet,
        interface: Interface,
    ) {
        if packet.slot() == NO_CONNECTION {
            if let Some(frame) = network.take_frame(packet) {
                self.take_frame(now, network, agenda, &frame, interface);
            }
            return;
        }
        network.totals.misdelivered += 1;
        self.lose(network, packet.lane(), 1);
    }

    /// Packets of a lane were lost; a negative number means that packets were added.
    pub(crate) fn lose<T: Tap>(&mut self, network: &mut Network<T>, lane: u32, packets: i32) {
        let slot = (lane >> 1) as usize;
        if slot == NO_CONNECTION {
            return;
        }
        if self.packets.is_some() {
            return self.lose_packets(network, slot, packets);
        }
        let subflow = self.subflows.get(slot);
        subflow.under_way -= i64::from(packets);
        if subflow.is_over() {
            self.release(network, slot);
        }
    }

    /// Sends what the sender of a subflow has ready to send, and sets its timer.
    #[inline]
    fn pump<T: Tap>(&mut self, now: Ps, network: &mut Network<T>, agenda: &mut Agenda, slot: usize) {
        let nanos = to_nanos(now);
        loop {
            if can_stop(network) && self.stopped.waits(network, slot, self.subflows.get(slot)) {
                break;
            }
            let subflow = self.subflows.get(slot);
            if let Err(again) = subflow.card_has_room(now) {
                let ready = Event::CardReady { slot: slot as u32, use_count: subflow.use_count };
                if let Some(at) = again {
                    agenda.push(at, ready);
                }
                break;
            }
            let Some(segment) = subflow.sender.poll_transmit(nanos) else {
                let (is_member, takes_blocks) = (subflow.is_member(), subflow.takes_blocks());
                if is_member && self.feed(slot) {
                    continue;
                }
                if takes_blocks && self.take_block(now, network, agenda, slot) {
                    continue;
                }
                break;
            };
            subflow.packets_sent += 1;
            let (transfer, link, of_job) = (subflow.transfer, subflow.interfaces[0].uplink().0, subflow.stands);
            let packet = packet_of(slot, &segment, subflow.stands);
            let packet = aged(self.ageing, packet, age(segment.seq, of_job));
            if self.ageing.is_some() {
                self.announce_aged(now, network, agenda, (slot, transfer), segment.seq, segment.len);
            }
            if self.hand_to_card(now, network, link, packet) {
                let leaves_card = now + network.links[link as usize].backlog(now);
                let subflow = self.subflows.get(slot);
                subflow.under_way += 1;
                subflow.card_took(leaves_card);
            }
        }
        let subflow = self.subflows.get(slot);
        if let Some(at) = subflow.sender_wants() {
            let timer = Event::SenderTimer { slot: slot as u32, use_count: subflow.use_count };
            agenda.push(at.max(now), timer);
        }
        if subflow.sender.is_finished() {
            self.close(now, network, agenda, slot);
        }
    }

    /// If hosts report messages by age, tells the controller of one that becomes long with the bytes from `seq` on.
    #[inline(never)]
    fn announce_aged<T: Tap>(
        &self,
        now: Ps,
        network: &Network<T>,
        agenda: &mut Agenda,
        (slot, transfer): (usize, u32),
        seq: u64,
        bytes: u32,
    ) {
        let becomes_long = seq < self.long_bytes && seq + u64::from(bytes) >= self.long_bytes;
        if becomes_long && self.announces && self.is_known_long(transfer) {
            let five_tuple = network.lanes.five_tuple(slot);
            self.tell(now, agenda, Input::TransferAnnounced { five_tuple, size_bytes: None });
        }
    }

    /// A host gives a packet to its card. If the card is idle, it first works on the packet for a random time, which
    /// counts as time that the packet waits. A card that is busy gets it at once, so the delay takes nothing of the
    /// rate of the card. Returns whether the card has taken the packet.
    #[inline(always)]
    fn hand_to_card<T: Tap>(&mut self, now: Ps, network: &mut Network<T>, link: u32, packet: Packet) -> bool {
        let packet = self.entropies.stamp(now, packet);
        let card = &network.links[link as usize];
        if self.jitter == Some(0) || card.backlog(now) > 0 {
            return network.send(now, link, packet);
        }
        let most = self.jitter.unwrap_or_else(|| card.send_time(self.transport.frame_bytes()));
        // The upper half of the product: a number below `most`, without a division.
        let delay = ((u128::from(self.rng.next_u64()) * u128::from(most)) >> 64) as Ps;
        let taken = network.send(now + delay, link, packet);
        if taken {
            network.links[link as usize].add_waited(delay);
        }
        taken
    }

    /// Data arrive with or without a congestion mark. If that changes, earlier data are acknowledged first.
    #[inline(never)]
    fn note_mark<T: Tap>(&mut self, now: Ps, network: &mut Network<T>, slot: usize, marked: bool) {
        if let Some(number) = self.subflows.get(slot).receiver.handle_mark(marked) {
            self.acknowledge(now, network, slot, number, 0, true);
        }
    }

    #[inline(always)]
    fn send_ack<T: Tap>(&mut self, now: Ps, network: &mut Network<T>, slot: usize, number: u64, flags: u8) {
        self.acknowledge(now, network, slot, number, flags, false);
    }

    /// Sends an acknowledgement. It echoes congestion marks as they are now or, if `before`, as they were before the
    /// last change.
    #[inline(always)]
    fn acknowledge<T: Tap>(
        &mut self,
        now: Ps,
        network: &mut Network<T>,
        slot: usize,
        number: u64,
        flags: u8,
        before: bool,
    ) {
        let subflow = self.subflows.get(slot);
        subflow.packets_sent += 1;
        let echo = subflow.receiver.echoes() != before;
        let lane = (slot as u32) << 1 | 1;
        let (option, option_bytes) = subflow.sack_option();
        let mut packet = Packet::new(lane, number, option, HEADER_BYTES as u16 + option_bytes, flags);
        if echo {
            packet.mark();
        }
        let link = subflow.interfaces[1].uplink().0;
        let packet = aged(self.ageing, packet, 0);
        if self.hand_to_card(now, network, link, packet) {
            self.subflows.get(slot).under_way += 1;
        }
    }

    fn arm_receiver(&mut self, agenda: &mut Agenda, slot: usize) {
        let subflow = self.subflows.get(slot);
        if let Some(at) = subflow.receiver_wants() {
            let timer = Event::ReceiverTimer { slot: slot as u32, use_count: subflow.use_count };
            agenda.push(at, timer);
        }
    }

    /// The last byte of a subflow has arrived.
    #[inline(never)]
    fn finish(&mut self, now: Ps, agenda: &mut Agenda, slot: usize) {
        let subflow = self.subflows.get(slot);
        subflow.delivered = true;
        for (transfer, delay) in self.transfers.deliver(subflow, to_nanos(now)) {
            agenda.push(now + to_ps(delay), Event::Start(transfer));
        }
        if now >= self.duration {
            self.stop_if_finished(agenda);
        }
    }

    fn stop_if_finished(&mut self, agenda: &mut Agenda) {
        if self.transfers.all_finished() && !self.keeps_going {
            agenda.halt();
        }
    }

    /// The sender of a subflow has nothing left to do.
    #[inline(never)]
    fn close<T: Tap>(&mut self, now: Ps, network: &mut Network<T>, agenda: &mut Agenda, slot: usize) {
        let subflow = self.subflows.get(slot);
        if subflow.closed {
            return;
        }
        let has_others = self.transfers.subflows(subflow.transfer).len() > 1;
        self.log.note(network, slot, subflow, has_others);
        self.standing.keep(slot, subflow);
        self.transfers.close(subflow, to_nanos(now));
        subflow.closed = true;
        let (transfer, is_over) = (subflow.transfer, subflow.is_over());
        if self.announces && self.is_known_long(transfer) {
            let five_tuple = network.lanes.five_tuple(slot);
            self.tell(now, agenda, Input::TransferEnded { five_tuple });
        }
        if is_over {
            self.release(network, slot);
        }
        if self.has_streams() {
            self.stream_closed(now, agenda, transfer);
        }
    }

    /// Sends a message to the controller.
    fn tell(&self, now: Ps, agenda: &mut Agenda, input: Input) {
        agenda.push(now + self.control_delay, Event::Inform { input: Box::new(input), origin: Origin::Outside });
    }

    #[inline(never)]
    fn release<T: Tap>(&mut self, network: &mut Network<T>, slot: usize) {
        network.release_slot(slot);
        self.subflows.close_slot(slot);
    }

    /// Starts the transfers that are due.
    pub(crate) fn start_next<T: Tap>(&mut self, now: Ps, network: &mut Network<T>, agenda: &mut Agenda) {
        let nanos = to_nanos(now);
        // Arrivals stop with the duration; transfers with later starts are counted as not started.
        while now < self.duration && self.transfers.next_start().is_some_and(|at| at <= nanos) {
            let transfer = self.transfers.take_next();
            self.start(now, network, agenda, transfer);
        }
        if let Some(at) = self.transfers.next_start().filter(|_| now < self.duration) {
            agenda.push(to_ps(at), Event::NextStart);
        }
    }

    /// Starts a transfer: all its subflows, or the first subflow of a connection that others join. Parallel streams
    /// start only after the controller has assigned their paths.
    pub(crate) fn start<T: Tap>(&mut self, now: Ps, network: &mut Network<T>, agenda: &mut Agenda, transfer: u32) {
        if self.is_multipath() {
            return self.start_connection(now, network, agenda, transfer);
        }
        if self.packets.is_some() {
            return self.start_packets(now, network, agenda, transfer);
        }
        if self.has_streams() {
            return self.ask_for_paths(now, agenda, transfer);
        }
        for index in 0..self.transfers.subflows(transfer).len() {
            let ends = self.transfers.subflows(transfer)[index];
            let slot = self.open_subflow(now, network, agenda, transfer, &ends, None);
            self.pump(now, network, agenda, slot);
        }
    }

    /// Opens a subflow: a member of a connection that shares the transfer among its members, or one with a part of
    /// its own. Returns its slot.
    fn open_subflow<T: Tap>(
        &mut self,
        now: Ps,
        network: &mut Network<T>,
        agenda: &mut Agenda,
        transfer: u32,
        ends: &Ends,
        member: Option<u32>,
    ) -> usize {
        let in_use = |five_tuple: &FiveTuple| network.lanes.slot(five_tuple).is_some();
        let ports = self.source_ports(ends.size_bytes);
        let five_tuple = self.transfers.start(transfer, ends, to_nanos(now), ports, in_use);
        let interfaces = [ends.src, ends.dst].map(|at| Interface::of(at.uplink));
        // Nobody knows in advance how much of the transfer a member will carry.
        let size = ends.size_bytes.filter(|_| member.is_none());
        let takes_blocks = size.is_some() && self.has_streams();
        let endpoints = Endpoints { transfer, size, interfaces, member, takes_blocks };
        let slot = self.subflows.open_slot(&self.transport, &endpoints);
        let mptcp = Multipaths::option(transfer, member);
        if self.standing.serve(self.transfers.spec(transfer)) {
            let round_trip = self.transfers.idle_round_trip(transfer);
            self.standing.resume(to_nanos(now), &self.transport, &mut self.subflows, slot, round_trip);
        }
        if let Some(&clock) = self.timer_clocks.get(ends.src.host.index()) {
            self.subflows.get(slot).sender.set_timer_clock(clock);
        }
        network.open_slot(slot, Headers { mptcp, ..self.headers(transfer, five_tuple) });
        self.entropies.open(slot);
        let is_long = self.is_known_long(transfer);
        if self.announces && is_long && self.ageing.is_none() {
            self.tell(now, agenda, Input::TransferAnnounced { five_tuple, size_bytes: size });
        }
        if self.paces && is_long {
            let card_bps = self.fabric.link(ends.src.uplink).settings.rate_bps;
            let pace_bps = self.transport.pace_bps.map_or(card_bps, |pace_bps| pace_bps.min(card_bps));
            self.subflows.get(slot).sender.set_pace(to_nanos(now), Some(pace_bps));
        }
        self.open_sender(now, network, agenda, slot);
        slot
    }

    /// Headers of a transfer's data on one of its subflows. If the transfer is long, the agent of its host labels it.
    /// If it is an elephant for a program, its host marks it.
    pub(crate) fn headers(&self, transfer: u32, five_tuple: FiveTuple) -> Headers {
        let dscp = match self.elephants.as_ref().map(|elephants| (elephants, &elephants.mark)) {
            None if self.ageing.is_none() && self.is_known_long(transfer) => LONG_FLOW_DSCP,
            Some((elephants, Mark::Dscp(mark))) if elephants.include(self.transfers.spec(transfer).size_bytes) => *mark,
            _ => 0,
        };
        Headers { dscp, ..Headers::plain(five_tuple) }
    }

    /// Whether an agent labels or announces a transfer. Short transfers never wait for the controller (OFPT §4).
    fn is_known_long(&self, transfer: u32) -> bool {
        let spec = self.transfers.spec(transfer);
        spec.size_bytes.is_none_or(|size| size >= self.long_bytes) && self.agents.at(spec.src)
    }

    /// Handles an event of a subflow's retransmission or pacing timer. The timer may have moved to a later time.
    pub(crate) fn sender_timer<T: Tap>(
        &mut self,
        now: Ps,
        network: &mut Network<T>,
        agenda: &mut Agenda,
        (slot, use_count): (u32, u32),
    ) {
        let Some(subflow) = self.subflows.current(slot, use_count) else { return };
        if subflow.sender_timer <= now {
            subflow.sender_timer = NEVER;
        }
        if subflow.is_member() {
            return self.member_timer(now, network, agenda, slot as usize);
        }
        let before = subflow.sender.timeouts();
        subflow.sender.handle_timeout(to_nanos(now));
        if self.entropies.follow_senders() && subflow.sender.timeouts() > before {
            self.entropies.timed_out(now, slot as usize, &mut self.rng);
        }
        self.pump(now, network, agenda, slot as usize);
    }

    /// Handles an event of a subflow's timer for delayed acknowledgements. The timer may have moved to a later time.
    pub(crate) fn receiver_timer<T: Tap>(
        &mut self,
        now: Ps,
        network: &mut Network<T>,
        agenda: &mut Agenda,
        (slot, use_count): (u32, u32),
    ) {
        let Some(subflow) = self.subflows.current(slot, use_count) else { return };
        if subflow.receiver_timer <= now {
            subflow.receiver_timer = NEVER;
        }
        match subflow.receiver.handle_timeout(to_nanos(now)) {
            Some(number) => self.send_ack(now, network, slot as usize, number, 0),
            None => self.arm_receiver(agenda, slot as usize),
        }
    }

    /// A host's card has room again.
    pub(crate) fn card_ready<T: Tap>(
        &mut self,
        now: Ps,
        network: &mut Network<T>,
        agenda: &mut Agenda,
        (slot, use_count): (u32, u32),
    ) {
        if self.subflows.current(slot, use_count).is_some() {
            self.pump(now, network, agenda, slot as usize);
        }
    }

    /// Lower bound of the time until the last open transfer finishes: its missing bytes must arrive at the rate of
    /// its host's link.
    pub(crate) fn least_time_left(&self) -> Ps {
        let open = self.subflows.live().filter(|(_, subflow)| !subflow.closed && subflow.size < NOT_KNOWN_YET);
        let left = open.map(|(_, subflow)| {
            let rate_bps = self.fabric.link(subflow.interfaces[1].uplink().reverse()).settings.rate_bps;
            let missing = subflow.size.saturating_sub(subflow.receiver.arrived_bytes());
            // One segment may be about to arrive.
            times(missing.saturating_sub(Packet::MOST_PAYLOAD), ps_per_byte(rate_bps))
        });
        left.max().unwrap_or(0)
    }

    /// Arrivals stop, and long-lived transfers end.
    pub(crate) fn end_of_arrivals<T: Tap>(&mut self, now: Ps, network: &mut Network<T>, agenda: &mut Agenda) {
        for transfer in self.long_lived_connections() {
            self.end_connection(now, network, agenda, transfer);
        }
        let long_lived =
            |(slot, one): (usize, &Subflow)| (one.size == u64::MAX && !one.closed && !one.is_member()).then_some(slot);
        let slots: Vec<usize> = self.subflows.live().filter_map(long_lived).collect();
        for slot in slots {
            self.close(now, network, agenda, slot);
        }
        self.end_endless_packets(now, network, agenda);
        self.stop_if_finished(agenda);
    }

    /// See [`SubflowLog::take_paths`].
    pub(crate) fn take_subflow_paths<T: Tap>(&mut self, network: &Network<T>) -> Vec<SubflowPath> {
        self.log.take_paths(network, &self.subflows)
    }

    /// See [`SubflowLog::outcomes`].
    pub(crate) fn subflow_outcomes<T: Tap>(&self, network: &Network<T>) -> Vec<SubflowOutcome> {
        self.log.outcomes(network, &self.subflows, &self.transfers)
    }

    /// Returns the outcome of every transfer by `now`. Long-lived transfers are measured up to `until`.
    pub(crate) fn outcomes(&self, now: Nanos, until: Nanos) -> Vec<FlowOutcome> {
        let packets = self.packets.iter().flat_map(|packets| packets.work());
        self.transfers.outcomes(now, until, self.subflows.live(), self.multipaths.delivered(), packets)
    }
}
