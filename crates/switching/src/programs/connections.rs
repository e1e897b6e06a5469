//! The paths of connections: the forwarding table of TCP-Path (tcp-path.txt §III.B).
//!
//! The paper stores two tuples per connection, SD and DS. Here, one entry contains both: the port towards the source is
//! the port of SD, and the port towards the destination is the port of DS. An entry is locked while only the first port
//! is known, and confirmed when both are known. A broken entry has no ports. It still serves to recognise late copies.

use super::check_queue::CheckQueue;
use super::fair_share::FairShare;
use super::settings::Settings;
use crate::program::DropCause;
use crate::SavedConnection;
use pathloom_model::{Conversation, FiveTuple, Mac, Nanos, PortNo};
use std::collections::BTreeMap;

/// How many entries in use are passed over before one must make room nevertheless.
const SECOND_CHANCES: usize = 16;

/// Identifies a connection, independent of the direction: the five-tuple whose source has the smaller address and port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Key(FiveTuple);

impl Key {
    pub(crate) fn of(tuple: FiveTuple) -> Key {
        Key(if Key::is_low(tuple) { tuple } else { tuple.reverse() })
    }

    /// Whether the source of `tuple` is the end with the smaller address and port.
    pub(crate) fn is_low(tuple: FiveTuple) -> bool {
        (tuple.src(), tuple.src_port()) <= (tuple.dst(), tuple.dst_port())
    }

    /// The five-tuples of both directions.
    pub(crate) fn directions(self) -> [FiveTuple; 2] {
        [self.0, self.0.reverse()]
    }
}

/// One connection in one switch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Connection {
    /// The conversation, seen from the source of the exploration.
    pub(crate) conversation: Conversation,
    /// Number of the last exploration that was accepted.
    pub(crate) exploration: u64,
    pub(crate) to_source: Option<PortNo>,
    pub(crate) to_destination: Option<PortNo>,
    expires: Nanos,
    /// Time until which late copies may arrive.
    late_copies_until: Nanos,
    /// Number of explorations that this switch has begun for the connection since it was last confirmed, and the time
    /// of the last one.
    pub(crate) attempts: u8,
    pub(crate) last_attempt_at: Nanos,
    /// Host port to whose share of the table the entry counts.
    quota_port: Option<PortNo>,
    /// Whether the host that began the exploration has not sent on its path yet.
    unused: bool,
    /// Whether a frame has passed since the entry got its place among those that may have to make room. Each use sets it, so
    /// states of a fabric that differ in it only soon become one.
    renewed: bool,
}

impl Connection {
    /// Whether the entry has a port and has not expired.
    pub(crate) fn is_live(&self, now: Nanos) -> bool {
        self.to_source.is_some() && now < self.expires
    }

    /// Whether frames between these stations may belong to the connection.
    pub(crate) fn connects(&self, src: Mac, dst: Mac) -> bool {
        let ends = (self.conversation.src, self.conversation.dst);
        ends == (src, dst) || ends == (dst, src)
    }

    /// Returns the input port and the output port of frames with this five-tuple, if the path is confirmed.
    pub(crate) fn way(&self, now: Nanos, tuple: FiveTuple) -> Option<(PortNo, PortNo)> {
        let (to_source, to_destination) = self.to_source.zip(self.to_destination).filter(|_| now < self.expires)?;
        let forward = tuple == self.conversation.five_tuple;
        Some(if forward { (to_source, to_destination) } else { (to_destination, to_source) })
    }
}

/// Entries by the hosts that opened them. Those without an answer make room first, so that floods of SYNs from many addresses
/// displace each other.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Shares {
    unanswered: FairShare<Mac, Key>,
    answered: FairShare<Mac, Key>,
}

impl Shares {
    fn touch(&mut self, key: Key, entry: &Connection) {
        self.remove(&key);
        let of = if entry.to_destination.is_some() { &mut self.answered } else { &mut self.unanswered };
        of.touch(entry.conversation.src, key);
    }

    fn remove(&mut self, key: &Key) {
        self.unanswered.remove(key);
        self.answered.remove(key);
    }

    fn take_surplus(&mut self) -> Option<Key> {
        self.unanswered.take_surplus().or_else(|| self.answered.take_surplus())
    }
}

/// Connections by five-tuple.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Connections {
    lock: Nanos,
    age: Nanos,
    most: usize,
    most_per_port: usize,
    table: BTreeMap<Key, Connection>,
    at_port: BTreeMap<PortNo, usize>,
    due: CheckQueue<Key>,
    /// The entries that may have to make room. `None` until the table is full for the first time.
    shares: Option<Shares>,
    /// The highest number of an exploration whose entry had to make room while late copies of it could arrive.
    forgotten: u64,
    /// Connections that had to make room. The owner of this object takes them.
    pub(crate) displaced: Vec<Key>,
    /// Whether late copies are accepted. Only tests set this, to show why late copies must be dropped.
    late_copies_pass: bool,
}

