//! Whether requests may change something: not while this controller, one of several, does not know whether it leads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// Says an address whether etcd confirms that this controller leads. It does at first.
#[derive(Clone, Debug)]
pub(crate) struct Confirmed(Arc<AtomicBool>);

impl Default for Confirmed {
    fn default() -> Confirmed {
        Confirmed(Arc::new(AtomicBool::new(true)))
    }
}

impl Confirmed {
    /// Sets whether etcd confirms it.
    pub(crate) fn set(&self, is_confirmed: bool) {
        self.0.store(is_confirmed, Ordering::Relaxed);
    }

    /// Whether etcd confirms it. If not, another controller may lead by now, and would not know of a change.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_addresses_with_the_same_flag_know_whether_etcd_confirms() {
        let confirmed = Confirmed::default();
        let other = confirmed.clone();
        assert!(other.is_set());
        confirmed.set(false);
        assert!(!other.is_set());
        confirmed.set(true);
        assert!(other.is_set());
    }
}
