//! The run: hosts, network and control plane under one virtual clock.

use crate::agenda::{Agenda, Event};
use crate::before::{check, longest_way};
use crate::connection::{Connections, Endpoints};
use crate::control_plane::{ControlPlane, Journal};
use crate::flows::Flows;
use crate::interface::Interface;
use crate::lanes::NO_CONNECTION;
use crate::marks::Marks;
use crate::network::{Arrival, Network};
use crate::outcome::{LinkOutcome, Outcome};
use crate::packet::{Direction, Packet};
use crate::settings::{SimError, SimSettings};
use crate::tap::{NoTap, Tap};
use crate::time::{to_nanos, to_ps, Ps};
use pathloom_control::{Config, Controller, Enforcement, Input, Output};
use pathloom_model::{
    Damage, Fabric, Fault, FaultTarget, FiveTuple, Headers, LinkId, LinkState, Nanos, LONG_FLOW_DSCP, TCP_ACK, TCP_FIN,
    TCP_SYN,
};
use pathloom_scheme::{Detection, Needs};
use pathloom_transport::{Segment, SegmentKind, Settings, HEADER_BYTES};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::sync::Arc;

/// One run of one scheme.
pub struct Simulation<T: Tap = NoTap> {
    pub(crate) fabric: Arc<Fabric>,
    pub(crate) network: Network<T>,
    control: ControlPlane,
    connections: Connections,
    pub(crate) flows: Flows,
    agenda: Agenda,
    transport: Settings,
    detection: Detection,
    /// Whether hosts pace long flows from their start on: to their cards' rates, until the controller tells them more.
    paces: bool,
    long_bytes: u64,
    /// What hosts draw the time from that they work on a packet.
    rng: Pcg64,
    jitter: Ps,
    /// Whether links mark packets.
    marking: bool,
    pub(crate) faults: Vec<Fault>,
    link_state: LinkState,
    damage: Damage,
    now: Ps,
    duration: Ps,
    end: Ps,
    done: bool,
}

/// Messages that a controller may exchange per switch before the first packet.
const START_MESSAGES_PER_SWITCH: u64 = 100_000;

impl Simulation<NoTap> {
    /// Sets a run up: the controller has started, default routes stand, no packet has been sent.
    pub fn new(settings: SimSettings) -> Result<Simulation, SimError> {
        Simulation::with_tap(settings, NoTap, None)
    }
}

impl<T: Tap> Simulation<T> {
    /// Sets a run up with a tap on every link and, if wanted, a journal of the controller's messages.
    pub fn with_tap(
        settings: SimSettings,
        tap: T,
        journal: Option<Box<dyn Journal + Send>>,
    ) -> Result<Simulation<T>, SimError> {
        check(&settings)?;
        let SimSettings { fabric, workload, central, transport, control, duration, drain, faults, seed } = settings;
        let transport = transport.settings().clone();
        let Needs { detection, paces, .. } = central.needs();
        let paces = paces && control.enforcement == Enforcement::Host;
        let marks = Marks::of(&transport);
        let network = Network::new(fabric.clone(), &control, marks, longest_way(&fabric), tap);
        let rule_limit = control.rule_limit.map(|limit| u32::try_from(limit).unwrap_or(u32::MAX));
        let config = Config { rule_limit, enforcement: control.enforcement, ..Config::default() };
        let controller = Controller::new(config, fabric.clone(), central);
        let long_bytes = control.long_bytes;
        let mut plane = ControlPlane::new(fabric.clone(), control, controller);
        plane.journal = journal;
        let mut simulation = Simulation {
            network,
            control: plane,
            connections: Connections::new(&transport),
            flows: Flows::new(&fabric, workload, &transport, seed),
            agenda: Agenda::default(),
            jitter: to_ps(transport.jitter),
            marking: marks != Marks::Never,
            rng: Pcg64::seed_from_u64(seed),
            transport,
            detection,
            paces,
            long_bytes,
            faults,
            link_state: LinkState::of(&fabric),
            damage: Damage::of(&fabric),
            now: 0,
            duration: to_ps(duration),
            end: to_ps(duration).saturating_mul(u64::from(drain) + 1),
            done: false,
            fabric,
        };
        simulation.prepare()?;
        Ok(simulation)
    }

