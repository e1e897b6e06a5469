//! The data plane: links, switches and the packets between them. It knows nothing about transports or controllers. It
//! returns to the caller the packets for hosts and the copies for the controller.

#![allow(unsafe_code)]

mod balancers;
mod division;
mod node;
mod own_ports;
pub(crate) mod pfc;
mod ports;
mod prefetch;
mod quality;
mod sent;
mod spraying;
mod switch_programs;

use crate::cache::{Cache, Credit, Entry};
use crate::interface::Interface;
use crate::lanes::{Lanes, NO_CONNECTION};
use crate::link::{EnqueueResult, LinkQueue, Speeds};
use crate::marks::Signals;
use crate::next_hops::Sets;
use crate::outcome::PacketTotals;
use crate::packet::{Packet, TagBits};
use crate::settings::ControlSettings;
use crate::store::grow;
use crate::tap::{Fate, Loss, Tap};
use crate::time::{to_nanos, Ps};
use crate::trusted::{item, item_mut};
use crate::wheel::Wheel;
use balancers::Balancers;
use division::Outbox;
pub(crate) use division::Parcel;
use node::Node;
pub(crate) use node::Totals;
use pathloom_model::rules::Match;
use pathloom_model::{Fabric, FiveTuple, Headers, Link, LinkId, NodeId, PortNo};
use pathloom_switching::deployment::Deployment;
use pathloom_switching::{Decision, Removed, Stale, Switch, SwitchSettings, Used};
use ports::Ports;
use quality::Losses;
use sent::Interruptions;
use std::collections::BTreeMap;
use std::sync::Arc;
use switch_programs::Programs;

/// Most switches that a packet may pass: a TTL of 64 (RFC 1700). A packet that has passed more is in a loop.
const TTL: u8 = 64;

/// Headers of a packet that a switch copies to the controller.
pub(crate) struct PacketIn {
    pub(crate) switch: NodeId,
    pub(crate) in_port: PortNo,
    pub(crate) headers: Headers,
}

/// Result of a packet's arrival at the end of a link, if the caller may have to act.
pub(crate) enum Arrival {
    /// The caller has nothing to do.
    Forwarded,
    /// The packet reached a host, by this interface.
    Host(Packet, Interface),
    /// A packet of this lane was lost. Its connection counts its packets under way.
    Dropped(u32),
    /// The packet needs the slow path.
    Slow(Packet),
    /// The card that sends into this link may send paused packets again.
    Resumed(LinkId),
}

/// Schedules the delivery of a link's head at this time. `queue` is this link.
#[inline(always)]
fn schedule<T: Tap>(wheel: &mut Wheel, queue: &mut LinkQueue, at: Ps, link: u32) {
    if T::LARGE {
        wheel.insert_large(queue, at, link);
    } else {
        wheel.insert(queue, at, link);
    }
}

pub(crate) struct Network<T: Tap> {
    fabric: Arc<Fabric>,
    /// The links of the fabric, followed by one link for the events of each port of `ports`. Their number is fixed, and
    /// every number of a link in the wheel, in the cache of decisions and at the hosts is less. The main loop relies on
    /// this, because a check costs 2 of 245 instructions per packet-hop.
    pub(crate) links: Vec<LinkQueue>,
    /// The speeds of the links.
    speeds: Speeds,
    /// Ports that are not FIFOs, if there are any.
    ports: Option<Box<Ports>>,
    wheel: Wheel,
    nodes: Vec<Node>,
    cache: Cache,
    pub(crate) lanes: Lanes,
    pub(crate) totals: Totals,
    /// State of the programs of switches outside the switches, if switches run programs.
    programs: Option<Box<Programs>>,
    /// Whether packets of a flow take several paths, so that a decision names a set of next hops.
    sprays: bool,
    /// The sets of next hops that decisions name.
    sets: Sets,
    /// The load balancers of switches, if they have any.
    balancers: Option<Box<Balancers>>,
    /// Links on which packets are lost.
    losses: Losses,
    /// By link that failed or changed its rate.
    interruptions: BTreeMap<LinkId, Interruptions>,
    pub(crate) tap: T,
    /// Time within which nine links in ten can deliver a packet.
    typical: Ps,
    /// Messages of this part of a divided network for the other parts.
    outbox: Outbox,
}

