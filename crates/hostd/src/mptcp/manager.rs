//! The path manager of one network namespace, as a state machine: the kernel's events come in, requests to the kernel
//! go out. Time is an argument.
//!
//! The end that opened a connection opens its further subflows: so many for each pair of addresses. With a full mesh the
//! pairs are those of all own addresses and all addresses of the other end. That end announces its other addresses when it
//! accepts a connection.

use super::wire::{Ends, Event, Request};
use pathloom_model::Nanos;
use serde::Deserialize;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};

/// Subflows that a connection has at most, as in the simulator.
pub const MOST_SUBFLOWS: u32 = 64;
/// Connections that are managed at a time. Further ones keep the subflow that they have.
pub const MOST_CONNECTIONS: usize = 65_536;
/// Addresses of the other end that are used, announced ones included.
const MOST_ADDRESSES: usize = 8;
/// After the first failure of a subflow, and after many, it is opened anew after so long.
const SHORTEST_WAIT: Nanos = Nanos::from_millis(250);
const LONGEST_WAIT: Nanos = Nanos::from_secs(30);
/// A subflow that stood so long was good: the next wait is the shortest again.
const GOOD: Nanos = Nanos::from_secs(10);

/// Over which pairs of addresses subflows run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pairs {
    /// That of the first subflow; the others have other source ports.
    #[default]
    Ndiffports,
    /// All.
    Fullmesh,
}

/// What the manager is to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Subflows per pair of addresses.
    pub subflows: u32,
    /// The pairs.
    pub pairs: Pairs,
    /// Own addresses in the fabric. Connections from others are left alone.
    pub own: Vec<Ipv4Addr>,
}

/// Figures for the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Connections that this host has opened.
    pub connections: u64,
    /// Subflows that were asked for.
    pub created: u64,
    /// Subflows among them that stood.
    pub established: u64,
    /// Requests that the kernel refused, and subflows that never stood.
    pub failed: u64,
    /// Connections and addresses beyond a limit.
    pub refused: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Pair {
    local: Ipv4Addr,
    remote: SocketAddrV4,
}

#[derive(Clone, Debug, Default)]
struct OfPair {
    /// Asked for, and neither established nor closed so far.
    asked: u32,
    /// Subflows that stand, and since when.
    standing: BTreeMap<Ends, Nanos>,
    /// Failures in a row.
    failures: u32,
    /// Nothing is asked for before.
    waits_until: Option<Nanos>,
}

#[derive(Clone, Debug)]
struct Connection {
    /// Address that the first subflow came from; its number is 0.
    first: Ipv4Addr,
    /// Port of the other end.
    port: u16,
    /// Addresses of the other end that it has announced, by number.
    announced: BTreeMap<u8, SocketAddrV4>,
    pairs: BTreeMap<Pair, OfPair>,
    /// The pairs in the order in which they came.
    order: Vec<Pair>,
}

/// The state machine.
#[derive(Clone, Debug)]
pub struct Manager {
    settings: Settings,
    connections: BTreeMap<u32, Connection>,
    /// When pairs of connections are to be looked at.
    due: BTreeSet<(Nanos, u32)>,
    requests: VecDeque<Request>,
    counts: Counts,
}

impl Manager {
    /// Knows no connection.
    pub fn new(settings: Settings) -> Manager {
        let (connections, due, requests) = (BTreeMap::new(), BTreeSet::new(), VecDeque::new());
        Manager { settings, connections, due, requests, counts: Counts::default() }
    }

    /// Figures.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Connections that are managed.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// What the kernel is to be asked for next.
    pub fn poll_request(&mut self) -> Option<Request> {
        self.requests.pop_front()
    }

