//! ARP-Path: the first copy of a broadcast sets the way back to its sender (tcp-path.txt §III, Ibáñez et al.'s All-Path family).
//!
//! A broadcast travels between switches inside a Path Request, which has the number of the exploration. The first copy sets
//! the way to the sender, late copies are dropped. ARP replies travel inside a Path Reply along that way and set the way to the
//! replying host. A frame without a way is dropped; a Path Fail goes back to the edge of its sender, which repairs
//! the way by a Path Recovery Request for the two hosts.

use super::ageing::Ageing;
use super::counts::Counts;
use super::hosts::Hosts;
use super::memory::Memory;
use super::ports::{Ports, State, SWITCHES};
use super::settings::{Identity, Settings};
use crate::program::{DropCause, Outgoing, Program, Tables, Used, Verdict};
use crate::{Saved, Stale};
use pathloom_model::{
    Arp, Body, Carried, Conversation, FiveTuple, Frame, Headers, Mac, Nanos, PathKind, PathMessage, PortNo,
};
use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;

/// Where a frame came in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entrance {
    Host,
    Switch,
}

/// Tag of frames of selected connections without a path of their own, while they are in the fabric. They take the default
/// forwarding in every switch, so that no frame changes between two ways that are free of loops each, but not together.
pub(crate) const DEFAULT_TAG: u16 = 4094;

/// EtherType of a VLAN tag. No tag is accepted from a host.
const ETH_VLAN: u16 = 0x8100;

/// A switch with ARP-Path.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ArpPath {
    pub(crate) settings: Settings,
    pub(crate) ports: Ports,
    pub(crate) hosts: Hosts,
    pub(crate) memory: Memory,
    pub(crate) counts: Counts,
    quiet_until: Nanos,
    last_number: u64,
    /// Repairs that have begun: the pair of hosts, and when it may be repaired again.
    repairs: BTreeMap<(Mac, Mac), Nanos>,
    repairs_due: Ageing<(Mac, Mac)>,
    pub(crate) queue: VecDeque<Outgoing>,
    /// Ports that were lost, for the owner to take.
    pub(crate) lost: Vec<PortNo>,
}

impl ArpPath {
    /// A switch that starts at `now` with all ports down.
    pub fn new(now: Nanos, identity: Identity, settings: Settings) -> ArpPath {
        ArpPath {
            ports: Ports::new(now, identity, &settings),
            hosts: Hosts::new(settings.host_age, settings.lock, settings.most_hosts, settings.most_hosts_per_port),
            memory: Memory::new(settings.most_remembered),
            counts: Counts::default(),
            quiet_until: now.saturating_add(settings.quiet),
            last_number: 0,
            repairs: BTreeMap::new(),
            repairs_due: Ageing::new(),
            queue: VecDeque::new(),
            lost: Vec::new(),
            settings,
        }
    }

    /// The number of a new exploration: later ones have higher numbers, also after a restart and, while clocks agree, if
    /// they begin at another switch. `above`: the last number known for the same thing. The lowest bit is `side`, so
    /// that explorations from both ends of one connection differ.
    pub(crate) fn next_number(&mut self, now: Nanos, above: u64, side: bool) -> u64 {
        let next = (now.0 << 1).max(above.saturating_add(2)).max(self.last_number.saturating_add(2));
        self.last_number = next & !1;
        self.last_number | u64::from(side)
    }

    /// What every frame passes first: its port must be ready, and its sender must be who it says.
    ///
    /// # Errors
    /// Why the frame goes no further. Hello goes no further.
    pub(crate) fn admit(&mut self, now: Nanos, in_port: PortNo, frame: &Frame) -> Result<Entrance, DropCause> {
        if let Body::Hello(hello) = &frame.body {
            let mut out = Vec::new();
            let result = self.ports.heard(now, in_port, hello, &mut out);
            self.queue.extend(out);
            if result? {
                self.lose(in_port);
            }
            return Err(DropCause::Consumed);
        }
        match self.ports.state(in_port) {
            State::Down | State::Unsettled | State::Silent => Err(DropCause::PortNotReady),
            State::Host => {
                let tagged =
                    matches!(frame.body, Body::Ip(Headers { tag: Some(_), .. }) | Body::Other { ether_type: ETH_VLAN });
                if matches!(frame.body, Body::Path(_)) || tagged || frame.dst == SWITCHES {
                    return Err(DropCause::Forged);
                }
                if !frame.src.is_station() || frame.src == self.ports.mac() || disagrees(frame) {
                    return Err(DropCause::Invalid);
                }
                if self.hosts.claim(now, frame.src, in_port)? {
                    self.memory.forget_destination(frame.src);
                }
                if is_link_local(frame.dst) {
                    return Err(DropCause::Consumed);
                }
                Ok(Entrance::Host)
            }
            State::Switch => match &frame.body {
                Body::Path(message) if message.hops >= self.settings.most_hops => Err(DropCause::TooManyHops),
                Body::Path(message) if !message.conversation.src.is_station() => Err(DropCause::Invalid),
                Body::Path(_) => Ok(Entrance::Switch),
                _ if !frame.src.is_station() || frame.dst.is_group() => Err(DropCause::Invalid),
                _ if self.hosts.local_port(now, frame.src).is_some() => Err(DropCause::StolenAddress),
                _ => Ok(Entrance::Switch),
            },
        }
    }

