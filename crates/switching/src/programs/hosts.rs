//! Where hosts are: ARP-Path's table (tcp-path.txt §III).
//!
//! The first copy of an exploration sets the way back to the host that it is from. Late copies are told apart by the number of
//! the exploration, not by the port alone, so that a lock outlives the failure of its port. Numbers of one host rise.
//! So from switch to switch along the ways to one host, numbers never fall, and where they are equal, each switch
//! took the exploration before the next one did. That is why these ways have no loop, at any moment.

use super::ageing::Ageing;
use crate::program::DropCause;
use crate::SavedHost;
use pathloom_model::{Mac, Nanos, PortNo};
use std::collections::BTreeMap;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Host {
    /// The last exploration that was accepted.
    number: u64,
    /// `None` after the way was lost; the number goes on keeping late copies off.
    port: Option<PortNo>,
    /// Whether the port is one of this switch's host ports.
    local: bool,
    expires: Nanos,
    /// Until when late copies may come.
    guarded: Nanos,
}

impl Host {
    fn live(&self, now: Nanos) -> Option<PortNo> {
        self.port.filter(|_| now < self.expires)
    }
}

/// Hosts by address.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Hosts {
    age: Nanos,
    lock: Nanos,
    most: usize,
    most_per_port: usize,
    table: BTreeMap<Mac, Host>,
    at_port: BTreeMap<PortNo, usize>,
    due: Ageing<Mac>,
}

