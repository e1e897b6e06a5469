//! Answers to ARP frames of accepted senders, and forwarding of these frames.

use super::{HostLearning, HostOutput, KnownHost};
use crate::alarm::AlarmKind;
use crate::arp::{Arp, Operation};
use crate::Place;
use std::net::Ipv4Addr;

impl HostLearning {
    /// Handles an ARP frame whose sender owns its address: answers or forwards it.
    pub(super) fn serve(&mut self, place: Place, arp: &Arp) {
        if arp.is_announcement() {
            return;
        }
        let target = self.host(arp.target_ip).filter(|target| target.place != place);
        match (arp.operation, target) {
            // The frame goes to the hardware address that the controller knows, not to the one in the frame.
            (Operation::Reply, Some(target)) => self.send(target.place, &Arp { to: target.mac, ..*arp }),
            (Operation::Reply, None) => self.reply_elsewhere(place, arp),
            (Operation::Request, Some(target)) => self.answer(place, arp, target),
            // Hosts at the same port receive each other's frames without the controller.
            (Operation::Request, None) if self.host(arp.target_ip).is_some() => {}
            (Operation::Request, None) => self.search(place, arp),
        }
    }

    /// Gives the driver a reply to a host that is not known, unless the reply is to the controller.
    fn reply_elsewhere(&mut self, place: Place, arp: &Arp) {
        let is_known = self.host(arp.target_ip).is_some();
        if !is_known && !arp.target_ip.is_unspecified() && arp.to != self.settings.own_mac {
            self.outputs.push_back(HostOutput::Elsewhere { place, frame: arp.emit() });
        }
    }

    fn answer(&mut self, place: Place, arp: &Arp, target: KnownHost) {
        if self.is_fresh(target.address) {
            self.send(place, &arp.answer(target.mac));
        } else {
            // To all stations at the port: the address may have another hardware address by now, and its owner would
            // not receive a frame to the old one.
            self.send(target.place, &Arp { to: crate::Mac::BROADCAST, ..*arp });
        }
    }

    fn is_fresh(&self, address: Ipv4Addr) -> bool {
        let heard = self.hosts.get(&address).map(|host| host.last);
        heard.is_some_and(|last| self.now.saturating_sub(last) < self.settings.fresh)
    }

    /// Handles the question of a host whether an address is free (RFC 5227 §2.1.1). A host repeats this question. So an
    /// owner that was not heard recently first gets a request, and the controller answers the next question.
    pub(super) fn serve_probe(&mut self, place: Place, arp: &Arp) {
        match self.host(arp.target_ip) {
            Some(owner) if owner.place == place => {}
            // An owner that asks from another port has moved. After an answer, it would not use its address any more.
            Some(owner) if owner.mac != arp.sender_mac && self.is_fresh(owner.address) => {
                self.send(place, &arp.answer(owner.mac))
            }
            Some(owner) => {
                if !self.is_asked(owner.address) {
                    self.ask(owner.address, None);
                }
            }
            None => self.search(place, arp),
        }
    }

    /// Announces to all other hosts that the hardware address of an address has changed. Their ARP tables may contain
    /// the old one, and they would request the new one only after this entry has expired.
    pub(super) fn announce(&mut self, host: KnownHost) {
        if !self.floods.take(self.now) {
            return;
        }
        let KnownHost { address, mac, place } = host;
        let announcement = Arp::request(mac, address, address, crate::Mac::BROADCAST);
        let others = self.edges.iter().filter(|&(&other, edge)| other != place && edge.up);
        for other in others.map(|(&other, _)| other).collect::<Vec<_>>() {
            self.send(other, &announcement);
        }
    }

    /// Forwards a request for an unknown address to its configured port, or to all other edge ports.
    fn search(&mut self, place: Place, arp: &Arp) {
        let Some(edge) = self.edges.get_mut(&place) else { return };
        if !edge.unknown.take(self.now) {
            return self.alarm(place, AlarmKind::UnknownTargets);
        }
        let question = Arp { to: crate::Mac::BROADCAST, ..*arp };
        self.outputs.push_back(HostOutput::Elsewhere { place, frame: question.emit() });
        if let Some(&owner) = self.expected.get(&arp.target_ip) {
            let there = self.edges.get(&owner).is_some_and(|edge| edge.up);
            if owner != place && there {
                self.send(owner, &question);
            }
            if there || self.settings.pinned {
                return;
            }
        }
        if !self.floods.take(self.now) {
            return;
        }
        let others = self.edges.iter().filter(|&(&other, edge)| other != place && edge.up);
        for other in others.map(|(&other, _)| other).collect::<Vec<_>>() {
            self.send(other, &question);
        }
    }
}