    fn prepare(&mut self) -> Result<(), SimError> {
        for &link in self.fabric.clone().failed_links() {
            for one in [link, link.reverse()] {
                self.network.set_link(0, one, false);
            }
        }
        let limit = START_MESSAGES_PER_SWITCH * self.fabric.switches().len() as u64;
        let rested = self.control.start(&mut self.network, &mut self.agenda, &self.link_state, limit);
        rested.ok_or(SimError::Restless(limit))?;
        for (index, fault) in self.faults.iter().enumerate() {
            self.agenda.push(to_ps(fault.at), Event::Fault(index as u32));
        }
        self.agenda.push(self.duration, Event::EndOfArrivals);
        if let Some(at) = self.flows.next_start() {
            self.agenda.push(to_ps(at), Event::NextStart);
        }
        Ok(())
    }

    /// Simulated time.
    pub fn now(&self) -> Nanos {
        to_nanos(self.now)
    }

    /// When the run ends at the latest.
    pub fn end(&self) -> Nanos {
        to_nanos(self.end)
    }

    /// Whether the run is over.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Lets switches decide about every packet anew from now on. Slow, and of no other effect: for tests of that.
    pub fn forget_decisions(&mut self) {
        self.network.forget_decisions();
    }

    /// Packets that a switch had to be asked about so far, because no decision about them was remembered.
    pub fn decisions(&self) -> u64 {
        self.network.totals.decisions
    }

    /// The tap.
    pub fn tap_mut(&mut self) -> &mut T {
        &mut self.network.tap
    }

    /// Works off everything up to and including `until`.
    ///
    /// Never inlined, so that profilers find it by name: `pathloom bench sim --instructions` counts what it and all that
    /// it calls take.
    #[inline(never)]
    pub fn advance(&mut self, until: Nanos) {
        let limit = to_ps(until).min(self.end).saturating_add(1);
        loop {
            // At one instant the agenda comes before arrivals; when the run is over, it says so by a time of 0.
            if let Some((at, link)) = self.network.next_before(self.agenda.next_at().min(limit)) {
                self.now = at;
                self.arrive(at, link);
            } else if !self.done && self.agenda.next_at() < limit {
                self.next_event();
            } else {
                break;
            }
        }
        if !self.done {
            self.now = self.now.max(limit - 1);
            self.network.advance_to(self.now);
            self.done = self.now >= self.end;
        }
    }

    #[inline(always)]
    fn arrive(&mut self, now: Ps, link: u32) {
        match self.network.arrive(now, link) {
            Arrival::Forwarded => {}
            Arrival::Host(packet, interface) => self.deliver(now, packet, interface),
            Arrival::Dropped(lane) => self.lose(lane, 1),
            Arrival::Slow(packet) => {
                let lane = packet.lane();
                let (copy, lost) = self.network.decide(now, link, packet);
                if let Some(copy) = copy {
                    let input = Input::PacketIn { switch: copy.switch, in_port: copy.in_port, headers: copy.headers };
                    self.control.tell(now, &mut self.agenda, input);
                }
                if lost != 0 {
                    self.lose(lane, lost);
                }
            }
        }
    }

    fn lose(&mut self, lane: u32, packets: i32) {
        let slot = (lane >> 1) as usize;
        if slot == NO_CONNECTION {
            return;
        }
        let connection = self.connections.get(slot);
        connection.under_way -= i64::from(packets);
        if connection.is_over() {
            self.release(slot);
        }
    }

