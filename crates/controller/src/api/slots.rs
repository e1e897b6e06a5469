//! Limits the connections that the API serves at a time, and selects those that make room for new ones.
//!
//! A connection is unauthenticated until a request on it shows a valid token. Unauthenticated connections have half of
//! the slots. When these are taken, the oldest one of the address with the most of them is closed. So idle connections
//! do not block others, even from the same address, which may be a reverse proxy's. Later a connection counts for its
//! token, not for its address.

use super::problem::Problem;
use axum::http::StatusCode;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// How long a connection has for its first request before it makes room for others.
const GRACE: Duration = Duration::from_millis(20);

/// All slots; clones share them.
#[derive(Clone, Debug)]
pub(super) struct ConnectionSlots {
    most: usize,
    taken: Arc<Mutex<Taken>>,
}

/// Connections by number, in the order in which they came.
#[derive(Debug, Default)]
struct Taken {
    last: u64,
    /// Counts requests, to tell which connection was used last.
    turn: u64,
    connections: BTreeMap<u64, Connection>,
}

#[derive(Debug)]
struct Connection {
    peer: IpAddr,
    /// The name of the token shown on it; none while it is unauthenticated.
    bearer: Option<String>,
    since: Instant,
    /// Whether a request on it is in progress.
    busy: bool,
    /// The count of requests when it was last used.
    used: u64,
    evict: Arc<Notify>,
}

/// The slot of a connection. Dropping it frees the slot.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    slots: ConnectionSlots,
    number: u64,
    evict: Arc<Notify>,
}

/// A request in progress. After it is dropped, its connection may be closed for another one.
#[derive(Debug)]
pub(super) struct ActiveRequest(Arc<ConnectionSlot>);

/// The result of admitting a connection.
#[derive(Debug)]
pub(super) struct Admission {
    pub slot: ConnectionSlot,
    /// The address of the connection that made room for it.
    pub evicted: Option<IpAddr>,
}

impl ConnectionSlots {
    /// Creates this number of slots.
    pub(super) fn new(most: usize) -> ConnectionSlots {
        ConnectionSlots { most, taken: Arc::default() }
    }

    /// Whether the next connection would close one that just arrived and may be about to send a request. Then the
    /// next one is accepted a little later.
    pub(super) fn should_wait(&self) -> bool {
        let taken = self.lock();
        let next = self.is_full(&taken).then(|| taken.oldest_unauthenticated()).flatten();
        next.and_then(|number| taken.connections.get(&number)).is_some_and(|one| one.since.elapsed() < GRACE)
    }

    /// Whether a further connection requires that another one is closed.
    fn is_full(&self, taken: &Taken) -> bool {
        let unauthenticated = taken.connections.values().filter(|one| one.bearer.is_none()).count();
        unauthenticated >= self.most.div_ceil(2) || taken.connections.len() >= self.most
    }

    /// A slot for a new connection; `None` if requests are in progress on all slots.
    pub(super) fn take(&self, peer: IpAddr) -> Option<Admission> {
        let mut taken = self.lock();
        let mut evicted = None;
        if self.is_full(&taken) {
            let number = taken.oldest_unauthenticated().or_else(|| taken.longest_idle())?;
            let gone = taken.connections.remove(&number)?;
            gone.evict.notify_one();
            evicted = Some(gone.peer);
        }
        taken.last += 1;
        let (number, evict) = (taken.last, Arc::<Notify>::default());
        let (used, bearer, since) = (taken.turn, None, Instant::now());
        taken.connections.insert(number, Connection { peer, bearer, since, busy: false, used, evict: evict.clone() });
        Some(Admission { slot: ConnectionSlot { slots: self.clone(), number, evict }, evicted })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// The oldest unauthenticated connection of the address that has the most.
    fn oldest_unauthenticated(&self) -> Option<u64> {
        let mut of_peer: BTreeMap<IpAddr, (usize, u64)> = BTreeMap::new();
        for (&number, one) in self.connections.iter().filter(|(_, one)| one.bearer.is_none()) {
            of_peer.entry(one.peer).or_insert((0, number)).0 += 1;
        }
        let most = of_peer.values().max_by_key(|(count, first)| (*count, std::cmp::Reverse(*first)));
        most.map(|&(_, first)| first)
    }

    /// The least recently used idle connection of the token that has the most.
    fn longest_idle(&self) -> Option<u64> {
        let idle = || self.connections.iter().filter(|(_, one)| !one.busy);
        let mut of_bearer: BTreeMap<&Option<String>, usize> = BTreeMap::new();
        idle().for_each(|(_, one)| *of_bearer.entry(&one.bearer).or_default() += 1);
        let greediest = of_bearer.into_iter().max_by_key(|&(_, count)| count)?.0;
        idle().filter(|(_, one)| one.bearer == *greediest).min_by_key(|(_, one)| one.used).map(|(&number, _)| number)
    }
}

impl ConnectionSlot {
    /// Notes that a request with a valid token is in progress on this connection.
    ///
    /// # Errors
    /// Requests with this token already have half of all slots: 429.
    pub(super) fn begin(self: &Arc<ConnectionSlot>, bearer: &str) -> Result<ActiveRequest, Problem> {
        let mut taken = self.slots.lock();
        let share = self.slots.most.div_ceil(2);
        let with_token = |one: &&Connection| one.busy && one.bearer.as_deref() == Some(bearer);
        if taken.connections.values().filter(with_token).count() >= share {
            let detail = format!("{share} requests with the token of `{bearer}` are being answered");
            let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "too many requests at a time", detail);
            return Err(problem.way_out("ask again when one is answered; api.connections is twice the limit"));
        }
        taken.turn += 1;
        let turn = taken.turn;
        if let Some(own) = taken.connections.get_mut(&self.number) {
            if own.bearer.as_deref() != Some(bearer) {
                own.bearer = Some(bearer.to_owned());
            }
            (own.busy, own.used) = (true, turn);
        }
        Ok(ActiveRequest(self.clone()))
    }