impl<T: Tap> Network<T> {
    pub(crate) fn new(
        fabric: Arc<Fabric>,
        control: &ControlSettings,
        signals: Signals,
        path_switches: usize,
        (deployment, seed): (Option<Deployment>, u64),
        tap: T,
    ) -> Network<T> {
        let queue = |link: &Link| {
            LinkQueue::new(link, fabric.is_host(link.to), control.handover, signals.marks.threshold(link))
        };
        let mut links = Vec::new();
        grow(&mut links, fabric.links().len());
        links.extend(fabric.links().iter().map(queue));
        let mut typical: Vec<Ps> =
            links.iter().zip(fabric.links()).map(|(q, link)| q.send_time(1514) + link.settings.delay_ps).collect();
        let speeds = Speeds::of(&mut links);
        let ports = Ports::new(&fabric, signals, control.handover, seed, &mut links);
        // The wheel covers the time that nine links in ten need; a few very slow or long links use its heap.
        typical.sort_unstable();
        let typical = typical[typical.len() * 9 / 10];
        let wheel = Wheel::new(links.len(), typical, T::LARGE);
        let mut programs = deployment.map(|deployment| Box::new(Programs::new(deployment, fabric.nodes().len(), seed)));
        let nodes = (0..fabric.nodes().len() as u32).map(NodeId).map(|node| {
            let ports = fabric.node(node).ports.len() as u32;
            let rule_limit = control.rule_limit;
            let settings = SwitchSettings { ports, tables: TABLES, rule_limit, salt: u64::from(node.0) + 1 };
            match &mut programs {
                _ if fabric.is_host(node) => Node::Host,
                Some(programs) => Node::Program(programs.start(0, &fabric, node)),
                None => Node::Rules(Box::new(Switch::new(settings))),
            }
        });
        let nodes: Vec<Node> = nodes.collect();
        let cache = Cache::new(nodes.len(), path_switches);
        let totals = Totals::default();
        Network {
            fabric,
            links,
            speeds,
            ports,
            wheel,
            nodes,
            cache,
            lanes: Lanes::default(),
            totals,
            programs,
            sprays: false,
            sets: Sets::default(),
            balancers: None,
            losses: Losses::new(seed),
            interruptions: BTreeMap::new(),
            tap,
            typical,
            outbox: Outbox::default(),
        }
    }

    /// Returns the time and link of the next arrival, if it is before `limit`. On a large fabric, `at_host` is called
    /// for packets that will reach a host soon, so that data of the host can be prefetched.
    #[inline(always)]
    pub(crate) fn next_before(&mut self, limit: Ps, at_host: impl Fn(&Packet)) -> Option<(Ps, u32)> {
        if T::LARGE {
            let (links, cache, sets, ports) = (&self.links[..], &self.cache, &self.sets, self.ports.as_deref());
            let touched = prefetch::Touched { links, cache, sets, ports };
            return self.wheel.pop_large(limit, |due| prefetch::prefetch_batch(touched, due, &at_host));
        }
        self.wheel.pop_before(&self.links, limit)
    }

    /// Schedules the delivery of a link's head at this time.
    #[inline(always)]
    fn schedule(&mut self, at: Ps, link: u32) {
        schedule::<T>(&mut self.wheel, &mut self.links[link as usize], at, link);
    }

    /// Informs the wheel that an event other than an arrival has advanced the time to `now`.
    pub(crate) fn advance_to(&mut self, now: Ps) {
        self.wheel.advance_to(now);
    }

