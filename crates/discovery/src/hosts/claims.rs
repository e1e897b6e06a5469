//! Ownership of addresses: the first sender owns an address. Before a claim of another sender is accepted, the owner is
//! asked whether it is still there.

use super::{HostLearning, HostOutput, KnownHost};
use crate::alarm::AlarmKind;
use crate::arp::Arp;
use crate::{Mac, Place};
use pathloom_model::Nanos;
use std::net::Ipv4Addr;

/// State of a host that is being asked whether it is still there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asking {
    /// Number of requests sent.
    sent: u32,
    /// The claim to its address or hardware address that caused the requests, if any.
    claim: Option<KnownHost>,
}

/// The state of a host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Host {
    pub(super) mac: Mac,
    pub(super) place: Place,
    /// Time of the last frame from the host.
    pub(super) last: Nanos,
    /// Whether the host is present and was reported. If not, it is only remembered.
    pub(super) present: bool,
    asking: Option<Asking>,
    /// Port whose claim the host has refuted, and the time until which further claims from there are refused.
    refuted: Option<(Place, Nanos)>,
}

impl Host {
    pub(super) fn known(&self, address: Ipv4Addr) -> KnownHost {
        KnownHost { address, mac: self.mac, place: self.place }
    }
}

impl HostLearning {
    /// Returns whether the sender owns its address. If another owner must be asked first, the result is false for now.
    pub(super) fn claim(&mut self, claim: KnownHost) -> bool {
        if let Some(&owner) = self.expected.get(&claim.address).filter(|&&owner| owner != claim.place) {
            if self.settings.pinned {
                self.spoofed(claim, owner);
                return false;
            }
            if !self.hosts.contains_key(&claim.address) && !self.has_left(claim.address, owner) {
                return false;
            }
        }
        match self.hosts.get(&claim.address).copied() {
            Some(host) if host.mac == claim.mac && host.place == claim.place => {
                self.refresh(claim, host);
                true
            }
            Some(host) if host.present || host.asking.is_some() => {
                self.contest(claim.address, host, claim);
                false
            }
            Some(_) => {
                self.forget(claim.address);
                self.claim_mac(claim)
            }
            None => self.claim_mac(claim),
        }
    }

    /// Whether no host answers for a configured address at its configured port. No host with this address is known. A
    /// call sends a request to that port while a host there may still answer. A claim from another port is accepted
    /// when it is repeated after the time allowed for the answer.
    fn has_left(&mut self, address: Ipv4Addr, owner: Place) -> bool {
        if !self.edges.get(&owner).is_some_and(|edge| edge.up) {
            return true;
        }
        let since = *self.presumed.entry(address).or_insert(self.now);
        let patience = Nanos(self.settings.probe_gap.0.saturating_mul(u64::from(self.settings.probes)));
        let waited = self.now.saturating_sub(since);
        // If the first request was sent long ago, the waiting time starts again.
        if waited > Nanos(patience.0.saturating_mul(10)) {
            self.presumed.insert(address, self.now);
        } else if waited >= patience {
            self.presumed.remove(&address);
            return true;
        }
        self.send(owner, &Arp::request(self.settings.own_mac, Ipv4Addr::UNSPECIFIED, address, Mac::BROADCAST));
        false
    }

    /// Decides a claim to a free address: checks whether the hardware address is free too.
    fn claim_mac(&mut self, claim: KnownHost) -> bool {
        let owned = self.by_mac.get(&claim.mac).cloned().unwrap_or_default();
        for address in owned {
            let host = self.hosts[&address];
            if host.place == claim.place {
                continue;
            }
            if host.present || host.asking.is_some() {
                self.contest(address, host, claim);
                return false;
            }
        }
        self.learn(claim, None)
    }

