//! Copy on write: a snapshot of a view costs nothing until the view changes.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A value that clones share until one of them changes it. Solvers and schemes in Python get a clone of the `View`.
/// While no clone exists, the controller changes its flows in place.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Shared<T>(Arc<T>);

impl<T> From<T> for Shared<T> {
    fn from(value: T) -> Shared<T> {
        Shared(Arc::new(value))
    }
}

impl<T> Shared<T> {
    /// Whether the two have not changed since one was cloned from the other.
    pub fn is_same(&self, other: &Shared<T>) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    /// Copies the value first if a clone shares it.
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}

impl<'a, T> IntoIterator for &'a Shared<T>
where
    &'a T: IntoIterator,
{
    type Item = <&'a T as IntoIterator>::Item;
    type IntoIter = <&'a T as IntoIterator>::IntoIter;

    fn into_iter(self) -> Self::IntoIter {
        (&*self.0).into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_copies_the_value_only_while_a_clone_exists() {
        let mut value = Shared::from(vec![1, 2]);
        value.push(3);
        let snapshot = value.clone();
        assert_eq!(snapshot.as_ptr(), value.as_ptr());
        value.push(4);
        assert_eq!((&*snapshot, &*value), (&vec![1, 2, 3], &vec![1, 2, 3, 4]));
        drop(snapshot);
        let place = value.as_ptr();
        value[0] = 9;
        assert_eq!(value.as_ptr(), place);
        assert_eq!((&value).into_iter().sum::<i32>(), 18);
    }
}
