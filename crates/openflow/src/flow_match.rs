//! Matches: the packets that a rule applies to, as OXM fields (§A.2.3).

use crate::wire::{Put, Reader};
use crate::ParseError;
use std::net::Ipv4Addr;

/// An Ethernet address.
pub type Mac = [u8; 6];

/// Class of the fields that OpenFlow itself defines.
const BASIC: u16 = 0x8000;
/// Class of Nicira's fields.
const NICIRA_1: u16 = 0x0001;
/// Class of the fields of other experimenters.
const EXPERIMENTER: u16 = 0xffff;
/// The Open Networking Foundation as an experimenter.
pub(crate) const ONF: u32 = 0x4f4e_4600;
/// Number of tcp_flags in the ONF's extension 109 and in OpenFlow 1.5.
pub(crate) const TCP_FLAGS: u8 = 42;
/// Number of tcp_flags in Nicira's class.
const NICIRA_TCP_FLAGS: u8 = 34;
/// Bit of an Ethernet address: it is a group of stations (IEEE 802-2014 §8.2.2).
const GROUP_BIT: Mac = [1, 0, 0, 0, 0, 0];
/// Bit of a VLAN field: the packet has a tag.
pub const VLAN_PRESENT: u16 = 0x1000;
/// Ethernet type of IPv4.
pub const ETH_IPV4: u16 = 0x0800;
/// Ethernet type of ARP.
pub const ETH_ARP: u16 = 0x0806;
/// Ethernet type of IPv6.
pub const ETH_IPV6: u16 = 0x86dd;
/// Ethernet type of LLDP.
pub const ETH_LLDP: u16 = 0x88cc;
/// Ethernet type of a VLAN tag.
pub const ETH_VLAN: u16 = 0x8100;

/// Numbers of the basic fields (§A.2.3.7).
pub(crate) mod field {
    pub(crate) const IN_PORT: u8 = 0;
    pub(crate) const ETH_DST: u8 = 3;
    pub(crate) const ETH_SRC: u8 = 4;
    pub(crate) const ETH_TYPE: u8 = 5;
    pub(crate) const VLAN_VID: u8 = 6;
    pub(crate) const IP_DSCP: u8 = 8;
    pub(crate) const IP_PROTO: u8 = 10;
    pub(crate) const IPV4_SRC: u8 = 11;
    pub(crate) const IPV4_DST: u8 = 12;
    pub(crate) const TCP_SRC: u8 = 13;
    pub(crate) const TCP_DST: u8 = 14;
    pub(crate) const UDP_SRC: u8 = 15;
    pub(crate) const UDP_DST: u8 = 16;
    pub(crate) const SCTP_SRC: u8 = 17;
    pub(crate) const SCTP_DST: u8 = 18;
    pub(crate) const ARP_OP: u8 = 21;
    pub(crate) const ARP_SPA: u8 = 22;
    pub(crate) const ARP_TPA: u8 = 23;
    pub(crate) const ARP_SHA: u8 = 24;
}

/// The fields of a match. A field that is `None` matches everything. Pairs are (value, mask).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowMatch {
    /// Port where the packet arrived.
    pub in_port: Option<u32>,
    /// Destination Ethernet address.
    pub eth_dst: Option<Mac>,
    /// Whether the destination must be a single station, not a group of stations. Not together with `eth_dst`.
    pub to_station: bool,
    /// Source Ethernet address.
    pub eth_src: Option<Mac>,
    /// Ethernet type, after VLAN tags.
    pub eth_type: Option<u16>,
    /// VLAN: [`VLAN_PRESENT`] and the identifier.
    pub vlan_vid: Option<u16>,
    /// Whether the packet must have a VLAN tag, with any identifier. Not together with `vlan_vid`.
    pub vlan_tagged: bool,
    /// Differentiated-services code point.
    pub ip_dscp: Option<u8>,
    /// IP protocol.
    pub ip_proto: Option<u8>,
    /// Source address.
    pub ipv4_src: Option<(Ipv4Addr, Ipv4Addr)>,
    /// Destination address.
    pub ipv4_dst: Option<(Ipv4Addr, Ipv4Addr)>,
    /// Source port of TCP.
    pub tcp_src: Option<u16>,
    /// Destination port of TCP.
    pub tcp_dst: Option<u16>,
    /// Source port of UDP.
    pub udp_src: Option<u16>,
    /// Destination port of UDP.
    pub udp_dst: Option<u16>,
    /// Source port of SCTP.
    pub sctp_src: Option<u16>,
    /// Destination port of SCTP.
    pub sctp_dst: Option<u16>,
    /// ARP operation.
    pub arp_op: Option<u16>,
    /// ARP sender's IP address.
    pub arp_spa: Option<Ipv4Addr>,
    /// ARP target's IP address.
    pub arp_tpa: Option<(Ipv4Addr, Ipv4Addr)>,
    /// ARP sender's Ethernet address.
    pub arp_sha: Option<Mac>,
    /// TCP flags in the form of the ONF's extension 109, which Open vSwitch accepts in OpenFlow 1.3.
    pub tcp_flags: Option<(u16, u16)>,
    /// Whether there is another field, or a mask on a field without masks here. Never written.
    pub has_unsupported: bool,
}

