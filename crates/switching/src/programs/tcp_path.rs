//! TCP-Path: every connection explores the fabric with its SYN and takes the fastest path (tcp-path.txt §III). TFE does
//! this for elephants only (§IV). All other frames take the default forwarding, ARP-Path.

use super::arp_path::{ArpPath, PortKind, DEFAULT_TAG};
use super::connections::{Connection, Connections, Key};
use super::settings::{Elephants, Identity, Selection, Settings};
use crate::program::{DropCause, Outgoing, Program, Tables, Used, Verdict};
use crate::{Saved, SavedConnection, Stale};
use pathloom_model::{
    Body, Carried, Conversation, FiveTuple, Frame, Headers, Nanos, PathKind, PathMessage, PortNo, TCP_ACK, TCP_FIN,
    TCP_RST, TCP_SYN,
};

/// A switch with TCP-Path or TFE.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TcpPath {
    pub(crate) base: ArpPath,
    selection: Selection,
    pub(crate) connections: Connections,
}

fn is_syn(headers: &Headers) -> bool {
    headers.tcp_flags & (TCP_SYN | TCP_ACK) == TCP_SYN
}

fn is_syn_ack(headers: &Headers) -> bool {
    headers.tcp_flags & (TCP_SYN | TCP_ACK) == TCP_SYN | TCP_ACK
}

impl TcpPath {
    /// Creates a switch that starts at `now` with all ports down. The connections of `selection` get paths of their
    /// own.
    pub fn new(now: Nanos, identity: Identity, settings: Settings, selection: Selection) -> TcpPath {
        let connections = Connections::new(&settings);
        TcpPath { base: ArpPath::new(now, identity, settings), selection, connections }
    }

    /// Creates a switch with TFE. [`Settings::for_elephants`] returns its default settings.
    pub fn elephants(now: Nanos, identity: Identity, settings: Settings, elephants: Elephants) -> TcpPath {
        TcpPath::new(now, identity, settings, Selection::Elephants(elephants))
    }

    fn result(&mut self, now: Nanos, in_port: PortNo, frame: &Frame) -> Result<Verdict, DropCause> {
        let from = self.base.admit(now, in_port, frame)?;
        match (&frame.body, from) {
            (Body::Path(message), PortKind::Switch) if message.conversation.is_connection() => {
                self.message(now, in_port, message)
            }
            (Body::Ip(headers), PortKind::Host) if !frame.dst.is_group() && self.takes(headers) => {
                self.host_frame(now, in_port, frame, headers)
            }
            (Body::Ip(headers), PortKind::Switch)
                if self.selection.has(headers) && headers.tag != Some(DEFAULT_TAG) =>
            {
                self.fabric_frame(now, in_port, frame, headers)
            }
            _ => self.base.forward(now, in_port, from, frame),
        }
    }

    /// Whether a frame of a host belongs to a selected connection. A SYN+ACK does if its SYN did, with any DSCP.
    fn takes(&self, headers: &Headers) -> bool {
        let answers = is_syn_ack(headers) && self.connections.get(Key::of(headers.five_tuple)).is_some();
        self.selection.has(headers) || answers
    }

    /// Handles a frame of a selected connection from a host.
    fn host_frame(
        &mut self,
        now: Nanos,
        in_port: PortNo,
        frame: &Frame,
        headers: &Headers,
    ) -> Result<Verdict, DropCause> {
        if self.base.hosts.local_port(now, frame.dst).is_some() {
            return self.base.forward(now, in_port, PortKind::Host, frame);
        }
        let conversation = Conversation::of(frame.src, frame.dst, headers.five_tuple);
        if is_syn(headers) {
            return self.syn(now, in_port, frame, conversation);
        }
        let key = Key::of(headers.five_tuple);
        let entry = self.connections.get(key).copied().filter(|entry| entry.connects(frame.src, frame.dst));
        if let Some(entry) = entry {
            let to_source = entry.to_source.filter(|_| entry.is_live(now));
            let back = entry.conversation == conversation.reverse();
            if let (true, true, Some(port)) = (is_syn_ack(headers), back, to_source) {
                return Ok(self.confirm(now, in_port, key, entry, port, frame));
            }
            if let Some((_, port)) = entry.way(now, headers.five_tuple).filter(|&(enters, _)| enters == in_port) {
                self.connections.renew(now, key);
                let answers = headers.tcp_flags & (TCP_SYN | TCP_RST) == 0;
                if answers && self.connections.first_use(key, in_port) {
                    self.base.ports.was_used(in_port);
                }
                return Ok(along(port, frame, headers));
            }
        }
        if !is_syn_ack(headers) && headers.tcp_flags & TCP_RST == 0 {
            self.recover(now, in_port, conversation);
        }
        self.default_way(now, in_port, frame)
    }

