//! What can be wrong with bytes, and with values that are to become bytes.

/// Why bytes are no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ParseError {
    /// They end too early.
    #[error("{what} needs {need} bytes, {have} are there")]
    Short {
        /// What was being read.
        what: &'static str,
        /// Bytes needed.
        need: usize,
        /// Bytes there.
        have: usize,
    },
    /// A length field says what cannot be.
    #[error("{what} says it is {said} bytes long; that cannot be")]
    Length {
        /// What was being read.
        what: &'static str,
        /// The length it says.
        said: usize,
    },
    /// A field has a value that has no meaning.
    #[error("{what} is {found}; that has no meaning")]
    Value {
        /// The field.
        what: &'static str,
        /// What stands there.
        found: u64,
    },
    /// Another version of the frames between switch programs.
    #[error("the frame is of version {found} of the path protocol, not of 1")]
    PathVersion {
        /// Its version byte.
        found: u8,
    },
    /// Another version of OpenFlow.
    #[error("the message is of wire version {found}, not of 4 (OpenFlow 1.3)")]
    Version {
        /// Its version byte.
        found: u8,
    },
}

/// A message would be longer than the 65,535 bytes its length field can say. Nothing was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the message would have {bytes} bytes; OpenFlow has room for 65535")]
pub struct TooLong {
    /// How long it would have been.
    pub bytes: usize,
}
