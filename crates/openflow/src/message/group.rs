//! Changes of groups (§A.3.4.2).

use crate::action::Action;
use crate::wire::{Put, Reader};
use crate::{ParseError, GROUP_ANY, PORT_ANY};

/// Command of a group-mod.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupCommand {
    /// Add the group; an error if it exists.
    Add,
    /// Replace the group; an error if it does not exist.
    Modify,
    /// Delete the group, or all groups.
    Delete,
}

/// How a group selects among its buckets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupType {
    /// Executes every bucket.
    All,
    /// Selects one bucket by a hash.
    Select,
    /// Executes the only bucket.
    Indirect,
    /// Selects the first bucket that is live.
    FastFailover,
}

impl GroupType {
    pub(crate) fn parse(found: u8) -> Result<GroupType, ParseError> {
        Ok(match found {
            0 => GroupType::All,
            1 => GroupType::Select,
            2 => GroupType::Indirect,
            3 => GroupType::FastFailover,
            _ => return Err(ParseError::Value { what: "the type of a group", found: u64::from(found) }),
        })
    }

    pub(crate) fn number(self) -> u8 {
        match self {
            GroupType::All => 0,
            GroupType::Select => 1,
            GroupType::Indirect => 2,
            GroupType::FastFailover => 3,
        }
    }
}

/// A bucket of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BucketMod {
    /// Share of the packets, for [`GroupType::Select`].
    pub weight: u16,
    /// Port whose state determines whether the bucket is live.
    pub watch_port: Option<u32>,
    /// Group whose state determines whether the bucket is live.
    pub watch_group: Option<u32>,
    /// Actions of the bucket.
    pub actions: Vec<Action>,
}

impl BucketMod {
    fn parse(reader: &mut Reader<'_>) -> Result<BucketMod, ParseError> {
        let mut body = reader.element("a bucket", 0, 16)?;
        body.skip(2)?;
        let weight = body.u16()?;
        let (port, group) = (body.u32()?, body.u32()?);
        body.skip(4)?;
        let actions = Action::parse_all(body.rest())?;
        let watch_port = Some(port).filter(|&port| port != PORT_ANY);
        Ok(BucketMod { weight, watch_port, watch_group: Some(group).filter(|&group| group != GROUP_ANY), actions })
    }

    /// Parses all buckets in `bytes`.
    pub(crate) fn parse_all(bytes: &[u8]) -> Result<Vec<BucketMod>, ParseError> {
        let mut reader = Reader::new("buckets", bytes);
        let mut buckets = Vec::new();
        while !reader.is_empty() {
            buckets.push(BucketMod::parse(&mut reader)?);
        }
        Ok(buckets)
    }

    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.put_u16(0);
        out.put_u16(self.weight);
        out.put_u32(self.watch_port.unwrap_or(PORT_ANY));
        out.put_u32(self.watch_group.unwrap_or(GROUP_ANY));
        out.put_zeros(4);
        self.actions.iter().for_each(|action| action.emit(out));
        out.patch_length(start, 0);
    }
}

/// A change of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupMod {
    /// The command.
    pub command: GroupCommand,
    /// How the group selects a bucket.
    pub kind: GroupType,
    /// Identifier of the group.
    pub id: u32,
    /// The buckets.
    pub buckets: Vec<BucketMod>,
}

impl GroupMod {
    pub(crate) fn parse(body: &[u8]) -> Result<GroupMod, ParseError> {
        let mut reader = Reader::new("a group-mod", body);
        let command = match reader.u16()? {
            0 => GroupCommand::Add,
            1 => GroupCommand::Modify,
            2 => GroupCommand::Delete,
            found => return Err(ParseError::Value { what: "the command of a group-mod", found: u64::from(found) }),
        };
        let kind = GroupType::parse(reader.u8()?)?;
        reader.skip(1)?;
        let id = reader.u32()?;
        Ok(GroupMod { command, kind, id, buckets: BucketMod::parse_all(reader.rest())? })
    }

    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        out.put_u16(match self.command {
            GroupCommand::Add => 0,
            GroupCommand::Modify => 1,
            GroupCommand::Delete => 2,
        });
        out.put(&[self.kind.number(), 0]);
        out.put_u32(self.id);
        self.buckets.iter().for_each(|bucket| bucket.emit(out));
    }
}