    /// Begins an exploration of the fabric with the SYN of a host (§III.B).
    fn syn(
        &mut self,
        now: Nanos,
        in_port: PortNo,
        frame: &Frame,
        conversation: Conversation,
    ) -> Result<Verdict, DropCause> {
        let before = self.connections.get(Key::of(conversation.five_tuple)).copied();
        let recent = before.filter(|entry| now < entry.last_attempt_at.saturating_add(self.base.settings.lock));
        if recent.is_some_and(|entry| entry.attempts >= self.base.settings.unanswered) {
            return self.default_way(now, in_port, frame);
        }
        let Some(exploration) = self.begin(now, in_port, conversation) else {
            return self.default_way(now, in_port, frame);
        };
        self.base.counts.explorations += 1;
        let carried = Carried::from_body(frame.body).ok_or(DropCause::Invalid)?;
        let request = PathMessage { kind: PathKind::Request, conversation, exploration, hops: 1, carried };
        let mut emissions: Vec<Outgoing> = self.base.flood(None, &request).collect();
        if self.base.hosts.port(now, frame.dst).is_none() {
            let silent = self.base.silent_hosts(Some(in_port));
            emissions.extend(silent.map(|port| Outgoing { port, frame: *frame }));
        }
        if emissions.is_empty() {
            return Err(DropCause::NoPort);
        }
        Ok(Verdict::all(emissions))
    }

    /// Locks a connection of a host of this switch for a new exploration, and returns the number of the exploration.
    /// `None`: a limit is reached, or the five-tuple belongs to other stations. The refusal is counted.
    fn begin(&mut self, now: Nanos, host_port: PortNo, conversation: Conversation) -> Option<u64> {
        if !self.base.ports.take_exploration_token(now, host_port) {
            self.base.counts.refuse(host_port, Some(DropCause::RateLimited));
            return None;
        }
        let side = Key::is_low(conversation.five_tuple);
        let known = self.connections.last_number(Key::of(conversation.five_tuple));
        let exploration = self.base.next_number(now, known, side);
        match self.connections.lock(now, conversation, exploration, host_port, Some(host_port)) {
            Ok(()) => {
                self.forget(Key::of(conversation.five_tuple));
                self.forget_displaced();
                Some(exploration)
            }
            Err(why) => {
                self.base.counts.refuse(host_port, Some(why));
                None
            }
        }
    }

    /// Sends a frame by the default forwarding. A tag makes the other switches use the default forwarding too.
    fn default_way(&mut self, now: Nanos, in_port: PortNo, frame: &Frame) -> Result<Verdict, DropCause> {
        let mut verdict = self.base.forward(now, in_port, PortKind::Host, frame)?;
        verdict.remember = None;
        for out in &mut verdict.emissions {
            if let Body::Ip(headers) = &mut out.frame.body {
                if self.base.ports.is_switch(out.port) {
                    headers.tag = Some(DEFAULT_TAG);
                }
            }
        }
        Ok(verdict)
    }

    /// Confirms the path, because the destination has answered with SYN+ACK (§III.B).
    fn confirm(
        &mut self,
        now: Nanos,
        in_port: PortNo,
        key: Key,
        entry: Connection,
        port: PortNo,
        frame: &Frame,
    ) -> Verdict {
        self.connections.confirm(now, key, in_port);
        self.forget(key);
        if self.base.ports.is_host(port) {
            return Verdict::one(port, *frame);
        }
        let reply = PathMessage {
            kind: PathKind::Reply,
            conversation: entry.conversation,
            exploration: entry.exploration,
            hops: 1,
            carried: Carried::from_body(frame.body).unwrap_or(Carried::Nothing),
        };
        Verdict::one(port, self.base.wrap(reply))
    }