    #[inline]
    fn deliver(&mut self, now: Ps, packet: Packet, interface: Interface) {
        let slot = packet.slot();
        let nanos = to_nanos(now);
        let connection = self.connections.get(slot);
        if connection.destination(&packet) != interface {
            return self.turn_away(packet);
        }
        connection.under_way -= 1;
        if connection.closed {
            if connection.under_way == 0 {
                self.release(slot);
            }
            return;
        }
        if packet.direction() == Direction::Data {
            if packet.flags() & TCP_SYN != 0 {
                return self.send_ack(now, slot, 0, TCP_SYN | TCP_ACK);
            }
            if self.marking {
                self.note_mark(now, slot, packet.is_marked());
            }
            let connection = self.connections.get(slot);
            let mut ack = connection.receiver.handle_data(nanos, packet.seq, u32::from(packet.payload()));
            if connection.receiver.delivered_bytes() >= connection.size && !connection.delivered {
                // The last segment bears the FIN.
                ack = Some(connection.receiver.handle_fin());
                self.finish(now, slot);
            }
            match ack {
                Some(number) => self.send_ack(now, slot, number, 0),
                None => self.arm_receiver(slot),
            }
        } else {
            if packet.flags() & TCP_SYN != 0 {
                connection.sender.handle_syn_ack(nanos);
            } else {
                connection.handle_ack(nanos, &packet);
            }
            self.pump(now, slot);
        }
    }

    /// A host has got a packet that is not for this interface of it. Frames of no connection are for whoever gets them; so
    /// far nobody answers them.
    #[cold]
    fn turn_away(&mut self, packet: Packet) {
        if packet.slot() != NO_CONNECTION {
            self.network.totals.misdelivered += 1;
            self.lose(packet.lane(), 1);
        }
    }

    /// Sends what the sender of a connection wants to send, and sees to its timer.
    #[inline]
    fn pump(&mut self, now: Ps, slot: usize) {
        let nanos = to_nanos(now);
        loop {
            let connection = self.connections.get(slot);
            if let Err(again) = connection.card_has_room(now) {
                let ready = Event::CardReady { slot: slot as u32, use_count: connection.use_count };
                if let Some(at) = again {
                    self.agenda.push(at, ready);
                }
                break;
            }
            let Some(segment) = connection.sender.poll_transmit(nanos) else { break };
            connection.packets_sent += 1;
            let link = connection.interfaces[0].uplink().0;
            let ready = self.worked_on(now);
            if self.network.send(ready, link, packet_of(slot, &segment)) {
                let leaves_card = now + self.network.links[link as usize].backlog(now);
                let connection = self.connections.get(slot);
                connection.under_way += 1;
                connection.card_took(leaves_card);
            }
        }
        let connection = self.connections.get(slot);
        if let Some(at) = connection.sender_wants() {
            let timer = Event::SenderTimer { slot: slot as u32, use_count: connection.use_count };
            self.agenda.push(at.max(now), timer);
        }
        if connection.sender.is_finished() {
            self.close(now, slot);
        }
    }

    /// When a host that has a packet now gives it to its card. A card that is busy for longer makes no difference of it.
    #[inline]
    fn worked_on(&mut self, now: Ps) -> Ps {
        if self.jitter == 0 {
            return now;
        }
        now + self.rng.random_range(0..=self.jitter)
    }

    /// Data arrive with or without a congestion mark: where that changes, what came before is acknowledged first.
    #[inline(never)]
    fn note_mark(&mut self, now: Ps, slot: usize, marked: bool) {
        if let Some(number) = self.connections.get(slot).receiver.handle_mark(marked) {
            self.acknowledge(now, slot, number, 0, true);
        }
    }

    #[inline(always)]
    fn send_ack(&mut self, now: Ps, slot: usize, number: u64, flags: u8) {
        self.acknowledge(now, slot, number, flags, false);
    }

    /// Sends an acknowledgement, which echoes congestion marks as they are now, or as they were `before`.
    #[inline(always)]
    fn acknowledge(&mut self, now: Ps, slot: usize, number: u64, flags: u8, before: bool) {
        let connection = self.connections.get(slot);
        connection.packets_sent += 1;
        let echo = connection.receiver.echoes() != before;
        let lane = (slot as u32) << 1 | 1;
        let (option, option_bytes) = connection.sack_option();
        let mut packet = Packet::new(lane, number, option, HEADER_BYTES as u16 + option_bytes, flags);
        if echo {
            packet.mark();
        }
        let link = connection.interfaces[1].uplink().0;
        let ready = self.worked_on(now);
        if self.network.send(ready, link, packet) {
            self.connections.get(slot).under_way += 1;
        }
    }