    /// Records that the owner was heard at its port. So it is alive, and a pending claim is refuted.
    fn refresh(&mut self, known: KnownHost, before: Host) {
        let until = self.now.saturating_add(self.settings.refused_for);
        let claim = before.asking.and_then(|asking| asking.claim);
        let host = self.hosts.get_mut(&known.address).expect("looked up by the caller");
        (host.last, host.present, host.asking) = (self.now, true, None);
        if let Some(claim) = claim {
            host.refuted = Some((claim.place, until));
        }
        if before.asking.is_some() {
            self.agenda.set(known.address, self.now.saturating_add(self.settings.idle));
        }
        if !before.present {
            let KnownHost { address, mac, place } = known;
            self.outputs.push_back(HostOutput::HostLearnt { address, mac, place });
        }
        if let Some(claim) = claim {
            self.spoofed(claim, known.place);
        }
    }

    fn spoofed(&mut self, claim: KnownHost, owner: Place) {
        self.alarm(claim.place, AlarmKind::Spoofed { address: claim.address, mac: claim.mac, owner });
    }

    /// Handles a claim of another sender to the address or hardware address of a host that may be alive.
    fn contest(&mut self, address: Ipv4Addr, host: Host, claim: KnownHost) {
        if host.refuted.is_some_and(|(place, until)| place == claim.place && self.now < until) {
            return self.spoofed(claim, host.place);
        }
        // If there are several claims, only the first is examined.
        if host.asking.is_none_or(|asking| asking.claim.is_none()) {
            self.ask(address, Some(claim));
        }
    }

    /// Whether a host is being asked whether it is still there.
    pub(super) fn is_asked(&self, address: Ipv4Addr) -> bool {
        self.hosts.get(&address).is_some_and(|host| host.asking.is_some())
    }

    /// Starts to ask a host whether it is still there. The number of requests starts at zero.
    pub(super) fn ask(&mut self, address: Ipv4Addr, claim: Option<KnownHost>) {
        if let Some(host) = self.hosts.get_mut(&address) {
            host.asking = Some(Asking { sent: 0, claim });
            self.agenda.set(address, self.now);
        }
    }

    /// Handles the expired timer of a host: sends or repeats a request, or removes the host.
    pub(super) fn handle_timer(&mut self, address: Ipv4Addr) {
        let Some(host) = self.hosts.get_mut(&address) else { return };
        if !self.edges.get(&host.place).is_some_and(|edge| edge.up) && host.asking.is_none() {
            self.forget(address);
            return;
        }
        let quiet_until = host.last.saturating_add(self.settings.idle);
        let asking = match &mut host.asking {
            None if self.now < quiet_until => return self.agenda.set(address, quiet_until),
            none @ None => none.insert(Asking { sent: 0, claim: None }),
            Some(asking) => asking,
        };
        if asking.sent >= self.settings.probes {
            return self.give_up(address);
        }
        asking.sent += 1;
        let place = host.place;
        // The request has no sender address, so it changes no host's ARP table (RFC 5227 §2.1.1). It is a broadcast, so
        // that a host with a new hardware address receives it too.
        self.send(place, &Arp::request(self.settings.own_mac, Ipv4Addr::UNSPECIFIED, address, Mac::BROADCAST));
        self.agenda.set(address, self.now.saturating_add(self.settings.probe_gap));
    }

    /// Handles the loss of a host's port. The host has left, or comes back with the port. A pending claim is decided at
    /// once.
    pub(super) fn handle_port_loss(&mut self, address: Ipv4Addr) {
        let Some(host) = self.hosts.get_mut(&address) else { return };
        let claim = host.asking.take().and_then(|asking| asking.claim);
        if claim.is_some() {
            host.asking = Some(Asking { sent: u32::MAX, claim });
            return self.agenda.set(address, self.now);
        }
        if std::mem::replace(&mut host.present, false) {
            let (mac, place) = (host.mac, host.place);
            self.outputs.push_back(HostOutput::HostGone { address, mac, place });
        }
        self.agenda.set(address, self.now.saturating_add(self.settings.idle));
    }

