//! The schemes that can be requested in this process.

use pathloom_schemes::Registry;

/// The schemes for users, or also those for tests if the environment requests them ([`Registry::VARIABLE`]).
pub(crate) fn registry() -> Registry {
    Registry::of_variable(std::env::var_os(Registry::VARIABLE).as_deref())
}