impl Connections {
    pub(crate) fn new(settings: &Settings) -> Connections {
        Connections {
            lock: settings.lock,
            age: settings.connection_age,
            most: settings.most_connections,
            most_per_port: settings.most_connections_per_port,
            table: BTreeMap::new(),
            at_port: BTreeMap::new(),
            due: CheckQueue::new(),
            shares: None,
            forgotten: 0,
            displaced: Vec::new(),
            late_copies_pass: settings.late_copies_pass(),
        }
    }

    pub(crate) fn get(&self, key: Key) -> Option<&Connection> {
        self.table.get(&key)
    }

    /// The number above which the number of a new exploration of a connection must be.
    pub(crate) fn last_number(&self, key: Key) -> u64 {
        self.get(key).map_or(self.forgotten, |entry| entry.exploration)
    }

    /// Returns the numbers of directed entries as in the paper: all entries, and those of confirmed connections.
    pub(crate) fn entries(&self) -> (usize, usize) {
        let confirmed = self.table.values().filter(|one| one.to_source.is_some() && one.to_destination.is_some());
        let confirmed = confirmed.count();
        let live = self.table.values().filter(|one| one.to_source.is_some()).count();
        (live + confirmed, 2 * confirmed)
    }

    /// Returns the path of a confirmed connection.
    pub(crate) fn save(&self, key: Key) -> Option<SavedConnection> {
        let Connection { conversation, exploration, to_source, to_destination, .. } = *self.table.get(&key)?;
        Some(SavedConnection { conversation, exploration, to_source: to_source?, to_destination: to_destination? })
    }

    /// Returns the paths of all confirmed connections.
    pub(crate) fn save_all(&self) -> Vec<SavedConnection> {
        self.table.keys().filter_map(|&key| self.save(key)).collect()
    }

    /// Restores the path of a connection from an earlier start, as if it had just been used. `quota_port` is the host
    /// port at which the connection began.
    pub(crate) fn restore(&mut self, now: Nanos, saved: &SavedConnection, quota_port: Option<PortNo>) {
        let SavedConnection { conversation, exploration, to_source, to_destination } = *saved;
        let key = Key::of(conversation.five_tuple);
        if self.lock(now, conversation, exploration, to_source, quota_port).is_ok() {
            self.confirm(now, key, to_destination);
        }
    }

    /// Locks a connection to the port at which an exploration arrived. `quota_port` is the host port to whose share the
    /// entry counts, if the exploration begins at this switch. A later exploration replaces the entry of an earlier
    /// one. In a full table, a new entry displaces another one.
    ///
    /// # Errors
    /// The copy is late, the five-tuple belongs to other stations, or the share of the port is full.
    pub(crate) fn lock(
        &mut self,
        now: Nanos,
        conversation: Conversation,
        exploration: u64,
        port: PortNo,
        quota_port: Option<PortNo>,
    ) -> Result<(), DropCause> {
        let key = Key::of(conversation.five_tuple);
        let before = self.table.get(&key).copied();
        if let Some(before) = before {
            if before.is_live(now) && !before.connects(conversation.src, conversation.dst) {
                return Err(DropCause::StolenAddress);
            }
        }
        if exploration <= self.last_number(key) && !self.late_copies_pass {
            return Err(DropCause::LateCopy);
        }
        let more = quota_port.filter(|_| before.and_then(|before| before.quota_port) != quota_port);
        if more.is_some_and(|port| self.at_port.get(&port).is_some_and(|&count| count >= self.most_per_port)) {
            return Err(DropCause::TableFull);
        }
        if before.is_none() && self.table.len() >= self.most && !self.make_room(now) {
            return Err(DropCause::TableFull);
        }
        let until = now.saturating_add(self.lock);
        let (attempts, last_attempt_at) = match quota_port {
            Some(_) => (before.map_or(0, |before| before.attempts).saturating_add(1), now),
            None => (0, Nanos::ZERO),
        };
        let to_source = Some(port);
        let entry = Connection {
            conversation,
            exploration,
            to_source,
            to_destination: None,
            expires: until,
            late_copies_until: until,
            attempts,
            last_attempt_at,
            quota_port,
            unused: quota_port.is_some(),
            renewed: false,
        };
        self.count_at_port(before.and_then(|before| before.quota_port), false);
        self.count_at_port(quota_port, true);
        self.table.insert(key, entry);
        if let Some(shares) = &mut self.shares {
            shares.touch(key, &entry);
        }
        if before.is_none() {
            self.due.watch(now.saturating_add(self.lock.min(self.age)), key);
        }
        Ok(())
    }

