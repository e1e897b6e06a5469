//! ARP-Path: the first copy of a broadcast sets the way back to its sender (tcp-path.txt §III; All-Path family of
//! Ibáñez et al.).
//!
//! Between switches, a broadcast travels inside a Path Request, which contains the number of the exploration. The first
//! copy sets the way to the sender, and late copies are dropped. An ARP reply travels inside a Path Reply along this
//! way and sets the way to the replying host. A frame without a way is dropped. A Path Fail goes back to the edge
//! switch of its sender, which repairs the way by a Path Recovery Request for the two hosts.
//!
//! A host that moves to another switch is at its old one for the whole fabric. If its old port goes down, the old switch
//! floods a Gone. If the port stays up, the new switch sends a Check to the old one when it refuses frames of the host.
//! The old switch then sends three ARP requests to the host, one every [`Settings::recovery_retry`]. If the host sends
//! nothing meanwhile, it is gone.

use super::check_queue::CheckQueue;
use super::counts::Counts;
use super::decision_cache::DecisionCache;
use super::hosts::Hosts;
use super::ports::{Ports, State, SWITCHES};
use super::settings::{Identity, Settings};
use crate::program::{DropCause, Outgoing, Program, Tables, Used, Verdict};
use crate::{Saved, Stale};
use pathloom_model::{
    Address, Arp, Body, Carried, Conversation, FiveTuple, Frame, Headers, Mac, Nanos, PathKind, PathMessage, PortNo,
};
use std::collections::{BTreeMap, VecDeque};

/// Kind of the port at which a frame arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PortKind {
    Host,
    Switch,
}

/// VLAN tag, inside the fabric, of frames of selected connections without a path of their own. These frames take the
/// default forwarding in every switch. So no frame changes between two kinds of ways. Each kind has no loops, but a
/// mixture of both could have one.
pub(crate) const DEFAULT_TAG: u16 = 4094;

/// EtherType of a VLAN tag. No tag is accepted from a host.
const ETH_VLAN: u16 = 0x8100;

/// A switch with ARP-Path.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ArpPath {
    pub(crate) settings: Settings,
    pub(crate) ports: Ports,
    pub(crate) hosts: Hosts,
    pub(crate) decisions: DecisionCache,
    pub(crate) counts: Counts,
    quiet_until: Nanos,
    last_number: u64,
    /// Repairs of ways between two hosts, and checks of one host (twice the same), that have begun: the time from which the
    /// next one is allowed.
    repairs: BTreeMap<(Mac, Mac), Nanos>,
    repairs_due: CheckQueue<(Mac, Mac)>,
    /// When hosts of this switch are asked again whether they are still there.
    pub(super) questions_due: CheckQueue<Mac>,
    pub(crate) queue: VecDeque<Outgoing>,
    /// Ports that were lost, all of them or only as the port of one host. The owner of this object takes them.
    pub(crate) lost: Vec<(PortNo, Option<Mac>)>,
}

impl ArpPath {
    /// Creates a switch that starts at `now` with all ports down.
    pub fn new(now: Nanos, identity: Identity, settings: Settings) -> ArpPath {
        ArpPath {
            ports: Ports::new(now, identity, &settings),
            hosts: Hosts::new(settings.host_age, settings.lock, settings.most_hosts, settings.most_hosts_per_port),
            decisions: DecisionCache::new(settings.most_remembered),
            counts: Counts::default(),
            quiet_until: now.saturating_add(settings.quiet),
            last_number: 0,
            repairs: BTreeMap::new(),
            repairs_due: CheckQueue::new(),
            questions_due: CheckQueue::new(),
            queue: VecDeque::new(),
            lost: Vec::new(),
            settings,
        }
    }

    /// Returns the number of a new exploration. Later explorations have higher numbers, also after a restart. While
    /// clocks agree, this also holds for explorations that begin at different switches. `above` is the last number
    /// known for the same host or connection. The lowest bit is `side`, so that explorations from both ends of one
    /// connection differ.
    pub(crate) fn next_number(&mut self, now: Nanos, above: u64, side: bool) -> u64 {
        let next = (now.0 << 1).max(above.saturating_add(2)).max(self.last_number.saturating_add(2));
        self.last_number = next & !1;
        self.last_number | u64::from(side)
    }

