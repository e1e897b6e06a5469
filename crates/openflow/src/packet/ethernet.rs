//! Ethernet frames with up to one VLAN tag (IEEE 802.3, 802.1Q).

use crate::flow_match::{Mac, ETH_VLAN};
use crate::wire::{Put, Reader};
use crate::ParseError;

/// A frame, without its checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ethernet<'a> {
    /// Destination.
    pub dst: Mac,
    /// Source.
    pub src: Mac,
    /// VLAN identifier, if there is a tag.
    pub vlan: Option<u16>,
    /// EtherType of the payload.
    pub kind: u16,
    /// The payload, with its padding.
    pub payload: &'a [u8],
}

impl<'a> Ethernet<'a> {
    /// Reads a frame.
    ///
    /// # Errors
    /// The frame ends before its payload.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Ethernet<'a>, ParseError> {
        let mut reader = Reader::new("an Ethernet frame", bytes);
        let (dst, src, mut kind) = (reader.array()?, reader.array()?, reader.u16()?);
        let mut vlan = None;
        if kind == ETH_VLAN {
            vlan = Some(reader.u16()? & 0x0fff);
            kind = reader.u16()?;
        }
        Ok(Ethernet { dst, src, vlan, kind, payload: reader.rest() })
    }

    /// Appends the frame.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.put(&self.dst);
        out.put(&self.src);
        if let Some(vlan) = self.vlan {
            out.put_u16(ETH_VLAN);
            out.put_u16(vlan & 0x0fff);
        }
        out.put_u16(self.kind);
        out.put(self.payload);
    }
}
