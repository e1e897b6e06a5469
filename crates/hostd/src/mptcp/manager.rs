//! The path manager of one network namespace, as a state machine. Inputs are events of the kernel, outputs are requests
//! to the kernel. Time is an argument.
//!
//! The end that opened a connection opens its further subflows, the same number for each pair of addresses. With a full
//! mesh, the pairs consist of all own addresses and all addresses of the other end. The other end announces its further
//! addresses when it accepts a connection.

use super::wire::{Ends, Event, Request, Reset};
use pathloom_model::Nanos;
use serde::Deserialize;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};

/// Maximum number of subflows of a connection, as in the simulator.
pub const MOST_SUBFLOWS: u32 = 64;
/// Maximum number of managed connections. Further connections keep their first subflow only.
pub const MOST_CONNECTIONS: usize = 65_536;
/// Maximum number of addresses of the other end, including announced addresses.
const MOST_ADDRESSES: usize = 8;
/// Waiting time before a subflow is reopened after its first failure. It doubles with each further failure.
const SHORTEST_WAIT: Nanos = Nanos::from_millis(250);
/// Longest waiting time before a subflow is reopened.
const LONGEST_WAIT: Nanos = Nanos::from_secs(30);
/// If a subflow was established for this long, the next waiting time is the shortest again.
const STABLE_AFTER: Nanos = Nanos::from_secs(10);

/// A subflow that ends within this time after its establishment counts as refused, unless its connection ends too. A
/// Linux host at its limit takes the SYN, and resets the subflow after the third packet of the handshake.
const SHORT_LIVED: Nanos = Nanos::from_secs(1);
/// Number of such subflows between two addresses that show a limit of the other end.
const REFUSALS: u32 = 3;

/// The pairs of addresses over which subflows run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pairs {
    /// Only the pair of the first subflow. The other subflows have other source ports.
    #[default]
    Ndiffports,
    /// All pairs of addresses.
    Fullmesh,
}

/// Settings of the manager.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Number of subflows per pair of addresses.
    pub subflows: u32,
    /// The pairs of addresses.
    pub pairs: Pairs,
    /// Own addresses in the fabric. Connections from other addresses are not managed.
    pub own: Vec<Ipv4Addr>,
}

/// Counters of the manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Number of connections that this host has opened.
    pub connections: u64,
    /// Number of requested subflows.
    pub created: u64,
    /// Number of established subflows.
    pub established: u64,
    /// Number of requests that the kernel refused, and of subflows that were never established.
    pub failed: u64,
    /// Number of connections and addresses beyond a limit.
    pub refused: u64,
    /// Number of subflows that were not opened because the other end does not accept them.
    pub denied: u64,
}

/// Why the other end does not accept subflows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, thiserror::Error)]
pub enum Denial {
    /// Flag C of MP_CAPABLE (RFC 8684 §3.1).
    #[error("the other end accepts no further subflows to the address of the first; only addresses that it announces get some, with `manager = \"fullmesh\"`")]
    FirstOnly,
    /// A permanent reset (RFC 8684 §3.6), with its reason.
    #[error("the other end refuses further subflows ({}); if it runs Linux, `ip mptcp limits` shows its limits", reason(*.0))]
    Reset(u32),
    /// It closed several subflows at once after their establishment.
    #[error("the other end closes further subflows at once, as a host at its limit does; if it runs Linux, `ip mptcp limits` shows its limits")]
    Limit,
}

/// Reasons of MP_TCPRST (RFC 8684 §3.6).
fn reason(number: u32) -> &'static str {
    match number {
        1 => "MPTCP error",
        2 => "lack of resources",
        3 => "administratively prohibited",
        4 => "too much outstanding data",
        5 => "unacceptable performance",
        6 => "interference of a middlebox",
        _ => "no known reason",
    }
}

/// Subflows that the other end of a connection does not accept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Denied {
    /// The address that gets fewer subflows.
    pub remote: SocketAddrV4,
    /// Number of subflows that were not opened.
    pub subflows: u64,
    /// Why.
    pub why: Denial,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Pair {
    local: Ipv4Addr,
    remote: SocketAddrV4,
}

