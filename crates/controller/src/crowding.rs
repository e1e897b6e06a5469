//! Places for connections to the hub. If none is free, a connection without a session is closed.

use crate::connection::{Connection, ConnectionId};
use crate::hub::Hub;
use crate::places::{Place, Refused};
use std::net::{IpAddr, SocketAddr};

impl Hub {
    /// A place for a connection; `None` if sessions occupy all places that its address may have.
    pub(crate) fn place_for(&mut self, peer: &str) -> Option<Place> {
        let address = peer.parse::<SocketAddr>().ok().map(|address| address.ip());
        let Refused { why, is_share } = match self.places.take(address) {
            Ok(place) => return Some(place),
            Err(refused) => refused,
        };
        self.counts.crowded += 1;
        let connections = &self.connections;
        let is_new = |id: &_| connections.get(*id).is_some_and(Connection::is_new);
        match self.newcomers.take(address, !is_share, is_new) {
            Some(oldest) => {
                let gone = self.connection_mut(oldest).map(|connection| connection.peer.clone()).unwrap_or_default();
                self.complain(&gone, why, "too many connections; one without a session was closed to make room");
                self.disconnect(self.now, oldest, "it made room for another connection");
                self.places.take(address).ok()
            }
            None => {
                self.complain(peer, why, "too many connections; this one was closed");
                None
            }
        }
    }

    /// Notes a connection from this address that has not sent its datapath identifier.
    pub(crate) fn note_newcomer(&mut self, id: ConnectionId, address: Option<IpAddr>) {
        let connections = &self.connections;
        self.newcomers.push(address, id, |&id| connections.get(id).is_some_and(Connection::is_new));
    }
}