    /// First check of every frame: its port must be ready, and its source address must be plausible. A Hello is handled
    /// here completely.
    ///
    /// # Errors
    /// The cause for which the frame is dropped. For an accepted Hello, this is [`DropCause::Consumed`].
    pub(crate) fn admit(&mut self, now: Nanos, in_port: PortNo, frame: &Frame) -> Result<PortKind, DropCause> {
        if let Body::Hello(hello) = &frame.body {
            let mut out = Vec::new();
            let result = self.ports.heard(now, in_port, hello, &mut out);
            self.queue.extend(out);
            if result? {
                self.handle_port_loss(now, in_port);
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
                self.claim(now, in_port, frame)?;
                if is_link_local(frame.dst) {
                    return Err(DropCause::Consumed);
                }
                Ok(PortKind::Host)
            }
            State::Switch => match &frame.body {
                Body::Path(message) if message.hops >= self.settings.most_hops => Err(DropCause::TooManyHops),
                Body::Path(message) if !message.conversation.src.is_station() => Err(DropCause::Invalid),
                Body::Path(_) => Ok(PortKind::Switch),
                _ if !frame.src.is_station() || frame.dst.is_group() => Err(DropCause::Invalid),
                _ if self.hosts.local_port(now, frame.src).is_some() => Err(DropCause::StolenAddress),
                _ => Ok(PortKind::Switch),
            },
        }
    }

    /// Notes that the source of a frame is at a host port.
    fn claim(&mut self, now: Nanos, in_port: PortNo, frame: &Frame) -> Result<(), DropCause> {
        match self.hosts.claim(now, frame.src, in_port) {
            Ok(true) => self.decisions.forget_destination(frame.src),
            Ok(false) => {}
            Err(why) => {
                if why == DropCause::StolenAddress {
                    self.check(now, in_port, frame.src);
                }
                return Err(why);
            }
        }
        if let Body::Arp(arp) = frame.body {
            self.hosts.note_ip(frame.src, arp.sender_ip);
        }
        Ok(())
    }

    /// Forwards a frame that was admitted and does not belong to a selected connection.
    pub(crate) fn forward(
        &mut self,
        now: Nanos,
        in_port: PortNo,
        from: PortKind,
        frame: &Frame,
    ) -> Result<Verdict, DropCause> {
        match (&frame.body, from) {
            (Body::Path(message), _) => self.message(now, in_port, message),
            (_, PortKind::Host) if frame.dst.is_group() => self.broadcast(now, in_port, frame),
            (Body::Arp(arp), PortKind::Host) if !arp.request => self.arp_reply(now, in_port, frame, *arp),
            _ => self.unicast(now, in_port, from, frame),
        }
    }

