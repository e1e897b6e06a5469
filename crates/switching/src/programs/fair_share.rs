//! Which entry of a full table must go, so that one host or port cannot take the entries of others.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};

/// The entries of a table by their owners, in the order of their last use. The owner with the most entries loses its
/// oldest one: each owner keeps at least its equal share (max-min fairness).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FairShare<O, K> {
    places: BTreeMap<K, (O, u64)>,
    by_owner: BTreeMap<O, BTreeMap<u64, K>>,
    sizes: BTreeSet<(usize, O)>,
    uses: u64,
}

impl<O, K> Hash for FairShare<O, K> {
    /// Hashes nothing: until a table is full, no decision depends on the order of its entries. A search through the
    /// states of a fabric fills no table.
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl<O: Ord + Copy, K: Ord + Copy> FairShare<O, K> {
    pub(crate) fn new() -> FairShare<O, K> {
        FairShare { places: BTreeMap::new(), by_owner: BTreeMap::new(), sizes: BTreeSet::new(), uses: 0 }
    }

    /// Adds an entry, or records its use. Its owner may be another one than before.
    pub(crate) fn touch(&mut self, owner: O, key: K) {
        self.remove(&key);
        self.uses += 1;
        self.places.insert(key, (owner, self.uses));
        self.change(owner, self.uses, |entries, at| _ = entries.insert(at, key));
    }

    pub(crate) fn remove(&mut self, key: &K) {
        if let Some((owner, at)) = self.places.remove(key) {
            self.change(owner, at, |entries, at| _ = entries.remove(&at));
        }
    }

    fn change(&mut self, owner: O, at: u64, change: impl FnOnce(&mut BTreeMap<u64, K>, u64)) {
        let entries = self.by_owner.entry(owner).or_default();
        self.sizes.remove(&(entries.len(), owner));
        change(entries, at);
        let size = entries.len();
        if size == 0 {
            self.by_owner.remove(&owner);
        } else {
            self.sizes.insert((size, owner));
        }
    }

    /// Removes the oldest entry of the owner with the most entries, and returns it.
    pub(crate) fn take_surplus(&mut self) -> Option<K> {
        let &(_, owner) = self.sizes.last()?;
        let key = *self.by_owner.get(&owner)?.values().next()?;
        self.remove(&key);
        Some(key)
    }

    pub(crate) fn clear(&mut self) {
        (self.places, self.by_owner, self.sizes) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_with_the_most_entries_loses_the_one_used_longest_ago() {
        let mut shares = FairShare::new();
        (0..5).for_each(|key| shares.touch('a', key));
        (10..12).for_each(|key| shares.touch('b', key));
        shares.touch('a', 0);
        assert_eq!([(); 3].map(|()| shares.take_surplus()), [1, 2, 3].map(Some));
        // An entry may change its owner.
        shares.touch('b', 4);
        assert_eq!(shares.take_surplus(), Some(10));
        shares.remove(&11);
        assert_eq!([(); 3].map(|()| shares.take_surplus()), [Some(4), Some(0), None]);
        assert_eq!(shares, FairShare { uses: shares.uses, ..FairShare::new() });
    }
}
