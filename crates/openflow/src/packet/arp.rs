//! ARP for IPv4 over Ethernet (RFC 826).

use super::{Ethernet, BROADCAST};
use crate::flow_match::{Mac, ETH_ARP};
use crate::wire::{Put, Reader};
use crate::ParseError;
use std::net::Ipv4Addr;

/// What an ARP packet is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Who has the target's address?
    Request,
    /// I have.
    Reply,
}

/// An ARP packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arp {
    /// Question or answer.
    pub operation: Operation,
    /// Ethernet address of who speaks.
    pub sender_mac: Mac,
    /// IP address of who speaks.
    pub sender: Ipv4Addr,
    /// Ethernet address of who is spoken to; zeros in a question.
    pub target_mac: Mac,
    /// IP address of who is spoken to, or asked for.
    pub target: Ipv4Addr,
}

impl Arp {
    /// Reads the payload of a frame.
    ///
    /// # Errors
    /// It is too short, or not about IPv4 over Ethernet.
    pub fn parse(payload: &[u8]) -> Result<Arp, ParseError> {
        let mut reader = Reader::new("an ARP packet", payload);
        let kinds: [u8; 6] = reader.array()?;
        if kinds != [0, 1, 8, 0, 6, 4] {
            return Err(ParseError::Value {
                what: "the kind of addresses of an ARP packet",
                found: u64::from(kinds[1]),
            });
        }
        let operation = match reader.u16()? {
            1 => Operation::Request,
            2 => Operation::Reply,
            found => return Err(ParseError::Value { what: "an ARP operation", found: u64::from(found) }),
        };
        let (sender_mac, sender) = (reader.array()?, Ipv4Addr::from(reader.array::<4>()?));
        let (target_mac, target) = (reader.array()?, Ipv4Addr::from(reader.array::<4>()?));
        Ok(Arp { operation, sender_mac, sender, target_mac, target })
    }

    /// The answer of `mac` to this question.
    pub fn answer(&self, mac: Mac) -> Arp {
        let operation = Operation::Reply;
        Arp { operation, sender_mac: mac, sender: self.target, target_mac: self.sender_mac, target: self.sender }
    }

    /// Appends a whole frame: a question to everyone, an answer to who asked.
    pub fn emit_frame(&self, out: &mut Vec<u8>) {
        let (dst, operation) = match self.operation {
            Operation::Request => (BROADCAST, 1),
            Operation::Reply => (self.target_mac, 2),
        };
        Ethernet { dst, src: self.sender_mac, vlan: None, kind: ETH_ARP, payload: &[] }.emit_head(out);
        out.put(&[0, 1, 8, 0, 6, 4, 0, operation]);
        out.put(&self.sender_mac);
        out.put(&self.sender.octets());
        out.put(&self.target_mac);
        out.put(&self.target.octets());
    }
}
