//! Switches that run a program. It decides about frames, sends its own frames and has its own timers.
//!
//! A packet of a connection becomes a frame when a program is asked about it. The result is the same packet, or a
//! frame of no connection, which may contain the packet ([`Stored`]).

use super::links::Links;
use super::node::{Node, Totals};
use super::switches::Switches;
use super::TTL;
use crate::cache::{Entry, Rules};
use crate::frames::{is_broadcast, mac_of, switch_mac, wire_bytes, Counts, Stored};
use crate::lanes::{Lanes, NO_CONNECTION};
use crate::link::LinkQueue;
use crate::outcome::{ProgramOutcome, TableSample};
use crate::packet::{Packet, TagBits};
use crate::port::NOWHERE;
use crate::store::Store;
use crate::tap::{Loss, Tap};
use crate::time::{to_nanos, to_ps, Ps, NEVER};
use pathloom_model::{Body, Fabric, Frame, Headers, LinkId, Nanos, NodeId, PortNo, Tier};
use pathloom_switching::deployment::Deployment;
use pathloom_switching::program::{DropCause, Outgoing};
use pathloom_switching::programs::{Identity, PortRole};
use pathloom_switching::{Program, Stale, Tables, Verdict};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::VecDeque;

/// Shortest time between two runs of a program's timer.
const GRAIN: Nanos = Nanos::from_millis(10);
/// The lane of frames of no connection.
const NO_LANE: u32 = (NO_CONNECTION as u32) << 1;

/// State of the programs of switches outside the switches.
pub(crate) struct Programs {
    deployment: Deployment,
    /// Random numbers for the time that switches take for messages.
    rng: Pcg64,
    /// Frames of no connection in the network.
    frames: Store<Stored>,
    counts: Counts,
    /// Changes that the owner of the lanes has not taken yet: a lane, and how many packets it lost or, if negative,
    /// gained.
    changes: VecDeque<(u32, i32)>,
    /// By node: time of its timer event in the agenda.
    timers: Vec<Ps>,
    /// By node: earliest time of the next timer event.
    next_allowed: Vec<Ps>,
    /// By node: number of the start of its program.
    boots: Vec<u64>,
    /// Counts of programs that no longer run.
    retired: Counted,
    samples: Vec<TableSample>,
    entries_max: usize,
    hosts_max: usize,
}

/// What a program acts on: the data plane without the programs.
pub(crate) struct Plane<'a, T: Tap> {
    pub(super) now: Ps,
    pub(super) links: &'a mut Links<T>,
    pub(super) switches: &'a mut Switches,
    pub(super) totals: &'a mut Totals,
}

impl<T: Tap> Plane<'_, T> {
    fn program(&mut self, node: NodeId) -> Option<&mut (dyn Program + Send)> {
        self.switches.nodes[node.index()].program_mut()
    }
}

/// Counts of programs, summed over switches.
#[derive(Clone, Copy, Default)]
struct Counted {
    explorations: u64,
    recoveries: u64,
    fails: u64,
    late_copies: u64,
    refused: u64,
}

impl Counted {
    fn add(&mut self, tables: &Tables) {
        let dropped = |cause| {
            let mut rows = DropCause::ALL.iter().zip(tables.dropped);
            rows.find(|(one, _)| **one == cause).map_or(0, |(_, count)| count)
        };
        self.explorations += tables.explorations;
        self.recoveries += tables.recoveries;
        self.fails += tables.fails;
        self.late_copies += dropped(DropCause::LateCopy);
        self.refused += tables.refused.iter().map(|port| port.frames).sum::<u64>();
    }
}

impl Programs {
    pub(super) fn new(deployment: Deployment, nodes: usize, seed: u64) -> Programs {
        Programs {
            deployment,
            rng: Pcg64::seed_from_u64(seed ^ 0x7377_6974),
            frames: Store::default(),
            counts: Counts::default(),
            changes: VecDeque::new(),
            timers: vec![NEVER; nodes],
            next_allowed: vec![0; nodes],
            boots: vec![0; nodes],
            retired: Counted::default(),
            samples: Vec::new(),
            entries_max: 0,
            hosts_max: 0,
        }
    }

    /// Draws the time that a switch takes for a message.
    fn draw_delay(&mut self) -> Ps {
        match to_ps(self.deployment.jitter) {
            0 => 0,
            most => self.rng.random_range(0..=most),
        }
    }

