//! What a controller, one of several, may do for its clients.

use std::sync::{Arc, Mutex, PoisonError};

/// Where another controller can be reached by clients.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Leader {
    /// Its name.
    pub name: String,
    /// Its API, as `http://10.0.0.1:6680`.
    pub api: Option<String>,
    /// Its address for applications.
    pub paths: Option<String>,
}

/// What a controller may do.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum May {
    /// It answers everything: it is the only one, or etcd confirms that it leads.
    #[default]
    Everything,
    /// It may not change anything: etcd does not confirm that it leads. Another one may lead by now, and would not know of
    /// the change.
    Read,
    /// It follows, and knows nothing of the fabric. The leader is known, or not.
    Follow(Option<Leader>),
}

/// Says an address what the controller may do. Clones say the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Authority(Arc<Mutex<May>>);

impl Authority {
    /// Sets what it may do.
    pub(crate) fn set(&self, may: May) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = may;
    }

    /// What it may do.
    pub(crate) fn get(&self) -> May {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_addresses_with_the_same_authority_say_the_same() {
        let authority = Authority::default();
        let other = authority.clone();
        assert_eq!(other.get(), May::Everything);
        authority.set(May::Follow(None));
        assert_eq!(other.get(), May::Follow(None));
    }
}
