//! The data plane: links, switches and the packets between them. It knows nothing about transports or controllers. It
//! returns to the caller the packets for hosts and the copies for the controller.

mod balancers;
mod destinations;
mod division;
mod links;
mod losses;
mod node;
mod outbox;
mod own_ports;
pub(crate) mod pfc;
mod plan;
mod ports;
mod prefetch;
mod sent;
mod spraying;
mod switch_programs;
mod switches;
mod victims;
mod walk;

use crate::cache::{kept_rules, Cache, Entry, Rules};
use crate::interface::Interface;
use crate::kinds::{Exchanged, Kind, Numbers};
use crate::lanes::NO_CONNECTION;
use crate::link::{LinkCounts, LinkQueue};
use crate::marks::Signals;
use crate::next_hops::Sets;
use crate::outcome::{KindOutcome, PacketTotals, ProgramOutcome};
use crate::packet::{Packet, TagBits};
use crate::settings::ControlSettings;
use crate::tap::{Loss, Tap};
use crate::time::{to_nanos, Ps};
use balancers::Balancers;
use links::{Links, Slowly};
use node::Node;
pub(crate) use node::Totals;
pub(crate) use outbox::Parcel;
use pathloom_model::rules::Match;
use pathloom_model::{Fabric, Frame, Headers, LinkId, NodeId, PortNo, Quality};
use pathloom_switching::deployment::Deployment;
use pathloom_switching::{Decision, Removed, RuleRef, Switch, SwitchSettings};
pub(crate) use plan::Plan;
use std::sync::Arc;
use switch_programs::{Plane, Programs};
use switches::Switches;
pub(crate) use walk::{Change, Walk, WalkedLink, Ways};

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

