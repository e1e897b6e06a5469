//! Places for connections. One address has at most half of them, unless it is a loopback address, so that some remain
//! for others.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All places; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    most: usize,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    /// By address; peers on a Unix socket have none.
    by_peer: BTreeMap<Option<IpAddr>, usize>,
}

/// A place. Dropping it frees it.
#[derive(Debug)]
pub(crate) struct Place(Places, Option<IpAddr>);

/// The reason why a peer gets no place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Refused {
    /// The reason, as text.
    pub why: &'static str,
    /// Whether there are free places, but not for this address.
    pub is_share: bool,
}

const ALL_TAKEN: Refused = Refused { why: "all places are taken", is_share: false };
const SHARE_TAKEN: Refused = Refused { why: "its address already has its share of the places", is_share: true };

impl Places {
    /// Creates this number of places. Each address may have half of them. Loopback addresses may have all, because
    /// labs and benchmarks put hundreds of switches behind one address.
    pub(crate) fn new(most: usize) -> Places {
        Places { most, taken: Arc::default() }
    }

    /// Returns a place for a peer, unless all are taken, or its address has its share of them.
    pub(crate) fn take(&self, peer: Option<IpAddr>) -> Result<Place, Refused> {
        let mut taken = self.lock();
        let own = taken.by_peer.get(&peer).copied().unwrap_or_default();
        if taken.all >= self.most {
            return Err(ALL_TAKEN);
        }
        if own >= self.share(peer) {
            return Err(SHARE_TAKEN);
        }
        taken.all += 1;
        taken.by_peer.insert(peer, own + 1);
        Ok(Place(self.clone(), peer))
    }

    fn share(&self, peer: Option<IpAddr>) -> usize {
        let is_local = peer.is_none_or(|peer| peer.to_canonical().is_loopback());
        if is_local {
            self.most
        } else {
            self.most.div_ceil(2)
        }
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// The address that holds it.
    pub(crate) fn peer(&self) -> Option<IpAddr> {
        self.1
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.0.lock();
        taken.all -= 1;
        if let Some(own) = taken.by_peer.get_mut(&self.1) {
            *own -= 1;
            if *own == 0 {
                taken.by_peer.remove(&self.1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    /// Takes as many places as the peer may have.
    fn fill(places: &Places, peer: Option<IpAddr>) -> Vec<Place> {
        std::iter::from_fn(|| places.take(peer).ok()).collect()
    }

    #[test]
    fn one_address_has_half_at_most() {
        let places = Places::new(7);
        let [one, other, third] = ["192.0.2.1", "2001:db8::1", "192.0.2.3"].map(|peer| fill(&places, ip(peer)));
        assert_eq!([one.len(), other.len(), third.len()], [4, 3, 0]);
        drop(one);
        assert_eq!(fill(&places, ip("192.0.2.3")).len(), 4);
    }

    #[test]
    fn switches_of_this_machine_may_have_all() {
        for peer in [ip("127.0.0.1"), ip("127.1.2.3"), ip("::1"), ip("::ffff:127.0.0.1"), None] {
            assert_eq!(fill(&Places::new(7), peer).len(), 7, "{peer:?}");
        }
        for peer in [ip("192.0.2.1"), ip("::ffff:192.0.2.1"), ip("fe80::1")] {
            assert_eq!(fill(&Places::new(7), peer).len(), 4, "{peer:?}");
        }
    }

    #[test]
    fn refusals_name_the_reason_and_leave_no_entries() {
        let places = Places::new(4);
        let (one, other) = (fill(&places, ip("192.0.2.1")), fill(&places, ip("192.0.2.2")));
        let refused = places.take(ip("198.51.100.1")).unwrap_err();
        assert!(refused.why.contains("all places") && !refused.is_share, "{refused:?}");
        assert_eq!(places.lock().by_peer.len(), 2);
        drop(other);
        let refused = places.take(ip("192.0.2.1")).unwrap_err();
        assert!(refused.is_share && refused.why.contains("share"), "{refused:?}");
        drop(one);
        let taken = places.lock();
        assert!(taken.by_peer.is_empty() && taken.all == 0, "{taken:?}");
    }
}
