//! Actions on a packet (§A.2.5).

use crate::flow_match::Mac;
use crate::wire::{Put, Reader};
use crate::ParseError;

/// Length that sends the whole packet to the controller.
pub const WHOLE_PACKET: u16 = 0xffff;

/// One action on a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Send the packet out.
    Output {
        /// The port.
        port: u32,
        /// Bytes that go to the controller, if the port is the controller.
        max_len: u16,
    },
    /// Hand the packet to this group.
    Group(u32),
    /// Add a new VLAN tag with this Ethernet type.
    PushVlan(u16),
    /// Remove the outer VLAN tag.
    PopVlan,
    /// Set the VLAN identifier, with [`crate::flow_match::VLAN_PRESENT`].
    SetVlanVid(u16),
    /// Set the differentiated-services code point.
    SetIpDscp(u8),
    /// Set the source Ethernet address.
    SetEthSrc(Mac),
    /// Set the destination Ethernet address.
    SetEthDst(Mac),
    /// Set the queue of the port.
    SetQueue(u32),
    /// An action that this crate does not support. It is never written.
    Unsupported(u16),
}

const OUTPUT: u16 = 0;
const PUSH_VLAN: u16 = 17;
const POP_VLAN: u16 = 18;
const SET_QUEUE: u16 = 21;
const GROUP: u16 = 22;
const SET_FIELD: u16 = 25;

impl Action {
    pub(crate) fn parse(reader: &mut Reader<'_>) -> Result<Action, ParseError> {
        let mut body = reader.element("an action", 2, 8)?;
        let kind = body.u16()?;
        body.skip(2)?;
        Ok(match kind {
            OUTPUT => Action::Output { port: body.u32()?, max_len: body.u16()? },
            GROUP => Action::Group(body.u32()?),
            PUSH_VLAN => Action::PushVlan(body.u16()?),
            POP_VLAN => Action::PopVlan,
            SET_QUEUE => Action::SetQueue(body.u32()?),
            SET_FIELD => match (body.array::<4>()?, body.rest().len()) {
                ([0x80, 0, 0x0c, 2], _) => Action::SetVlanVid(body.u16()?),
                ([0x80, 0, 0x10, 1], _) => Action::SetIpDscp(body.u8()?),
                ([0x80, 0, 0x06, 6], 6..) => Action::SetEthDst(body.array()?),
                ([0x80, 0, 0x08, 6], 6..) => Action::SetEthSrc(body.array()?),
                _ => Action::Unsupported(SET_FIELD),
            },
            other => Action::Unsupported(other),
        })
    }

    /// Parses all actions in `bytes`.
    pub(crate) fn parse_all(bytes: &[u8]) -> Result<Vec<Action>, ParseError> {
        let mut reader = Reader::new("actions", bytes);
        let mut actions = Vec::new();
        while !reader.is_empty() {
            actions.push(Action::parse(&mut reader)?);
        }
        Ok(actions)
    }

    #[inline]
    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        match *self {
            Action::Output { port, max_len } => {
                let (p, m) = (port.to_be_bytes(), max_len.to_be_bytes());
                out.put(&[0, 0, 0, 16, p[0], p[1], p[2], p[3], m[0], m[1], 0, 0, 0, 0, 0, 0]);
            }
            Action::Group(group) => put_short(out, GROUP, group.to_be_bytes()),
            Action::PushVlan(kind) => put_short(out, PUSH_VLAN, [(kind >> 8) as u8, kind as u8, 0, 0]),
            Action::PopVlan => put_short(out, POP_VLAN, [0; 4]),
            Action::SetQueue(queue) => put_short(out, SET_QUEUE, queue.to_be_bytes()),
            Action::SetVlanVid(vid) => put_set(out, 0x0c, &vid.to_be_bytes()),
            Action::SetIpDscp(dscp) => put_set(out, 0x10, &[dscp]),
            Action::SetEthDst(mac) => put_set(out, 0x06, &mac),
            Action::SetEthSrc(mac) => put_set(out, 0x08, &mac),
            Action::Unsupported(_) => {}
        }
    }
}

#[inline]
fn put_short(out: &mut Vec<u8>, kind: u16, value: [u8; 4]) {
    out.put_u16(kind);
    out.put_u16(8);
    out.put(&value);
}

#[inline]
fn put_set(out: &mut Vec<u8>, field: u8, value: &[u8]) {
    let start = out.len();
    let length = (8 + value.len()).next_multiple_of(8);
    out.put_u16(SET_FIELD);
    out.put_u16(length as u16);
    out.put(&[0x80, 0, field, value.len() as u8]);
    out.put(value);
    out.pad8(start);
}
