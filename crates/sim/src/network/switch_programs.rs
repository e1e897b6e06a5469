//! Switches that run a program. It decides about frames, sends its own frames and has its own timers.
//!
//! A packet of a connection becomes a frame when a program is asked about it. The result is the same packet, or a
//! frame of no connection, which may contain the packet ([`Stored`]).

use super::{credit_node, Network, Node, TTL};
use crate::cache::Entry;
use crate::frames::{is_broadcast, mac_of, switch_mac, wire_bytes, Counts, Stored};
use crate::lanes::NO_CONNECTION;
use crate::outcome::{ProgramOutcome, TableSample};
use crate::packet::{Packet, TagBits};
use crate::port::NOWHERE;
use crate::store::Store;
use crate::tap::{Loss, Tap};
use crate::time::{to_nanos, to_ps, Ps, NEVER};
use pathloom_model::{Body, Fabric, FiveTuple, Frame, Headers, LinkId, Nanos, NodeId, PortNo, Tier};
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
    retired: Totals,
    samples: Vec<TableSample>,
    entries_max: usize,
    hosts_max: usize,
}

/// Counts of programs, summed over switches.
#[derive(Clone, Copy, Default)]
struct Totals {
    explorations: u64,
    recoveries: u64,
    fails: u64,
    late_copies: u64,
    refused: u64,
}

impl Totals {
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
            retired: Totals::default(),
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
}

impl<T: Tap> Network<T> {
    /// A program decides about a packet that has arrived over `link`. Returns its switch, for which the caller must
    /// then call [`Network::take_change`] and [`Network::next_timer`].
    pub(crate) fn ask_program(&mut self, now: Ps, link: u32, packet: Packet) -> NodeId {
        let record = *self.fabric.link(LinkId(link));
        let node = record.to;
        self.totals.decisions += 1;
        let Some(Stored { frame, inner }) = self.unpack(&packet) else {
            self.totals.dropped_at_switches += 1;
            return node;
        };
        let (Some(programs), Node::Program(program)) = (&mut self.programs, &mut self.nodes[node.index()]) else {
            return node;
        };
        if is_broadcast(&frame) && self.fabric.node(node).tier == Tier::Tor && !self.fabric.is_host(record.from) {
            programs.counts.broadcast_bytes += packet.wire();
        }
        let verdict = match packet.hop() < TTL {
            true => program.decide(to_nanos(now), record.to_port, &frame),
            false => Verdict::drop(DropCause::TooManyHops),
        };
        self.forget_stale(node);
        if verdict.remember.is_some() {
            self.remember_verdict(link, node, &packet, &verdict);
        }
        self.carry_out(now, node, &packet, inner, &verdict);
        self.send_own(now, node);
        node
    }

    /// The frame for a packet, and the packet of a connection that it is or contains.
    fn unpack(&mut self, packet: &Packet) -> Option<Stored> {
        match self.lanes.headers(packet) {
            Some(headers) => {
                let FiveTuple { src, dst, .. } = headers.five_tuple;
                let frame = Frame { src: mac_of(src), dst: mac_of(dst), body: Body::Ip(headers) };
                Some(Stored { frame, inner: Some(*packet) })
            }
            None => self.programs.as_mut()?.frames.take(packet.seq),
        }
    }

    fn remember_verdict(&mut self, link: u32, node: NodeId, packet: &Packet, verdict: &Verdict) {
        let [Outgoing { port, frame: Frame { body: Body::Ip(Headers { tag, .. }), .. } }] = verdict.emissions[..]
        else {
            return;
        };
        if packet.flags() != 0 || packet.slot() == NO_CONNECTION {
            return;
        }
        let Some(place) = self.cache.place(packet, link) else { return };
        let Some(out) = self.fabric.out_link(node, port) else { return };
        self.evict_entry(place);
        let entry = Entry::new(self.in_link(link), packet, false, out.0, TagBits::of(tag));
        self.cache.store(place, node, entry, &[]);
    }

    /// Sends the emissions of a verdict, and counts a dropped frame.
    fn carry_out(&mut self, now: Ps, node: NodeId, packet: &Packet, inner: Option<Packet>, verdict: &Verdict) {
        let connected = packet.slot() != NO_CONNECTION;
        if let Some(why) = verdict.dropped.filter(|_| verdict.emissions.is_empty()) {
            let used_up = matches!(why, DropCause::Consumed | DropCause::LateCopy | DropCause::NoPort);
            match &mut self.programs {
                Some(programs) if used_up && !connected => programs.counts.used_up += 1,
                _ => self.totals.dropped_at_switches += 1,
            }
            if T::ON {
                if let Some(headers) = self.lanes.headers(packet) {
                    let loop_or_not = if why == DropCause::TooManyHops { Loss::Loop } else { Loss::NoRule };
                    self.tap.lost(now, node, &headers, loop_or_not);
                }
            }
        }
        self.totals.copied += (verdict.emissions.len() as u64).saturating_sub(1);
        let mut lost = i32::from(connected);
        for outgoing in &verdict.emissions {
            match self.send_from(now, node, packet.hop() + 1, inner, outgoing) {
                Some(lane) if connected && lane == packet.lane() => lost -= 1,
                Some(lane) => self.change(lane, -1),
                None => {}
            }
        }
        if lost != 0 {
            self.change(packet.lane(), lost);
        }
    }