    fn arm_receiver(&mut self, slot: usize) {
        let connection = self.connections.get(slot);
        if let Some(at) = connection.receiver_wants() {
            let timer = Event::ReceiverTimer { slot: slot as u32, use_count: connection.use_count };
            self.agenda.push(at, timer);
        }
    }

    /// The last byte of a transfer has arrived.
    fn finish(&mut self, now: Ps, slot: usize) {
        let connection = self.connections.get(slot);
        connection.delivered = true;
        for (flow, delay) in self.flows.finish(connection, to_nanos(now)) {
            self.agenda.push(now + to_ps(delay), Event::Start(flow));
        }
        if now >= self.duration {
            self.stop_if_finished();
        }
    }

    fn stop_if_finished(&mut self) {
        if self.flows.all_finished() {
            self.done = true;
            self.agenda.halt();
        }
    }

    /// The sender of a connection has nothing left to do.
    fn close(&mut self, now: Ps, slot: usize) {
        let connection = self.connections.get(slot);
        if std::mem::replace(&mut connection.closed, true) {
            return;
        }
        self.flows.close(connection, to_nanos(now));
        let flow = connection.flow;
        if self.detection == Detection::Announced && self.is_long(flow) {
            let five_tuple = self.network.lanes.five_tuple(slot);
            self.control.tell(now, &mut self.agenda, Input::TransferEnded { five_tuple });
        }
        if self.connections.get(slot).is_over() {
            self.release(slot);
        }
    }

    fn release(&mut self, slot: usize) {
        self.network.release_slot(slot);
        self.connections.close_slot(slot);
    }

    fn next_event(&mut self) {
        let Some((at, event)) = self.agenda.pop() else { return };
        self.now = at;
        self.network.advance_to(at);
        match event {
            Event::NextStart => self.start_next(at),
            Event::Start(flow) => self.start_flow(at, flow),
            Event::SenderTimer { slot, use_count } => self.sender_timer(at, slot, use_count),
            Event::CardReady { slot, use_count } => {
                if self.connections.current(slot, use_count).is_some() {
                    self.pump(at, slot as usize);
                }
            }
            Event::ReceiverTimer { slot, use_count } => self.receiver_timer(at, slot, use_count),
            Event::LeaseOver { slot, use_count } => self.lease_over(at, slot, use_count),
            Event::Deliver { output, session } => self.reached(at, output, session),
            Event::Apply { output, session } => {
                self.control.applied(at, &mut self.network, &mut self.agenda, (*output, session));
            }
            Event::Inform { input, sent } => self.control.inform(at, &mut self.agenda, *input, sent),
            Event::Served => self.control.served(at, &mut self.agenda),
            Event::ControllerTimer => self.control.timer_due(at, &mut self.agenda),
            Event::Sweep(switch) => self.control.sweep(at, switch, &mut self.network, &mut self.agenda),
            Event::MeasureLoad => self.control.measure_load(at, &mut self.agenda),
            Event::Fault(index) => self.fault(at, index),
            Event::EndOfArrivals => self.end_of_arrivals(at),
        }
    }

    fn start_next(&mut self, now: Ps) {
        let nanos = to_nanos(now);
        // Arrivals stop with the duration; what would start later is counted as not started.
        while now < self.duration && self.flows.next_start().is_some_and(|at| at <= nanos) {
            let flow = self.flows.take_next();
            self.start_flow(now, flow);
        }
        if let Some(at) = self.flows.next_start().filter(|_| now < self.duration) {
            self.agenda.push(to_ps(at), Event::NextStart);
        }
    }

    fn start_flow(&mut self, now: Ps, flow: u32) {
        let lanes = &self.network.lanes;
        let five_tuple = self.flows.start(flow, to_nanos(now), |five_tuple| lanes.slot(five_tuple).is_some());
        let spec = self.flows.spec(flow);
        let size = spec.size_bytes;
        let (src, dst, _) = self.flows.drawn(flow);
        let ends = Endpoints { flow, size, interfaces: [src, dst].map(|at| Interface::of(at.uplink)) };
        let slot = self.connections.open_slot(&self.transport, &ends);
        self.network.open_slot(slot, self.headers(flow, five_tuple));
        let is_long = self.is_long(flow);
        if self.detection == Detection::Announced && is_long {
            let input = Input::TransferAnnounced { five_tuple, size_bytes: size };
            self.control.tell(now, &mut self.agenda, input);
        }
        self.open(now, slot, is_long);
    }

