//! Errors (§A.4.4).

use crate::wire::{Put, Reader};
use crate::ParseError;

/// Error kind: no common version.
pub const HELLO_FAILED: u16 = 0;
/// Error kind: the request was not understood.
pub const BAD_REQUEST: u16 = 1;
/// Error kind: an action is invalid.
pub const BAD_ACTION: u16 = 2;
/// Error kind: an instruction is invalid.
pub const BAD_INSTRUCTION: u16 = 3;
/// Error kind: a match is invalid.
pub const BAD_MATCH: u16 = 4;
/// Error kind: a rule was not added.
pub const FLOW_MOD_FAILED: u16 = 5;
/// Error kind: a group was not changed.
pub const GROUP_MOD_FAILED: u16 = 6;
/// Error kind: a role was not granted.
pub const ROLE_REQUEST_FAILED: u16 = 11;
/// Error kind: a meter was not changed.
pub const METER_MOD_FAILED: u16 = 12;

/// Code of [`BAD_REQUEST`]: the controller is a slave, and only others may do this (`OFPBRC_IS_SLAVE`).
pub const IS_SLAVE: u16 = 10;
/// Code of [`ROLE_REQUEST_FAILED`]: the number of the election is older than another one (`OFPRRFC_STALE`).
pub const STALE: u16 = 0;

/// A message was not executed. The xid is that of the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ErrorMessage<'a> {
    /// Kind of the error.
    pub kind: u16,
    /// Code of the error within its kind.
    pub code: u16,
    /// The first bytes of the refused message, or a text.
    pub data: &'a [u8],
}

impl<'a> ErrorMessage<'a> {
    pub(crate) fn parse(body: &'a [u8]) -> Result<ErrorMessage<'a>, ParseError> {
        let mut reader = Reader::new("an error", body);
        Ok(ErrorMessage { kind: reader.u16()?, code: reader.u16()?, data: reader.rest() })
    }

    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        out.put_u16(self.kind);
        out.put_u16(self.code);
        out.put(self.data);
    }
}
