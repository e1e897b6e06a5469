//! A map from flows to their data.

use crate::FlowId;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::{Index, RangeFrom};

/// Number of identifiers in a page. Identifiers are consecutive, so most pages are full.
const NAMES: u64 = 64;
/// Number of entries that are allocated together.
const CHUNK: usize = 64;
/// Marks an identifier in a page that no flow has.
const NOBODY: u32 = u32::MAX;

/// A map from flows to their data. It is iterated in ascending order of identifiers, which is the order of arrival.
///
/// A look-up takes the same short time, however many flows there are. In a tree of ten thousand flows it takes
/// several cache misses. Entries never move. A few old flows occupy no more memory than their pages.
#[derive(Clone)]
pub struct FlowMap<V> {
    /// The pages, by identifier / [`NAMES`]. Used only for look-ups; [`FlowMap::order`] is used for iteration.
    pages: FxHashMap<u64, Box<Page>>,
    order: BTreeSet<u64>,
    /// Chunks of [`CHUNK`] entries.
    chunks: Vec<Vec<Option<(FlowId, V)>>>,
    free: Vec<u32>,
    len: usize,
    /// The flow that was changed last, and the index of its entry. Several look-ups of the same flow often follow
    /// each other.
    last: (FlowId, u32),
}

/// The indices of the entries of [`NAMES`] consecutive identifiers.
#[derive(Clone)]
struct Page {
    places: [u32; NAMES as usize],
    used: u32,
}

impl<V> Default for FlowMap<V> {
    fn default() -> FlowMap<V> {
        let last = (FlowId(0), NOBODY);
        let (pages, order) = (FxHashMap::default(), BTreeSet::new());
        FlowMap { pages, order, chunks: Vec::new(), free: Vec::new(), len: 0, last }
    }
}

impl<V> FlowMap<V> {
    /// Number of flows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the map is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    fn place(&self, id: FlowId) -> Option<usize> {
        if self.last.0 == id && self.last.1 != NOBODY {
            return Some(self.last.1 as usize);
        }
        self.look_up(id)
    }

    fn look_up(&self, id: FlowId) -> Option<usize> {
        let place = self.pages.get(&(id.0 / NAMES))?.places[(id.0 % NAMES) as usize];
        (place != NOBODY).then_some(place as usize)
    }

    /// Whether the map has the flow.
    #[inline]
    pub fn contains_key(&self, id: &FlowId) -> bool {
        self.place(*id).is_some()
    }

    /// The data of a flow.
    #[inline]
    pub fn get(&self, id: &FlowId) -> Option<&V> {
        let place = self.place(*id)?;
        self.chunks[place / CHUNK][place % CHUNK].as_ref().map(|(_, value)| value)
    }

    /// The data of a flow, for changes.
    #[inline]
    pub fn get_mut(&mut self, id: &FlowId) -> Option<&mut V> {
        let place = self.place(*id)?;
        self.last = (*id, place as u32);
        self.chunks[place / CHUNK][place % CHUNK].as_mut().map(|(_, value)| value)
    }

    /// Adds a flow or replaces its data. Returns its previous data.
    pub fn insert(&mut self, id: FlowId, value: V) -> Option<V> {
        if let Some(known) = self.get_mut(&id) {
            return Some(std::mem::replace(known, value));
        }
        let place = self.put((id, value));
        let number = id.0 / NAMES;
        let page = self.pages.entry(number).or_insert_with(|| {
            self.order.insert(number);
            Box::new(Page { places: [NOBODY; NAMES as usize], used: 0 })
        });
        page.places[(id.0 % NAMES) as usize] = place;
        page.used += 1;
        self.last = (id, place);
        self.len += 1;
        None
    }

    fn put(&mut self, entry: (FlowId, V)) -> u32 {
        if let Some(place) = self.free.pop() {
            self.chunks[place as usize / CHUNK][place as usize % CHUNK] = Some(entry);
            return place;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let before = (self.chunks.len() - 1) * CHUNK;
        let last = self.chunks.len() - 1;
        let chunk = &mut self.chunks[last];
        chunk.push(Some(entry));
        (before + chunk.len() - 1) as u32
    }

    /// Removes a flow. Returns its data.
    pub fn remove(&mut self, id: &FlowId) -> Option<V> {
        let place = self.place(*id)?;
        self.last.1 = NOBODY;
        let number = id.0 / NAMES;
        let page = self.pages.get_mut(&number)?;
        page.places[(id.0 % NAMES) as usize] = NOBODY;
        page.used -= 1;
        if page.used == 0 {
            self.pages.remove(&number);
            self.order.remove(&number);
        }
        self.free.push(place as u32);
        self.len -= 1;
        self.chunks[place / CHUNK][place % CHUNK].take().map(|(_, value)| value)
    }

    /// All flows with their data, in ascending order of identifiers.
    pub fn iter(&self) -> Iter<'_, V> {
        Iter { map: self, pages: self.order.range(..), page: None, next: 0 }
    }

    /// The flows from this identifier on, in ascending order.
    pub fn range(&self, from: RangeFrom<FlowId>) -> impl Iterator<Item = (&FlowId, &V)> {
        let first = from.start;
        let pages = self.order.range(first.0 / NAMES..);
        Iter { map: self, pages, page: None, next: 0 }.skip_while(move |(id, _)| **id < first)
    }

    /// The identifiers, in ascending order.
    pub fn keys(&self) -> impl Iterator<Item = &FlowId> {
        self.iter().map(|(id, _)| id)
    }

    /// The data of all flows, in ascending order of identifiers.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// Changes the data of all flows, in ascending order of identifiers.
    pub fn for_each_mut(&mut self, mut change: impl FnMut(FlowId, &mut V)) {
        let FlowMap { pages, order, chunks, .. } = self;
        for page in order.iter().filter_map(|number| pages.get(number)) {
            for &place in page.places.iter().filter(|&&place| place != NOBODY) {
                if let Some((id, value)) = &mut chunks[place as usize / CHUNK][place as usize % CHUNK] {
                    change(*id, value);
                }
            }
        }
    }
}