    /// Headers of a flow's data; its host labels it if it is long.
    pub(crate) fn headers(&self, flow: u32, five_tuple: FiveTuple) -> Headers {
        Headers { dscp: if self.is_long(flow) { LONG_FLOW_DSCP } else { 0 }, ..Headers::plain(five_tuple) }
    }

    /// Whether a flow's host labels or announces it: short ones never wait for the controller (OFPT §4).
    fn is_long(&self, flow: u32) -> bool {
        self.flows.spec(flow).size_bytes.is_none_or(|size| size >= self.long_bytes)
    }

    fn open(&mut self, now: Ps, slot: usize, is_long: bool) {
        let connection = self.connections.get(slot);
        connection.opened = true;
        if self.paces && is_long {
            let card_bps = self.fabric.link(connection.interfaces[0].uplink()).settings.rate_bps;
            let pace_bps = self.transport.pace_bps.map_or(card_bps, |pace_bps| pace_bps.min(card_bps));
            connection.sender.set_pace(to_nanos(now), Some(pace_bps));
        }
        connection.sender.open(to_nanos(now));
        self.pump(now, slot);
    }

    fn sender_timer(&mut self, now: Ps, slot: u32, use_count: u32) {
        let Some(connection) = self.connections.current(slot, use_count) else { return };
        if connection.sender_timer <= now {
            connection.sender_timer = crate::time::NEVER;
        }
        connection.sender.handle_timeout(to_nanos(now));
        self.pump(now, slot as usize);
    }

    fn receiver_timer(&mut self, now: Ps, slot: u32, use_count: u32) {
        let Some(connection) = self.connections.current(slot, use_count) else { return };
        if connection.receiver_timer <= now {
            connection.receiver_timer = crate::time::NEVER;
        }
        match connection.receiver.handle_timeout(to_nanos(now)) {
            Some(number) => self.send_ack(now, slot as usize, number, 0),
            None => self.arm_receiver(slot as usize),
        }
    }

    /// A message of the controller has reached a switch or a host.
    fn reached(&mut self, now: Ps, output: Box<Output>, session: u32) {
        if let Some(switch) = output.switch() {
            return self.control.reached_switch(now, &mut self.agenda, switch, (output, session));
        }
        match *output {
            Output::HoldFlow { five_tuple, lease, .. } => self.hold(now, &five_tuple, lease),
            Output::ReleaseFlow { five_tuple, .. } => {
                if let Some((slot, use_count)) = self.find(&five_tuple) {
                    self.release_hold(now, slot, use_count);
                }
            }
            Output::PaceFlow { five_tuple, rate_bps, .. } => {
                if let Some((slot, _)) = self.find(&five_tuple) {
                    self.connections.get(slot as usize).sender.set_pace(to_nanos(now), rate_bps);
                    self.pump(now, slot as usize);
                }
            }
            _ => {}
        }
    }

    fn find(&mut self, five_tuple: &FiveTuple) -> Option<(u32, u32)> {
        let slot = self.network.lanes.slot(five_tuple)?;
        let connection = self.connections.get(slot);
        (!connection.closed).then_some((slot as u32, connection.use_count))
    }

    /// A transfer that has not been answered yet waits until it is released or the lease is over.
    fn hold(&mut self, now: Ps, five_tuple: &FiveTuple, lease: Nanos) {
        let Some((slot, use_count)) = self.find(five_tuple) else { return };
        let connection = self.connections.get(slot as usize);
        let until = now.saturating_add(to_ps(lease)).max(1);
        connection.held_until = until;
        connection.sender.set_hold(true);
        self.agenda.push(until, Event::LeaseOver { slot, use_count });
    }

    /// A lease is over; a later hold may have a longer one.
    fn lease_over(&mut self, now: Ps, slot: u32, use_count: u32) {
        if self.connections.current(slot, use_count).is_some_and(|connection| connection.held_until <= now) {
            self.release_hold(now, slot, use_count);
        }
    }