    /// Sends a frame out of a switch. If it is a packet of a connection, returns its lane, which has one more packet
    /// now.
    fn send_from(
        &mut self,
        now: Ps,
        node: NodeId,
        hops: u8,
        inner: Option<Packet>,
        outgoing: &Outgoing,
    ) -> Option<u32> {
        let Some(out) = self.fabric.out_link(node, outgoing.port) else {
            self.totals.dropped_at_switches += 1;
            return None;
        };
        let own = match (inner, outgoing.frame.body) {
            // A connection may have ended while its packet was inside a message. Another connection may use its slot
            // now.
            (Some(inner), Body::Ip(headers)) => {
                let lanes = self.lanes.lanes(&headers.five_tuple);
                lanes.contains(&Some(inner.lane())).then(|| inner.after(hops, TagBits::of(headers.tag)))
            }
            _ => None,
        };
        match own {
            Some(own) => self.enqueue(now, out.0, own).then(|| own.lane()),
            None => {
                let ready = now + self.programs.as_mut().map_or(0, |programs| programs.draw_delay());
                self.put_on(ready, out, hops, Stored { frame: outgoing.frame, inner });
                None
            }
        }
    }

    /// Puts a frame of no connection on a link.
    fn put_on(&mut self, now: Ps, link: LinkId, hops: u8, stored: Stored) {
        let Some(programs) = &mut self.programs else { return };
        let (frame, wire) = (stored.frame, wire_bytes(&stored.frame, stored.inner.as_ref()));
        let number = programs.frames.put(stored);
        let packet = Packet::new(NO_LANE, number, 0, wire as u16, 0).after(hops, TagBits::of(None));
        if self.enqueue(now, link.0, packet) {
            if let Some(programs) = &mut self.programs {
                programs.counts.sent(&frame, wire);
            }
        } else {
            self.take_frame(&packet);
        }
    }

    /// A host sends a frame of no connection.
    pub(crate) fn send_frame(&mut self, now: Ps, link: LinkId, frame: Frame) {
        self.totals.sent += 1;
        self.put_on(now, link, 0, Stored { frame, inner: None });
    }

    /// Removes a frame of no connection from the network and returns it.
    pub(crate) fn take_frame(&mut self, packet: &Packet) -> Option<Frame> {
        Some(self.programs.as_mut()?.frames.take(packet.seq)?.frame)
    }

    /// Sends the frames that a program has produced itself.
    fn send_own(&mut self, now: Ps, node: NodeId) {
        while let Some(outgoing) = self.nodes[node.index()].program_mut().and_then(|program| program.poll_emission()) {
            self.totals.sent += 1;
            self.send_from(now, node, 0, None, &outgoing);
        }
        self.forget_stale(node);
    }

    /// Removes decisions of a program that may have become wrong from the cache.
    fn forget_stale(&mut self, node: NodeId) {
        let stale = self.nodes[node.index()].program_mut().map(|program| program.take_stale());
        self.forget(node, stale.unwrap_or_default());
    }

    fn change(&mut self, lane: u32, lost: i32) {
        if let Some(programs) = &mut self.programs {
            programs.changes.push_back((lane, lost));
        }
    }

    /// Takes the next change of packets of connections at programs: a lane, and how many packets it lost or, if
    /// negative, gained.
    pub(crate) fn take_change(&mut self) -> Option<(u32, i32)> {
        self.programs.as_mut()?.changes.pop_front()
    }

    /// Starts or restarts the program of a switch. The ports for whose links `is_up` is true are up.
    pub(crate) fn start_program(&mut self, now: Ps, node: NodeId, is_up: impl Fn(LinkId) -> bool) {
        let (Some(programs), Node::Program(program)) = (&mut self.programs, &mut self.nodes[node.index()]) else {
            return;
        };
        programs.retired.add(&program.tables());
        let mut fresh = programs.start(now, &self.fabric, node);
        for &link in self.fabric.node(node).ports.iter().filter(|&&link| is_up(link)) {
            fresh.set_port(to_nanos(now), self.fabric.link(link).from_port, true);
        }
        *program = fresh;
        self.forget(node, Stale::Everything);
        self.send_own(now, node);
    }

    /// A port of a switch with a program goes up or down.
    pub(crate) fn set_program_port(&mut self, now: Ps, node: NodeId, port: PortNo, up: bool) {
        if let Some(program) = self.nodes[node.index()].program_mut() {
            program.set_port(to_nanos(now), port, up);
            self.forget_stale(node);
            self.send_own(now, node);
        }
    }