    /// A host gives a packet to one of its links. Returns whether the link took it.
    #[inline(never)]
    pub(crate) fn send(&mut self, now: Ps, link: u32, packet: Packet) -> bool {
        self.totals.sent += 1;
        if self.ports.is_some() && pfc::holds_back(self, now, link, packet) {
            return true;
        }
        self.enqueue(now, link, packet)
    }

    #[inline(always)]
    fn enqueue(&mut self, now: Ps, link: u32, packet: Packet) -> bool {
        // SAFETY: as below.
        if T::PARTED && unsafe { item(&self.links, link as usize) }.crosses() {
            return self.send_across(now, link, packet);
        }
        let speeds = if T::LARGE { Some(&self.speeds) } else { None };
        // SAFETY: hosts send by links of their interfaces, and decisions name links of the fabric (see `links`).
        let queue = unsafe { item_mut(&mut self.links, link as usize) };
        let is_taken = match queue.enqueue(now, packet, speeds) {
            EnqueueResult::First(at) => {
                schedule::<T>(&mut self.wheel, queue, at, link);
                true
            }
            EnqueueResult::Behind => true,
            EnqueueResult::Dropped => self.offer_to_port(now, link, packet),
        };
        if T::ON {
            let fate = if is_taken { Fate::Queued } else { Fate::Dropped };
            // A tap sees only TCP packets, so it does not see frames of no connection.
            if let Some(headers) = self.lanes.headers(&packet) {
                self.tap.seen(now, LinkId(link), &packet.describe(headers), fate);
            }
        }
        is_taken
    }

    /// Whether packets of a flow take several paths.
    #[inline(always)]
    pub(crate) fn sprays(&self) -> bool {
        self.sprays
    }

    /// The head of a link has arrived at its other end. `SPRAYS` must be what [`Network::sprays`] returns. It is a
    /// constant, so that runs without spraying pay nothing for it.
    #[inline(always)]
    pub(crate) fn arrive<const SPRAYS: bool>(&mut self, now: Ps, link: u32) -> Arrival {
        // SAFETY: the wheel gives only links that were scheduled (see `links`).
        let queue = unsafe { item_mut(&mut self.links, link as usize) };
        let (packet, next) = queue.dequeue();
        let hands_to_host = queue.hands_to_host();
        if let Some(at) = next {
            schedule::<T>(&mut self.wheel, queue, at, link);
        }
        if hands_to_host {
            return Arrival::Host(packet, Interface::at_end_of(link));
        }
        if SPRAYS {
            self.forward_sprayed(now, link, packet)
        } else {
            self.forward(now, link, packet)
        }
    }

    /// Forwards a packet that has arrived by `in_link` (as in [`Entry`]), if a decision about it is cached.
    #[inline(always)]
    fn forward(&mut self, now: Ps, in_link: u32, mut packet: Packet) -> Arrival {
        let Some(entry) = self.cache.entry(packet.lane(), packet.hop()) else { return Arrival::Slow(packet) };
        if !entry.matches(in_link, &packet) {
            return Arrival::Slow(packet);
        }
        let (out, tag) = entry.pass_on(now, &packet);
        packet.pass(tag);
        if self.enqueue(now, out, packet) {
            Arrival::Forwarded
        } else {
            Arrival::Dropped(packet.lane())
        }
    }