impl FlowMatch {
    /// Parses a match with its padding from `reader`.
    pub(crate) fn parse(reader: &mut Reader<'_>) -> Result<FlowMatch, ParseError> {
        let total = reader.rest().len();
        let mut fields = reader.element("a match", 2, 4)?;
        let (kind, length) = (fields.u16()?, fields.u16()?);
        if kind != 1 {
            return Err(ParseError::Value { what: "the kind of a match", found: u64::from(kind) });
        }
        let padding = usize::from(length).wrapping_neg() % 8;
        if total < usize::from(length) + padding {
            return Err(ParseError::Length { what: "a match", said: usize::from(length) });
        }
        reader.skip(padding)?;
        let mut matches = FlowMatch::default();
        while !fields.is_empty() {
            matches.field(&mut fields)?;
        }
        Ok(matches)
    }

    fn field(&mut self, reader: &mut Reader<'_>) -> Result<(), ParseError> {
        let class = reader.u16()?;
        let [number, length] = reader.array()?;
        let (number, masked) = (number >> 1, number & 1 == 1);
        let mut body = Reader::new("a match field", reader.take(usize::from(length))?);
        match class {
            BASIC if number == TCP_FLAGS => self.flags(&mut body, masked),
            BASIC => self.basic(number, masked, &mut body),
            NICIRA_1 if number == NICIRA_TCP_FLAGS => self.flags(&mut body, masked),
            EXPERIMENTER if body.u32()? == ONF && number == TCP_FLAGS => self.flags(&mut body, masked),
            _ => {
                self.has_unsupported = true;
                Ok(())
            }
        }
    }

    fn flags(&mut self, body: &mut Reader<'_>, masked: bool) -> Result<(), ParseError> {
        let value = body.u16()?;
        self.tcp_flags = Some((value, if masked { body.u16()? } else { u16::MAX }));
        ended(body)
    }

    fn basic(&mut self, number: u8, masked: bool, body: &mut Reader<'_>) -> Result<(), ParseError> {
        match number {
            field::IN_PORT => self.in_port = Some(body.u32()?),
            field::ETH_DST => {
                let value = body.array()?;
                if masked {
                    self.to_station = (value, body.array()?) == ([0; 6], GROUP_BIT);
                    self.has_unsupported |= !self.to_station;
                    return ended(body);
                }
                self.eth_dst = Some(value);
            }
            field::ETH_SRC => self.eth_src = Some(body.array()?),
            field::ETH_TYPE => self.eth_type = Some(body.u16()?),
            field::VLAN_VID => {
                let value = body.u16()?;
                if masked {
                    self.vlan_tagged = (value, body.u16()?) == (VLAN_PRESENT, VLAN_PRESENT);
                    self.has_unsupported |= !self.vlan_tagged;
                    return ended(body);
                }
                self.vlan_vid = Some(value);
            }
            field::IP_DSCP => self.ip_dscp = Some(body.u8()?),
            field::IP_PROTO => self.ip_proto = Some(body.u8()?),
            field::IPV4_SRC => self.ipv4_src = Some(prefix(body, masked)?),
            field::IPV4_DST => self.ipv4_dst = Some(prefix(body, masked)?),
            field::TCP_SRC => self.tcp_src = Some(body.u16()?),
            field::TCP_DST => self.tcp_dst = Some(body.u16()?),
            field::UDP_SRC => self.udp_src = Some(body.u16()?),
            field::UDP_DST => self.udp_dst = Some(body.u16()?),
            field::SCTP_SRC => self.sctp_src = Some(body.u16()?),
            field::SCTP_DST => self.sctp_dst = Some(body.u16()?),
            field::ARP_OP => self.arp_op = Some(body.u16()?),
            field::ARP_SPA => self.arp_spa = Some(Ipv4Addr::from(body.array::<4>()?)),
            field::ARP_TPA => self.arp_tpa = Some(prefix(body, masked)?),
            field::ARP_SHA => self.arp_sha = Some(body.array()?),
            _ => {
                self.has_unsupported = true;
                return Ok(());
            }
        }
        if masked && !matches!(number, field::IPV4_SRC | field::IPV4_DST | field::ARP_TPA) {
            self.has_unsupported = true;
            return Ok(());
        }
        ended(body)
    }

