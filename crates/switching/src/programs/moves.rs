//! Hosts that move to another switch: how the fabric gives up the ways to their old place.

use super::arp_path::ArpPath;
use crate::program::{DropCause, Outgoing, Verdict};
use pathloom_model::{Address, Arp, Body, Carried, Conversation, Frame, Mac, Nanos, PathKind, PathMessage, PortNo};

/// Number of ARP requests to a host before it is given up.
const REQUESTS: u8 = 3;

/// The conversation of a message about one host.
fn about(mac: Mac) -> Conversation {
    Conversation::hosts(mac, mac, Address::UNSPECIFIED, Address::UNSPECIFIED)
}

impl ArpPath {
    /// Reports to all switches that a host is not at this switch any more.
    pub(super) fn announce_gone(&mut self, now: Nanos, mac: Mac) {
        self.announce(now, PathKind::Gone, about(mac));
    }

    /// Handles a Gone, which is flooded like an exploration.
    pub(super) fn handle_gone(
        &mut self,
        now: Nanos,
        in_port: PortNo,
        onward: PathMessage,
    ) -> Result<Verdict, DropCause> {
        if self.hosts.withdraw(now, onward.conversation.src, onward.exploration)? {
            self.decisions.forget_destination(onward.conversation.src);
        }
        self.listening(now)?;
        Ok(Verdict::all(self.flood(Some(in_port), &onward).collect()))
    }

    /// A host port has sent a frame with the address of a host that is elsewhere. Asks whether the host is still there.
    pub(super) fn check(&mut self, now: Nanos, in_port: PortNo, mac: Mac) {
        if self.is_repaired(now, (mac, mac)) || !self.ports.take_broadcast_token(now, in_port) {
            return;
        }
        self.note_repair(now, (mac, mac));
        if self.hosts.local_port(now, mac).is_some() {
            return self.ask_first(now, mac);
        }
        let Some(port) = self.hosts.port(now, mac) else { return };
        let (kind, conversation) = (PathKind::Check, about(mac));
        let message = PathMessage { kind, conversation, exploration: 0, hops: 1, carried: Carried::Nothing };
        let frame = self.wrap(message);
        self.queue.push_back(Outgoing { port, frame });
    }

    /// Handles a Check, which follows the way to the host.
    pub(super) fn handle_check(
        &mut self,
        now: Nanos,
        in_port: PortNo,
        onward: PathMessage,
    ) -> Result<Verdict, DropCause> {
        let mac = onward.conversation.src;
        if self.hosts.local_port(now, mac).is_some() {
            self.ask_first(now, mac);
            return Err(DropCause::Consumed);
        }
        match self.hosts.port(now, mac).filter(|&port| port != in_port) {
            Some(port) => Ok(Verdict::one(port, self.wrap(onward))),
            None => {
                self.send_fail(now, in_port, about(mac), 0);
                Err(DropCause::NoRoute)
            }
        }
    }

    /// Asks a host of this switch whether it is still there, unless a question is open.
    fn ask_first(&mut self, now: Nanos, mac: Mac) {
        if self.hosts.asked(mac).is_none() {
            self.ask(now, mac);
        }
    }

    /// Repeats the questions that are due, and gives up hosts that have not answered.
    pub(super) fn ask_again(&mut self, now: Nanos) {
        while let Some(mac) = self.questions_due.pop_due(now) {
            let Some((at, requests)) = self.hosts.asked(mac) else { continue };
            if now < at.saturating_add(self.settings.recovery_retry) {
                continue;
            }
            let Some(port) = self.hosts.local_port(now, mac).filter(|_| requests >= REQUESTS) else {
                self.ask(now, mac);
                continue;
            };
            self.hosts.erase(mac, port);
            self.decisions.forget_destination(mac);
            self.lost.push((port, Some(mac)));
            self.announce_gone(now, mac);
        }
    }

    /// Sends an ARP request to a host of this switch.
    fn ask(&mut self, now: Nanos, mac: Mac) {
        let Some(port) = self.hosts.local_port(now, mac) else { return };
        let Some(target_ip) = self.hosts.ask(now, mac) else { return };
        self.questions_due.watch(now.saturating_add(self.settings.recovery_retry), mac);
        // A probe (RFC 5227 §1.1): no host enters its sender into a table.
        let (sender_mac, sender_ip) = (self.ports.mac(), Address::UNSPECIFIED);
        let arp = Arp { request: true, sender_mac, sender_ip, target_mac: mac, target_ip };
        let frame = Frame { src: sender_mac, dst: mac, body: Body::Arp(arp) };
        self.queue.push_back(Outgoing { port, frame });
    }
}