    /// What becomes of a frame that was admitted and is not of a selected connection.
    pub(crate) fn forward(
        &mut self,
        now: Nanos,
        in_port: PortNo,
        from: Entrance,
        frame: &Frame,
    ) -> Result<Verdict, DropCause> {
        match (&frame.body, from) {
            (Body::Path(message), _) => self.message(now, in_port, message),
            (_, Entrance::Host) if frame.dst.is_group() => self.broadcast(now, in_port, frame),
            (Body::Arp(arp), Entrance::Host) if !arp.request => self.arp_reply(now, in_port, frame, *arp),
            _ => self.unicast(now, in_port, from, frame),
        }
    }

    /// A broadcast of a host begins an exploration.
    fn broadcast(&mut self, now: Nanos, in_port: PortNo, frame: &Frame) -> Result<Verdict, DropCause> {
        if !self.ports.take_token(now, in_port) {
            return Err(DropCause::RateLimited);
        }
        let carried = Carried::from_body(frame.body).ok_or(DropCause::Invalid)?;
        let exploration = self.next_number(now, self.hosts.last_number(frame.src), false);
        self.hosts.number(now, frame.src, exploration);
        self.counts.explorations += 1;
        let conversation = hosts_of(frame);
        let request = PathMessage { kind: PathKind::Request, conversation, exploration, hops: 1, carried };
        let plain = self.ports.hosts().filter(|&port| port != in_port).map(|port| Outgoing { port, frame: *frame });
        let emissions: Vec<Outgoing> = plain.chain(self.flood(None, &request)).collect();
        if emissions.is_empty() {
            return Err(DropCause::NoPort);
        }
        Ok(Verdict::all(emissions))
    }