    /// Appends the match with its padding. Each field comes after the fields that it depends on (§A.2.3.6).
    #[inline]
    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.put(&[0, 1, 0, 0]);
        self.emit_frame(out);
        self.emit_ip(out);
        self.emit_transport(out);
        out.patch_length(start, 2);
        out.pad8(start);
    }

    #[inline]
    fn emit_frame(&self, out: &mut Vec<u8>) {
        if let Some(port) = self.in_port {
            put_field(out, field::IN_PORT, &port.to_be_bytes());
        }
        if let Some(mac) = self.eth_dst {
            put_field(out, field::ETH_DST, &mac);
        }
        if self.to_station {
            out.put(&[0x80, 0, field::ETH_DST << 1 | 1, 12]);
            out.put(&[0; 6]);
            out.put(&GROUP_BIT);
        }
        if let Some(mac) = self.eth_src {
            put_field(out, field::ETH_SRC, &mac);
        }
        if let Some(kind) = self.eth_type {
            put_field(out, field::ETH_TYPE, &kind.to_be_bytes());
        }
        if let Some(vid) = self.vlan_vid {
            put_field(out, field::VLAN_VID, &vid.to_be_bytes());
        }
        if self.vlan_tagged {
            out.put(&[0x80, 0, field::VLAN_VID << 1 | 1, 4]);
            out.put_u16(VLAN_PRESENT);
            out.put_u16(VLAN_PRESENT);
        }
    }

    #[inline]
    fn emit_ip(&self, out: &mut Vec<u8>) {
        if let Some(dscp) = self.ip_dscp {
            put_field(out, field::IP_DSCP, &[dscp]);
        }
        if let Some(proto) = self.ip_proto {
            put_field(out, field::IP_PROTO, &[proto]);
        }
        for (number, address) in [(field::IPV4_SRC, self.ipv4_src), (field::IPV4_DST, self.ipv4_dst)] {
            put_addresses(out, number, address);
        }
        if let Some(op) = self.arp_op {
            put_field(out, field::ARP_OP, &op.to_be_bytes());
        }
        if let Some(address) = self.arp_spa {
            put_field(out, field::ARP_SPA, &address.octets());
        }
        put_addresses(out, field::ARP_TPA, self.arp_tpa);
        if let Some(mac) = self.arp_sha {
            put_field(out, field::ARP_SHA, &mac);
        }
    }

    #[inline]
    fn emit_transport(&self, out: &mut Vec<u8>) {
        let ports = [
            (field::TCP_SRC, self.tcp_src),
            (field::TCP_DST, self.tcp_dst),
            (field::UDP_SRC, self.udp_src),
            (field::UDP_DST, self.udp_dst),
            (field::SCTP_SRC, self.sctp_src),
            (field::SCTP_DST, self.sctp_dst),
        ];
        for (number, port) in ports {
            if let Some(port) = port {
                put_field(out, number, &port.to_be_bytes());
            }
        }
        if let Some((value, mask)) = self.tcp_flags {
            let masked = mask != u16::MAX;
            out.put(&[0xff, 0xff, TCP_FLAGS << 1 | u8::from(masked), if masked { 8 } else { 6 }]);
            out.put_u32(ONF);
            out.put_u16(value);
            if masked {
                out.put_u16(mask);
            }
        }
    }
}

#[inline]
fn put_field(out: &mut Vec<u8>, number: u8, value: &[u8]) {
    out.put(&[0x80, 0, number << 1, value.len() as u8]);
    out.put(value);
}

#[inline]
fn put_addresses(out: &mut Vec<u8>, number: u8, addresses: Option<(Ipv4Addr, Ipv4Addr)>) {
    match addresses {
        Some((value, Ipv4Addr::BROADCAST)) => put_field(out, number, &value.octets()),
        Some((value, mask)) => {
            out.put(&[0x80, 0, number << 1 | 1, 8]);
            out.put(&value.octets());
            out.put(&mask.octets());
        }
        None => {}
    }
}

fn prefix(body: &mut Reader<'_>, masked: bool) -> Result<(Ipv4Addr, Ipv4Addr), ParseError> {
    let value = Ipv4Addr::from(body.array::<4>()?);
    let mask = if masked { Ipv4Addr::from(body.array::<4>()?) } else { Ipv4Addr::BROADCAST };
    Ok((value, mask))
}

fn ended(body: &Reader<'_>) -> Result<(), ParseError> {
    match body.rest().len() {
        0 => Ok(()),
        left => Err(ParseError::Length { what: "a match field", said: left }),
    }
}
