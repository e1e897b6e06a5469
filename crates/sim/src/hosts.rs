//! Behaviour of hosts: they start transfers, send and receive packets, run their timers, and follow the controller's
//! orders ([`orders`]). What they do with a packet depends on the transport: [`tcp`] has subflows, [`packets`] has
//! transports that acknowledge packets.

mod arp;
mod fluid;
mod orders;
mod packets;
mod parts;
mod resolver;
mod shared;
mod tcp;
mod traits;
mod turns;
mod under_way;

use crate::agenda::Event;
use crate::interface::Interface;
use crate::kinds::Exchanged;
use crate::lanes::NO_CONNECTION;
use crate::network::{Network, PacketIn};
use crate::outcome::{FlowOutcome, SubflowOutcome, SubflowPath};
use crate::packet::Packet;
use crate::plan::Planner;
use crate::run::Run;
use crate::settings::SimError;
use crate::subflow::Subflow;
use crate::tap::Tap;
use crate::time::{to_nanos, to_ps, Ps};
use crate::transfers::{Transfers, Work};
use fluid::{counters, results, FluidFlows};
use packets::PacketFlows;
pub(crate) use parts::HostSettings;
use pathloom_control::Output;
use pathloom_model::{Address, Fabric, FiveTuple, Headers, LinkId, Nanos, NodeId};
use pathloom_transport::Settings;
use pathloom_workload::FlowSpec;
use shared::Shared;
use std::sync::Arc;
use tcp::Tcp;

/// All hosts of a run, with their transfers.
pub(crate) struct Hosts {
    shared: Shared,
    /// It has no subflows if the transport acknowledges packets.
    tcp: Tcp,
    /// The transfers, if the transport acknowledges packets.
    packets: Option<Box<PacketFlows>>,
    /// The transfers, if no packet is sent.
    fluid: Option<Box<FluidFlows>>,
}

impl Hosts {
    /// Hosts that have not started anything.
    pub(crate) fn new(fabric: Arc<Fabric>, transfers: Transfers, settings: &HostSettings<'_>) -> Hosts {
        Hosts {
            tcp: Tcp::new(&fabric, transfers.len(), settings),
            fluid: FluidFlows::new(&fabric, settings),
            packets: PacketFlows::new(settings.transport, settings.needs.ageing, &fabric, settings.seed),
            shared: Shared::new(fabric, transfers, settings),
        }
    }

    /// Bytes of a TCP segment without its payload.
    pub(crate) fn header_bytes(&self) -> u32 {
        self.tcp.settings.header_bytes
    }

    /// Whether transfers use a transport that acknowledges packets.
    pub(crate) fn acknowledge_packets(&self) -> bool {
        self.packets.is_some()
    }

    /// What hosts have sent and received by kind, if their transport acknowledges packets.
    pub(crate) fn exchanged(&self) -> Option<Exchanged> {
        self.packets.as_ref().map(|packets| packets.exchanged)
    }

    /// Lets a driver add transfers.
    pub(crate) fn accept(&mut self, planner: Planner, transport: &Settings) {
        let fabric = self.shared.fabric.clone();
        self.shared.transfers.accept(&fabric, planner, transport);
    }

    /// Adds a transfer, which counts as started; the caller schedules its start. Returns its number; `None` if no driver may add transfers.
    ///
    /// # Errors
    /// It would have more subflows than a connection may have.
    pub(crate) fn add(&mut self, flow: FlowSpec) -> Result<Option<u32>, SimError> {
        let fabric = self.shared.fabric.clone();
        let transfer = self.shared.transfers.add(&fabric, flow)?;
        if transfer.is_some() {
            self.tcp.expect_one();
        }
        Ok(transfer)
    }

    /// Moves the transfers that have finished since the last call to `into`, in the order of their ends.
    pub(crate) fn take_news(&mut self, into: &mut Vec<u32>) {
        self.shared.transfers.take_news(into);
    }

    /// The transfers of the run.
    #[inline]
    pub(crate) fn transfers(&self) -> &Transfers {
        &self.shared.transfers
    }

    /// See [`Shared::headers`].
    pub(crate) fn headers(&self, transfer: u32, five_tuple: FiveTuple) -> Headers {
        self.shared.headers(transfer, five_tuple)
    }

