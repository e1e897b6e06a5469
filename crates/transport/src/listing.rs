//! What listings say of a transport and its keys.

/// A key of a transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransportKey {
    /// Name of the key, before the `=`.
    pub name: &'static str,
    /// Default as text. `none` means that the default applies only if the key is left out.
    pub default: &'static str,
    /// What the key sets, in one line.
    pub about: &'static str,
    /// Source of the key or of its default.
    pub source: &'static str,
}

/// A transport that hosts can run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TransportName {
    /// Name of the transport, before the `:`.
    pub name: &'static str,
    /// Description in one line.
    pub about: &'static str,
    /// Where the transport is published.
    pub source: &'static str,
    /// Keys of the transport.
    pub keys: Vec<TransportKey>,
}

pub(crate) const fn key(
    name: &'static str,
    default: &'static str,
    about: &'static str,
    source: &'static str,
) -> TransportKey {
    TransportKey { name, default, about, source }
}