/// Iterates over a [`FlowMap`].
pub struct Iter<'a, V> {
    map: &'a FlowMap<V>,
    pages: std::collections::btree_set::Range<'a, u64>,
    page: Option<&'a Page>,
    next: usize,
}

impl<'a, V> Iterator for Iter<'a, V> {
    type Item = (&'a FlowId, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let left = self.page.and_then(|page| page.places.get(self.next..)).unwrap_or_default();
            let Some(skipped) = left.iter().position(|&place| place != NOBODY) else {
                self.page = Some(self.map.pages.get(self.pages.next()?)?);
                self.next = 0;
                continue;
            };
            self.next += skipped + 1;
            let place = left[skipped] as usize;
            return self.map.chunks[place / CHUNK][place % CHUNK].as_ref().map(|(id, value)| (id, value));
        }
    }
}

impl<'a, V> IntoIterator for &'a FlowMap<V> {
    type Item = (&'a FlowId, &'a V);
    type IntoIter = Iter<'a, V>;

    fn into_iter(self) -> Iter<'a, V> {
        self.iter()
    }
}

impl<V> FromIterator<(FlowId, V)> for FlowMap<V> {
    fn from_iter<I: IntoIterator<Item = (FlowId, V)>>(entries: I) -> FlowMap<V> {
        let mut map = FlowMap::default();
        for (id, value) in entries {
            map.insert(id, value);
        }
        map
    }
}

impl<V: Serialize> Serialize for FlowMap<V> {
    /// Serialises the flows as a map, in ascending order of identifiers.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self)
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for FlowMap<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FlowMap<V>, D::Error> {
        Ok(BTreeMap::deserialize(deserializer)?.into_iter().collect())
    }
}

impl<V> Index<&FlowId> for FlowMap<V> {
    type Output = V;

    /// The data of a flow that the map must have.
    fn index(&self, id: &FlowId) -> &V {
        self.get(id).expect("the flow is known")
    }
}

impl<V: PartialEq> PartialEq for FlowMap<V> {
    fn eq(&self, other: &FlowMap<V>) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl<V: fmt::Debug> fmt::Debug for FlowMap<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn behaves_like_a_tree_map(steps in prop::collection::vec((0..3u8, 0..200u64, 0..3u64), 0..600)) {
            let (mut map, mut tree) = (FlowMap::default(), BTreeMap::new());
            for (number, (what, name, epoch)) in steps.into_iter().enumerate() {
                let id = FlowId(epoch << 36 | name);
                match what {
                    0 => prop_assert_eq!(map.remove(&id), tree.remove(&id)),
                    1 => prop_assert_eq!(map.insert(id, number), tree.insert(id, number)),
                    _ => prop_assert_eq!(map.get_mut(&id).copied(), tree.get(&id).copied()),
                }
                prop_assert_eq!((map.len(), map.contains_key(&id)), (tree.len(), tree.contains_key(&id)));
            }
            prop_assert!(map.iter().eq(tree.iter()));
            for first in [0, 63, 64, 100, 1 << 36 | 70].map(FlowId) {
                prop_assert!(map.range(first..).eq(tree.range(first..)));
            }
            let mut seen = Vec::new();
            map.for_each_mut(|id, value| {
                seen.push((id, *value));
                *value += 1;
            });
            prop_assert_eq!(seen, tree.iter().map(|(&id, &value)| (id, value)).collect::<Vec<_>>());
            prop_assert!(map.values().eq(tree.values().map(|value| value + 1).collect::<Vec<_>>().iter()));
            let copy: FlowMap<usize> = map.iter().map(|(&id, &value)| (id, value)).collect();
            prop_assert_eq!(&copy, &map);
            let text = serde_json::to_string(&map).unwrap();
            prop_assert_eq!(&serde_json::from_str::<FlowMap<usize>>(&text).unwrap(), &map);
            prop_assert!(map.pages.len() <= map.len() && map.order.len() == map.pages.len());
        }
    }
}
