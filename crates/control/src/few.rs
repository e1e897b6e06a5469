//! A list of which there are many, and which is short: none or one of its entries need no memory elsewhere.

use std::ops::{Deref, DerefMut};

/// The list.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) enum Few<T> {
    /// No entry.
    #[default]
    None,
    /// One.
    One(T),
    /// Several.
    More(Vec<T>),
}

impl<T> Few<T> {
    /// Appends an entry.
    pub(crate) fn push(&mut self, entry: T) {
        *self = match std::mem::take(self) {
            Few::None => Few::One(entry),
            Few::One(first) => Few::More(vec![first, entry]),
            Few::More(mut all) => {
                all.push(entry);
                Few::More(all)
            }
        };
    }

    /// Takes out the entry of this index, which there is.
    pub(crate) fn remove(&mut self, index: usize) -> T {
        let mut all = self.take();
        let entry = all.remove(index);
        *self = all.into();
        entry
    }

    /// Keeps the entries that are wanted.
    pub(crate) fn retain(&mut self, wanted: impl FnMut(&T) -> bool) {
        let mut all = self.take();
        all.retain(wanted);
        *self = all.into();
    }

    /// Takes out all entries.
    pub(crate) fn clear(&mut self) {
        *self = Few::None;
    }

    fn take(&mut self) -> Vec<T> {
        match std::mem::take(self) {
            Few::None => Vec::new(),
            Few::One(entry) => vec![entry],
            Few::More(all) => all,
        }
    }
}

impl<T> From<Vec<T>> for Few<T> {
    fn from(mut all: Vec<T>) -> Few<T> {
        match (all.len(), all.pop()) {
            (1, Some(entry)) => Few::One(entry),
            (_, Some(last)) => {
                all.push(last);
                Few::More(all)
            }
            (_, None) => Few::None,
        }
    }
}

impl<T> Extend<T> for Few<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, more: I) {
        more.into_iter().for_each(|entry| self.push(entry));
    }
}

impl<T> Deref for Few<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match self {
            Few::None => &[],
            Few::One(entry) => std::slice::from_ref(entry),
            Few::More(all) => all,
        }
    }
}

impl<T> DerefMut for Few<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Few::None => &mut [],
            Few::One(entry) => std::slice::from_mut(entry),
            Few::More(all) => all,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn is_what_a_list_is(steps in prop::collection::vec((0..8u8, 0..9u8), 0..40)) {
            let (mut few, mut list) = (Few::default(), Vec::new());
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
                prop_assert_eq!(matches!(few, Few::More(_)), list.len() > 1, "one entry needs no list");
            }
        }
    }
}