    /// Copies of a message for all switches but the one it came from.
    pub(crate) fn flood<'a>(
        &'a self,
        in_port: Option<PortNo>,
        message: &PathMessage,
    ) -> impl Iterator<Item = Outgoing> + 'a {
        let frame = self.wrap(*message);
        self.ports.switches().filter(move |&port| Some(port) != in_port).map(move |port| Outgoing { port, frame })
    }

    pub(crate) fn wrap(&self, message: PathMessage) -> Frame {
        Frame { src: self.ports.mac(), dst: SWITCHES, body: Body::Path(message) }
    }

    /// An ARP reply confirms the way to the replying host.
    fn arp_reply(&mut self, now: Nanos, in_port: PortNo, frame: &Frame, arp: Arp) -> Result<Verdict, DropCause> {
        let port = self.hosts.port(now, frame.dst).filter(|&port| port != in_port).ok_or(DropCause::NoRoute)?;
        if self.ports.is_host(port) {
            return Ok(Verdict::one(port, *frame));
        }
        if !self.ports.take_token(now, in_port) {
            return Err(DropCause::RateLimited);
        }
        let exploration = self.next_number(now, self.hosts.last_number(frame.src), false);
        self.hosts.number(now, frame.src, exploration);
        let reply = PathMessage {
            kind: PathKind::Reply,
            conversation: hosts_of(frame).reverse(),
            exploration,
            hops: 1,
            carried: Carried::Arp(arp),
        };
        Ok(Verdict::one(port, self.wrap(reply)))
    }

    fn unicast(&mut self, now: Nanos, in_port: PortNo, from: Entrance, frame: &Frame) -> Result<Verdict, DropCause> {
        let Some(port) = self.hosts.port(now, frame.dst).filter(|&port| port != in_port) else {
            match from {
                Entrance::Host if self.hosts.port(now, frame.dst).is_some() => return Err(DropCause::WrongPort),
                Entrance::Host => self.repair(now, in_port, hosts_of(frame)),
                Entrance::Switch => self.fail(now, in_port, hosts_of(frame), 0),
            }
            return Err(DropCause::NoRoute);
        };
        self.hosts.renew(now, frame.dst);
        let mut verdict = Verdict::one(port, *frame);
        if let Body::Ip(headers) = frame.body {
            if headers.tag == Some(DEFAULT_TAG) {
                if self.ports.is_host(port) {
                    verdict.emissions[0].frame.body = Body::Ip(Headers { tag: None, ..headers });
                }
            } else {
                self.memory.note(headers.five_tuple, frame.src, frame.dst);
                verdict.remember = Some(headers.five_tuple);
            }
        }
        Ok(verdict)
    }

    /// Begins the repair of the way between a host of this switch and another, unless it has begun lately.
    pub(crate) fn repair(&mut self, now: Nanos, host_port: PortNo, conversation: Conversation) {
        let pair = (conversation.src, conversation.dst);
        if conversation.dst.is_group() || self.repairs.get(&pair).is_some_and(|&again| now < again) {
            return;
        }
        if self.repairs.len() >= self.settings.most_hosts || !self.ports.take_token(now, host_port) {
            self.counts.refuse(host_port, Some(DropCause::RateLimited));
            return;
        }
        let again = now.saturating_add(self.settings.recovery_retry);
        self.repairs.insert(pair, again);
        self.repairs_due.watch(again, pair);
        let exploration = self.next_number(now, self.hosts.last_number(conversation.src), false);
        self.hosts.number(now, conversation.src, exploration);
        self.counts.recoveries += 1;
        let kind = PathKind::RecoveryRequest;
        let request = PathMessage { kind, conversation, exploration, hops: 1, carried: Carried::Nothing };
        let copies: Vec<Outgoing> = self.flood(None, &request).collect();
        self.queue.extend(copies);
        let probes = self.probes(now, &conversation, Some(host_port));
        self.queue.extend(probes);
    }

    /// ARP requests for a host that nobody has heard yet, to the ports at which no host is known: after a restart, hosts
    /// may wait for somebody to speak to them. They ask in the name of the source.
    pub(crate) fn probes(&self, now: Nanos, conversation: &Conversation, except: Option<PortNo>) -> Vec<Outgoing> {
        let FiveTuple { src: sender_ip, dst: target_ip, .. } = conversation.five_tuple;
        if target_ip.is_unspecified() || self.hosts.port(now, conversation.dst).is_some() {
            return Vec::new();
        }
        let arp = Arp { request: true, sender_mac: conversation.src, sender_ip, target_mac: Mac::ZERO, target_ip };
        let frame = Frame { src: conversation.src, dst: Mac::BROADCAST, body: Body::Arp(arp) };
        self.silent_hosts(except).map(|port| Outgoing { port, frame }).collect()
    }

    /// Host ports at which no host is known.
    pub(crate) fn silent_hosts(&self, except: Option<PortNo>) -> impl Iterator<Item = PortNo> + '_ {
        self.ports.hosts().filter(move |&port| Some(port) != except && self.hosts.is_silent(port))
    }

    /// Tells the switch that a frame came from that it went the wrong way.
    pub(crate) fn fail(&mut self, now: Nanos, port: PortNo, conversation: Conversation, exploration: u64) {
        if !self.ports.take_token(now, port) {
            return;
        }
        self.counts.fails += 1;
        let message =
            PathMessage { kind: PathKind::Fail, conversation, exploration, hops: 1, carried: Carried::Nothing };
        let frame = self.wrap(message);
        self.queue.push_back(Outgoing { port, frame });
    }

    /// Accepts an exploration from another switch, or says why not.
    fn accept(&mut self, now: Nanos, in_port: PortNo, mac: Mac, exploration: u64) -> Result<(), DropCause> {
        self.listening(now)?;
        if self.hosts.offer(now, mac, exploration, in_port)? {
            self.memory.forget_destination(mac);
        }
        Ok(())
    }

    /// Whether the switch has run for long enough to tell late copies.
    pub(crate) fn listening(&self, now: Nanos) -> Result<(), DropCause> {
        if now < self.quiet_until {
            Err(DropCause::Quiet)
        } else {
            Ok(())
        }
    }

    /// A message about hosts.
    fn message(&mut self, now: Nanos, in_port: PortNo, message: &PathMessage) -> Result<Verdict, DropCause> {
        let conversation = message.conversation;
        if conversation.five_tuple.proto != 0 {
            return Err(DropCause::Invalid);
        }
        let onward = PathMessage { hops: message.hops + 1, ..*message };
        match message.kind {
            PathKind::Request => {
                let body = message.carried.into_body().filter(|_| conversation.dst.is_group());
                let body = body.ok_or(DropCause::Invalid)?;
                self.accept(now, in_port, conversation.src, message.exploration)?;
                let frame = Frame { src: conversation.src, dst: conversation.dst, body };
                let plain = self.ports.hosts().map(|port| Outgoing { port, frame });
                Ok(Verdict::all(plain.chain(self.flood(Some(in_port), &onward)).collect()))
            }
            PathKind::RecoveryRequest => {
                if conversation.dst.is_group() {
                    return Err(DropCause::Invalid);
                }
                self.accept(now, in_port, conversation.src, message.exploration)?;
                if self.hosts.local_port(now, conversation.dst).is_some() {
                    return Ok(self.answer(now, in_port, conversation));
                }
                let mut emissions = self.probes(now, &conversation, None);
                emissions.extend(self.flood(Some(in_port), &onward));
                Ok(Verdict::all(emissions))
            }
            PathKind::Reply | PathKind::RecoveryReply => self.reply(now, in_port, message, onward),
            PathKind::Fail => self.failed(now, in_port, conversation, onward),
        }
    }

    /// Answers a Path Recovery Request for a host of this switch.
    fn answer(&mut self, now: Nanos, in_port: PortNo, conversation: Conversation) -> Verdict {
        let exploration = self.next_number(now, self.hosts.last_number(conversation.dst), false);
        self.hosts.number(now, conversation.dst, exploration);
        let kind = PathKind::RecoveryReply;
        let reply = PathMessage { kind, conversation, exploration, hops: 1, carried: Carried::Nothing };
        Verdict::one(in_port, self.wrap(reply))
    }

    /// A reply sets the way to the destination of the conversation and goes on to its source.
    fn reply(
        &mut self,
        now: Nanos,
        in_port: PortNo,
        message: &PathMessage,
        onward: PathMessage,
    ) -> Result<Verdict, DropCause> {
        let Conversation { src, dst, .. } = message.conversation;
        if !dst.is_station() || (message.kind == PathKind::Reply && !matches!(message.carried, Carried::Arp(_))) {
            return Err(DropCause::Invalid);
        }
        match self.hosts.offer(now, dst, message.exploration, in_port) {
            Ok(true) => self.memory.forget_destination(dst),
            // A newer exploration has been here before: its way stands, and the reply goes on.
            Ok(false) | Err(DropCause::LateCopy) => {}
            Err(why) => return Err(why),
        }
        let port = self.hosts.port(now, src).filter(|&port| port != in_port).ok_or(DropCause::NoRoute)?;
        self.hosts.renew(now, src);
        if !self.ports.is_host(port) {
            return Ok(Verdict::one(port, self.wrap(onward)));
        }
        let body = message.carried.into_body().ok_or(DropCause::Consumed)?;
        Ok(Verdict::one(port, Frame { src: dst, dst: src, body }))
    }

    /// The switch at `in_port` has no way to the destination of the conversation.
    fn failed(
        &mut self,
        now: Nanos,
        in_port: PortNo,
        conversation: Conversation,
        onward: PathMessage,
    ) -> Result<Verdict, DropCause> {
        if self.hosts.erase(conversation.dst, in_port) {
            self.memory.forget_destination(conversation.dst);
        }
        let port = self.hosts.port(now, conversation.src).filter(|&port| port != in_port).ok_or(DropCause::Consumed)?;
        if self.ports.is_host(port) {
            self.repair(now, port, conversation);
            return Err(DropCause::Consumed);
        }
        Ok(Verdict::one(port, self.wrap(onward)))
    }

    /// A port leads to nobody any more.
    pub(crate) fn lose(&mut self, port: PortNo) {
        for mac in self.hosts.lose_port(port) {
            self.memory.forget_destination(mac);
        }
        self.lost.push(port);
    }

    /// Does what is due, and leaves lost ports in `lost`.
    pub(crate) fn age(&mut self, now: Nanos) {
        let mut out = Vec::new();
        for port in self.ports.handle_timeout(now, &mut out) {
            self.lose(port);
        }
        self.queue.extend(out);
        for mac in self.hosts.handle_timeout(now) {
            self.memory.forget_destination(mac);
        }
        while let Some(pair) = self.repairs_due.pop_due(now) {
            if self.repairs.get(&pair).is_some_and(|&again| again <= now) {
                self.repairs.remove(&pair);
            }
        }
    }

    /// The lasting part of the tables, connections left out.
    pub(crate) fn save_base(&self) -> Saved {
        let (neighbours, hosts) = (self.ports.save(), self.hosts.save());
        Saved { last_number: self.last_number, neighbours, hosts, ..Saved::default() }
    }

    /// Goes on with what an earlier start has saved. What the driver remembers and is not right any more becomes stale.
    pub(crate) fn restore_base(&mut self, now: Nanos, saved: &Saved) {
        self.last_number = self.last_number.max(saved.last_number);
        saved.neighbours.iter().for_each(|neighbour| self.ports.restore(now, neighbour));
        for host in &saved.hosts {
            if host.local {
                self.ports.restore_host(host.port);
            }
            let fits = if host.local { self.ports.is_host(host.port) } else { self.ports.is_switch(host.port) };
            if fits {
                self.hosts.restore(now, host);
            }
        }
        for &(five_tuple, src, dst) in &saved.remembered {
            self.memory.note(five_tuple, src, dst);
        }
        // Hello of ports that came up has been queued; it does not name the neighbours yet.
        self.queue.clear();
        let mut out = Vec::new();
        self.ports.greet(&mut out);
        self.queue.extend(out);
    }

    /// Brings a port up or down, and leaves a lost port in `lost`.
    pub(crate) fn change_port(&mut self, now: Nanos, port: PortNo, up: bool) {
        let mut out = Vec::new();
        if self.ports.set(now, port, up, &mut out) {
            self.lose(port);
        }
        self.queue.extend(out);
    }

    /// A host has sent frames that were forwarded from memory: if it is at this switch, it keeps its address.
    pub(crate) fn renew_local(&mut self, used: Nanos, mac: Mac) {
        if self.hosts.local_port(used, mac).is_some() {
            self.hosts.renew(used, mac);
        }
    }

    pub(crate) fn refuse(&mut self, in_port: PortNo, why: DropCause) -> Verdict {
        self.counts.dropped(in_port, why);
        Verdict::drop(why)
    }
}

