//! Which schemes this process may be asked for.

use pathloom_schemes::Registry;

/// Those for users, unless the environment asks for the schemes for tests ([`Registry::VARIABLE`]).
pub(crate) fn registry() -> Registry {
    Registry::of_variable(std::env::var_os(Registry::VARIABLE).as_deref())
}