    /// Makes the program of a switch for its next start. The program is told the cabling.
    pub(super) fn start(&mut self, now: Ps, fabric: &Fabric, node: NodeId) -> Box<dyn Program + Send> {
        let boot = &mut self.boots[node.index()];
        *boot += 1;
        let role = |&link: &LinkId| {
            let link = fabric.link(link);
            let tier = fabric.node(link.to).tier;
            let role = if tier == Tier::Host { PortRole::Host } else { PortRole::Switch { tier: Some(tier) } };
            (link.from_port, role)
        };
        let (tier, roles) = (Some(fabric.node(node).tier), fabric.node(node).ports.iter().map(role).collect());
        (self.deployment.make)(to_nanos(now), Identity { mac: switch_mac(node), tier, boot: *boot, roles })
    }

    /// A program decides about a packet that has arrived over `link`. Returns its switch, for which the caller must
    /// then call [`Programs::take_change`] and [`Programs::next_timer`].
    pub(crate) fn ask<T: Tap>(&mut self, plane: &mut Plane<'_, T>, link: u32, packet: Packet) -> NodeId {
        let record = *plane.links.fabric.link(LinkId(link));
        let node = record.to;
        plane.totals.decisions += 1;
        let Some(Stored { frame, inner }) = self.unpack(&plane.links.lanes, &packet) else {
            plane.totals.dropped_at_switches += 1;
            return node;
        };
        let (now, fabric) = (to_nanos(plane.now), &plane.links.fabric);
        let between_switches = fabric.node(node).tier == Tier::Tor && !fabric.is_host(record.from);
        let Some(program) = plane.program(node) else { return node };
        if is_broadcast(&frame) && between_switches {
            self.counts.broadcast_bytes += packet.wire();
        }
        let verdict = match packet.hop() < TTL {
            true => program.decide(now, record.to_port, &frame),
            false => Verdict::drop(DropCause::TooManyHops),
        };
        forget_stale(plane, node);
        if verdict.remember.is_some() {
            remember(plane, link, node, &packet, &verdict);
        }
        self.carry_out(plane, node, &packet, inner, &verdict);
        self.send_own(plane, node);
        node
    }

    /// The frame for a packet, and the packet of a connection that it is or contains.
    fn unpack(&mut self, lanes: &Lanes, packet: &Packet) -> Option<Stored> {
        match lanes.headers(packet) {
            Some(headers) => {
                let (src, dst) = (headers.five_tuple.src(), headers.five_tuple.dst());
                let frame = Frame { src: mac_of(src), dst: mac_of(dst), body: Body::Ip(headers) };
                Some(Stored { frame, inner: Some(*packet) })
            }
            None => self.frames.take(packet.seq),
        }
    }

    /// Sends the emissions of a verdict, and counts a dropped frame.
    fn carry_out<T: Tap>(
        &mut self,
        plane: &mut Plane<'_, T>,
        node: NodeId,
        packet: &Packet,
        inner: Option<Packet>,
        verdict: &Verdict,
    ) {
        let connected = packet.slot() != NO_CONNECTION;
        if let Some(why) = verdict.dropped.filter(|_| verdict.emissions.is_empty()) {
            let used_up = matches!(why, DropCause::Consumed | DropCause::LateCopy | DropCause::NoPort);
            match used_up && !connected {
                true => self.counts.used_up += 1,
                false => plane.totals.dropped_at_switches += 1,
            }
            if T::ON {
                if let Some(headers) = plane.links.lanes.headers(packet) {
                    let loop_or_not = if why == DropCause::TooManyHops { Loss::Loop } else { Loss::NoRule };
                    plane.links.tap.lost(plane.now, node, &headers, loop_or_not);
                }
            }
        }
        plane.totals.copied += (verdict.emissions.len() as u64).saturating_sub(1);
        let mut lost = i32::from(connected);
        for outgoing in &verdict.emissions {
            match self.send_from(plane, node, packet.hop() + 1, inner, outgoing) {
                Some(lane) if connected && lane == packet.lane() => lost -= 1,
                Some(lane) => self.changes.push_back((lane, -1)),
                None => {}
            }
        }
        if lost != 0 {
            self.changes.push_back((packet.lane(), lost));
        }
    }

