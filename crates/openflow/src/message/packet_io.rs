//! Packets to and from the controller (§A.3.7, §A.4.1).

use crate::action::Action;
use crate::flow_match::FlowMatch;
use crate::wire::{Put, Reader};
use crate::ParseError;
use std::borrow::Cow;

/// Reason why a packet was sent to the controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PacketInReason {
    /// No rule matched it.
    NoMatch,
    /// An action of a rule sent it.
    Action,
    /// Its time to live has expired.
    InvalidTtl,
}

/// A packet for the controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketIn<'a> {
    /// Number of the packet in the switch's buffers, or [`crate::NO_BUFFER`].
    pub buffer: u32,
    /// Length of the packet; `data` can be shorter.
    pub total_len: u16,
    /// Reason of the packet-in.
    pub reason: PacketInReason,
    /// Table of the rule.
    pub table: u8,
    /// Cookie of the rule.
    pub cookie: u64,
    /// Port where the packet arrived, and other metadata from the switch.
    pub matches: FlowMatch,
    /// The first bytes of the packet.
    pub data: &'a [u8],
}

impl<'a> PacketIn<'a> {
    #[inline]
    pub(crate) fn parse(body: &'a [u8]) -> Result<PacketIn<'a>, ParseError> {
        let mut reader = Reader::new("a packet-in", body);
        let (buffer, total_len) = (reader.u32()?, reader.u16()?);
        let [reason, table] = reader.array()?;
        let reason = match reason {
            0 => PacketInReason::NoMatch,
            1 => PacketInReason::Action,
            2 => PacketInReason::InvalidTtl,
            found => return Err(ParseError::Value { what: "the reason of a packet-in", found: u64::from(found) }),
        };
        let cookie = reader.u64()?;
        let matches = FlowMatch::parse(&mut reader)?;
        reader.skip(2)?;
        Ok(PacketIn { buffer, total_len, reason, table, cookie, matches, data: reader.rest() })
    }

    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        out.put_u32(self.buffer);
        out.put_u16(self.total_len);
        out.put_u8(match self.reason {
            PacketInReason::NoMatch => 0,
            PacketInReason::Action => 1,
            PacketInReason::InvalidTtl => 2,
        });
        out.put_u8(self.table);
        out.put_u64(self.cookie);
        self.matches.emit(out);
        out.put_zeros(2);
        out.put(self.data);
    }
}

/// A packet to be sent by a switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PacketOut<'a> {
    /// Number of the packet in the switch's buffers, or [`crate::NO_BUFFER`].
    pub buffer: u32,
    /// Port where the packet counts as arrived.
    pub in_port: u32,
    /// Actions on the packet.
    pub actions: Cow<'a, [Action]>,
    /// The packet, unless it is in the switch's buffers.
    pub data: &'a [u8],
}

impl<'a> PacketOut<'a> {
    pub(crate) fn parse(body: &'a [u8]) -> Result<PacketOut<'a>, ParseError> {
        let mut reader = Reader::new("a packet-out", body);
        let (buffer, in_port, length) = (reader.u32()?, reader.u32()?, reader.u16()?);
        reader.skip(6)?;
        let actions = Action::parse_all(reader.take(usize::from(length))?)?;
        Ok(PacketOut { buffer, in_port, actions: Cow::Owned(actions), data: reader.rest() })
    }

    #[inline]
    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        out.put_u32(self.buffer);
        out.put_u32(self.in_port);
        let length_at = out.len();
        out.put_zeros(8);
        let start = out.len();
        self.actions.iter().for_each(|action| action.emit(out));
        let length = ((out.len() - start) as u16).to_be_bytes();
        out[length_at..length_at + 2].copy_from_slice(&length);
        out.put(self.data);
    }
}
