//! A value that a reload replaces, for all who share it.

use std::sync::{Arc, PoisonError, RwLock};

/// Clones share the value.
#[derive(Debug)]
pub(crate) struct Current<T>(Arc<RwLock<Arc<T>>>);

impl<T> Clone for Current<T> {
    fn clone(&self) -> Current<T> {
        Current(self.0.clone())
    }
}

impl<T> Current<T> {
    pub(crate) fn new(value: Arc<T>) -> Current<T> {
        Current(Arc::new(RwLock::new(value)))
    }

    /// The value as it is now. Whoever keeps it is not disturbed by a change.
    pub(crate) fn get(&self) -> Arc<T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces it, for everyone who asks from now on.
    pub(crate) fn set(&self, value: Arc<T>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = value;
    }
}