    /// Handles a frame of a selected connection from another switch: it follows its path or is dropped (§III.C).
    fn fabric_frame(
        &mut self,
        now: Nanos,
        in_port: PortNo,
        frame: &Frame,
        headers: &Headers,
    ) -> Result<Verdict, DropCause> {
        let key = Key::of(headers.five_tuple);
        let entry = self.connections.get(key).filter(|entry| entry.connects(frame.src, frame.dst));
        let Some((enters, port)) = entry.and_then(|entry| entry.way(now, headers.five_tuple)) else {
            let conversation = Conversation::of(frame.src, frame.dst, headers.five_tuple);
            self.base.send_fail(now, in_port, conversation, 0);
            return Err(DropCause::NoRoute);
        };
        if enters == in_port {
            self.connections.renew(now, key);
            return Ok(along(port, frame, headers));
        }
        // A frame to a host port leaves the fabric, so it cannot form a loop.
        if self.base.ports.is_host(port) {
            return Ok(Verdict::one(port, *frame));
        }
        Err(DropCause::WrongPort)
    }

    /// Handles a message about a connection.
    fn message(&mut self, now: Nanos, in_port: PortNo, message: &PathMessage) -> Result<Verdict, DropCause> {
        if !message.conversation.dst.is_station() {
            return Err(DropCause::Invalid);
        }
        let onward = PathMessage { hops: message.hops + 1, ..*message };
        match message.kind {
            PathKind::Request => self.request(now, in_port, message, &onward),
            PathKind::RecoveryRequest => self.recovery_request(now, in_port, message, &onward),
            PathKind::Reply | PathKind::RecoveryReply => self.reply(now, in_port, message, onward),
            PathKind::Fail => self.handle_fail(now, in_port, message, onward),
            PathKind::Gone | PathKind::Check => Err(DropCause::Invalid),
        }
    }

    /// Locks the connection of an exploration that another switch began, or returns the cause of its refusal.
    fn accept(&mut self, now: Nanos, in_port: PortNo, message: &PathMessage) -> Result<(), DropCause> {
        self.base.listening(now)?;
        let conversation = message.conversation;
        let own = self.base.hosts.local_port(now, conversation.src).is_some();
        let known = self.connections.last_number(Key::of(conversation.five_tuple));
        if own && message.exploration > known {
            return Err(DropCause::StolenAddress);
        }
        self.connections.lock(now, conversation, message.exploration, in_port, None)?;
        self.forget(Key::of(conversation.five_tuple));
        self.forget_displaced();
        Ok(())
    }

    /// Returns copies of an exploration for the next switches. With `descend_only`, an exploration from a higher tier
    /// is sent to lower tiers only.
    fn onward(&self, in_port: PortNo, onward: &PathMessage) -> Vec<Outgoing> {
        let down_only = self.base.settings.descend_only && self.base.ports.is_above(in_port);
        let copies = self.base.flood(Some(in_port), onward);
        copies.filter(|out| !down_only || self.base.ports.is_below(out.port)).collect()
    }

    fn request(
        &mut self,
        now: Nanos,
        in_port: PortNo,
        message: &PathMessage,
        onward: &PathMessage,
    ) -> Result<Verdict, DropCause> {
        let Carried::Ip(headers) = message.carried else { return Err(DropCause::Invalid) };
        let Conversation { src, dst, five_tuple } = message.conversation;
        if headers.five_tuple != five_tuple || !is_syn(&headers) {
            return Err(DropCause::Invalid);
        }
        self.accept(now, in_port, message)?;
        let frame = Frame { src, dst, body: Body::Ip(headers) };
        if let Some(port) = self.base.hosts.local_port(now, dst) {
            return Ok(Verdict::one(port, frame));
        }
        let mut emissions = self.onward(in_port, onward);
        if self.base.hosts.port(now, dst).is_none() {
            // The host was not heard since the last restart. It may be at a port without a known host.
            emissions.extend(self.base.silent_hosts(None).map(|port| Outgoing { port, frame }));
        }
        Ok(Verdict::all(emissions))
    }

