//! The schemes that users of this process can name.

use pathloom_schemes::Registry;

/// The schemes for users. With [`Registry::VARIABLE`] in the environment, also the schemes for tests.
pub(crate) fn registry() -> Registry {
    Registry::of_variable(std::env::var_os(Registry::VARIABLE).as_deref())
}
