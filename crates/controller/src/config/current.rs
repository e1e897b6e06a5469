//! A shared value that a reload replaces.

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

    /// The current value. A later change does not affect the returned one.
    pub(crate) fn get(&self) -> Arc<T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the value for all later calls of [`Current::get`].
    pub(crate) fn set(&self, value: Arc<T>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = value;
    }
}
