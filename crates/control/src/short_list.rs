//! A list for fields that exist in large numbers and mostly have at most one entry. Up to one entry needs no
//! allocation.

use std::ops::{Deref, DerefMut};

/// The list.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) enum ShortList<T> {
    /// No entry.
    #[default]
    None,
    /// One entry.
    One(T),
    /// Two or more entries.
    More(Vec<T>),
}

impl<T> ShortList<T> {
    /// Appends an entry.
    pub(crate) fn push(&mut self, entry: T) {
        *self = match std::mem::take(self) {
            ShortList::None => ShortList::One(entry),
            ShortList::One(first) => ShortList::More(vec![first, entry]),
            ShortList::More(mut all) => {
                all.push(entry);
                ShortList::More(all)
            }
        };
    }

    /// Removes and returns the entry at this index, which must exist.
    pub(crate) fn remove(&mut self, index: usize) -> T {
        let mut all = self.take();
        let entry = all.remove(index);
        *self = all.into();
        entry
    }

    /// Keeps the entries for which `wanted` returns true.
    pub(crate) fn retain(&mut self, wanted: impl FnMut(&T) -> bool) {
        let mut all = self.take();
        all.retain(wanted);
        *self = all.into();
    }

    /// Removes all entries.
    pub(crate) fn clear(&mut self) {
        *self = ShortList::None;
    }

    fn take(&mut self) -> Vec<T> {
        match std::mem::take(self) {
            ShortList::None => Vec::new(),
            ShortList::One(entry) => vec![entry],
            ShortList::More(all) => all,
        }
    }
}

impl<T> From<Vec<T>> for ShortList<T> {
    fn from(mut all: Vec<T>) -> ShortList<T> {
        match (all.len(), all.pop()) {
            (1, Some(entry)) => ShortList::One(entry),
            (_, Some(last)) => {
                all.push(last);
                ShortList::More(all)
            }
            (_, None) => ShortList::None,
        }
    }
}

impl<T> Extend<T> for ShortList<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, more: I) {
        more.into_iter().for_each(|entry| self.push(entry));
    }
}

impl<T> Deref for ShortList<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match self {
            ShortList::None => &[],
            ShortList::One(entry) => std::slice::from_ref(entry),
            ShortList::More(all) => all,
        }
    }
}

impl<T> DerefMut for ShortList<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            ShortList::None => &mut [],
            ShortList::One(entry) => std::slice::from_mut(entry),
            ShortList::More(all) => all,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn behaves_like_a_vec(steps in prop::collection::vec((0..8u8, 0..9u8), 0..40)) {
            let (mut few, mut list) = (ShortList::default(), Vec::new());
            for (what, number) in steps {
                match what {
                    0..=3 => {
                        few.push(number);
                        list.push(number);
                    }
                    4 if !list.is_empty() => {
                        let index = usize::from(number) % list.len();
                        prop_assert_eq!(few.remove(index), list.remove(index));
                    }
                    5 => {
                        few.retain(|entry| entry % 3 != number % 3);
                        list.retain(|entry| entry % 3 != number % 3);
                    }
                    6 => {
                        few.extend([number; 2]);
                        list.extend([number; 2]);
                    }
                    7 if number == 0 => {
                        few.clear();
                        list.clear();
                    }
                    _ => few.iter_mut().zip(&mut list).for_each(|(one, other)| (*one, *other) = (one.wrapping_add(1), other.wrapping_add(1))),
                }
                prop_assert_eq!(&few[..], &list[..]);
                prop_assert_eq!(matches!(few, ShortList::More(_)), list.len() > 1, "one entry needs no allocation");
            }
        }
    }
}
