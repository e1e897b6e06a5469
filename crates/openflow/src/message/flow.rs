//! Changes of rules, and removed rules (§A.3.4.1, §A.4.2).

use crate::flow_match::FlowMatch;
use crate::instruction::Instructions;
use crate::wire::{Put, Reader};
use crate::ParseError;
use std::borrow::Cow;

/// Flag: the switch tells the controller when the rule is removed.
pub const SEND_FLOW_REMOVED: u16 = 1;

/// Command of a flow-mod.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowCommand {
    /// Add a rule, or replace the rule with the same match and priority.
    Add,
    /// Change the instructions of all rules that match.
    Modify,
    /// Change the instructions of the rule with this match and priority.
    ModifyStrict,
    /// Delete all rules that match.
    Delete,
    /// Delete the rule with this match and priority.
    DeleteStrict,
}

/// A change of rules.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowMod<'a> {
    /// Value that the controller chooses to mark the rule.
    pub cookie: u64,
    /// For all commands except `Add`: bits of the cookie that must be equal.
    pub cookie_mask: u64,
    /// The table.
    pub table: u8,
    /// The command.
    pub command: FlowCommand,
    /// Seconds without a packet until the rule is removed; 0 for never.
    pub idle_timeout_s: u16,
    /// Seconds until the rule is removed; 0 for never.
    pub hard_timeout_s: u16,
    /// Priority. Of the rules that match a packet, the one with the highest priority applies.
    pub priority: u16,
    /// A packet in the switch's buffers that is sent through the rule, or [`crate::NO_BUFFER`].
    pub buffer: u32,
    /// For deletion: only rules with this output port, or [`crate::PORT_ANY`].
    pub out_port: u32,
    /// For deletion: only rules with this group, or [`crate::GROUP_ANY`].
    pub out_group: u32,
    /// Flags (`OFPFF_*`).
    pub flags: u16,
    /// Packets that the rule applies to.
    pub matches: FlowMatch,
    /// Instructions for these packets.
    pub instructions: Instructions<'a>,
}

impl FlowMod<'static> {
    /// Adds a rule that matches everything and does nothing. The caller sets the other fields.
    pub const NOTHING: FlowMod<'static> = FlowMod {
        cookie: 0,
        cookie_mask: 0,
        table: 0,
        command: FlowCommand::Add,
        idle_timeout_s: 0,
        hard_timeout_s: 0,
        priority: 0,
        buffer: crate::NO_BUFFER,
        out_port: crate::PORT_ANY,
        out_group: crate::GROUP_ANY,
        flags: 0,
        matches: crate::FlowStatsRequest::ALL.matches,
        instructions: crate::instruction::Instructions {
            meter: None,
            apply: std::borrow::Cow::Borrowed(&[]),
            goto_table: None,
            has_unsupported: false,
        },
    };
}

impl FlowMod<'_> {
    pub(crate) fn parse(body: &[u8]) -> Result<FlowMod<'static>, ParseError> {
        let mut reader = Reader::new("a flow-mod", body);
        let (cookie, cookie_mask) = (reader.u64()?, reader.u64()?);
        let [table, command] = reader.array()?;
        let command = match command {
            0 => FlowCommand::Add,
            1 => FlowCommand::Modify,
            2 => FlowCommand::ModifyStrict,
            3 => FlowCommand::Delete,
            4 => FlowCommand::DeleteStrict,
            found => return Err(ParseError::Value { what: "the command of a flow-mod", found: u64::from(found) }),
        };
        let (idle_timeout_s, hard_timeout_s, priority) = (reader.u16()?, reader.u16()?, reader.u16()?);
        let (buffer, out_port, out_group) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let flags = reader.u16()?;
        reader.skip(2)?;
        let matches = FlowMatch::parse(&mut reader)?;
        let instructions = Instructions::parse(reader.rest())?;
        Ok(FlowMod {
            cookie,
            cookie_mask,
            table,
            command,
            idle_timeout_s,
            hard_timeout_s,
            priority,
            buffer,
            out_port,
            out_group,
            flags,
            matches,
            instructions,
        })
    }

    /// Returns the same message without borrowed data.
    pub fn into_owned(self) -> FlowMod<'static> {
        let apply = Cow::Owned(self.instructions.apply.into_owned());
        FlowMod { instructions: Instructions { apply, ..self.instructions }, ..self }
    }

    #[inline]
    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        self.emit_fixed(out);
        self.matches.emit(out);
        self.instructions.emit(out);
    }

    /// Appends the part before the match.
    #[inline]
    pub(crate) fn emit_fixed(&self, out: &mut Vec<u8>) {
        let command = match self.command {
            FlowCommand::Add => 0,
            FlowCommand::Modify => 1,
            FlowCommand::ModifyStrict => 2,
            FlowCommand::Delete => 3,
            FlowCommand::DeleteStrict => 4,
        };
        let mut fixed = [0u8; 40];
        fixed[0..8].copy_from_slice(&self.cookie.to_be_bytes());
        fixed[8..16].copy_from_slice(&self.cookie_mask.to_be_bytes());
        (fixed[16], fixed[17]) = (self.table, command);
        fixed[18..20].copy_from_slice(&self.idle_timeout_s.to_be_bytes());
        fixed[20..22].copy_from_slice(&self.hard_timeout_s.to_be_bytes());
        fixed[22..24].copy_from_slice(&self.priority.to_be_bytes());
        fixed[24..28].copy_from_slice(&self.buffer.to_be_bytes());
        fixed[28..32].copy_from_slice(&self.out_port.to_be_bytes());
        fixed[32..36].copy_from_slice(&self.out_group.to_be_bytes());
        fixed[36..38].copy_from_slice(&self.flags.to_be_bytes());
        out.put(&fixed);
    }
}

