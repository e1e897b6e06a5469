//! LLDP frames that say which port of which switch they left by (IEEE 802.1AB), with room for a time stamp and a seal, so
//! that a host can neither make one up nor send an old one again.

use super::Ethernet;
use crate::flow_match::{Mac, ETH_LLDP};
use crate::wire::{Put, Reader};
use crate::ParseError;

/// Where the frames go: to the next bridge and no further.
pub const NEAREST_BRIDGE: Mac = [0x01, 0x80, 0xc2, 0, 0, 0x0e];
/// Our TLVs bear the identifier of OpenFlow and these subtypes.
const ORGANISATION: [u8; 3] = [0x00, 0x26, 0xe1];
const SEAL: u8 = 0x70;
/// Subtype of names that mean something locally.
const LOCAL: u8 = 7;

const CHASSIS: u8 = 1;
const PORT: u8 = 2;
const TTL: u8 = 3;
const ORGANISATION_OWN: u8 = 127;

/// When a frame was sent, and the sender's proof that it made it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seal {
    /// The sender's clock, in nanoseconds.
    pub sent_ns: u64,
    /// Made of a secret, switch, port and time.
    pub proof: [u8; 32],
}

/// What a frame says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lldp {
    /// The switch it left.
    pub datapath_id: u64,
    /// The port it left by.
    pub port: u32,
    /// For how long it holds.
    pub ttl_s: u16,
    /// Time stamp and proof; `None` in frames of others.
    pub seal: Option<Seal>,
}

impl Lldp {
    /// Reads the payload of a frame. `None` if it is well-formed, but its names are not those of a controller.
    ///
    /// # Errors
    /// It ends within a field.
    pub fn parse(payload: &[u8]) -> Result<Option<Lldp>, ParseError> {
        let mut reader = Reader::new("an LLDP frame", payload);
        let (mut datapath_id, mut port, mut ttl_s, mut seal) = (None, None, None, None);
        while !reader.is_empty() {
            let head = reader.u16()?;
            let (kind, length) = ((head >> 9) as u8, usize::from(head & 0x1ff));
            let value = reader.take(length)?;
            let mut body = Reader::new("a field of an LLDP frame", value);
            match (kind, value.len()) {
                (0, _) => break,
                (CHASSIS, 1..) if body.u8()? == LOCAL => datapath_id = name_of_switch(body.rest()),
                (PORT, 5) if body.u8()? == LOCAL => port = Some(body.u32()?),
                (TTL, 2) => ttl_s = Some(body.u16()?),
                (ORGANISATION_OWN, 44) if body.array::<3>()? == ORGANISATION && body.u8()? == SEAL => {
                    seal = Some(Seal { sent_ns: body.u64()?, proof: body.array()? });
                }
                _ => {}
            }
        }
        let (Some(datapath_id), Some(port), Some(ttl_s)) = (datapath_id, port, ttl_s) else { return Ok(None) };
        Ok(Some(Lldp { datapath_id, port, ttl_s, seal }))
    }

    /// Appends a whole frame from `src`.
    pub fn emit_frame(&self, src: Mac, out: &mut Vec<u8>) {
        Ethernet { dst: NEAREST_BRIDGE, src, vlan: None, kind: ETH_LLDP, payload: &[] }.emit_head(out);
        put_field(out, CHASSIS, 22);
        out.put_u8(LOCAL);
        out.put(b"dpid:");
        for shift in (0..16).rev() {
            out.put_u8(b"0123456789abcdef"[(self.datapath_id >> (4 * shift) & 15) as usize]);
        }
        put_field(out, PORT, 5);
        out.put_u8(LOCAL);
        out.put_u32(self.port);
        put_field(out, TTL, 2);
        out.put_u16(self.ttl_s);
        if let Some(seal) = &self.seal {
            put_field(out, ORGANISATION_OWN, 44);
            out.put(&ORGANISATION);
            out.put_u8(SEAL);
            out.put_u64(seal.sent_ns);
            out.put(&seal.proof);
        }
        out.put_u16(0);
    }
}

fn put_field(out: &mut Vec<u8>, kind: u8, length: u16) {
    out.put_u16(u16::from(kind) << 9 | length);
}

/// Reads `dpid:` and 16 hexadecimal digits.
fn name_of_switch(name: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(name.strip_prefix(b"dpid:")?).ok()?;
    let plain = digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    plain.then(|| u64::from_str_radix(digits, 16).ok())?
}