    /// Lets the switch at the end of `link` decide about a packet for which no decision is cached. Returns what the
    /// caller must handle: the copy for the controller, and how many packets of the lane were lost or (negative)
    /// added.
    #[inline(never)]
    pub(crate) fn decide(&mut self, now: Ps, link: u32, packet: Packet) -> (Option<PacketIn>, i32) {
        let (switch, in_port) = {
            let record = self.fabric.link(LinkId(link));
            (record.to, record.to_port)
        };
        if self.receive_probe(now, link, &packet) {
            return (None, 0);
        }
        // Rules are about IP, so none of them matches a frame of no connection.
        let headers = self.lanes.headers(&packet);
        let (Some(headers), Some(program)) = (headers, self.nodes[switch.index()].rules_mut()) else {
            self.totals.dropped_at_switches += 1;
            return (None, 1);
        };
        self.totals.decisions += 1;
        let decision = program.decide(in_port, &headers);
        let nanos = to_nanos(now);
        let in_time = packet.hop() < TTL;
        let passes =
            in_time && decision.meters.iter().all(|&meter| program.pass_meter(nanos, meter, packet.wire() as u32));
        program.credit(&decision.rules, 1, packet.wire(), nanos);
        let copy = decision.copied.then_some(PacketIn { switch, in_port, headers });
        if !passes || decision.emissions.is_empty() {
            self.totals.dropped_at_switches += 1;
            if T::ON {
                let why = match (in_time, passes) {
                    (false, _) => Loss::Loop,
                    (true, false) => Loss::Metered,
                    (true, true) => Loss::NoRule,
                };
                self.tap.lost(now, switch, &headers, why);
            }
            return (copy, 1);
        }
        if self.sprays {
            if let Some(set) = self.next_hops(switch, in_port, &headers.five_tuple, &decision) {
                return (copy, self.spray(now, link, packet, &decision, set));
            }
        }
        self.remember(link, switch, &packet, &decision);
        (copy, self.emit(now, link, packet, &decision))
    }

    fn remember(&mut self, link: u32, switch: NodeId, packet: &Packet, decision: &Decision) {
        let Some((place, entry)) = self.entry_for(link, switch, packet, decision) else { return };
        self.evict_entry(place);
        self.cache.store(place, switch, entry, &decision.rules);
    }

    /// The entry for a decision and its place in the cache, if the decision holds for further packets of the lane.
    fn entry_for(&self, link: u32, switch: NodeId, packet: &Packet, decision: &Decision) -> Option<(usize, Entry)> {
        let emission = decision.single()?;
        let place = self.cache.place(packet, link)?;
        let out = self.fabric.out_link(switch, emission.port)?;
        // If a rule looks at flags, a decision about a packet with flags does not hold for others. It is not cached.
        let any_flags = !decision.looked_at_flags;
        if packet.flags() != 0 && !any_flags {
            return None;
        }
        let entry = Entry::new(self.in_link(link), packet, any_flags, out.0, TagBits::of(emission.tag));
        Some((place, entry))
    }

    /// Sends the copies of a packet. Returns by how much the number of the lane's packets under way decreases.
    fn emit(&mut self, now: Ps, link: u32, packet: Packet, decision: &Decision) -> i32 {
        let switch = self.fabric.link(LinkId(link)).to;
        let copies = decision.emissions.len() as i32;
        self.totals.copied += copies as u64 - 1;
        let mut lost = 1 - copies;
        for emission in &decision.emissions {
            let mut copy = packet;
            copy.pass(TagBits::of(emission.tag));
            match self.fabric.out_link(switch, emission.port) {
                Some(out) => {
                    let copy = self.with_note(now, link, out.0, copy);
                    lost += i32::from(!self.enqueue(now, out.0, copy));
                }
                None => {
                    self.totals.dropped_at_switches += 1;
                    lost += 1;
                }
            }
        }
        lost
    }

    /// Empties a cache entry and credits its frames.
    fn evict_entry(&mut self, place: usize) {
        if let Some((switch, owed)) = self.cache.take(place) {
            credit_node(&mut self.nodes[switch.index()], &self.lanes, &owed);
        }
    }

    /// Caches no decision from now on.
    pub(crate) fn forget_decisions(&mut self) {
        self.cache = Cache::off(self.fabric.nodes().len());
    }

    /// Registers a subflow whose data have these headers, and makes room for the decisions about its lanes.
    pub(crate) fn open_slot(&mut self, slot: usize, data: Headers) {
        if T::PARTED {
            self.note_opened(slot, data);
        }
        self.make_room(slot, data);
    }