    /// Removes an entry without an answer, or otherwise an answered one, of the host that opened the most of these: the one that
    /// was idle for longest, as far as the order of `shares` shows it. An entry that was renewed since it got its place there gets another one first. Returns
    /// whether there is room.
    fn make_room(&mut self, now: Nanos) -> bool {
        let shares = self.shares.get_or_insert_with(|| {
            let mut idlest: Vec<(Nanos, Mac, Key)> =
                self.table.iter().map(|(&key, entry)| (entry.expires, entry.conversation.src, key)).collect();
            idlest.sort();
            let mut shares = Shares { unanswered: FairShare::new(), answered: FairShare::new() };
            idlest.into_iter().for_each(|(_, _, key)| shares.touch(key, &self.table[&key]));
            shares
        });
        for tries in 0..=SECOND_CHANCES {
            let Some(key) = shares.take_surplus() else { return false };
            let Some(entry) = self.table.get_mut(&key) else { continue };
            if std::mem::take(&mut entry.renewed) && tries < SECOND_CHANCES {
                shares.touch(key, entry);
                continue;
            }
            let entry = *entry;
            if now < entry.late_copies_until {
                self.forgotten = self.forgotten.max(entry.exploration);
            }
            self.table.remove(&key);
            self.count_at_port(entry.quota_port, false);
            self.displaced.push(key);
            return true;
        }
        false
    }

    fn count_at_port(&mut self, port: Option<PortNo>, more: bool) {
        if let Some(port) = port {
            let count = self.at_port.entry(port).or_default();
            *count = if more { *count + 1 } else { count.saturating_sub(1) };
        }
    }

    /// Confirms a connection: `port` leads to its destination.
    pub(crate) fn confirm(&mut self, now: Nanos, key: Key, port: PortNo) {
        let expires = now.saturating_add(self.age);
        if let Some(entry) = self.table.get_mut(&key) {
            (entry.to_destination, entry.expires, entry.attempts) = (Some(port), expires, 0);
            if let Some(shares) = &mut self.shares {
                shares.touch(key, entry);
            }
        }
    }

    /// Records that a frame of a confirmed connection passed at time `used`.
    pub(crate) fn renew(&mut self, used: Nanos, key: Key) {
        let expires = used.saturating_add(self.age);
        if let Some(entry) = self.table.get_mut(&key).filter(|entry| entry.to_destination.is_some()) {
            entry.expires = entry.expires.max(expires);
            entry.renewed = true;
        }
    }

    /// Records that the host at a port has sent a segment on the path of a connection. Returns whether it is the host that
    /// opened the connection, and this is its first one.
    pub(crate) fn first_use(&mut self, key: Key, port: PortNo) -> bool {
        let entry = self.table.get_mut(&key).filter(|entry| entry.quota_port == Some(port));
        entry.is_some_and(|entry| std::mem::take(&mut entry.unused))
    }

    /// Removes the ports of an entry.
    pub(crate) fn erase(&mut self, key: Key) {
        if let Some(entry) = self.table.get_mut(&key) {
            (entry.to_source, entry.to_destination) = (None, None);
            if let Some(shares) = &mut self.shares {
                shares.touch(key, entry);
            }
        }
    }

    /// Returns the connections with a path by this port.
    pub(crate) fn by_port(&self, port: PortNo) -> Vec<(Key, Connection)> {
        let uses = |entry: &Connection| entry.to_source == Some(port) || entry.to_destination == Some(port);
        self.table.iter().filter(|(_, entry)| uses(entry)).map(|(&key, &entry)| (key, entry)).collect()
    }

    /// Removes expired entries, and returns their connections.
    pub(crate) fn handle_timeout(&mut self, now: Nanos) -> Vec<Key> {
        let mut gone = Vec::new();
        while let Some(key) = self.due.pop_due(now) {
            let Some(entry) = self.table.get(&key).copied() else { continue };
            let until =
                if entry.is_live(now) { entry.expires.max(entry.late_copies_until) } else { entry.late_copies_until };
            if until <= now {
                self.count_at_port(entry.quota_port, false);
                self.table.remove(&key);
                if let Some(shares) = &mut self.shares {
                    shares.remove(&key);
                }
                gone.push(key);
            } else {
                self.due.watch(until, key);
            }
        }
        gone
    }

    pub(crate) fn next_timeout(&self) -> Option<Nanos> {
        self.due.next()
    }
}