/// The conversation of the hosts of a frame.
pub(crate) fn hosts_of(frame: &Frame) -> Conversation {
    let (src_ip, dst_ip) = match frame.body {
        Body::Ip(headers) => (headers.five_tuple.src, headers.five_tuple.dst),
        Body::Arp(arp) => (arp.sender_ip, arp.target_ip),
        _ => (Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED),
    };
    Conversation::hosts(frame.src, frame.dst, src_ip, dst_ip)
}

/// Whether an ARP packet names another sender than its frame.
fn disagrees(frame: &Frame) -> bool {
    matches!(frame.body, Body::Arp(arp) if arp.sender_mac != frame.src)
}

/// Group addresses that bridges do not forward (IEEE 802.1Q-2018 §8.6.3).
fn is_link_local(mac: Mac) -> bool {
    mac.0[..5] == [0x01, 0x80, 0xc2, 0x00, 0x00] && mac.0[5] < 0x10
}

impl Program for ArpPath {
    fn decide(&mut self, now: Nanos, in_port: PortNo, frame: &Frame) -> Verdict {
        let result = self.admit(now, in_port, frame);
        let result = result.and_then(|from| self.forward(now, in_port, from, frame));
        self.lost.clear();
        result.unwrap_or_else(|why| self.refuse(in_port, why))
    }