    /// Begins an exploration for a broadcast of a host.
    fn broadcast(&mut self, now: Nanos, in_port: PortNo, frame: &Frame) -> Result<Verdict, DropCause> {
        if !self.ports.take_broadcast_token(now, in_port) {
            return Err(DropCause::RateLimited);
        }
        let carried = Carried::from_body(frame.body).ok_or(DropCause::Invalid)?;
        let exploration = self.explore(now, frame.src);
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

    /// The number of a new exploration of a host of this switch. Older messages about it are late from now on.
    fn explore(&mut self, now: Nanos, mac: Mac) -> u64 {
        let exploration = self.next_number(now, self.hosts.last_number(mac), false);
        self.hosts.number(now, mac, exploration);
        exploration
    }

    /// Floods a new message about the source of a conversation.
    pub(super) fn announce(&mut self, now: Nanos, kind: PathKind, conversation: Conversation) {
        let exploration = self.explore(now, conversation.src);
        let message = PathMessage { kind, conversation, exploration, hops: 1, carried: Carried::Nothing };
        let copies: Vec<Outgoing> = self.flood(None, &message).collect();
        self.queue.extend(copies);
    }

    /// Returns copies of a message for all switch ports except the input port.
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

    /// Forwards an ARP reply of a host at this switch. The Path Reply that contains it sets the way to this host.
    fn arp_reply(&mut self, now: Nanos, in_port: PortNo, frame: &Frame, arp: Arp) -> Result<Verdict, DropCause> {
        let port = self.hosts.port(now, frame.dst).filter(|&port| port != in_port).ok_or(DropCause::NoRoute)?;
        if self.ports.is_host(port) {
            return Ok(Verdict::one(port, *frame));
        }
        if !self.ports.take_token(now, in_port) {
            return Err(DropCause::RateLimited);
        }
        let exploration = self.explore(now, frame.src);
        let reply = PathMessage {
            kind: PathKind::Reply,
            conversation: hosts_of(frame).reverse(),
            exploration,
            hops: 1,
            carried: Carried::Arp(arp),
        };
        Ok(Verdict::one(port, self.wrap(reply)))
    }

    fn unicast(&mut self, now: Nanos, in_port: PortNo, from: PortKind, frame: &Frame) -> Result<Verdict, DropCause> {
        let Some(port) = self.hosts.port(now, frame.dst).filter(|&port| port != in_port) else {
            match from {
                PortKind::Host if self.hosts.port(now, frame.dst).is_some() => return Err(DropCause::WrongPort),
                PortKind::Host => self.repair(now, in_port, hosts_of(frame)),
                PortKind::Switch => self.send_fail(now, in_port, hosts_of(frame), 0),
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
                self.decisions.note(headers.five_tuple, frame.src, frame.dst);
                verdict.remember = Some(headers.five_tuple);
            }
        }
        Ok(verdict)
    }

    /// Begins the repair of the way from a host of this switch to another host, unless it has begun recently.
    pub(crate) fn repair(&mut self, now: Nanos, host_port: PortNo, conversation: Conversation) {
        let pair = (conversation.src, conversation.dst);
        if conversation.dst.is_group() || self.is_repaired(now, pair) {
            return;
        }
        if self.repairs.len() >= self.settings.most_hosts || !self.ports.take_broadcast_token(now, host_port) {
            self.counts.refuse(host_port, Some(DropCause::RateLimited));
            return;
        }
        self.note_repair(now, pair);
        self.counts.recoveries += 1;
        self.announce(now, PathKind::RecoveryRequest, conversation);
        let probes = self.probes(&conversation, Some(host_port));
        self.queue.extend(probes);
    }

    /// Records that the repair of a way has begun: the next one is allowed after [`Settings::recovery_retry`].
    pub(super) fn note_repair(&mut self, now: Nanos, pair: (Mac, Mac)) {
        let again = now.saturating_add(self.settings.recovery_retry);
        self.repairs.insert(pair, again);
        self.repairs_due.watch(again, pair);
    }

    /// Whether a repair for this pair has begun so recently that the next one must wait.
    pub(super) fn is_repaired(&self, now: Nanos, pair: (Mac, Mac)) -> bool {
        self.repairs.get(&pair).is_some_and(|&again| now < again)
    }

    /// Returns ARP requests for a host that is not known to be at this switch, for all host ports at which no host is
    /// known. After a restart or a move, a host may be silent until it receives a frame. The requests have the source of
    /// the conversation as sender.
    pub(crate) fn probes(&self, conversation: &Conversation, except: Option<PortNo>) -> Vec<Outgoing> {
        let (sender_ip, target_ip) = (conversation.five_tuple.src(), conversation.five_tuple.dst());
        if target_ip.is_unspecified() {
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

    /// Sends a Path Fail to the switch at `port`, because a frame from there has no way.
    pub(crate) fn send_fail(&mut self, now: Nanos, port: PortNo, conversation: Conversation, exploration: u64) {
        if !self.ports.take_token(now, port) {
            return;
        }
        self.counts.fails += 1;
        let message =
            PathMessage { kind: PathKind::Fail, conversation, exploration, hops: 1, carried: Carried::Nothing };
        let frame = self.wrap(message);
        self.queue.push_back(Outgoing { port, frame });
    }

    /// Accepts an exploration from another switch, or returns the cause of its refusal.
    fn accept(&mut self, now: Nanos, in_port: PortNo, mac: Mac, exploration: u64) -> Result<(), DropCause> {
        self.listening(now)?;
        if self.hosts.offer(now, mac, exploration, in_port)? {
            self.decisions.forget_destination(mac);
        }
        Ok(())
    }

    /// Checks that the switch has run for long enough to recognise late copies.
    pub(crate) fn listening(&self, now: Nanos) -> Result<(), DropCause> {
        if now < self.quiet_until {
            Err(DropCause::Quiet)
        } else {
            Ok(())
        }
    }

    /// Handles a message about a pair of hosts.
    fn message(&mut self, now: Nanos, in_port: PortNo, message: &PathMessage) -> Result<Verdict, DropCause> {
        let conversation = message.conversation;
        if conversation.five_tuple.proto() != 0 {
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
                let mut emissions = self.probes(&conversation, None);
                emissions.extend(self.flood(Some(in_port), &onward));
                Ok(Verdict::all(emissions))
            }
            PathKind::Reply | PathKind::RecoveryReply => self.reply(now, in_port, message, onward),
            PathKind::Fail => self.handle_fail(now, in_port, conversation, onward),
            PathKind::Gone => self.handle_gone(now, in_port, onward),
            PathKind::Check => self.handle_check(now, in_port, onward),
        }
    }

    /// Answers a Path Recovery Request for a host of this switch.
    fn answer(&mut self, now: Nanos, in_port: PortNo, conversation: Conversation) -> Verdict {
        let exploration = self.explore(now, conversation.dst);
        let kind = PathKind::RecoveryReply;
        let reply = PathMessage { kind, conversation, exploration, hops: 1, carried: Carried::Nothing };
        Verdict::one(in_port, self.wrap(reply))
    }

    /// Handles a reply: it sets the way to the destination of the conversation and is forwarded to its source.
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
            Ok(true) => self.decisions.forget_destination(dst),
            // Either the port is the same as before, or a newer exploration has set the way. The reply is forwarded.
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

    /// Handles a Path Fail: the switch at `in_port` has no way to the destination of the conversation.
    fn handle_fail(
        &mut self,
        now: Nanos,
        in_port: PortNo,
        conversation: Conversation,
        onward: PathMessage,
    ) -> Result<Verdict, DropCause> {
        if self.hosts.erase(conversation.dst, in_port) {
            self.decisions.forget_destination(conversation.dst);
        }
        let port = self.hosts.port(now, conversation.src).filter(|&port| port != in_port).ok_or(DropCause::Consumed)?;
        if self.ports.is_host(port) {
            self.repair(now, port, conversation);
            return Err(DropCause::Consumed);
        }
        Ok(Verdict::one(port, self.wrap(onward)))
    }

    /// Removes all ways by a port whose host or switch is lost.
    pub(crate) fn handle_port_loss(&mut self, now: Nanos, port: PortNo) {
        for (mac, local) in self.hosts.lose_port(port) {
            self.decisions.forget_destination(mac);
            if local && self.ports.take_broadcast_token(now, port) {
                self.announce_gone(now, mac);
            }
        }
        self.lost.push((port, None));
    }

    /// Performs the actions that are due, and adds lost ports to `lost`.
    pub(crate) fn age(&mut self, now: Nanos) {
        let mut out = Vec::new();
        for port in self.ports.handle_timeout(now, &mut out) {
            self.handle_port_loss(now, port);
        }
        self.queue.extend(out);
        for mac in self.hosts.handle_timeout(now) {
            self.decisions.forget_destination(mac);
        }
        self.ask_again(now);
        while let Some(pair) = self.repairs_due.pop_due(now) {
            if self.repairs.get(&pair).is_some_and(|&again| again <= now) {
                self.repairs.remove(&pair);
            }
        }
    }

    /// Returns the state to save, without connections.
    pub(crate) fn save_base(&self) -> Saved {
        let (neighbours, hosts) = (self.ports.save(), self.hosts.save());
        Saved { last_number: self.last_number, neighbours, hosts, ..Saved::default() }
    }

    /// Restores the state that an earlier start has saved, and notes the decisions that the driver still remembers.
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
            self.decisions.note(five_tuple, src, dst);
        }
        // The Hellos that were queued when ports came up do not contain the restored neighbours. They are replaced.
        self.queue.clear();
        let mut out = Vec::new();
        self.ports.greet(&mut out);
        self.queue.extend(out);
    }