    fn release_hold(&mut self, now: Ps, slot: u32, use_count: u32) {
        let Some(connection) = self.connections.current(slot, use_count) else { return };
        if std::mem::replace(&mut connection.held_until, 0) > 0 {
            connection.sender.set_hold(false);
            self.pump(now, slot as usize);
        }
    }

    fn end_of_arrivals(&mut self, now: Ps) {
        let long_lived =
            |(slot, c): (usize, &crate::connection::Connection)| (c.size == u64::MAX && !c.closed).then_some(slot);
        let slots: Vec<usize> = self.connections.live().filter_map(long_lived).collect();
        for slot in slots {
            self.close(now, slot);
        }
        self.stop_if_finished();
    }

    /// Carries out an entry of the fault schedule. A switch that comes back has an empty rule table.
    fn fault(&mut self, now: Ps, index: u32) {
        let (fabric, fault) = (self.fabric.clone(), self.faults[index as usize]);
        if let FaultTarget::Node(node) = fault.target {
            if fault.up {
                self.network.clear_switch(node);
            }
            if !fabric.is_host(node) {
                self.control.set_connected(now, &mut self.agenda, node, fault.up, &self.link_state);
            }
        }
        for cable in self.damage.apply(&fabric, &fault, &mut self.link_state) {
            for direction in [cable, cable.reverse()] {
                self.set_direction(now, direction, fault.up);
            }
        }
    }

    /// A link has failed or come back: the network, and the controller through the switches at its ends, learn of it.
    fn set_direction(&mut self, now: Ps, link: LinkId, up: bool) {
        for lane in self.network.set_link(now, link, up) {
            self.lose(lane, 1);
        }
        let record = *self.fabric.link(link);
        if !self.fabric.is_host(record.from) {
            let input = Input::PortStatus { switch: record.from, port: record.from_port, up };
            self.control.tell(now, &mut self.agenda, input);
        }
    }

    /// The links that a flow's data would cross if it sent now, from its host to where it arrives (or would be lost).
    /// Empty for a flow that has not started.
    pub fn route(&self, flow: u32) -> Vec<LinkId> {
        let Some(five_tuple) = self.flows.five_tuple(flow) else { return Vec::new() };
        let Some(source) = self.fabric.attachment(five_tuple.src) else { return Vec::new() };
        self.network.trace(source.uplink, self.headers(flow, five_tuple))
    }

    /// What the run has come to so far.
    pub fn outcome(&self) -> Outcome {
        let mut packets = self.network.packet_totals();
        packets.events += self.agenda.taken;
        let until = to_nanos(self.now.min(self.duration));
        Outcome {
            flows: self.flows.outcomes(self.now(), until, self.connections.live()),
            links: self.links(),
            packets,
            control: self.control.outcome(self.now),
            end: self.now(),
        }
    }

    fn links(&self) -> Vec<LinkOutcome> {
        let elapsed = self.now.max(1) as f64;
        let row = |(index, queue): (usize, &crate::link::LinkQueue)| {
            let backlog = queue.backlog(self.now) as f64;
            LinkOutcome {
                link: LinkId(index as u32),
                sent_bytes: queue.sent_bytes,
                sent_packets: queue.sent_packets(),
                dropped_packets: queue.dropped_packets(),
                mean_queue: queue.waited(self.now) as f64 / elapsed,
                utilisation: ((queue.send_time(queue.sent_bytes) as f64 - backlog) / elapsed).clamp(0.0, 1.0),
            }
        };
        self.network.links.iter().enumerate().map(row).collect()
    }
}

fn packet_of(slot: usize, segment: &Segment) -> Packet {
    let flags = match segment.kind {
        SegmentKind::Syn => TCP_SYN,
        SegmentKind::Data if segment.last => TCP_FIN,
        SegmentKind::Data => 0,
    };
    let (lane, wire) = ((slot as u32) << 1, (segment.len + HEADER_BYTES) as u16);
    Packet::new(lane, segment.seq, segment.len as u16, wire, flags)
}
