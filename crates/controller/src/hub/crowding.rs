//! Places for connections to the hub, and which connection is closed if none is free: one without a session.

use crate::hub::connection::{Connection, ConnectionId};
use crate::hub::connections::Connections;
use crate::hub::newcomers::Newcomers;
use crate::hub::places::{Place, Places, Refused};
use std::net::IpAddr;

/// The places, and the connections that have not yet sent their datapath identifier.
pub(crate) struct Crowd {
    places: Places,
    newcomers: Newcomers<ConnectionId>,
}

/// No place is free.
pub(crate) struct NoPlace {
    /// The reason.
    pub why: &'static str,
    /// The connection to be closed to make room. `None` if sessions occupy all places that the address may have.
    pub oldest: Option<ConnectionId>,
}

impl Crowd {
    /// Creates this number of places.
    pub(crate) fn new(most: usize) -> Crowd {
        Crowd { places: Places::new(most), newcomers: Newcomers::new(most) }
    }

    /// A place for a connection from this address.
    pub(crate) fn take(&mut self, address: Option<IpAddr>, connections: &Connections) -> Result<Place, NoPlace> {
        let newcomers = &mut self.newcomers;
        self.places.take(address).map_err(|Refused { why, is_share }| {
            let oldest = newcomers.take(address, !is_share, |&id| is_new(connections, id));
            NoPlace { why, oldest }
        })
    }

    /// A place for a connection from this address after room was made for it.
    pub(crate) fn take_freed(&self, address: Option<IpAddr>) -> Option<Place> {
        self.places.take(address).ok()
    }

    /// Notes a new connection from this address.
    pub(crate) fn note(&mut self, address: Option<IpAddr>, id: ConnectionId, connections: &Connections) {
        self.newcomers.push(address, id, |&id| is_new(connections, id));
    }
}

fn is_new(connections: &Connections, id: ConnectionId) -> bool {
    connections.get(id).is_some_and(Connection::is_new)
}