/// Reason why a rule was removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RemovedReason {
    /// It had no packet during its idle time-out.
    Idle,
    /// Its hard time-out has passed.
    Hard,
    /// The controller deleted it.
    Deleted,
    /// A group that it refers to was deleted.
    GroupDeleted,
}

/// A rule was removed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowRemoved {
    /// Cookie of the rule.
    pub cookie: u64,
    /// Priority of the rule.
    pub priority: u16,
    /// Reason of the removal.
    pub reason: RemovedReason,
    /// Table of the rule.
    pub table: u8,
    /// Lifetime of the rule, whole seconds.
    pub duration_s: u32,
    /// Lifetime of the rule, remaining nanoseconds.
    pub duration_ns: u32,
    /// Idle time-out of the rule.
    pub idle_timeout_s: u16,
    /// Hard time-out of the rule.
    pub hard_timeout_s: u16,
    /// Number of packets that the rule counted.
    pub packets: u64,
    /// Number of bytes that the rule counted.
    pub bytes: u64,
    /// Packets that the rule applied to.
    pub matches: FlowMatch,
}

impl FlowRemoved {
    pub(crate) fn parse(body: &[u8]) -> Result<FlowRemoved, ParseError> {
        let mut reader = Reader::new("a flow-removed", body);
        let (cookie, priority) = (reader.u64()?, reader.u16()?);
        let [reason, table] = reader.array()?;
        let reason = match reason {
            0 => RemovedReason::Idle,
            1 => RemovedReason::Hard,
            2 => RemovedReason::Deleted,
            3 => RemovedReason::GroupDeleted,
            found => return Err(ParseError::Value { what: "the reason of a flow-removed", found: u64::from(found) }),
        };
        let (duration_s, duration_ns) = (reader.u32()?, reader.u32()?);
        let (idle_timeout_s, hard_timeout_s) = (reader.u16()?, reader.u16()?);
        let (packets, bytes) = (reader.u64()?, reader.u64()?);
        let matches = FlowMatch::parse(&mut reader)?;
        Ok(FlowRemoved {
            cookie,
            priority,
            reason,
            table,
            duration_s,
            duration_ns,
            idle_timeout_s,
            hard_timeout_s,
            packets,
            bytes,
            matches,
        })
    }

    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        out.put_u64(self.cookie);
        out.put_u16(self.priority);
        out.put_u8(match self.reason {
            RemovedReason::Idle => 0,
            RemovedReason::Hard => 1,
            RemovedReason::Deleted => 2,
            RemovedReason::GroupDeleted => 3,
        });
        out.put_u8(self.table);
        out.put_u32(self.duration_s);
        out.put_u32(self.duration_ns);
        out.put_u16(self.idle_timeout_s);
        out.put_u16(self.hard_timeout_s);
        out.put_u64(self.packets);
        out.put_u64(self.bytes);
        self.matches.emit(out);
    }
}