    /// Whether no valid token was ever shown on this connection.
    pub(super) fn is_unauthenticated(&self) -> bool {
        self.slots.lock().connections.get(&self.number).is_none_or(|own| own.bearer.is_none())
    }

    /// Waits until this connection must make room for another.
    pub(super) async fn wait_for_eviction(&self) {
        self.evict.notified().await;
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.slots.lock().connections.remove(&self.number);
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        if let Some(own) = self.0.slots.lock().connections.get_mut(&self.0.number) {
            own.busy = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    fn slot(slots: &ConnectionSlots, peer: u8) -> Arc<ConnectionSlot> {
        Arc::new(slots.take(ip(peer)).unwrap().slot)
    }

    /// Numbers of the connections that have a slot.
    fn with_slot(slots: &ConnectionSlots) -> Vec<u64> {
        slots.lock().connections.keys().copied().collect()
    }

    #[test]
    fn the_oldest_unauthenticated_connection_of_the_most_crowded_address_is_evicted() {
        let slots = ConnectionSlots::new(6);
        let _held = [slot(&slots, 1), slot(&slots, 2), slot(&slots, 2)];
        assert!(slots.should_wait(), "they came just now");
        std::thread::sleep(GRACE);
        assert!(!slots.should_wait());
        let next = slots.take(ip(3)).unwrap();
        assert_eq!((next.evicted, with_slot(&slots)), (Some(ip(2)), vec![1, 3, 4]));
        // With one each, it is the oldest of all.
        let after = slots.take(ip(3)).unwrap();
        assert_eq!((after.evicted, with_slot(&slots)), (Some(ip(1)), vec![3, 4, 5]));
    }

    #[test]
    fn a_thousand_unauthenticated_connections_evict_no_connection_with_a_token() {
        let slots = ConnectionSlots::new(8);
        let known: Vec<Arc<ConnectionSlot>> = (0..4).map(|_| slot(&slots, 1)).collect();
        known.iter().for_each(|slot| drop(slot.begin("proxy").unwrap()));
        let others: Vec<Admission> = (0..1000).map(|_| slots.take(ip(1)).unwrap()).collect();
        assert_eq!(with_slot(&slots), [1, 2, 3, 4, 1001, 1002, 1003, 1004]);
        assert!(known.iter().all(|slot| !slot.is_unauthenticated()));
        drop(others);
        assert_eq!(with_slot(&slots), [1, 2, 3, 4]);
    }

    #[test]
    fn idle_connections_of_the_token_with_the_most_are_closed_and_busy_ones_are_not() {
        let slots = ConnectionSlots::new(4);
        let all: Vec<Arc<ConnectionSlot>> = (0..4)
            .map(|number| {
                let slot = slot(&slots, 1);
                drop(slot.begin(if number == 0 { "one" } else { "other" }).unwrap());
                slot
            })
            .collect();
        drop(all[1].begin("other").unwrap());
        let next = slots.take(ip(9)).unwrap();
        assert_eq!(with_slot(&slots), [1, 2, 4, 5], "the third was not used for longest");
        let busy: Vec<ActiveRequest> =
            [(0, "one"), (1, "other"), (3, "other")].map(|(at, name)| all[at].begin(name).unwrap()).into();
        let next = (next, slots.take(ip(9)).unwrap());
        assert_eq!(with_slot(&slots), [1, 2, 4, 6]);
        let last = Arc::new(next.1.slot);
        let refused = last.begin("other").unwrap_err();
        assert!(refused.status == 429 && refused.detail.contains("2 requests"), "{refused:?}");
        let _last = last.begin("one").unwrap();
        assert!(slots.take(ip(9)).is_none(), "requests are being answered on all");
        drop(busy);
        assert!(slots.take(ip(9)).is_some());
    }
}