    fn recovery_request(
        &mut self,
        now: Nanos,
        in_port: PortNo,
        message: &PathMessage,
        onward: &PathMessage,
    ) -> Result<Verdict, DropCause> {
        self.accept(now, in_port, message)?;
        let conversation = message.conversation;
        if let Some(port) = self.base.hosts.local_port(now, conversation.dst) {
            self.connections.confirm(now, Key::of(conversation.five_tuple), port);
            let reply = PathMessage { kind: PathKind::RecoveryReply, hops: 1, ..*message };
            return Ok(Verdict::one(in_port, self.base.wrap(reply)));
        }
        let mut emissions = self.base.probes(&conversation, None);
        emissions.extend(self.onward(in_port, onward));
        Ok(Verdict::all(emissions))
    }

    /// Handles a reply: it confirms the path and is forwarded to the source (§III.B).
    fn reply(
        &mut self,
        now: Nanos,
        in_port: PortNo,
        message: &PathMessage,
        onward: PathMessage,
    ) -> Result<Verdict, DropCause> {
        let key = Key::of(message.conversation.five_tuple);
        let entry = self.connections.get(key).copied().filter(|entry| entry.conversation == message.conversation);
        let entry = entry.filter(|entry| entry.exploration == message.exploration && entry.is_live(now));
        let entry = entry.ok_or(DropCause::NoRoute)?;
        let port = entry.to_source.filter(|&port| port != in_port).ok_or(DropCause::WrongPort)?;
        if entry.to_destination.is_some_and(|known| known != in_port) {
            return Err(DropCause::WrongPort);
        }
        self.connections.confirm(now, key, in_port);
        self.forget(key);
        if self.base.ports.is_switch(port) {
            return Ok(Verdict::one(port, self.base.wrap(onward)));
        }
        let body = message.carried.into_body().ok_or(DropCause::Consumed)?;
        Ok(Verdict::one(port, Frame { src: entry.conversation.dst, dst: entry.conversation.src, body }))
    }

    /// Handles a Path Fail of a neighbour on the path: removes the ports of the entry, and forwards the message
    /// (§III.D).
    fn handle_fail(
        &mut self,
        now: Nanos,
        in_port: PortNo,
        message: &PathMessage,
        onward: PathMessage,
    ) -> Result<Verdict, DropCause> {
        let key = Key::of(message.conversation.five_tuple);
        let entry = self.connections.get(key).copied().ok_or(DropCause::Consumed)?;
        let meant = message.exploration == 0 || message.exploration == entry.exploration;
        if !meant {
            return Err(DropCause::Consumed);
        }
        let other = match (entry.to_source, entry.to_destination) {
            (Some(port), other) if port == in_port => other,
            (other, Some(port)) if port == in_port => other,
            _ => return Err(DropCause::Consumed),
        };
        self.erase(key);
        match other {
            Some(port) if self.base.ports.is_switch(port) => Ok(Verdict::one(port, self.base.wrap(onward))),
            Some(port) if entry.to_source == Some(port) => {
                self.recover(now, port, entry.conversation);
                Err(DropCause::Consumed)
            }
            _ => Err(DropCause::Consumed),
        }
    }

    /// Begins an exploration for a connection whose path is lost, on behalf of its host (§III.D), unless one began
    /// recently.
    fn recover(&mut self, now: Nanos, host_port: PortNo, conversation: Conversation) {
        let before = self.connections.get(Key::of(conversation.five_tuple)).copied();
        let again = |entry: Connection| entry.last_attempt_at.saturating_add(self.base.settings.recovery_retry);
        if before.is_some_and(|entry| entry.attempts > 0 && now < again(entry)) {
            return;
        }
        let Some(exploration) = self.begin(now, host_port, conversation) else { return };
        self.base.counts.recoveries += 1;
        let kind = PathKind::RecoveryRequest;
        let request = PathMessage { kind, conversation, exploration, hops: 1, carried: Carried::Nothing };
        let copies: Vec<Outgoing> = self.base.flood(None, &request).collect();
        self.base.queue.extend(copies);
    }

    fn erase(&mut self, key: Key) {
        self.connections.erase(key);
        self.forget(key);
    }

    fn forget(&mut self, key: Key) {
        key.directions().into_iter().for_each(|tuple| self.base.decisions.forget(tuple));
    }

    /// Lets the driver forget the connections that had to make room. Their next frame finds no entry, so their switch explores
    /// again.
    fn forget_displaced(&mut self) {
        for key in std::mem::take(&mut self.connections.displaced) {
            self.forget(key);
        }
    }

