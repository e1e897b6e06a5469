//! Errors in bytes, and in values that are converted to bytes.

/// Reason why bytes are not a valid message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ParseError {
    /// The bytes end too early.
    #[error("{what} needs {need} bytes, but only {have} are left")]
    Short {
        /// Object that was being read.
        what: &'static str,
        /// Number of bytes needed.
        need: usize,
        /// Number of bytes left.
        have: usize,
    },
    /// A length field has an impossible value.
    #[error("{what} has an invalid length of {said} bytes")]
    Length {
        /// Object that was being read.
        what: &'static str,
        /// Value of the length field.
        said: usize,
    },
    /// A field has an undefined value.
    #[error("{what} has the undefined value {found}")]
    Value {
        /// The field.
        what: &'static str,
        /// Value of the field.
        found: u64,
    },
    /// The frame between switch programs has another version.
    #[error("the frame has version {found} of the path protocol; expected 1")]
    PathVersion {
        /// Version byte of the frame.
        found: u8,
    },
    /// The message has another version of OpenFlow.
    #[error("the message has wire version {found}; expected 4 (OpenFlow 1.3)")]
    Version {
        /// Version byte of the message.
        found: u8,
    },
}

/// A message would be longer than 65,535 bytes, the limit of its length field. Nothing was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the message would have {bytes} bytes; OpenFlow allows at most 65535")]
pub struct TooLong {
    /// Length that the message would have.
    pub bytes: usize,
}
