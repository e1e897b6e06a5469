//! The role of a controller among several ones (§A.3.10).

use crate::wire::{Put, Reader};
use crate::ParseError;

/// A role.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// In a request: asks for the role without a change.
    NoChange,
    /// All controllers have the same rights.
    Equal,
    /// Only this controller can change the switch.
    Master,
    /// This controller can read, but not change the switch.
    Slave,
}

/// A role that is requested or granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoleMessage {
    /// The role.
    pub role: Role,
    /// Number of the election; the switch refuses older numbers.
    pub generation: u64,
}

impl RoleMessage {
    pub(crate) fn parse(body: &[u8]) -> Result<RoleMessage, ParseError> {
        let mut reader = Reader::new("a role", body);
        let role = match reader.u32()? {
            0 => Role::NoChange,
            1 => Role::Equal,
            2 => Role::Master,
            3 => Role::Slave,
            found => return Err(ParseError::Value { what: "a role", found: u64::from(found) }),
        };
        reader.skip(4)?;
        Ok(RoleMessage { role, generation: reader.u64()? })
    }

    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        out.put_u32(match self.role {
            Role::NoChange => 0,
            Role::Equal => 1,
            Role::Master => 2,
            Role::Slave => 3,
        });
        out.put_zeros(4);
        out.put_u64(self.generation);
    }
}