    /// Continues the run after the last transfer.
    pub(crate) fn keep_going(&mut self) {
        self.shared.keeps_going = true;
    }

    /// Prefetches the data that a packet will touch when it reaches its host. Affects only speed.
    #[inline(always)]
    pub(crate) fn fetch(&self, packet: &Packet) {
        self.tcp.subflows.fetch(packet.slot(), packet.direction());
    }

    /// A packet of a subflow has reached a host by this interface.
    #[inline(always)]
    pub(crate) fn deliver<T: Tap>(&mut self, run: &mut Run<'_, T>, packet: &Packet, interface: Interface) {
        if !self.tcp.deliver(&mut self.shared, run, packet, interface) {
            self.turn_away(run, packet, interface);
        }
    }

    /// A packet has reached a host by this interface, and may be of any transport.
    pub(crate) fn deliver_any<T: Tap>(&mut self, run: &mut Run<'_, T>, packet: &Packet, interface: Interface) {
        let belongs = match &mut self.packets {
            Some(packets) => packets.deliver(&mut self.shared, run, packet, interface),
            None => self.tcp.deliver(&mut self.shared, run, packet, interface),
        };
        if !belongs {
            self.turn_away(run, packet, interface);
        }
    }

    /// A host has received a packet that belongs to no connection of this interface. Any host handles the frames of
    /// no connection that reach it.
    #[cold]
    #[inline(never)]
    fn turn_away<T: Tap>(&mut self, run: &mut Run<'_, T>, packet: &Packet, interface: Interface) {
        if packet.slot() != NO_CONNECTION {
            run.network.totals.misdelivered += 1;
            return self.lose(run, packet.lane(), 1);
        }
        let Some(frame) = run.network.take_frame(packet) else { return };
        let Some(arp) = &mut self.shared.arp else { return };
        let ready = arp.take_frame(run, &frame, interface);
        self.tcp.resolved(&mut self.shared, run, ready);
    }

    /// Packets of a lane were lost; a negative number means that packets were added.
    pub(crate) fn lose<T: Tap>(&mut self, run: &mut Run<'_, T>, lane: u32, packets: i32) {
        let slot = (lane >> 1) as usize;
        match &mut self.packets {
            _ if slot == NO_CONNECTION => {}
            Some(flows) => flows.lose(run, slot, packets),
            None => self.tcp.lose(run, slot, packets),
        }
    }

    /// Starts the transfers that are due.
    pub(crate) fn start_next<T: Tap>(&mut self, run: &mut Run<'_, T>) {
        let (nanos, in_time) = (to_nanos(run.now), run.now < self.shared.duration);
        // Arrivals stop with the duration; transfers with later starts are counted as not started.
        while in_time && self.transfers().next_start().is_some_and(|at| at <= nanos) {
            let transfer = self.shared.transfers.take_next();
            self.start(run, transfer);
        }
        if let Some(at) = self.transfers().next_start().filter(|_| in_time) {
            run.agenda.push(to_ps(at), Event::NextStart);
        }
    }

    /// Starts a transfer.
    pub(crate) fn start<T: Tap>(&mut self, run: &mut Run<'_, T>, transfer: u32) {
        match (&mut self.packets, &mut self.fluid) {
            (_, Some(fluid)) => fluid.start(&mut self.shared, run, transfer),
            (Some(packets), None) => packets.start(&mut self.shared, run, transfer),
            (None, None) => self.tcp.start(&mut self.shared, run, transfer),
        }
    }

    /// A transfer over several streams has waited too long for its paths.
    pub(crate) fn paths_overdue<T: Tap>(&mut self, run: &mut Run<'_, T>, transfer: u32) {
        self.tcp.open_all_streams(&mut self.shared, run, transfer);
    }

    /// A retransmission or pacing timer of a subflow: its slot and use count.
    pub(crate) fn sender_timer<T: Tap>(&mut self, run: &mut Run<'_, T>, subflow: (u32, u32)) {
        self.tcp.sender_timer(&mut self.shared, run, subflow);
    }

    /// A timer for delayed acknowledgements of a subflow.
    pub(crate) fn receiver_timer<T: Tap>(&mut self, run: &mut Run<'_, T>, subflow: (u32, u32)) {
        self.tcp.receiver_timer(&mut self.shared, run, subflow);
    }