pub(crate) struct Network<T: Tap> {
    fabric: Arc<Fabric>,
    pub(crate) links: Links<T>,
    switches: Switches,
    pub(crate) totals: Totals,
    /// State of the programs of switches outside the switches, if switches run programs.
    programs: Option<Box<Programs>>,
    /// Whether packets of a flow take several paths, so that a decision names a set of next hops.
    sprays: bool,
    /// The sets of next hops that decisions name.
    sets: Sets,
    /// The load balancers of switches, if they have any.
    balancers: Option<Box<Balancers>>,
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
        Network {
            links: Links::new(fabric.clone(), control, signals, seed, tap),
            switches: Switches {
                cache: Cache::new(nodes.len(), path_switches),
                destinations: None,
                nodes,
                changes: None,
            },
            totals: Totals::default(),
            programs,
            sprays: false,
            sets: Sets::default(),
            balancers: None,
            fabric,
        }
    }

    /// Returns the time and link of the next arrival, if it is before `limit`. On a large fabric, `at_host` is called
    /// for packets that will reach a host soon, so that data of the host can be prefetched.
    #[inline(always)]
    pub(crate) fn next_before(&mut self, limit: Ps, at_host: impl Fn(&Packet)) -> Option<(Ps, u32)> {
        self.links.next_before(limit, &self.switches.cache, &self.sets, at_host)
    }

    /// Informs the wheel that an event other than an arrival has advanced the time to `now`.
    pub(crate) fn advance_to(&mut self, now: Ps) {
        self.links.wheel.advance_to(now);
    }

    /// A host gives a packet to one of its links. Returns whether the link took it.
    #[inline(never)]
    pub(crate) fn send(&mut self, now: Ps, link: u32, packet: Packet) -> bool {
        self.totals.sent += 1;
        self.links.send(now, link, packet)
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
        let (packet, hands_to_host) = self.links.dequeue(link);
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
        let Some(entry) = self.switches.cache.entry(packet.lane(), packet.hop()) else { return Arrival::Slow(packet) };
        if !entry.matches(in_link, &packet) {
            return Arrival::Slow(packet);
        }
        let (out, tag) = entry.pass_on(now, &packet);
        packet.pass(tag);
        if self.links.enqueue(now, out, packet) {
            Arrival::Forwarded
        } else {
            Arrival::Dropped(packet.lane())
        }
    }

    /// Handles a packet at the end of a link for which the main loop has found no decision.
    pub(crate) fn arrive_slowly(&mut self, now: Ps, link: u32, packet: Packet) -> Arrival {
        match self.links.arrive_slowly(now, link, packet) {
            Slowly::Done(arrival) => arrival,
            Slowly::Lost(packet) => {
                if packet.slot() == NO_CONNECTION {
                    self.take_frame(&packet);
                }
                Arrival::Dropped(packet.lane())
            }
            Slowly::Decide(in_link, packet) if self.balancers.is_some() => self.forward_balanced(now, in_link, packet),
            Slowly::Decide(in_link, packet) if self.sprays => self.forward_sprayed(now, in_link, packet),
            Slowly::Decide(in_link, packet) => self.forward(now, in_link, packet),
        }
    }

    /// Lets all packets take the slow path when they reach a host. To be called before the first packet.
    pub(crate) fn take_slow_path_to_hosts(&mut self) {
        self.links.take_slow_path(LinkQueue::to_host);
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
        let headers = self.links.lanes.headers(&packet);
        if let Some(headers) = headers.as_ref().filter(|_| self.sprays && packet.hop() < TTL) {
            if let Some(lost) = self.decide_by_destination(now, link, packet, headers) {
                return (None, lost);
            }
        }
        let (Some(headers), Some(program)) = (headers, self.switches.nodes[switch.index()].rules_mut()) else {
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
                self.links.tap.lost(now, switch, &headers, why);
            }
            return (copy, 1);
        }
        if self.sprays {
            let set = self.next_hops(switch, in_port, &headers.five_tuple, &decision);
            let is_kept = self.note_destination(switch, &headers, &decision, set.map(|(set, _)| set));
            if !is_kept && decision.single().is_some() {
                self.switches.cache.give_row(packet.lane());
            }
            if let Some(set) = set {
                let remembered = self.entry_for(link, switch, &packet, &decision);
                return (copy, self.spray(now, link, packet, remembered, set));
            }
        }
        if let Some((place, entry, rules)) = self.entry_for(link, switch, &packet, &decision) {
            self.switches.remember(&self.links.lanes, place, switch, (entry, rules));
        }
        (copy, self.emit(now, link, packet, &decision))
    }

    /// The entry for a decision and its place in the cache, if the decision holds for further packets of the lane.
    fn entry_for(
        &self,
        link: u32,
        switch: NodeId,
        packet: &Packet,
        decision: &Decision,
    ) -> Option<(usize, Entry, Rules)> {
        let emission = decision.single()?;
        let out = self.fabric.out_link(switch, emission.port)?;
        // If a rule looks at flags, a decision about a packet with flags does not hold for others. It is not cached.
        let any_flags = !decision.looked_at_flags;
        if packet.flags() != 0 && !any_flags {
            return None;
        }
        let place = self.switches.cache.place(packet, link)?;
        let entry = Entry::new(self.links.in_link(link), packet, any_flags, out.0, TagBits::of(emission.tag));
        Some((place, entry, kept_rules(&decision.rules)?))
    }

    /// Sends the copies of a packet. Returns by how much the number of the lane's packets under way decreases.
    fn emit(&mut self, now: Ps, link: u32, packet: Packet, decision: &Decision) -> i32 {
        let switch = self.fabric.link(LinkId(link)).to;
        let copies = decision.emissions.len() as i32;
        self.totals.copied += copies as u64 - 1;
        let mut lost = 1 - copies;
        for emission in &decision.emissions {
            match self.fabric.out_link(switch, emission.port) {
                Some(out) => lost += self.pass_on(now, link, packet, (out.0, TagBits::of(emission.tag))),
                None => {
                    self.totals.dropped_at_switches += 1;
                    lost += 1;
                }
            }
        }
        lost
    }

    /// Caches no decision from now on.
    pub(crate) fn forget_decisions(&mut self) {
        self.switches.cache = Cache::off(self.fabric.nodes().len());
        self.switches.destinations = None;
    }

    /// Limits the number of lanes about which decisions are cached, if packets of a flow take several paths.
    pub(crate) fn limit_lanes(&mut self, most: usize) {
        self.switches.cache.set_most_rows(most);
    }

    /// Registers a subflow whose data have these headers, and makes room for the decisions about its lanes.
    pub(crate) fn open_slot(&mut self, slot: usize, data: Headers) {
        if T::PARTED {
            self.links.outbox.note_opened(slot, data);
        }
        self.make_room(slot, data);
    }

    fn make_room(&mut self, slot: usize, data: Headers) {
        self.links.lanes.open(slot, data);
        if let Some(balancers) = &mut self.balancers {
            balancers.open(&self.fabric, slot, &data);
        }
        self.switches.cache.reserve_lanes((slot + 1) * 2);
    }

    /// Removes the decisions for both lanes of a connection that is over.
    pub(crate) fn release_slot(&mut self, slot: usize) {
        if T::PARTED {
            self.links.outbox.note_released(slot);
        }
        self.forget_slot(slot);
    }

    fn forget_slot(&mut self, slot: usize) {
        if let Some(telemetry) = &mut self.links.telemetry {
            telemetry.forget(slot);
        }
        self.switches.forget_slot(&self.links.lanes, slot);
        self.links.lanes.close(slot);
    }

    /// Number of decisions cached for a lane.
    #[cfg(test)]
    pub(crate) fn remembered(&self, lane: u32) -> usize {
        self.switches.cache.remembered(lane)
    }

    /// See [`Switches::with`].
    pub(crate) fn with_switch<R>(&mut self, node: NodeId, act: impl FnOnce(&mut Switch) -> R) -> Option<R> {
        self.switches.with(&self.links.lanes, node, act)
    }

    /// See [`Switches::change_rule`].
    pub(crate) fn change_rule<R>(
        &mut self,
        node: NodeId,
        matches: &Match,
        act: impl FnOnce(&mut Switch) -> R,
    ) -> Option<R> {
        self.switches.change_rule(&self.links.lanes, node, matches, act)
    }

    /// See [`Switches::change`].
    pub(crate) fn change_switch<R>(&mut self, node: NodeId, act: impl FnOnce(&mut Switch) -> R) -> Option<R> {
        self.switches.change(&self.links.lanes, node, act)
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
        self.switches.timeout(node)
    }

    /// Removes and returns the rules of a switch that have timed out.
    pub(crate) fn expire(&mut self, now: Ps, node: NodeId) -> Vec<Removed> {
        self.with_switch(node, |switch| switch.expire(to_nanos(now))).unwrap_or_default()
    }

    /// Brings one direction of a cable up or down. Returns the lanes of the packets that were lost with it.
    pub(crate) fn set_link(&mut self, now: Ps, link: LinkId, up: bool) -> Vec<u32> {
        let record = *self.fabric.link(link);
        self.note_link(link);
        self.change_switch(record.from, |switch| switch.set_port(record.from_port, up));
        if up {
            self.links[link.index()].restore(now);
            return Vec::new();
        }
        let lost = self.links.fail(now, link);
        for packet in lost.iter().filter(|packet| packet.slot() == NO_CONNECTION && packet.pause().is_none()) {
            self.take_frame(packet);
        }
        lost.iter().map(Packet::lane).collect()
    }

    fn note_link(&mut self, link: LinkId) {
        if let Some(changes) = &mut self.switches.changes {
            changes.push(Change::Link(link));
        }
    }

    /// One direction of a cable becomes slow or lossy, or gets its original quality back.
    pub(crate) fn set_quality(&mut self, now: Ps, link: LinkId, quality: Quality) {
        self.note_link(link);
        let was = self.links.in_link(link.0);
        self.links.set_quality(now, link, quality);
        self.switches.cache.renumber(self.fabric.link(link).to, was, self.links.in_link(link.0));
    }

    /// The programs of switches, if they run any, and what programs act on.
    pub(crate) fn programs_at(&mut self, now: Ps) -> Option<(&mut Programs, Plane<'_, T>)> {
        let plane = Plane { now, links: &mut self.links, switches: &mut self.switches, totals: &mut self.totals };
        Some((self.programs.as_deref_mut()?, plane))
    }

    /// A host sends a frame of no connection.
    pub(crate) fn send_frame(&mut self, now: Ps, link: LinkId, frame: Frame) {
        if let Some((programs, mut plane)) = self.programs_at(now) {
            programs.send_frame(&mut plane, link, frame);
        }
    }

    /// Removes a frame of no connection from the network and returns it.
    pub(crate) fn take_frame(&mut self, packet: &Packet) -> Option<Frame> {
        self.programs.as_mut()?.take_frame(packet)
    }

    /// Results of the programs; `None` if switches follow rules.
    pub(crate) fn program_outcome(&self) -> Option<ProgramOutcome> {
        let programs = self.programs.as_ref()?;
        Some(programs.outcome(&self.switches, &self.fabric, self.links.of_fabric()))
    }

    /// Number of stored frames of no connection: those in the network.
    #[cfg(test)]
    pub(crate) fn kept_frames(&self) -> usize {
        self.programs.as_ref().map_or(0, |programs| programs.kept_frames())
    }

    /// Returns the links that a frame with these headers would cross from `uplink` to a host, by the present rules.
    /// The list ends where the frame would be dropped or copied to several ports. If switches run programs, the
    /// cached decisions are used.
    pub(crate) fn trace(&self, uplink: LinkId, mut headers: Headers) -> Vec<LinkId> {
        let mut way = vec![uplink];
        if self.programs.is_some() {
            let lane = self.links.lanes.lanes(&headers.five_tuple).into_iter().flatten().next();
            way.extend(lane.into_iter().flat_map(|lane| self.switches.cache.out_links(lane)));
            return way;
        }
        while way.len() <= usize::from(TTL) {
            let record = self.fabric.link(way[way.len() - 1]);
            let Some(rules) = self.switches.nodes[record.to.index()].rules() else { break };
            let decision = rules.decide(record.to_port, &headers);
            let [emission] = decision.emissions[..] else { break };
            let Some(out) = self.fabric.out_link(record.to, emission.port) else { break };
            headers.tag = emission.tag;
            way.push(out);
        }
        way
    }

    /// Packets by kind, of which hosts have exchanged so many.
    pub(crate) fn kinds(&self, mut exchanged: Exchanged) -> Vec<KindOutcome> {
        let mut in_flight = Numbers::default();
        let on_links = self.links.of_fabric().iter().flat_map(LinkQueue::packets);
        on_links.chain(self.links.at_ports()).for_each(|packet| in_flight.add(Kind::of(packet), 1));
        exchanged.sent.add(Kind::Pause, pfc::pauses_sent(&self.links));
        exchanged.arrived.add(Kind::Pause, pfc::pauses_taken(&self.links));
        exchanged.outcome(&in_flight, self.links.trimmed_at_ports())
    }

    /// The ways of flows by the present rules.
    pub(crate) fn ways(&self) -> Ways<'_> {
        Ways { fabric: &self.fabric, switches: &self.switches, lanes: &self.links.lanes }
    }

    /// Counts frames that rules of a switch have forwarded. Rules that were removed since are ignored.
    pub(crate) fn credit_rules(&mut self, now: Ps, switch: NodeId, rules: &[RuleRef], [packets, bytes]: [u64; 2]) {
        if let Some(of) = self.switches.nodes[switch.index()].rules_mut() {
            of.credit(rules, packets, bytes, to_nanos(now));
        }
    }

    /// Notes from now on the changes that may alter the ways of flows.
    pub(crate) fn note_changes(&mut self) {
        self.switches.changes = Some(Vec::new());
    }

    /// The changes since the last call, if they are noted.
    pub(crate) fn take_changes(&mut self) -> Vec<Change> {
        self.switches.changes.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Credits the rules by which the packets of a lane are forwarded for frames that were skipped, and their bytes.
    pub(crate) fn credit_lane(&mut self, now: Ps, lane: u32, [packets, bytes]: [u64; 2]) {
        self.switches.credit_lane(&self.links.lanes, now, lane, [packets, bytes]);
    }

    /// Moves all packets to a time that is later by `by`, at `now`. Meanwhile each link of the fabric has counted `more`. As
    /// many packets were sent as have arrived or were lost.
    pub(crate) fn skip(&mut self, by: Ps, now: Ps, more: &[LinkCounts]) {
        let to_host = self.links.of_fabric().iter().map(LinkQueue::to_host);
        let arrived = |(more, to_host): (&LinkCounts, bool)| if to_host { more.passed - more.lost } else { 0 };
        self.totals.sent += more.iter().zip(to_host).map(arrived).sum::<u64>();
        self.totals.sent += more.iter().map(|more| more.refused + more.lost).sum::<u64>();
        self.links.translate(by, now, more);
    }

    /// Returns the totals of all packets so far. The number of events lacks those of the agenda.
    pub(crate) fn packet_totals(&self) -> PacketTotals {
        let links = self.links.of_fabric();
        let sum = |count: fn(&LinkQueue) -> u64| links.iter().map(count).sum::<u64>();
        let hops = sum(LinkQueue::delivered_packets);
        let probes = self.balancers.as_ref().map_or(0, |balancers| balancers.probes_received);
        let used_up = self.programs.as_ref().map_or(0, |programs| programs.used_up());
        let arrived: u64 = links.iter().filter(|link| link.to_host()).map(LinkQueue::delivered_packets).sum();
        PacketTotals {
            sent: self.totals.sent + pfc::pauses_sent(&self.links),
            copied: self.totals.copied,
            delivered: arrived + used_up + probes + pfc::pauses_received(&self.links) - self.totals.misdelivered,
            misdelivered: self.totals.misdelivered,
            dropped: self.totals.dropped_at_switches + sum(LinkQueue::dropped_packets),
            in_flight: sum(LinkQueue::in_flight) + self.links.waiting_at_ports(),
            trimmed: self.links.trimmed_at_ports(),
            hops,
            events: hops + self.links.port_events(),
        }
    }
}

/// Number of tables of every switch: control, long flows, defaults, and one spare.
pub(crate) const TABLES: u8 = 4;