    /// Sends a frame out of a switch. If it is a packet of a connection, returns its lane, which has one more packet
    /// now.
    fn send_from<T: Tap>(
        &mut self,
        plane: &mut Plane<'_, T>,
        node: NodeId,
        hops: u8,
        inner: Option<Packet>,
        outgoing: &Outgoing,
    ) -> Option<u32> {
        let Some(out) = plane.links.fabric.out_link(node, outgoing.port) else {
            plane.totals.dropped_at_switches += 1;
            return None;
        };
        let own = match (inner, outgoing.frame.body) {
            // A connection may have ended while its packet was inside a message. Another connection may use its slot
            // now.
            (Some(inner), Body::Ip(headers)) => {
                let lanes = plane.links.lanes.lanes(&headers.five_tuple);
                lanes.contains(&Some(inner.lane())).then(|| inner.after(hops, TagBits::of(headers.tag)))
            }
            _ => None,
        };
        match own {
            Some(own) => plane.links.enqueue(plane.now, out.0, own).then(|| own.lane()),
            None => {
                let ready = plane.now + self.draw_delay();
                self.put_on(plane.links, ready, (out, hops), Stored { frame: outgoing.frame, inner });
                None
            }
        }
    }

    /// Puts a frame of no connection on a link. It has passed this many switches.
    fn put_on<T: Tap>(&mut self, links: &mut Links<T>, now: Ps, (link, hops): (LinkId, u8), stored: Stored) {
        let (frame, wire) = (stored.frame, wire_bytes(&stored.frame, stored.inner.as_ref()));
        let number = self.frames.put(stored);
        let packet = Packet::new(NO_LANE, number, 0, wire as u16, 0).after(hops, TagBits::of(None));
        if links.enqueue(now, link.0, packet) {
            self.counts.sent(&frame, wire);
        } else {
            self.take_frame(&packet);
        }
    }

    /// A host sends a frame of no connection.
    pub(super) fn send_frame<T: Tap>(&mut self, plane: &mut Plane<'_, T>, link: LinkId, frame: Frame) {
        plane.totals.sent += 1;
        self.put_on(plane.links, plane.now, (link, 0), Stored { frame, inner: None });
    }

    /// Removes a frame of no connection from the network and returns it.
    pub(super) fn take_frame(&mut self, packet: &Packet) -> Option<Frame> {
        Some(self.frames.take(packet.seq)?.frame)
    }

    /// Sends the frames that a program has produced itself.
    fn send_own<T: Tap>(&mut self, plane: &mut Plane<'_, T>, node: NodeId) {
        while let Some(outgoing) = plane.program(node).and_then(|program| program.poll_emission()) {
            plane.totals.sent += 1;
            self.send_from(plane, node, 0, None, &outgoing);
        }
        forget_stale(plane, node);
    }

    /// Takes the next change of packets of connections at programs: a lane, and how many packets it lost or, if
    /// negative, gained.
    pub(crate) fn take_change(&mut self) -> Option<(u32, i32)> {
        self.changes.pop_front()
    }

    /// Starts or restarts the program of a switch. The ports for whose links `is_up` is true are up.
    pub(crate) fn restart<T: Tap>(&mut self, plane: &mut Plane<'_, T>, node: NodeId, is_up: impl Fn(LinkId) -> bool) {
        let (now, fabric) = (plane.now, plane.links.fabric.clone());
        let Node::Program(program) = &mut plane.switches.nodes[node.index()] else { return };
        self.retired.add(&program.tables());
        let mut fresh = self.start(now, &fabric, node);
        for &link in fabric.node(node).ports.iter().filter(|&&link| is_up(link)) {
            fresh.set_port(to_nanos(now), fabric.link(link).from_port, true);
        }
        *program = fresh;
        plane.switches.forget(&plane.links.lanes, node, Stale::Everything);
        self.send_own(plane, node);
    }

    /// A port of a switch with a program goes up or down.
    pub(crate) fn set_port<T: Tap>(&mut self, plane: &mut Plane<'_, T>, node: NodeId, port: PortNo, up: bool) {
        let now = to_nanos(plane.now);
        if let Some(program) = plane.program(node) {
            program.set_port(now, port, up);
            forget_stale(plane, node);
            self.send_own(plane, node);
        }
    }

    /// Handles a timer event of a program. The timer may have moved to a later time. A switch without power does
    /// nothing.
    pub(crate) fn timer_due<T: Tap>(&mut self, plane: &mut Plane<'_, T>, node: NodeId, has_power: bool) {
        super::pfc::note_arriving(plane.links, NOWHERE);
        let now = to_nanos(plane.now);
        let Some(program) = plane.program(node) else { return };
        self.timers[node.index()] = NEVER;
        if !has_power || program.poll_timeout().is_none_or(|at| at > now) {
            return;
        }
        self.next_allowed[node.index()] = plane.now + to_ps(GRAIN);
        plane.switches.credit(&plane.links.lanes, node);
        if let Some(program) = plane.program(node) {
            program.handle_timeout(now);
        }
        forget_stale(plane, node);
        self.send_own(plane, node);
    }