    /// The card of a subflow's host has room again.
    pub(crate) fn card_ready<T: Tap>(&mut self, run: &mut Run<'_, T>, subflow: (u32, u32)) {
        self.tcp.card_ready(&mut self.shared, run, subflow);
    }

    /// The timer of a sender whose receiver acknowledges packets: its slot and use count.
    pub(crate) fn packet_timer<T: Tap>(&mut self, run: &mut Run<'_, T>, flow: (u32, u32)) {
        if let Some(packets) = &mut self.packets {
            packets.timer_due(&mut self.shared, run, flow);
        }
    }

    /// The host that sends into this link may pull a packet again.
    pub(crate) fn pull_due<T: Tap>(&mut self, run: &mut Run<'_, T>, uplink: LinkId) {
        if let Some(packets) = &mut self.packets {
            packets.pull_due(&mut self.shared, run, uplink);
        }
    }

    /// The card that sends into this link is free.
    pub(crate) fn card_free<T: Tap>(&mut self, run: &mut Run<'_, T>, uplink: LinkId) {
        if let Some(packets) = &mut self.packets {
            packets.card_free(&mut self.shared, run, uplink);
        }
    }

    /// A switch has resumed a priority of the card that sends into this link.
    pub(crate) fn card_resumed<T: Tap>(&mut self, run: &mut Run<'_, T>, uplink: LinkId) {
        match &mut self.packets {
            Some(packets) => packets.serve_card(&mut self.shared, run, uplink),
            None => self.tcp.card_resumed(run, uplink),
        }
    }

    /// An interface checks whether its ARP request for this address was answered.
    pub(crate) fn arp_retry<T: Tap>(&mut self, run: &mut Run<'_, T>, asked: (Interface, Address)) {
        if let Some(arp) = &mut self.shared.arp {
            arp.retry(run, asked, &mut self.tcp.subflows);
        }
    }

    /// Arrivals stop, and long-lived transfers end.
    pub(crate) fn end_of_arrivals<T: Tap>(&mut self, run: &mut Run<'_, T>) {
        self.tcp.end_endless(&mut self.shared, run);
        if let Some(fluid) = &mut self.fluid {
            fluid.end_endless(&mut self.shared, run);
        }
        if let Some(packets) = &mut self.packets {
            packets.end_endless(&mut self.shared, run);
        }
        self.shared.stop_if_finished(run.agenda);
    }

    /// Whether no packet is sent, and flows are rates.
    #[inline]
    pub(crate) fn is_fluid(&self) -> bool {
        self.fluid.is_some()
    }

    /// The connection of a subflow is open, in a run without packets: its slot and use count.
    pub(crate) fn flow_ready<T: Tap>(&mut self, run: &mut Run<'_, T>, subflow: (u32, u32)) {
        if let Some(fluid) = &mut self.fluid {
            fluid.ready(&mut self.shared, run, subflow);
        }
    }

    /// The last byte of a transfer may have left its host, in a run without packets.
    pub(crate) fn flow_drained<T: Tap>(&mut self, run: &mut Run<'_, T>, transfer: u32) {
        if let Some(fluid) = &mut self.fluid {
            fluid.drained(&mut self.shared, run, transfer);
        }
    }

    /// The last byte of a transfer has arrived, in a run without packets.
    pub(crate) fn flow_arrived<T: Tap>(&mut self, run: &mut Run<'_, T>, transfer: u32) {
        if let Some(fluid) = &mut self.fluid {
            fluid.arrived(&mut self.shared, run, transfer);
        }
    }

    /// In a run without packets, brings the counters up to date that a switch reads for a message of the controller.
    pub(crate) fn count_for<T: Tap>(&mut self, run: &mut Run<'_, T>, output: &Output) {
        if let Some(fluid) = &mut self.fluid {
            counters::count_for(fluid, run, output);
        }
    }

    /// In a run without packets, brings the counters of a switch up to date.
    pub(crate) fn count_at<T: Tap>(&mut self, run: &mut Run<'_, T>, switch: NodeId) {
        if let Some(fluid) = &mut self.fluid {
            counters::count_at(fluid, run, switch);
        }
    }

    /// In a run without packets, brings the rates up to date, before the time advances. Returns the copies of packets for
    /// the controller since the last call.
    pub(crate) fn update_rates<T: Tap>(&mut self, run: &mut Run<'_, T>) -> Vec<PacketIn> {
        let Some(fluid) = &mut self.fluid else { return Vec::new() };
        if run.agenda.next_at() > run.now {
            fluid.update(run);
        }
        fluid.take_copies()
    }