#[derive(Clone, Debug, Default)]
struct PairState {
    /// Number of requested subflows that are neither established nor closed so far.
    requested: u32,
    /// Established subflows, and the times of their establishment.
    established: BTreeMap<Ends, Nanos>,
    /// Number of consecutive failures.
    failures: u32,
    /// Time before which no subflow is requested.
    waits_until: Option<Nanos>,
    /// Number of subflows that were closed soon after their establishment, and not reported so far.
    short_lived: u32,
    /// Maximum number of subflows, if the other end does not accept more.
    most: Option<u32>,
}

#[derive(Clone, Debug)]
struct Connection {
    /// Own address of the first subflow. Its address identifier is 0.
    first: Ipv4Addr,
    /// Port of the other end.
    port: u16,
    /// Addresses that the other end has announced, by address identifier.
    announced: BTreeMap<u8, SocketAddrV4>,
    pairs: BTreeMap<Pair, PairState>,
    /// The pairs in the order in which they were added.
    order: Vec<Pair>,
}

/// The state machine.
#[derive(Clone, Debug)]
pub struct Manager {
    settings: Settings,
    connections: BTreeMap<u32, Connection>,
    /// Times at which connections are checked for missing subflows, with their tokens.
    due: BTreeSet<(Nanos, u32)>,
    requests: VecDeque<Request>,
    denied: VecDeque<Denied>,
    counts: Counts,
}

impl Manager {
    /// Creates a manager without connections.
    pub fn new(settings: Settings) -> Manager {
        let (connections, due, requests) = (BTreeMap::new(), BTreeSet::new(), VecDeque::new());
        Manager { settings, connections, due, requests, denied: VecDeque::new(), counts: Counts::default() }
    }

    /// Returns the counters.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Number of managed connections.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Returns the next request to the kernel.
    pub fn poll_request(&mut self) -> Option<Request> {
        self.requests.pop_front()
    }

    /// Returns the next subflows that the other end of a connection does not accept.
    pub fn poll_denied(&mut self) -> Option<Denied> {
        self.denied.pop_front()
    }

