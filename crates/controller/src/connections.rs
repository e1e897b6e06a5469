//! The connections of the hub by identifier, and those that have something to write.

use crate::connection::{Connection, ConnectionId};

/// A table of connections. A free place is reused; the identifier shows to which connection it belonged.
#[derive(Default)]
pub(crate) struct Connections {
    places: Vec<Option<Connection>>,
    free: Vec<usize>,
    /// Connections that have something to write.
    dirty: Vec<ConnectionId>,
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
            self.dirty.push(id);
        }
    }

    /// Wakes the writers of connections marked since the last call. Calls `grown` with the number of waiting bytes for
    /// each one that is not being closed.
    pub(crate) fn wake_writers(&mut self, mut grown: impl FnMut(ConnectionId, usize)) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for id in dirty.drain(..) {
            let Some(connection) = self.get_mut(id) else { continue };
            connection.wake.notify_one();
            if !connection.is_closed() {
                grown(id, connection.out.len());
            }
        }
        self.dirty = dirty;
    }
}
