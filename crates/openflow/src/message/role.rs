//! Which of several controllers one is (§A.3.10).

use crate::wire::{Put, Reader};
use crate::ParseError;

/// A role.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// In a request: none, just tell me.
    NoChange,
    /// All controllers are the same.
    Equal,
    /// The only one that may change things.
    Master,
    /// May look, not touch.
    Slave,
}

/// A role asked for or given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoleMessage {
    /// The role.
    pub role: Role,
    /// Number of the election; older ones are refused.
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