    /// Time at which [`Manager::handle_time`] must be called.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        self.due.first().map(|&(at, _)| at)
    }

    /// Requests the subflows that are due.
    pub fn handle_time(&mut self, now: Nanos) {
        while let Some(&(at, token)) = self.due.first().filter(|(at, _)| *at <= now) {
            self.due.remove(&(at, token));
            self.request_missing(now, token);
        }
    }

    /// Handles an event of the kernel.
    pub fn handle_event(&mut self, now: Nanos, event: Event) {
        match event {
            Event::Established { token, accepted: true, ends, .. } => self.announce(token, *ends.local.ip()),
            Event::Established { token, is_first_only, ends, .. } => {
                self.handle_established(now, token, ends, is_first_only)
            }
            Event::Closed { token } => drop(self.connections.remove(&token)),
            Event::Announced { token, id, address, port } => {
                self.handle_announced_address(now, token, id, address, port)
            }
            Event::Removed { token, id } => self.handle_removed_address(token, id),
            Event::SubflowEstablished { token, ends } => self.handle_subflow_established(now, token, ends),
            Event::SubflowClosed { token, ends, reset } => self.handle_subflow_closed(now, token, ends, reset),
        }
    }

    /// Handles a loss of events. It is unknown which connections have ended. So all connections are forgotten, and keep
    /// their present subflows.
    pub fn handle_loss(&mut self) {
        self.connections.clear();
        self.due.clear();
        self.requests.clear();
    }

    /// Handles the refusal of a request by the kernel. If the kernel does not know the connection (`ESRCH`), the
    /// connection has ended.
    pub fn handle_refusal(&mut self, now: Nanos, request: &Request, error: i32) {
        self.counts.failed += 1;
        if error == libc::ESRCH {
            self.connections.remove(&request.token());
            return;
        }
        let Request::Create { token, local, remote } = *request else { return };
        let pair = Pair { local: local.1, remote };
        if let Some(state) = self.connections.get_mut(&token).and_then(|known| known.pairs.get_mut(&pair)) {
            state.requested = state.requested.saturating_sub(1);
            let at = state.record_failure(now);
            self.due.insert((at, token));
        }
    }

    fn handle_established(&mut self, now: Nanos, token: u32, ends: Ends, is_first_only: bool) {
        let own = *ends.local.ip();
        if !self.settings.own.contains(&own) {
            return;
        }
        // At any time, the kernel uses a token for one connection only. So an older one with this token has ended.
        if !self.connections.contains_key(&token) && self.connections.len() >= MOST_CONNECTIONS {
            self.counts.refused += 1;
            return;
        }
        self.counts.connections += 1;
        let (announced, pairs) = (BTreeMap::new(), BTreeMap::new());
        let mut connection = Connection { first: own, port: ends.remote.port(), announced, pairs, order: Vec::new() };
        connection.add_pairs(&self.settings, own, ends.remote);
        let pair = Pair { local: own, remote: ends.remote };
        connection.pairs.entry(pair).or_default().established.insert(ends, now);
        if is_first_only {
            connection.pairs.values_mut().for_each(|state| state.most = Some(0));
            let wanted = u64::from(self.settings.subflows) * connection.pairs.len() as u64;
            self.note_denied(Denied { remote: ends.remote, subflows: wanted - 1, why: Denial::FirstOnly });
        }
        self.connections.insert(token, connection);
        self.request_missing(now, token);
    }

    /// Announces the other own addresses for an accepted connection. The other end opens its subflows.
    fn announce(&mut self, token: u32, first: Ipv4Addr) {
        if self.settings.pairs == Pairs::Ndiffports || !self.settings.own.contains(&first) {
            return;
        }
        let others: Vec<_> = numbered(&self.settings.own, first).filter(|(_, address)| *address != first).collect();
        self.requests.extend(others.into_iter().map(|local| Request::Announce { token, local }));
    }

    fn handle_announced_address(&mut self, now: Nanos, token: u32, id: u8, address: Ipv4Addr, port: Option<u16>) {
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
        self.request_missing(now, token);
    }

    fn handle_removed_address(&mut self, token: u32, id: u8) {
        if let Some(connection) = self.connections.get_mut(&token) {
            if let Some(remote) = connection.announced.remove(&id) {
                connection.drop_pairs(remote);
            }
        }
    }

    fn handle_subflow_established(&mut self, now: Nanos, token: u32, ends: Ends) {
        let pair = Pair { local: *ends.local.ip(), remote: ends.remote };
        if let Some(state) = self.connections.get_mut(&token).and_then(|known| known.pairs.get_mut(&pair)) {
            state.requested = state.requested.saturating_sub(1);
            state.established.insert(ends, now);
            // A subflow can be accepted after another one was refused.
            state.most = state.most.map(|most| most.max(state.established.len() as u32));
            self.counts.established += 1;
        }
    }

    fn handle_subflow_closed(&mut self, now: Nanos, token: u32, ends: Ends, reset: Option<Reset>) {
        let pair = Pair { local: *ends.local.ip(), remote: ends.remote };
        let Some(state) = self.connections.get_mut(&token).and_then(|known| known.pairs.get_mut(&pair)) else {
            return;
        };
        match state.established.remove(&ends) {
            Some(since) if now.saturating_sub(since) >= STABLE_AFTER => (state.failures, state.short_lived) = (0, 0),
            Some(since) if now.saturating_sub(since) < SHORT_LIVED => state.short_lived += 1,
            Some(_) => {}
            None => {
                state.requested = state.requested.saturating_sub(1);
                self.counts.failed += 1;
            }
        }
        if let Some(reset) = reset.filter(|reset| reset.forbids_another()) {
            state.most = Some(state.established.len() as u32);
            return self.note_denied(Denied { remote: ends.remote, subflows: 1, why: Denial::Reset(reset.reason) });
        }
        // A connection that ends closes its subflows first. It is then forgotten before the waiting time has passed.
        let at = state.record_failure(now);
        self.due.insert((at, token));
    }

    /// Finds pairs whose subflows the other end closed again and again. Waits until a retry is due: a connection that ends
    /// closes its subflows too.
    fn find_limits(&mut self, now: Nanos, token: u32) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let mut found = Vec::new();
        for (pair, state) in &mut connection.pairs {
            let is_due = state.waits_until.is_some_and(|until| until <= now);
            if is_due && state.short_lived >= REFUSALS {
                let subflows = u64::from(std::mem::take(&mut state.short_lived));
                state.most = Some(state.established.len() as u32);
                found.push(Denied { remote: pair.remote, subflows, why: Denial::Limit });
            }
        }
        found.into_iter().for_each(|denied| self.note_denied(denied));
    }

    fn note_denied(&mut self, denied: Denied) {
        if denied.subflows > 0 {
            self.counts.denied += denied.subflows;
            self.denied.push_back(denied);
        }
    }

    /// Requests the missing subflows of a connection, one of each pair in turn.
    fn request_missing(&mut self, now: Nanos, token: u32) {
        self.find_limits(now, token);
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let mut total: u32 = connection.pairs.values().map(PairState::subflows).sum();
        for round in 1..=self.settings.subflows {
            for pair in &connection.order {
                let Some(state) = connection.pairs.get_mut(pair) else { continue };
                let waits = state.waits_until.is_some_and(|until| until > now);
                let most = state.most.map_or(round, |most| most.min(round));
                if waits || state.subflows() >= most || total >= MOST_SUBFLOWS {
                    continue;
                }
                let found = numbered(&self.settings.own, connection.first).find(|(_, one)| *one == pair.local);
                let Some(local) = found else { continue };
                state.requested += 1;
                total += 1;
                self.counts.created += 1;
                self.requests.push_back(Request::Create { token, local, remote: pair.remote });
            }
        }
    }
}