    /// Brings a port up or down, and adds a lost port to `lost`.
    pub(crate) fn change_port(&mut self, now: Nanos, port: PortNo, up: bool) {
        let mut out = Vec::new();
        if self.ports.set(now, port, up, &mut out) {
            self.handle_port_loss(now, port);
        }
        self.queue.extend(out);
    }

    /// Renews a host whose frames were forwarded from memory, if it is at this switch. So it keeps its address.
    pub(crate) fn renew_local(&mut self, used: Nanos, mac: Mac) {
        if self.hosts.local_port(used, mac).is_some() {
            self.hosts.renew(used, mac);
            self.hosts.answered(used, mac);
        }
    }

    /// Lets the driver forget the ways to hosts that had to make room. The next frame to one of them begins a repair.
    pub(crate) fn forget_displaced_hosts(&mut self) {
        for mac in std::mem::take(&mut self.hosts.displaced) {
            self.decisions.forget_destination(mac);
        }
    }

    pub(crate) fn refuse(&mut self, in_port: PortNo, why: DropCause) -> Verdict {
        self.counts.dropped(in_port, why);
        // Another switch is not at fault if the table is full.
        if why == DropCause::TableFull && self.ports.is_host(in_port) {
            self.counts.refuse(in_port, Some(why));
        }
        Verdict::drop(why)
    }
}

