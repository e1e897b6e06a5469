//! The connections of the hub by identifier, and those that have something to write.

use crate::hub::connection::{Connection, ConnectionId};
use std::collections::VecDeque;

/// A table of connections. A free place is reused; the identifier shows to which connection it belonged.
#[derive(Default)]
pub(crate) struct Connections {
    places: Vec<Option<Connection>>,
    free: Vec<usize>,
    /// Connections that have something to write.
    dirty: VecDeque<ConnectionId>,
}

impl Connections {
    /// Adds the connection that `make` returns for its identifier. `serial` counts connections since the start.
    pub(crate) fn insert(&mut self, serial: u64, make: impl FnOnce(ConnectionId) -> Connection) -> &Connection {
        let place = self.free.pop().unwrap_or(self.places.len());
        if place == self.places.len() {
            self.places.push(None);
        }
        self.places[place].insert(make(ConnectionId::new(place, serial)))
    }

    /// Removes a connection; `None` if it is gone already.
    pub(crate) fn remove(&mut self, id: ConnectionId) -> Option<Connection> {
        let gone = self.places.get_mut(id.slot())?.take_if(|connection| connection.id == id)?;
        self.free.push(id.slot());
        Some(gone)
    }

    /// A connection, if it still exists. Its place may belong to another one by now.
    pub(crate) fn get(&self, id: ConnectionId) -> Option<&Connection> {
        self.places.get(id.slot())?.as_ref().filter(|connection| connection.id == id)
    }

    /// A mutable connection, if it still exists.
    #[inline]
    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.places.get_mut(id.slot())?.as_mut().filter(|connection| connection.id == id)
    }

    /// All connections, by place.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.places.iter().flatten()
    }

    /// Notes that a connection has something to write.
    #[inline]
    pub(crate) fn mark(&mut self, id: ConnectionId) {
        if self.get_mut(id).is_some_and(|connection| !std::mem::replace(&mut connection.dirty, true)) {
            self.dirty.push_back(id);
        }
    }

    /// Takes a marked connection, the one marked first.
    pub(crate) fn poll_dirty(&mut self) -> Option<ConnectionId> {
        while let Some(id) = self.dirty.pop_front() {
            if let Some(connection) = self.get_mut(id) {
                connection.dirty = false;
                return Some(id);
            }
        }
        None
    }

    /// Marked connections that are not being closed and for which more than `most` bytes wait, with the number.
    pub(crate) fn lagging(&self, most: usize) -> Vec<(ConnectionId, usize)> {
        let marked = self.dirty.iter().filter_map(|&id| self.get(id)).filter(|connection| !connection.is_closed());
        let lag = marked.map(|connection| (connection.id, connection.out.len()));
        lag.filter(|&(_, backlog)| backlog > most).collect()
    }
}
