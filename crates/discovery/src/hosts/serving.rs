//! Answers and relays: what an accepted sender gets.

use super::{HostLearning, KnownHost};
use crate::alarm::Trouble;
use crate::arp::{Arp, Operation};
use crate::Place;
use std::net::Ipv4Addr;

impl HostLearning {
    /// Serves a sender that is who it says.
    pub(super) fn serve(&mut self, place: Place, arp: &Arp) {
        if arp.is_announcement() {
            return;
        }
        let target = self.host(arp.target_ip).filter(|target| target.place != place);
        match (arp.operation, target) {
            // The hardware address of the frame is our knowledge, not the sender's.
            (Operation::Reply, Some(target)) => self.send(target.place, &Arp { to: target.mac, ..*arp }),
            (Operation::Reply, None) => {}
            (Operation::Request, Some(target)) => self.answer(place, arp, target),
            // Those on one port hear each other.
            (Operation::Request, None) if self.host(arp.target_ip).is_some() => {}
            (Operation::Request, None) => self.search(place, arp),
        }
    }

    fn answer(&mut self, place: Place, arp: &Arp, target: KnownHost) {
        if self.is_fresh(target.address) {
            self.send(place, &arp.answer(target.mac));
        } else {
            self.send(target.place, &Arp { to: target.mac, ..*arp });
        }
    }

    fn is_fresh(&self, address: Ipv4Addr) -> bool {
        let heard = self.hosts.get(&address).map(|host| host.last);
        heard.is_some_and(|last| self.now.saturating_sub(last) < self.settings.fresh)
    }

    /// Someone asks whether an address is free (RFC 5227 §2.1.1). It asks more than once, so that an owner who was not
    /// heard of lately is asked first, and answered for the next time.
    pub(super) fn serve_probe(&mut self, place: Place, arp: &Arp) {
        match self.host(arp.target_ip) {
            Some(owner) if owner.place == place => {}
            // An owner that asks from another port has moved: an answer would tell it to give its address up.
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

    /// Tells all others that an address has another hardware address now: they may have the old one in their tables, and
    /// would ask for the new one only when that has aged.
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

    /// Passes a question for an unknown address on to where hosts are.
    fn search(&mut self, place: Place, arp: &Arp) {
        let Some(edge) = self.edges.get_mut(&place) else { return };
        if !edge.unknown.take(self.now) {
            return self.alarm(place, Trouble::UnknownTargets);
        }
        let question = Arp { to: crate::Mac::BROADCAST, ..*arp };
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