    /// Time when the timer of a switch's program is due, unless the agenda has an event for that time or an earlier
    /// one.
    pub(crate) fn next_timer<T: Tap>(&mut self, plane: &mut Plane<'_, T>, node: NodeId) -> Option<Ps> {
        let at = to_ps(plane.program(node)?.poll_timeout()?);
        let at = at.max(self.next_allowed[node.index()]).max(plane.now);
        let scheduled = &mut self.timers[node.index()];
        if at >= *scheduled {
            return None;
        }
        *scheduled = at;
        Some(at)
    }

    /// Records how full the tables of all programs are.
    pub(crate) fn sample_tables<T: Tap>(&mut self, plane: &mut Plane<'_, T>) {
        let fabric = plane.links.fabric.clone();
        let (mut entries, mut counted) = (0, 0);
        for &node in fabric.switches() {
            plane.switches.credit(&plane.links.lanes, node);
            let Some(program) = plane.program(node) else { continue };
            let tables = program.tables();
            self.entries_max = self.entries_max.max(tables.connections);
            self.hosts_max = self.hosts_max.max(tables.hosts);
            entries += tables.connections;
            counted += 1;
        }
        if counted > 0 {
            let entries_mean = entries as f64 / f64::from(counted);
            self.samples.push(TableSample { at: to_nanos(plane.now), entries_mean });
        }
    }

    /// Results of the programs of these switches.
    pub(super) fn outcome(&self, switches: &Switches, fabric: &Fabric, links: &[LinkQueue]) -> ProgramOutcome {
        let mut counted = self.retired;
        for node in &switches.nodes {
            if let Node::Program(program) = node {
                counted.add(&program.tables());
            }
        }
        let Counts { exploration, arp, hello, broadcast_bytes, .. } = self.counts;
        let entries = self.samples.iter().map(|sample| sample.entries_mean);
        let Counted { explorations, recoveries, fails, late_copies, refused } = counted;
        ProgramOutcome {
            entries_max: self.entries_max as u64,
            entries_mean: entries.sum::<f64>() / self.samples.len().max(1) as f64,
            hosts_max: self.hosts_max as u64,
            explorations,
            recoveries,
            fails,
            late_copies,
            refused,
            exploration,
            arp,
            hello,
            broadcast_share: broadcast_share(fabric, links, broadcast_bytes),
            samples: self.samples.clone(),
        }
    }

    /// Number of stored frames of no connection: those in the network.
    #[cfg(test)]
    pub(super) fn kept_frames(&self) -> usize {
        self.frames.len()
    }

    /// Number of frames that programs consumed.
    pub(super) fn used_up(&self) -> u64 {
        self.counts.used_up
    }
}

/// Removes decisions of a program that may have become wrong from the cache.
fn forget_stale<T: Tap>(plane: &mut Plane<'_, T>, node: NodeId) {
    let stale = plane.program(node).map(|program| program.take_stale());
    plane.switches.forget(&plane.links.lanes, node, stale.unwrap_or_default());
}

/// Caches the verdict of a program about a packet that has arrived by `link`.
fn remember<T: Tap>(plane: &mut Plane<'_, T>, link: u32, node: NodeId, packet: &Packet, verdict: &Verdict) {
    let [Outgoing { port, frame: Frame { body: Body::Ip(Headers { tag, .. }), .. } }] = verdict.emissions[..] else {
        return;
    };
    if packet.flags() != 0 || packet.slot() == NO_CONNECTION {
        return;
    }
    plane.switches.cache.give_row(packet.lane());
    let Some(place) = plane.switches.cache.place(packet, link) else { return };
    let Some(out) = plane.links.fabric.out_link(node, port) else { return };
    let entry = Entry::new(plane.links.in_link(link), packet, false, out.0, TagBits::of(tag));
    plane.switches.remember(&plane.links.lanes, place, node, (entry, Rules::default()));
}

/// Bytes of broadcast frames that ToRs received from other switches, divided by all other bytes that ToRs
/// received (tcp-path.txt §V.D).
fn broadcast_share(fabric: &Fabric, links: &[LinkQueue], broadcast_bytes: u64) -> Option<f64> {
    let into_tor = fabric.links().iter().zip(links).filter(|(link, _)| fabric.node(link.to).tier == Tier::Tor);
    let all: u64 = into_tor.map(|(_, queue)| queue.taken().bytes).sum();
    let unicast = all.saturating_sub(broadcast_bytes);
    (unicast > 0).then(|| broadcast_bytes as f64 / unicast as f64)
}
