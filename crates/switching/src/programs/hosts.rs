//! The host table of ARP-Path (tcp-path.txt §III).
//!
//! The first copy of an exploration sets the way back to the host that it comes from. Late copies are recognised by the
//! number of the exploration, not only by the port, so that a lock outlives the failure of its port. The numbers of one
//! host increase. Therefore the ways to one host have no loop at any moment: from switch to switch along these ways,
//! numbers never decrease. Where two numbers are equal, the next switch on the way accepted the exploration earlier.

use super::check_queue::CheckQueue;
use super::fair_share::FairShare;
use crate::program::DropCause;
use crate::SavedHost;
use pathloom_model::{Address, Mac, Nanos, PortNo};
use std::collections::BTreeMap;

/// How many entries in use are passed over before one must make room nevertheless.
const SECOND_CHANCES: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Host {
    /// Number of the last exploration that was accepted.
    number: u64,
    /// `None` after the way was lost. The number still serves to recognise late copies.
    port: Option<PortNo>,
    /// Whether the port is a host port of this switch.
    local: bool,
    expires: Nanos,
    /// Time until which late copies may arrive.
    late_copies_until: Nanos,
    /// IPv4 address of a host of this switch, from its ARP packets.
    ip: Option<Address>,
    /// Open question whether the host of this switch is still there: time of the last request, and number of requests.
    asked: Option<(Nanos, u8)>,
}

impl Host {
    fn new(number: u64, port: Option<PortNo>, local: bool, expires: Nanos, late_copies_until: Nanos) -> Host {
        Host { number, port, local, expires, late_copies_until, ip: None, asked: None }
    }

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
    due: CheckQueue<Mac>,
    /// The entries of hosts elsewhere that may have to make room. `None` until the table is full for the first time.
    elsewhere: Option<Elsewhere>,
    /// The highest number of an exploration whose entry had to make room while late copies of it could arrive.
    forgotten: u64,
    /// Hosts that had to make room. The owner of this object takes them.
    pub(crate) displaced: Vec<Mac>,
}

/// Hosts at other switches, by the ports of their ways, and the time at which each entry expired when it got its place.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Elsewhere {
    shares: FairShare<Option<PortNo>, Mac>,
    expires: BTreeMap<Mac, Nanos>,
}

impl Elsewhere {
    fn touch(&mut self, mac: Mac, host: &Host) {
        self.shares.touch(host.port, mac);
        self.expires.insert(mac, host.expires);
    }

    fn remove(&mut self, mac: Mac) {
        self.shares.remove(&mac);
        self.expires.remove(&mac);
    }
}

impl Hosts {
    pub(crate) fn new(age: Nanos, lock: Nanos, most: usize, most_per_port: usize) -> Hosts {
        let (table, at_port) = (BTreeMap::new(), BTreeMap::new());
        let (due, displaced) = (CheckQueue::new(), Vec::new());
        Hosts { age, lock, most, most_per_port, table, at_port, due, elsewhere: None, forgotten: 0, displaced }
    }

    pub(crate) fn len(&self) -> usize {
        self.table.values().filter(|host| host.port.is_some()).count()
    }

    /// Returns the hosts whose port is known.
    pub(crate) fn save(&self) -> Vec<SavedHost> {
        let saved = |(&mac, host): (&Mac, &Host)| {
            Some(SavedHost { mac, port: host.port?, number: host.number, local: host.local })
        };
        self.table.iter().filter_map(saved).collect()
    }

    /// Restores the way to a host from an earlier start, as if it had just been used.
    pub(crate) fn restore(&mut self, now: Nanos, saved: &SavedHost) {
        let SavedHost { mac, port, number, local } = *saved;
        let (expires, late_copies_until) = (now.saturating_add(self.age), now.saturating_add(self.lock));
        // If the table is smaller than before, entries beyond its limit are ignored.
        let _ = self.put(now, mac, Host::new(number, Some(port), local, expires, late_copies_until));
    }

    /// Returns the port that leads to a host.
    pub(crate) fn port(&self, now: Nanos, mac: Mac) -> Option<PortNo> {
        self.table.get(&mac)?.live(now)
    }

    /// Returns the host port of a host that is at this switch.
    pub(crate) fn local_port(&self, now: Nanos, mac: Mac) -> Option<PortNo> {
        self.table.get(&mac).filter(|host| host.local)?.live(now)
    }

    /// Whether no host is known at a host port.
    pub(crate) fn is_silent(&self, port: PortNo) -> bool {
        self.at_port.get(&port).is_none_or(|&count| count == 0)
    }