impl Reset {
    /// Whether the other end accepts no subflow in place of this one (RFC 8684 §3.6). Linux sets neither the reason nor
    /// the flag in resets that say nothing, so the reason 0 does not count.
    fn forbids_another(self) -> bool {
        !self.is_transient && self.reason != 0
    }
}

impl PairState {
    fn subflows(&self) -> u32 {
        self.requested + self.established.len() as u32
    }

    /// Records a failure. Returns the time of the next attempt.
    fn record_failure(&mut self, now: Nanos) -> Nanos {
        let wait = Nanos(SHORTEST_WAIT.0 << self.failures.min(10)).min(LONGEST_WAIT);
        self.failures += 1;
        let at = now.saturating_add(wait);
        self.waits_until = Some(at);
        at
    }
}

impl Connection {
    /// Adds the pairs of an address of the other end. The pair with the own address of the first subflow comes first.
    fn add_pairs(&mut self, settings: &Settings, first: Ipv4Addr, remote: SocketAddrV4) {
        let others = settings.own.iter().copied().filter(|one| settings.pairs == Pairs::Fullmesh && *one != first);
        for local in std::iter::once(first).chain(others) {
            let pair = Pair { local, remote };
            if let Entry::Vacant(place) = self.pairs.entry(pair) {
                place.insert(PairState::default());
                self.order.push(pair);
            }
        }
    }

    fn drop_pairs(&mut self, remote: SocketAddrV4) {
        self.order.retain(|pair| pair.remote != remote);
        self.pairs.retain(|pair, _| pair.remote != remote);
    }
}

/// Returns the own addresses with their address identifiers: 0 for the address of the first subflow (RFC 8684 §3.2).
fn numbered(own: &[Ipv4Addr], first: Ipv4Addr) -> impl Iterator<Item = (u8, Ipv4Addr)> + '_ {
    let number = move |(id, &address): (u8, &Ipv4Addr)| (if address == first { 0 } else { id }, address);
    (1..=u8::MAX).zip(own).map(number)
}