impl Hosts {
    pub(crate) fn new(age: Nanos, lock: Nanos, most: usize, most_per_port: usize) -> Hosts {
        let (table, at_port) = (BTreeMap::new(), BTreeMap::new());
        Hosts { age, lock, most, most_per_port, table, at_port, due: Ageing::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.table.values().filter(|host| host.port.is_some()).count()
    }

    /// Hosts whose port is known.
    pub(crate) fn save(&self) -> Vec<SavedHost> {
        let saved = |(&mac, host): (&Mac, &Host)| {
            Some(SavedHost { mac, port: host.port?, number: host.number, local: host.local })
        };
        self.table.iter().filter_map(saved).collect()
    }

    /// Takes the way to a host over from an earlier start, as if it had just been used.
    pub(crate) fn restore(&mut self, now: Nanos, saved: &SavedHost) {
        let SavedHost { mac, port, number, local } = *saved;
        let (expires, guarded) = (now.saturating_add(self.age), now.saturating_add(self.lock));
        // A table that has become smaller takes what it has room for.
        let _ = self.put(now, mac, Host { number, port: Some(port), local, expires, guarded });
    }

    /// The port that leads to a host.
    pub(crate) fn port(&self, now: Nanos, mac: Mac) -> Option<PortNo> {
        self.table.get(&mac)?.live(now)
    }

    /// The host port at which a host is.
    pub(crate) fn local_port(&self, now: Nanos, mac: Mac) -> Option<PortNo> {
        self.table.get(&mac).filter(|host| host.local)?.live(now)
    }

    /// Whether no host is known at a host port.
    pub(crate) fn is_silent(&self, port: PortNo) -> bool {
        self.at_port.get(&port).is_none_or(|&count| count == 0)
    }

    /// A host speaks at a host port. The first port keeps an address until it ages. Returns whether the way to the
    /// host has changed.
    ///
    /// # Errors
    /// The address belongs to another port, or there is no room.
    pub(crate) fn claim(&mut self, now: Nanos, mac: Mac, port: PortNo) -> Result<bool, DropCause> {
        let expires = now.saturating_add(self.age);
        if let Some(host) = self.table.get_mut(&mac) {
            match host.live(now) {
                Some(its) if its == port => {
                    host.expires = expires;
                    return Ok(false);
                }
                Some(_) => return Err(DropCause::StolenAddress),
                None => {}
            }
        }
        if self.at_port.get(&port).is_some_and(|&count| count >= self.most_per_port) {
            return Err(DropCause::TableFull);
        }
        let (number, guarded) = self.table.get(&mac).map_or((0, now), |host| (host.number, host.guarded));
        self.put(now, mac, Host { number, port: Some(port), local: true, expires, guarded })?;
        Ok(true)
    }

    /// A copy of exploration `number` of a host has come in by a switch port. Returns whether the port is another than before.
    ///
    /// # Errors
    /// It is a late copy, the host is at a port of this switch, or there is no room.
    pub(crate) fn offer(&mut self, now: Nanos, mac: Mac, number: u64, port: PortNo) -> Result<bool, DropCause> {
        let before = self.table.get(&mac).copied();
        if let Some(host) = before {
            if number <= host.number {
                return Err(DropCause::LateCopy);
            }
            if host.local && host.live(now).is_some() {
                return Err(DropCause::StolenAddress);
            }
        }
        let (expires, guarded) = (now.saturating_add(self.age), now.saturating_add(self.lock));
        self.put(now, mac, Host { number, port: Some(port), local: false, expires, guarded })?;
        Ok(before.and_then(|host| host.live(now)) != Some(port))
    }

    /// The switch begins an exploration of a host of its own: copies that come back are late.
    pub(crate) fn number(&mut self, now: Nanos, mac: Mac, number: u64) {
        if let Some(host) = self.table.get_mut(&mac) {
            (host.number, host.guarded) = (number, now.saturating_add(self.lock));
        }
    }

    /// The last number used for a host.
    pub(crate) fn last_number(&self, mac: Mac) -> u64 {
        self.table.get(&mac).map_or(0, |host| host.number)
    }

    /// The way to a host has been used.
    pub(crate) fn renew(&mut self, used: Nanos, mac: Mac) {
        let expires = used.saturating_add(self.age);
        if let Some(host) = self.table.get_mut(&mac).filter(|host| host.port.is_some()) {
            host.expires = host.expires.max(expires);
        }
    }

    fn put(&mut self, now: Nanos, mac: Mac, host: Host) -> Result<(), DropCause> {
        if self.table.len() >= self.most && !self.table.contains_key(&mac) {
            return Err(DropCause::TableFull);
        }
        let before = self.table.insert(mac, host);
        self.count(before.as_ref(), false);
        self.count(Some(&host), true);
        if before.is_none() {
            self.due.watch(now.saturating_add(self.age.min(self.lock)), mac);
        }
        Ok(())
    }

    fn count(&mut self, host: Option<&Host>, more: bool) {
        if let Some(Host { local: true, port: Some(port), .. }) = host {
            let count = self.at_port.entry(*port).or_default();
            *count = if more { *count + 1 } else { count.saturating_sub(1) };
        }
    }

    /// The way to a host by this port is broken. Returns whether there was such a way.
    pub(crate) fn erase(&mut self, mac: Mac, port: PortNo) -> bool {
        let Some(before) = self.table.get(&mac).copied().filter(|host| host.port == Some(port)) else { return false };
        self.count(Some(&before), false);
        if let Some(host) = self.table.get_mut(&mac) {
            host.port = None;
        }
        true
    }

    /// A port is lost. Returns the hosts whose way led by it.
    pub(crate) fn lose_port(&mut self, port: PortNo) -> Vec<Mac> {
        let lost: Vec<Mac> =
            self.table.iter().filter(|(_, host)| host.port == Some(port)).map(|(&mac, _)| mac).collect();
        lost.iter().for_each(|&mac| {
            self.erase(mac, port);
        });
        lost
    }

    /// Removes what has aged, and returns the hosts whose way is gone.
    pub(crate) fn handle_timeout(&mut self, now: Nanos) -> Vec<Mac> {
        let mut gone = Vec::new();
        while let Some(mac) = self.due.pop_due(now) {
            let Some(host) = self.table.get(&mac).copied() else { continue };
            if host.port.is_some() && host.live(now).is_none() {
                self.count(Some(&host), false);
                gone.push(mac);
            }
            let until = if host.live(now).is_some() { host.expires.max(host.guarded) } else { host.guarded };
            if until <= now {
                self.table.remove(&mac);
                continue;
            }
            if let (None, Some(kept)) = (host.live(now), self.table.get_mut(&mac)) {
                kept.port = None;
            }
            let next = if host.live(now).is_some() { host.expires } else { until };
            self.due.watch(next.max(Nanos(now.0 + 1)), mac);
        }
        gone
    }

    pub(crate) fn next_timeout(&self) -> Option<Nanos> {
        self.due.next()
    }
}
