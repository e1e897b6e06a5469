//! Places for connections to the hub. Where there is none left, a connection that has not become a session makes room.

use crate::hub::Hub;
use crate::link::Link;
use crate::places::{Place, Refused};
use std::net::SocketAddr;

impl Hub {
    /// A place for a connection; `None` if sessions that stand have all that there are for its address.
    pub(crate) fn place_for(&mut self, peer: &str) -> Option<Place> {
        let address = peer.parse::<SocketAddr>().ok().map(|address| address.ip());
        let Refused { why, is_share } = match self.places.take(address) {
            Ok(place) => return Some(place),
            Err(refused) => refused,
        };
        self.counts.crowded += 1;
        let links = &self.links;
        let is_new = |id: &_| links_has_new(links, *id);
        match self.newcomers.take(address, !is_share, is_new) {
            Some(oldest) => {
                let gone = self.link_mut(oldest).map(|link| link.peer.clone()).unwrap_or_default();
                self.complain(&gone, why, "too many connections; one that is no session made room for another");
                self.disconnect(oldest, "it made room for another connection");
                self.places.take(address).ok()
            }
            None => {
                self.complain(peer, why, "too many connections; this one was closed");
                None
            }
        }
    }

    /// Notes a connection that has yet to say which switch it is.
    pub(crate) fn note_newcomer(&mut self, link: &Link) {
        let links = &self.links;
        self.newcomers.push(link.place.peer(), link.id, |&id| links_has_new(links, id));
    }
}

/// Whether a connection is still there, and no session.
fn links_has_new(links: &[Option<Link>], id: crate::link::LinkId) -> bool {
    links.get(id.slot()).and_then(Option::as_ref).is_some_and(|link| link.id == id && link.is_new())
}