    /// When [`Manager::handle_time`] is to be called.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        self.due.first().map(|&(at, _)| at)
    }

    /// Time has passed.
    pub fn handle_time(&mut self, now: Nanos) {
        while let Some(&(at, token)) = self.due.first().filter(|(at, _)| *at <= now) {
            self.due.remove(&(at, token));
            self.ask(now, token);
        }
    }

    /// The kernel tells something.
    pub fn handle_event(&mut self, now: Nanos, event: Event) {
        match event {
            Event::Established { token, accepted: true, ends } => self.announce(token, *ends.local.ip()),
            Event::Established { token, accepted: false, ends } => self.begin(now, token, ends),
            Event::Closed { token } => drop(self.connections.remove(&token)),
            Event::Announced { token, id, address, port } => self.hear_address(now, token, id, address, port),
            Event::Removed { token, id } => self.lose_address(token, id),
            Event::SubflowEstablished { token, ends } => self.stands(now, token, ends),
            Event::SubflowClosed { token, ends } => self.is_over(now, token, ends),
        }
    }

    /// Events were lost: which connections have ended is not known. All are forgotten, and keep the subflows that they have.
    pub fn handle_loss(&mut self) {
        self.connections.clear();
        self.due.clear();
        self.requests.clear();
    }

    /// The kernel has refused a request. If it does not know the connection (`ESRCH`), that is over.
    pub fn handle_refusal(&mut self, now: Nanos, request: &Request, error: i32) {
        self.counts.failed += 1;
        if error == libc::ESRCH {
            self.connections.remove(&request.token());
            return;
        }
        let Request::Create { token, local, remote } = *request else { return };
        let pair = Pair { local: local.1, remote };
        if let Some(of_pair) = self.connections.get_mut(&token).and_then(|known| known.pairs.get_mut(&pair)) {
            of_pair.asked = of_pair.asked.saturating_sub(1);
            let at = of_pair.fail(now);
            self.due.insert((at, token));
        }
    }

    fn begin(&mut self, now: Nanos, token: u32, ends: Ends) {
        let own = *ends.local.ip();
        if !self.settings.own.contains(&own) {
            return;
        }
        // The kernel gives a token to one connection at a time: an older one is over.
        if !self.connections.contains_key(&token) && self.connections.len() >= MOST_CONNECTIONS {
            self.counts.refused += 1;
            return;
        }
        self.counts.connections += 1;
        let (announced, pairs) = (BTreeMap::new(), BTreeMap::new());
        let mut connection = Connection { first: own, port: ends.remote.port(), announced, pairs, order: Vec::new() };
        connection.add_pairs(&self.settings, own, ends.remote);
        let pair = Pair { local: own, remote: ends.remote };
        connection.pairs.entry(pair).or_default().standing.insert(ends, now);
        self.connections.insert(token, connection);
        self.ask(now, token);
    }

    /// A connection was accepted: the other end opens its subflows, and hears of the other addresses here.
    fn announce(&mut self, token: u32, first: Ipv4Addr) {
        if self.settings.pairs == Pairs::Ndiffports || !self.settings.own.contains(&first) {
            return;
        }
        let others: Vec<_> = numbered(&self.settings.own, first).filter(|(_, address)| *address != first).collect();
        self.requests.extend(others.into_iter().map(|local| Request::Announce { token, local }));
    }

    fn hear_address(&mut self, now: Nanos, token: u32, id: u8, address: Ipv4Addr, port: Option<u16>) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        if self.settings.pairs == Pairs::Ndiffports {
            return;
        }
        if connection.announced.len() >= MOST_ADDRESSES - 1 && !connection.announced.contains_key(&id) {
            self.counts.refused += 1;
            return;
        }
        let remote = SocketAddrV4::new(address, port.unwrap_or(connection.port));
        if let Some(before) = connection.announced.insert(id, remote).filter(|before| *before != remote) {
            connection.drop_pairs(before);
        }
        connection.add_pairs(&self.settings, connection.first, remote);
        self.ask(now, token);
    }

    fn lose_address(&mut self, token: u32, id: u8) {
        if let Some(connection) = self.connections.get_mut(&token) {
            if let Some(remote) = connection.announced.remove(&id) {
                connection.drop_pairs(remote);
            }
        }
    }

    fn stands(&mut self, now: Nanos, token: u32, ends: Ends) {
        let pair = Pair { local: *ends.local.ip(), remote: ends.remote };
        if let Some(of_pair) = self.connections.get_mut(&token).and_then(|known| known.pairs.get_mut(&pair)) {
            of_pair.asked = of_pair.asked.saturating_sub(1);
            of_pair.standing.insert(ends, now);
            self.counts.established += 1;
        }
    }

    fn is_over(&mut self, now: Nanos, token: u32, ends: Ends) {
        let pair = Pair { local: *ends.local.ip(), remote: ends.remote };
        let Some(of_pair) = self.connections.get_mut(&token).and_then(|known| known.pairs.get_mut(&pair)) else {
            return;
        };
        match of_pair.standing.remove(&ends) {
            Some(since) if now.saturating_sub(since) >= GOOD => of_pair.failures = 0,
            Some(_) => {}
            None => {
                of_pair.asked = of_pair.asked.saturating_sub(1);
                self.counts.failed += 1;
            }
        }
        // A connection that ends closes its subflows first, and is gone when the wait is over.
        let at = of_pair.fail(now);
        self.due.insert((at, token));
    }

    /// Asks for the subflows that a connection lacks, for one of each pair in turn.
    fn ask(&mut self, now: Nanos, token: u32) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let mut total: u32 = connection.pairs.values().map(OfPair::subflows).sum();
        for round in 1..=self.settings.subflows {
            for pair in &connection.order {
                let Some(of_pair) = connection.pairs.get_mut(pair) else { continue };
                let waits = of_pair.waits_until.is_some_and(|until| until > now);
                if waits || of_pair.subflows() >= round || total >= MOST_SUBFLOWS {
                    continue;
                }
                let found = numbered(&self.settings.own, connection.first).find(|(_, one)| *one == pair.local);
                let Some(local) = found else { continue };
                of_pair.asked += 1;
                total += 1;
                self.counts.created += 1;
                self.requests.push_back(Request::Create { token, local, remote: pair.remote });
            }
        }
    }
}