    fn make_room(&mut self, slot: usize, data: Headers) {
        self.lanes.open(slot, data);
        if let Some(balancers) = &mut self.balancers {
            balancers.open(&self.fabric, slot, &data);
        }
        self.cache.reserve_lanes((slot + 1) * 2);
    }

    /// Removes the decisions for both lanes of a connection that is over.
    pub(crate) fn release_slot(&mut self, slot: usize) {
        if T::PARTED {
            self.note_released(slot);
        }
        self.forget_slot(slot);
    }

    fn forget_slot(&mut self, slot: usize) {
        for lane in [slot as u32 * 2, slot as u32 * 2 + 1] {
            for place in self.cache.lane_places(lane) {
                self.evict_entry(place);
            }
        }
        self.lanes.close(slot);
    }

    /// Number of decisions cached for a lane.
    #[cfg(test)]
    pub(crate) fn remembered(&self, lane: u32) -> usize {
        self.cache.remembered(lane)
    }

    /// Updates the counters of a switch, then reads or changes it by `act`. Changes take effect on the next packet.
    pub(crate) fn with_switch<R>(&mut self, node: NodeId, act: impl FnOnce(&mut Switch) -> R) -> Option<R> {
        let (lanes, of) = (&self.lanes, &mut self.nodes[node.index()]);
        self.cache.collect(node, |owed| credit_node(of, lanes, &owed));
        self.change_switch(node, act)
    }

    /// Changes a rule with this match, after updating its counters.
    pub(crate) fn change_rule<R>(
        &mut self,
        node: NodeId,
        matches: &Match,
        act: impl FnOnce(&mut Switch) -> R,
    ) -> Option<R> {
        let Some(flow) = matches.only_five_tuple() else { return self.with_switch(node, act) };
        self.forget_flow(node, &flow);
        self.change_switch(node, act)
    }

    /// Changes a switch without updating its counters, which nobody is about to read.
    pub(crate) fn change_switch<R>(&mut self, node: NodeId, act: impl FnOnce(&mut Switch) -> R) -> Option<R> {
        let rules = self.nodes[node.index()].rules_mut()?;
        let result = act(rules);
        let stale = rules.take_stale();
        self.forget(node, stale);
        Some(result)
    }

    /// Removes decisions of a switch from the cache.
    fn forget(&mut self, node: NodeId, stale: Stale) {
        match stale {
            Stale::Nothing => {}
            Stale::Flows(flows) => flows.iter().for_each(|flow| self.forget_flow(node, flow)),
            Stale::Everything => {
                let (lanes, of) = (&self.lanes, &mut self.nodes[node.index()]);
                self.cache.forget(node, |owed| credit_node(of, lanes, &owed));
            }
        }
    }

    /// Removes the decisions of a switch about the frames of a five-tuple.
    fn forget_flow(&mut self, node: NodeId, flow: &FiveTuple) {
        for lane in self.lanes.lanes(flow).into_iter().flatten() {
            for place in self.cache.lane_places(lane) {
                if self.cache.belongs_to(place, node) {
                    self.evict_entry(place);
                }
            }
        }
    }

    /// A switch has lost power: its table is empty.
    pub(crate) fn clear_switch(&mut self, now: Ps, node: NodeId) {
        if let Some(balancers) = &mut self.balancers {
            balancers.restart(&self.fabric, node, now);
        }
        self.change_switch(node, Switch::clear);
    }

    /// Time when a rule of a switch may time out.
    pub(crate) fn switch_timeout(&self, node: NodeId) -> Option<Ps> {
        self.nodes[node.index()].rules()?.poll_timeout().map(crate::time::to_ps)
    }

    /// Removes and returns the rules of a switch that have timed out.
    pub(crate) fn expire(&mut self, now: Ps, node: NodeId) -> Vec<Removed> {
        self.with_switch(node, |switch| switch.expire(to_nanos(now))).unwrap_or_default()
    }