    /// Handles a frame of a host at a host port. An address belongs to its first port until the entry expires. Returns
    /// whether the way to the host has changed.
    ///
    /// # Errors
    /// The address belongs to another port, or a table is full.
    pub(crate) fn claim(&mut self, now: Nanos, mac: Mac, port: PortNo) -> Result<bool, DropCause> {
        let expires = now.saturating_add(self.age);
        if let Some(host) = self.table.get_mut(&mac) {
            match host.live(now) {
                Some(its) if its == port => {
                    (host.expires, host.asked) = (expires, None);
                    return Ok(false);
                }
                Some(_) => return Err(DropCause::StolenAddress),
                None => {}
            }
        }
        if self.at_port.get(&port).is_some_and(|&count| count >= self.most_per_port) {
            return Err(DropCause::TableFull);
        }
        let (number, late_copies_until) =
            self.table.get(&mac).map_or((self.forgotten, now), |host| (host.number, host.late_copies_until));
        self.put(now, mac, Host::new(number, Some(port), true, expires, late_copies_until))?;
        Ok(true)
    }

    /// Handles a copy of exploration `number` of a host that arrived at a switch port. Returns whether the port to the
    /// host has changed.
    ///
    /// # Errors
    /// The copy is late, the host is at a port of this switch, or the table is full.
    pub(crate) fn offer(&mut self, now: Nanos, mac: Mac, number: u64, port: PortNo) -> Result<bool, DropCause> {
        let before = self.table.get(&mac).copied();
        if number <= self.last_number(mac) {
            return Err(DropCause::LateCopy);
        }
        if let Some(host) = before {
            if host.local && host.live(now).is_some() {
                return Err(DropCause::StolenAddress);
            }
        }
        let (expires, late_copies_until) = (now.saturating_add(self.age), now.saturating_add(self.lock));
        self.put(now, mac, Host::new(number, Some(port), false, expires, late_copies_until))?;
        Ok(before.and_then(|host| host.live(now)) != Some(port))
    }

    /// Records that this switch begins exploration `number` for one of its hosts. Copies that come back are late.
    pub(crate) fn number(&mut self, now: Nanos, mac: Mac, number: u64) {
        if let Some(host) = self.table.get_mut(&mac) {
            (host.number, host.late_copies_until) = (number, now.saturating_add(self.lock));
        }
    }

    /// The number above which the number of a new exploration of a host must be.
    pub(crate) fn last_number(&self, mac: Mac) -> u64 {
        self.table.get(&mac).map_or(self.forgotten, |host| host.number)
    }

    /// Records the IPv4 address of a host of this switch.
    pub(crate) fn note_ip(&mut self, mac: Mac, ip: Address) {
        if let Some(host) = self.table.get_mut(&mac).filter(|host| host.local && !ip.is_unspecified()) {
            host.ip = Some(ip);
        }
    }

    /// The open question to a host: time of the last request, and number of requests.
    pub(crate) fn asked(&self, mac: Mac) -> Option<(Nanos, u8)> {
        self.table.get(&mac)?.asked
    }

    /// Notes a request to a host of this switch. Returns its address. `None` if the address is not known, so that the
    /// host cannot be asked.
    pub(crate) fn ask(&mut self, now: Nanos, mac: Mac) -> Option<Address> {
        let host = self.table.get_mut(&mac).filter(|host| host.local)?;
        let ip = host.ip?;
        host.asked = Some((now, host.asked.map_or(1, |(_, requests)| requests.saturating_add(1))));
        Some(ip)
    }

    /// Records that a host of this switch has sent frames until `used`.
    pub(crate) fn answered(&mut self, used: Nanos, mac: Mac) {
        if let Some(host) = self.table.get_mut(&mac) {
            host.asked = host.asked.filter(|&(at, _)| at > used);
        }
    }

    /// Handles the message that a host has left its switch. Returns whether a way to the host is erased. The way to a
    /// host that is at this switch now is kept.
    ///
    /// # Errors
    /// The copy is late, or the table is full.
    pub(crate) fn withdraw(&mut self, now: Nanos, mac: Mac, number: u64) -> Result<bool, DropCause> {
        let late_copies_until = now.saturating_add(self.lock);
        let before = self.table.get(&mac).copied();
        if number <= self.last_number(mac) {
            return Err(DropCause::LateCopy);
        }
        if before.is_some_and(|host| host.local && host.live(now).is_some()) {
            self.number(now, mac, number);
            return Ok(false);
        }
        self.put(now, mac, Host::new(number, None, false, now, late_copies_until))?;
        Ok(before.is_some_and(|host| host.port.is_some()))
    }