    /// Handles a timer event of a program. The timer may have moved to a later time. A switch without power does
    /// nothing.
    pub(crate) fn run_program(&mut self, now: Ps, node: NodeId, has_power: bool) {
        super::pfc::note_arriving(self, NOWHERE);
        let (Some(programs), Node::Program(program)) = (&mut self.programs, &mut self.nodes[node.index()]) else {
            return;
        };
        programs.timers[node.index()] = NEVER;
        if !has_power || program.poll_timeout().is_none_or(|at| at > to_nanos(now)) {
            return;
        }
        programs.next_allowed[node.index()] = now + to_ps(GRAIN);
        self.credit_program(node);
        if let Some(program) = self.nodes[node.index()].program_mut() {
            program.handle_timeout(to_nanos(now));
        }
        self.forget_stale(node);
        self.send_own(now, node);
    }

    /// Credits a program for frames that were forwarded from the cache.
    fn credit_program(&mut self, node: NodeId) {
        let (lanes, of) = (&self.lanes, &mut self.nodes[node.index()]);
        self.cache.collect(node, |owed| credit_node(of, lanes, &owed));
    }

    /// Time when the timer of a switch's program is due, unless the agenda has an event for that time or an earlier
    /// one.
    pub(crate) fn next_timer(&mut self, now: Ps, node: NodeId) -> Option<Ps> {
        let programs = self.programs.as_mut()?;
        let at = to_ps(self.nodes[node.index()].program_mut()?.poll_timeout()?);
        let at = at.max(programs.next_allowed[node.index()]).max(now);
        let scheduled = &mut programs.timers[node.index()];
        if at >= *scheduled {
            return None;
        }
        *scheduled = at;
        Some(at)
    }
    /// Records how full the tables of all programs are.
    pub(crate) fn sample_tables(&mut self, now: Ps) {
        let fabric = self.fabric.clone();
        let (mut entries, mut counted) = (0, 0);
        for &node in fabric.switches() {
            self.credit_program(node);
            let (Some(programs), Node::Program(program)) = (&mut self.programs, &self.nodes[node.index()]) else {
                continue;
            };
            let tables = program.tables();
            programs.entries_max = programs.entries_max.max(tables.connections);
            programs.hosts_max = programs.hosts_max.max(tables.hosts);
            entries += tables.connections;
            counted += 1;
        }
        if let Some(programs) = self.programs.as_mut().filter(|_| counted > 0) {
            let entries_mean = entries as f64 / f64::from(counted);
            programs.samples.push(TableSample { at: to_nanos(now), entries_mean });
        }
    }

    /// Results of the programs; `None` if switches follow rules.
    pub(crate) fn program_outcome(&self) -> Option<ProgramOutcome> {
        let programs = self.programs.as_ref()?;
        let mut totals = programs.retired;
        for node in &self.nodes {
            if let Node::Program(program) = node {
                totals.add(&program.tables());
            }
        }
        let Counts { exploration, arp, hello, broadcast_bytes, .. } = programs.counts;
        let entries = programs.samples.iter().map(|sample| sample.entries_mean);
        let Totals { explorations, recoveries, fails, late_copies, refused } = totals;
        Some(ProgramOutcome {
            entries_max: programs.entries_max as u64,
            entries_mean: entries.sum::<f64>() / programs.samples.len().max(1) as f64,
            hosts_max: programs.hosts_max as u64,
            explorations,
            recoveries,
            fails,
            late_copies,
            refused,
            exploration,
            arp,
            hello,
            broadcast_share: self.broadcast_share(broadcast_bytes),
            samples: programs.samples.clone(),
        })
    }

    /// Bytes of broadcast frames that ToRs received from other switches, divided by all other bytes that ToRs
    /// received (tcp-path.txt §V.D).
    fn broadcast_share(&self, broadcast_bytes: u64) -> Option<f64> {
        let into_tor = |link: &usize| self.fabric.node(self.fabric.link(LinkId(*link as u32)).to).tier == Tier::Tor;
        let all: u64 = (0..self.fabric.links().len()).filter(into_tor).map(|link| self.links[link].taken().bytes).sum();
        let unicast = all.saturating_sub(broadcast_bytes);
        (unicast > 0).then(|| broadcast_bytes as f64 / unicast as f64)
    }

    /// Number of stored frames of no connection: those in the network.
    #[cfg(test)]
    pub(crate) fn kept_frames(&self) -> usize {
        self.programs.as_ref().map_or(0, |programs| programs.frames.len())
    }

    /// Number of frames that programs consumed.
    pub(super) fn used_up(&self) -> u64 {
        self.programs.as_ref().map_or(0, |programs| programs.counts.used_up)
    }
}