    /// In a run without packets: by link, the bytes that it has carried by now, and the time that this took.
    pub(crate) fn carried<T: Tap>(&self, now: Ps, network: &Network<T>) -> Option<Vec<(f64, f64)>> {
        let (fluid, counted) = (self.fluid.as_ref()?, network.links.carried_bytes.as_ref()?);
        let carried = counters::carried(fluid, now, counted).into_iter().zip(0..);
        Some(carried.map(|(bytes, link)| (bytes, counters::busy_ps(fluid, LinkId(link), bytes))).collect())
    }

    /// All subflows that are not over, in order of slot.
    pub(crate) fn live_subflows(&self) -> impl Iterator<Item = (usize, &Subflow)> {
        self.tcp.subflows.live()
    }

    /// The subflow of a slot.
    pub(crate) fn subflow(&self, slot: usize) -> &Subflow {
        self.tcp.subflows.at(slot)
    }

    /// Connections of several subflows under way, with the bytes that they have delivered in order.
    pub(crate) fn connections(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.tcp.delivered_by_connections().map(|(transfer, [in_order, _])| (transfer, in_order))
    }

    /// Bytes of a connection that no subflow has been given; `None` if it has no end or is over.
    pub(crate) fn unassigned_bytes(&self, transfer: u32) -> Option<u64> {
        self.tcp.unassigned_bytes(transfer)
    }

    /// Moves a subflow to a time that is later by `time`. Meanwhile it has done this work, of which the delivered bytes
    /// must be fewer than it has not sent.
    pub(crate) fn skip(&mut self, slot: usize, time: Ps, work: &Work) {
        let has_bytes = self.tcp.subflows.get(slot).translate(time, work);
        debug_assert!(has_bytes, "a jump ends before a flow finishes");
    }

    /// The same for a connection, whose subflows are moved by themselves.
    pub(crate) fn skip_connection(&mut self, transfer: u32, time: Ps, bytes: u64) {
        let has_bytes = self.tcp.translate_connection(transfer, to_nanos(time), bytes);
        debug_assert!(has_bytes, "a jump ends before a connection finishes");
    }

    /// See [`Tcp::least_time_left`].
    pub(crate) fn least_time_left(&self) -> Ps {
        self.tcp.least_time_left(&self.shared)
    }

    /// Records from now on the path of each subflow when it closes.
    pub(crate) fn record_paths(&mut self) {
        self.tcp.log.records_paths = true;
        if let Some(fluid) = &mut self.fluid {
            results::record_ways(fluid);
        }
    }

    /// Whether the paths of subflows are recorded.
    pub(crate) fn records_paths(&self) -> bool {
        self.tcp.log.records_paths
    }

    /// Returns the paths of the subflows that closed since the last call and of the open ones, by transfer and
    /// five-tuple.
    pub(crate) fn take_subflow_paths<T: Tap>(&mut self, network: &Network<T>) -> Vec<SubflowPath> {
        match &mut self.fluid {
            Some(fluid) => results::take_ways(fluid, network),
            None => self.tcp.log.take_paths(network, &self.tcp.subflows),
        }
    }

    /// Returns all subflows so far of transfers that have several, by transfer and five-tuple.
    pub(crate) fn subflow_outcomes<T: Tap>(&self, now: Ps, network: &Network<T>) -> Vec<SubflowOutcome> {
        if let Some(fluid) = &self.fluid {
            return results::subflow_outcomes(fluid, now, network, self.transfers());
        }
        self.tcp.log.outcomes(network, &self.tcp.subflows, self.transfers())
    }

    /// Returns the outcome of every transfer by `now`. Long-lived transfers are measured up to `until`.
    pub(crate) fn outcomes(&self, now: Nanos, until: Nanos) -> Vec<FlowOutcome> {
        let packets = self.packets.iter().flat_map(|packets| packets.work());
        let packets = packets.chain(self.fluid.iter().flat_map(|fluid| results::work(fluid, to_ps(now))));
        let (subflows, connections) = (self.tcp.subflows.live(), self.tcp.delivered_by_connections());
        self.transfers().outcomes(now, until, subflows, connections, packets)
    }
}
