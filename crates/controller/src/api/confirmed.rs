//! Whether requests may change something: not while this controller, one of several, does not know whether it leads.

use super::problem::Problem;
use axum::http::StatusCode;
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

    /// Refuses a request that changes something unless etcd confirms it. Another controller may lead by now, and would not
    /// know of the change.
    pub(super) fn permit(&self) -> Result<(), Problem> {
        if self.0.load(Ordering::Relaxed) {
            return Ok(());
        }
        let detail = "etcd does not confirm that this controller leads, so another one may lead by now";
        let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "this controller may not lead", detail);
        Err(problem.way_out("ask the other controllers, or ask again when etcd answers"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_addresses_with_the_same_flag_refuse_changes_until_etcd_confirms_again() {
        let confirmed = Confirmed::default();
        let other = confirmed.clone();
        assert_eq!(other.permit(), Ok(()));
        confirmed.set(false);
        assert_eq!(other.permit().unwrap_err().status, 503);
        confirmed.set(true);
        assert_eq!(other.permit(), Ok(()));
    }
}