    fn handle_timeout(&mut self, now: Nanos) {
        self.age(now);
        self.lost.clear();
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        [self.ports.next_timeout(), self.hosts.next_timeout(), self.repairs_due.next()].into_iter().flatten().min()
    }

    fn poll_emission(&mut self) -> Option<Outgoing> {
        self.queue.pop_front()
    }

    fn set_port(&mut self, now: Nanos, port: PortNo, up: bool) {
        self.change_port(now, port, up);
        self.lost.clear();
    }

    fn take_stale(&mut self) -> Stale {
        self.memory.take_stale()
    }

    fn credit(&mut self, five_tuple: FiveTuple, used: Used) {
        if let Some((src, dst)) = self.memory.ends(&five_tuple) {
            self.hosts.renew(used.last, dst);
            self.renew_local(used.last, src);
        }
    }

    fn note_unreadable(&mut self, in_port: PortNo) {
        self.counts.unreadable(in_port);
    }

    fn tables(&self) -> Tables {
        Tables { hosts: self.hosts.len(), neighbours: self.ports.neighbour_count(), ..self.counts.tables() }
    }

    fn save(&self) -> Saved {
        self.save_base()
    }

    fn save_tables(&self) -> Saved {
        self.save_base()
    }

    fn restore(&mut self, now: Nanos, saved: &Saved) {
        self.restore_base(now, saved);
    }
}