/// Returns the conversation between the hosts of a frame.
pub(crate) fn hosts_of(frame: &Frame) -> Conversation {
    let (src_ip, dst_ip) = match frame.body {
        Body::Ip(headers) => (headers.five_tuple.src(), headers.five_tuple.dst()),
        Body::Arp(arp) => (arp.sender_ip, arp.target_ip),
        _ => (Address::UNSPECIFIED, Address::UNSPECIFIED),
    };
    Conversation::hosts(frame.src, frame.dst, src_ip, dst_ip)
}

/// Whether an ARP packet contains another sender address than its frame.
fn disagrees(frame: &Frame) -> bool {
    matches!(frame.body, Body::Arp(arp) if arp.sender_mac != frame.src)
}

/// Whether this is a group address that bridges do not forward (IEEE 802.1Q-2018 §8.6.3).
fn is_link_local(mac: Mac) -> bool {
    mac.0[..5] == [0x01, 0x80, 0xc2, 0x00, 0x00] && mac.0[5] < 0x10
}

impl Program for ArpPath {
    fn decide(&mut self, now: Nanos, in_port: PortNo, frame: &Frame) -> Verdict {
        let result = self.admit(now, in_port, frame);
        let result = result.and_then(|from| self.forward(now, in_port, from, frame));
        self.lost.clear();
        self.forget_displaced_hosts();
        result.unwrap_or_else(|why| self.refuse(in_port, why))
    }

    fn handle_timeout(&mut self, now: Nanos) {
        self.age(now);
        self.lost.clear();
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        let (ports, hosts) = (self.ports.next_timeout(), self.hosts.next_timeout());
        [ports, hosts, self.repairs_due.next(), self.questions_due.next()].into_iter().flatten().min()
    }

    fn poll_emission(&mut self) -> Option<Outgoing> {
        self.queue.pop_front()
    }

    fn set_port(&mut self, now: Nanos, port: PortNo, up: bool) {
        self.change_port(now, port, up);
        self.lost.clear();
    }

    fn take_stale(&mut self) -> Stale {
        self.decisions.take_stale()
    }

    fn credit(&mut self, five_tuple: FiveTuple, used: Used) {
        if let Some((src, dst)) = self.decisions.ends(&five_tuple) {
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