    /// Removes the paths by the ports that were lost, or those of the hosts that were given up there, and informs the
    /// edge switches that can still be reached (§III.D).
    fn break_paths(&mut self, now: Nanos) {
        for (lost, host) in std::mem::take(&mut self.base.lost) {
            let ends = |entry: &Connection| [entry.conversation.src, entry.conversation.dst];
            let is_affected = |entry: &Connection| host.is_none_or(|mac| ends(entry).contains(&mac));
            for (key, entry) in self.connections.by_port(lost).into_iter().filter(|(_, entry)| is_affected(entry)) {
                self.erase(key);
                let towards_source = entry.to_source != Some(lost);
                let Some(port) = (if towards_source { entry.to_source } else { entry.to_destination }) else {
                    continue;
                };
                if self.base.ports.is_switch(port) {
                    self.tell(port, &entry);
                } else if towards_source && self.base.ports.is_host(port) {
                    self.recover(now, port, entry.conversation);
                }
            }
        }
    }

    fn tell(&mut self, port: PortNo, entry: &Connection) {
        self.base.counts.fails += 1;
        let Connection { conversation, exploration, .. } = *entry;
        let message =
            PathMessage { kind: PathKind::Fail, conversation, exploration, hops: 1, carried: Carried::Nothing };
        let frame = self.base.wrap(message);
        self.base.queue.push_back(Outgoing { port, frame });
    }
}

/// Returns the verdict for a frame on its confirmed path.
fn along(port: PortNo, frame: &Frame, headers: &Headers) -> Verdict {
    let plain = headers.tcp_flags & (TCP_SYN | TCP_FIN | TCP_RST) == 0;
    Verdict { remember: plain.then_some(headers.five_tuple), ..Verdict::one(port, *frame) }
}

impl Program for TcpPath {
    fn decide(&mut self, now: Nanos, in_port: PortNo, frame: &Frame) -> Verdict {
        let result = self.result(now, in_port, frame);
        self.break_paths(now);
        self.base.forget_displaced_hosts();
        result.unwrap_or_else(|why| self.base.refuse(in_port, why))
    }

    fn handle_timeout(&mut self, now: Nanos) {
        self.base.age(now);
        self.break_paths(now);
        for key in self.connections.handle_timeout(now) {
            self.forget(key);
        }
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        [self.base.poll_timeout(), self.connections.next_timeout()].into_iter().flatten().min()
    }

    fn poll_emission(&mut self) -> Option<Outgoing> {
        self.base.poll_emission()
    }

    fn set_port(&mut self, now: Nanos, port: PortNo, up: bool) {
        self.base.change_port(now, port, up);
        self.break_paths(now);
    }

    fn take_stale(&mut self) -> Stale {
        self.base.take_stale()
    }

    fn credit(&mut self, five_tuple: FiveTuple, used: Used) {
        let key = Key::of(five_tuple);
        self.connections.renew(used.last, key);
        if let Some(entry) = self.connections.get(key) {
            let Conversation { src, dst, .. } = entry.conversation;
            self.base.renew_local(used.last, if five_tuple == entry.conversation.five_tuple { src } else { dst });
        }
        self.base.credit(five_tuple, used);
    }

    fn note_unreadable(&mut self, in_port: PortNo) {
        self.base.note_unreadable(in_port);
    }

    fn tables(&self) -> Tables {
        let (connections, confirmed) = self.connections.entries();
        Tables { connections, confirmed, ..self.base.tables() }
    }

    fn save(&self) -> Saved {
        Saved { connections: self.connections.save_all(), ..self.base.save_base() }
    }

    fn save_tables(&self) -> Saved {
        self.base.save_base()
    }

    fn restore(&mut self, now: Nanos, saved: &Saved) {
        self.base.restore_base(now, saved);
        for connection in &saved.connections {
            let quota_port = Some(connection.to_source).filter(|&port| self.base.ports.is_host(port));
            self.connections.restore(now, connection, quota_port);
            for port in [connection.to_source, connection.to_destination] {
                let lost = !self.base.ports.is_host(port) && !self.base.ports.is_switch(port);
                if lost && !self.base.lost.contains(&(port, None)) {
                    self.base.lost.push((port, None));
                }
            }
        }
        self.forget_displaced();
        self.break_paths(now);
    }

    fn connection(&self, five_tuple: FiveTuple) -> Option<SavedConnection> {
        self.connections.save(Key::of(five_tuple))
    }
}
