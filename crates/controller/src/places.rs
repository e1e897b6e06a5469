//! Places for connections. One address has half of them at most, so that whoever takes all it can get leaves some for others.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All places; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    most: usize,
    /// What this machine's own addresses may have.
    local: usize,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    /// By address; who comes by a socket in the file system has none.
    by_peer: BTreeMap<Option<IpAddr>, usize>,
    /// Refused because all places were taken, and because the peer had its share.
    refused: [u64; 2],
}

/// A place; dropped, it is given back.
#[derive(Debug)]
pub(crate) struct Place(Places, Option<IpAddr>);

/// There is no place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Refused {
    /// Why.
    pub why: &'static str,
    /// How many have been refused for the same reason.
    pub count: u64,
}

impl Places {
    /// So many, and half of them for each address.
    pub(crate) fn halved(most: usize) -> Places {
        Places { most, local: half(most), taken: Arc::default() }
    }

    /// The same, but this machine's own may have all: labs and benchmarks put hundreds of switches behind one address.
    pub(crate) fn for_switches(most: usize) -> Places {
        Places { local: most, ..Places::halved(most) }
    }

    /// A place for a peer, unless all are taken, or it has its share of them.
    pub(crate) fn take(&self, peer: Option<IpAddr>) -> Result<Place, Refused> {
        let mut taken = self.lock();
        let own = taken.by_peer.get(&peer).copied().unwrap_or_default();
        if taken.all >= self.most {
            return Err(taken.refuse(0));
        }
        if own >= self.share(peer) {
            return Err(taken.refuse(1));
        }
        taken.all += 1;
        taken.by_peer.insert(peer, own + 1);
        Ok(Place(self.clone(), peer))
    }

    fn share(&self, peer: Option<IpAddr>) -> usize {
        let is_local = peer.is_none_or(|peer| peer.to_canonical().is_loopback());
        if is_local {
            self.local
        } else {
            half(self.most)
        }
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn half(most: usize) -> usize {
    most.div_ceil(2)
}

impl Taken {
    fn refuse(&mut self, reason: usize) -> Refused {
        self.refused[reason] += 1;
        let why = ["all places are taken", "its address has its share of the places"][reason];
        Refused { why, count: self.refused[reason] }
    }
}

impl Refused {
    /// Whether the log is to name it: it hears of the first, the second, the fourth, and so on.
    pub(crate) fn is_named(self) -> bool {
        self.count.is_power_of_two()
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

    /// As many places as a peer gets.
    fn fill(places: &Places, peer: Option<IpAddr>) -> Vec<Place> {
        std::iter::from_fn(|| places.take(peer).ok()).collect()
    }

    #[test]
    fn one_address_has_half_at_most() {
        let places = Places::halved(7);
        let [one, other, third] = ["192.0.2.1", "2001:db8::1", "127.0.0.1"].map(|peer| fill(&places, ip(peer)));
        assert_eq!([one.len(), other.len(), third.len()], [4, 3, 0]);
        drop(one);
        assert_eq!(fill(&places, ip("127.0.0.1")).len(), 4);
    }

    #[test]
    fn switches_of_this_machine_may_have_all() {
        for peer in [ip("127.0.0.1"), ip("127.1.2.3"), ip("::1"), ip("::ffff:127.0.0.1"), None] {
            assert_eq!(fill(&Places::for_switches(7), peer).len(), 7, "{peer:?}");
        }
        for peer in [ip("192.0.2.1"), ip("::ffff:192.0.2.1"), ip("fe80::1")] {
            assert_eq!(fill(&Places::for_switches(7), peer).len(), 4, "{peer:?}");
        }
    }

    #[test]
    fn the_refused_are_counted_by_reason_and_leave_nothing_behind() {
        let places = Places::halved(4);
        let (one, other) = (fill(&places, ip("192.0.2.1")), fill(&places, ip("192.0.2.2")));
        let full = (0..20u8).map(|last| places.take(ip(&format!("198.51.100.{last}"))).unwrap_err());
        let counts: Vec<u64> = full.filter(|refused| refused.is_named()).map(|refused| refused.count).collect();
        // The first was refused when the second address had filled what was left.
        assert_eq!(counts, [2, 4, 8, 16]);
        assert_eq!(places.lock().by_peer.len(), 2);
        drop(other);
        let refused = places.take(ip("192.0.2.1")).unwrap_err();
        assert!(refused.count == 2 && refused.why.contains("share"), "{refused:?}");
        drop(one);
        let taken = places.lock();
        assert!(taken.by_peer.is_empty() && taken.all == 0, "{taken:?}");
    }
}