    /// Records that the way to a host was used at time `used`.
    pub(crate) fn renew(&mut self, used: Nanos, mac: Mac) {
        let expires = used.saturating_add(self.age);
        if let Some(host) = self.table.get_mut(&mac).filter(|host| host.port.is_some()) {
            host.expires = host.expires.max(expires);
        }
    }

    fn put(&mut self, now: Nanos, mac: Mac, host: Host) -> Result<(), DropCause> {
        if self.table.len() >= self.most && !self.table.contains_key(&mac) && !self.make_room(now) {
            return Err(DropCause::TableFull);
        }
        let before = self.table.insert(mac, host);
        match &mut self.elsewhere {
            Some(elsewhere) if host.local => elsewhere.remove(mac),
            Some(elsewhere) => elsewhere.touch(mac, &host),
            None => {}
        }
        self.count(before.as_ref(), false);
        self.count(Some(&host), true);
        if before.is_none() {
            self.due.watch(now.saturating_add(self.age.min(self.lock)), mac);
        }
        Ok(())
    }

    /// Removes an entry of a host elsewhere: of the port with the most, the one whose way was set first. An entry that was used
    /// since it got its place there gets another one first. Returns whether there is room. Hosts of this switch keep their
    /// entries, because each port has a limit.
    fn make_room(&mut self, now: Nanos) -> bool {
        let elsewhere = self.elsewhere.get_or_insert_with(|| {
            let mut oldest: Vec<(Nanos, Mac)> =
                self.table.iter().filter(|(_, host)| !host.local).map(|(&mac, host)| (host.expires, mac)).collect();
            oldest.sort();
            let mut elsewhere = Elsewhere { shares: FairShare::new(), expires: BTreeMap::new() };
            oldest.into_iter().for_each(|(_, mac)| elsewhere.touch(mac, &self.table[&mac]));
            elsewhere
        });
        for tries in 0..=SECOND_CHANCES {
            let Some(mac) = elsewhere.shares.take_surplus() else { return false };
            let since = elsewhere.expires.remove(&mac);
            let Some(host) = self.table.get(&mac).copied() else { continue };
            if since.is_some_and(|since| since < host.expires) && tries < SECOND_CHANCES {
                elsewhere.touch(mac, &host);
                continue;
            }
            if now < host.late_copies_until {
                self.forgotten = self.forgotten.max(host.number);
            }
            self.table.remove(&mac);
            self.displaced.push(mac);
            return true;
        }
        false
    }

    fn count(&mut self, host: Option<&Host>, more: bool) {
        if let Some(Host { local: true, port: Some(port), .. }) = host {
            let count = self.at_port.entry(*port).or_default();
            *count = if more { *count + 1 } else { count.saturating_sub(1) };
        }
    }

    /// Removes the way to a host by this port, because it is broken. Returns whether there was such a way.
    pub(crate) fn erase(&mut self, mac: Mac, port: PortNo) -> bool {
        let Some(before) = self.table.get(&mac).copied().filter(|host| host.port == Some(port)) else { return false };
        self.count(Some(&before), false);
        if let Some(host) = self.table.get_mut(&mac) {
            host.port = None;
        }
        true
    }

    /// Removes all ways by a port that is lost. Returns the hosts of these ways, and whether they were at this switch.
    pub(crate) fn lose_port(&mut self, port: PortNo) -> Vec<(Mac, bool)> {
        let by_port = |(&mac, host): (&Mac, &Host)| (host.port == Some(port)).then_some((mac, host.local));
        let lost: Vec<(Mac, bool)> = self.table.iter().filter_map(by_port).collect();
        lost.iter().for_each(|&(mac, _)| {
            self.erase(mac, port);
        });
        lost
    }

    /// Removes expired entries. Returns the hosts whose way has expired.
    pub(crate) fn handle_timeout(&mut self, now: Nanos) -> Vec<Mac> {
        let mut gone = Vec::new();
        while let Some(mac) = self.due.pop_due(now) {
            let Some(host) = self.table.get(&mac).copied() else { continue };
            if host.port.is_some() && host.live(now).is_none() {
                self.count(Some(&host), false);
                gone.push(mac);
            }
            let until = if host.live(now).is_some() {
                host.expires.max(host.late_copies_until)
            } else {
                host.late_copies_until
            };
            if until <= now {
                self.table.remove(&mac);
                if let Some(elsewhere) = &mut self.elsewhere {
                    elsewhere.remove(mac);
                }
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
