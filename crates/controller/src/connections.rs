//! The connections of the hub, by name, and those that have something to write.

use crate::connection::{Connection, ConnectionId};

/// A table of connections. A place that is free is used again; a name says whose place it was.
#[derive(Default)]
pub(crate) struct Connections {
    places: Vec<Option<Connection>>,
    free: Vec<usize>,
    /// Those that have something to write.
    dirty: Vec<ConnectionId>,
}

impl Connections {
    /// Puts in the connection that `make` returns for its name. `serial` counts connections since the start.
    pub(crate) fn insert(&mut self, serial: u64, make: impl FnOnce(ConnectionId) -> Connection) -> &Connection {
        let place = self.free.pop().unwrap_or(self.places.len());
        if place == self.places.len() {
            self.places.push(None);
        }
        self.places[place].insert(make(ConnectionId::new(place, serial)))
    }

    /// Takes a connection out; `None` if it is gone already.
    pub(crate) fn remove(&mut self, id: ConnectionId) -> Option<Connection> {
        let gone = self.places.get_mut(id.slot())?.take_if(|connection| connection.id == id)?;
        self.free.push(id.slot());
        Some(gone)
    }

    /// A connection, if it is still there: its place may be another's by now.
    pub(crate) fn get(&self, id: ConnectionId) -> Option<&Connection> {
        self.places.get(id.slot())?.as_ref().filter(|connection| connection.id == id)
    }

    /// The same, to be changed.
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

    /// Wakes the writers of those marked since the last call. Calls `grown` with the bytes that wait at each that is not to
    /// be closed.
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