    /// Adds a host that was known at an earlier start of the controller. It is not reported before it answers.
    pub(super) fn remember(&mut self, known: KnownHost) {
        let KnownHost { address, mac, place } = known;
        let at_work = self.by_mac.get(&mac).into_iter().flatten().any(|ip| self.hosts[ip].place != place);
        let at_home = self.expected.get(&address).is_none_or(|&owner| owner == place);
        let wanted = (at_home || !self.settings.pinned) && mac.is_station();
        let full = self.hosts.len() >= self.settings.hosts;
        let most_here = self.settings.hosts_per_port;
        if full || at_work || !wanted || self.hosts.contains_key(&address) {
            return;
        }
        let edge = self.edge(place);
        if edge.hosts.len() >= most_here {
            return;
        }
        edge.hosts.insert(address);
        let up = edge.up;
        self.by_mac.entry(mac).or_default().insert(address);
        let host = Host { mac, place, last: self.now, present: false, asking: None, refuted: None };
        self.hosts.insert(address, host);
        self.agenda.set(address, self.now.saturating_add(self.settings.idle));
        if up {
            self.ask(address, None);
        }
    }

    /// Removes a host that does not answer. A pending claim is accepted, unless its hardware address has another owner
    /// that must be asked first.
    fn give_up(&mut self, address: Ipv4Addr) {
        let Some(host) = self.forget(address) else { return };
        let claim = host.asking.and_then(|asking| asking.claim);
        let claim = claim.filter(|claim| self.edges.get(&claim.place).is_some_and(|edge| edge.up));
        // If a host at another port uses the hardware address, that host must be asked as well.
        let free = |claim: &KnownHost| {
            let others = self.by_mac.get(&claim.mac).into_iter().flatten();
            others.map(|other| &self.hosts[other]).all(|other| other.place == claim.place || !other.present)
        };
        match claim {
            Some(claim) if host.present && claim.address == address && free(&claim) => {
                self.learn(claim, Some(host));
            }
            _ => {
                if host.present {
                    self.outputs.push_back(HostOutput::HostGone { address, mac: host.mac, place: host.place });
                }
                if let Some(claim) = claim {
                    self.claim(claim);
                }
            }
        }
    }

    /// Adds a host. `before` is the previous owner of the address. Returns false if a limit on hosts is reached.
    fn learn(&mut self, new: KnownHost, before: Option<Host>) -> bool {
        let KnownHost { address, mac, place } = new;
        let (most_here, most) = (self.settings.hosts_per_port, self.settings.hosts);
        let room = self.hosts.len() < most;
        let edge = self.edges.get_mut(&place).filter(|edge| room && edge.hosts.len() < most_here);
        let Some(edge) = edge else {
            if let Some(Host { mac, place, .. }) = before {
                self.outputs.push_back(HostOutput::HostGone { address, mac, place });
            }
            self.alarm(place, AlarmKind::TooManyHosts);
            return false;
        };
        edge.hosts.insert(address);
        self.presumed.remove(&address);
        // Entries of this hardware address at other ports are removed. They are only remembered, not reported.
        let elsewhere = |ip: &Ipv4Addr| self.hosts[ip].place != place;
        let over: Vec<Ipv4Addr> = self.by_mac.get(&mac).into_iter().flatten().copied().filter(elsewhere).collect();
        for ip in over {
            self.forget(ip);
        }
        self.by_mac.entry(mac).or_default().insert(address);
        let host = Host { mac, place, last: self.now, present: true, asking: None, refuted: None };
        self.hosts.insert(address, host);
        self.agenda.set(address, self.now.saturating_add(self.settings.idle));
        self.outputs.push_back(match before {
            None => HostOutput::HostLearnt { address, mac, place },
            Some(before) => HostOutput::HostMoved { address, mac, from: before.place, to: place },
        });
        if before.is_some_and(|before| before.mac != mac) {
            self.announce(new);
        }
        true
    }

    fn forget(&mut self, address: Ipv4Addr) -> Option<Host> {
        let host = self.hosts.remove(&address)?;
        self.agenda.cancel(address);
        if let Some(edge) = self.edges.get_mut(&host.place) {
            edge.hosts.remove(&address);
        }
        let owned = self.by_mac.get_mut(&host.mac).expect("every host is listed by its hardware address");
        owned.remove(&address);
        if owned.is_empty() {
            self.by_mac.remove(&host.mac);
        }
        Some(host)
    }
}