impl OfPair {
    fn subflows(&self) -> u32 {
        self.asked + self.standing.len() as u32
    }

    /// Returns when to try again.
    fn fail(&mut self, now: Nanos) -> Nanos {
        let wait = Nanos(SHORTEST_WAIT.0 << self.failures.min(10)).min(LONGEST_WAIT);
        self.failures += 1;
        let at = now.saturating_add(wait);
        self.waits_until = Some(at);
        at
    }
}

impl Connection {
    /// Adds the pairs of an address of the other end, that of the first subflow's own address first.
    fn add_pairs(&mut self, settings: &Settings, first: Ipv4Addr, remote: SocketAddrV4) {
        let others = settings.own.iter().copied().filter(|one| settings.pairs == Pairs::Fullmesh && *one != first);
        for local in std::iter::once(first).chain(others) {
            let pair = Pair { local, remote };
            if let Entry::Vacant(place) = self.pairs.entry(pair) {
                place.insert(OfPair::default());
                self.order.push(pair);
            }
        }
    }

    fn drop_pairs(&mut self, remote: SocketAddrV4) {
        self.order.retain(|pair| pair.remote != remote);
        self.pairs.retain(|pair, _| pair.remote != remote);
    }
}

/// Own addresses by their numbers: 0 for that of the first subflow, as RFC 8684 (§3.2) has it.
fn numbered(own: &[Ipv4Addr], first: Ipv4Addr) -> impl Iterator<Item = (u8, Ipv4Addr)> + '_ {
    let number = move |(id, &address): (u8, &Ipv4Addr)| (if address == first { 0 } else { id }, address);
    (1..=u8::MAX).zip(own).map(number)
}