    /// Brings one direction of a cable up or down. Returns the lanes of the packets that were lost with it.
    pub(crate) fn set_link(&mut self, now: Ps, link: LinkId, up: bool) -> Vec<u32> {
        let record = *self.fabric.link(link);
        self.change_switch(record.from, |switch| switch.set_port(record.from_port, up));
        let mut lost = Vec::new();
        if up {
            self.links[link.index()].restore(now);
        } else {
            self.catch_up(now, link);
            self.wheel.remove(&mut self.links, link.0);
            let begun_by = self.note_failure(link, now);
            lost = self.links[link.index()].fail(now, begun_by);
            lost.extend(self.fail_port(now, link));
            lost.extend(pfc::fail_pauses(self, now, link.0));
            for packet in lost.iter().filter(|packet| packet.slot() == NO_CONNECTION && packet.pause().is_none()) {
                self.take_frame(packet);
            }
        }
        lost.iter().map(Packet::lane).collect()
    }

    /// Returns the links that a frame with these headers would cross from `uplink` to a host, by the present rules.
    /// The list ends where the frame would be dropped or copied to several ports. If switches run programs, the
    /// cached decisions are used.
    pub(crate) fn trace(&self, uplink: LinkId, mut headers: Headers) -> Vec<LinkId> {
        let mut way = vec![uplink];
        if self.programs.is_some() {
            let lane = self.lanes.lanes(&headers.five_tuple).into_iter().flatten().next();
            way.extend(lane.into_iter().flat_map(|lane| self.cache.out_links(lane)));
            return way;
        }
        while way.len() <= usize::from(TTL) {
            let record = self.fabric.link(way[way.len() - 1]);
            let Some(rules) = self.nodes[record.to.index()].rules() else { break };
            let decision = rules.decide(record.to_port, &headers);
            let [emission] = decision.emissions[..] else { break };
            let Some(out) = self.fabric.out_link(record.to, emission.port) else { break };
            headers.tag = emission.tag;
            way.push(out);
        }
        way
    }

    /// Returns the totals of all packets so far. The number of events lacks those of the agenda.
    pub(crate) fn packet_totals(&self) -> PacketTotals {
        let links = self.fabric_links();
        let sum = |count: fn(&LinkQueue) -> u64| links.iter().map(count).sum::<u64>();
        let hops = sum(LinkQueue::delivered_packets);
        let probes = self.balancers.as_ref().map_or(0, |balancers| balancers.probes_received);
        let arrived: u64 = links.iter().filter(|link| link.to_host()).map(LinkQueue::delivered_packets).sum();
        PacketTotals {
            sent: self.totals.sent,
            copied: self.totals.copied,
            delivered: arrived + self.used_up() + probes + pfc::pauses_received(self) - self.totals.misdelivered,
            misdelivered: self.totals.misdelivered,
            dropped: self.totals.dropped_at_switches + sum(LinkQueue::dropped_packets),
            in_flight: sum(LinkQueue::in_flight) + self.waiting_at_ports(),
            trimmed: self.trimmed_at_ports(),
            hops,
            events: hops + self.port_events(),
        }
    }
}

/// Number of tables of every switch: control, long flows, defaults, and one spare.
pub(crate) const TABLES: u8 = 4;

/// Credits a switch for frames that were forwarded from the cache.
fn credit_node(node: &mut Node, lanes: &Lanes, owed: &Credit) {
    let last = to_nanos(owed.last);
    match node {
        Node::Host => {}
        Node::Rules(rules) => {
            for rule in owed.rules.iter().flatten() {
                rules.credit(&[*rule], owed.packets, owed.bytes, last);
            }
        }
        Node::Program(program) => {
            program.credit(lanes.of_lane(owed.lane), Used { last, packets: owed.packets, bytes: owed.bytes });
        }
    }
}
