//! Frames on cables.

use pathloom_model::{Address, Arp, Body, Headers, PROTO_TCP, PROTO_UDP};
use pathloom_openflow::flow_match::{FlowMatch, ETH_IPV4, VLAN_PRESENT};
use pathloom_openflow::packet::{headers, path, Ethernet};
use std::net::Ipv4Addr;
use std::rc::Rc;

/// Address of the sender in packets of hosts; no rule of the controller matches it.
const SRC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const DST: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// A frame.
#[derive(Clone, Debug)]
pub struct Frame {
    /// EtherType, after the tag.
    pub(crate) kind: u16,
    /// VLAN tag.
    pub(crate) tag: Option<u16>,
    /// Headers of an IPv4 frame.
    pub(crate) headers: Option<Headers>,
    pub(crate) content: Content,
}

#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// A packet that a host sent; its bytes follow from its headers.
    Packet(usize),
    /// Any other frame, without its tag.
    Bytes(Rc<[u8]>),
}

impl Frame {
    pub(crate) fn packet(number: usize, headers: Headers) -> Frame {
        let (kind, tag) = (ETH_IPV4, headers.tag);
        Frame { kind, tag, headers: Some(headers), content: Content::Packet(number) }
    }

    /// The bytes of a packet with these headers.
    pub fn bytes_of(headers: Headers) -> Vec<u8> {
        Frame::packet(0, headers).to_bytes()
    }

    /// A frame with these bytes; `None` if they are no Ethernet frame.
    pub fn from_bytes(bytes: &[u8]) -> Option<Frame> {
        let frame = Ethernet::parse(bytes).ok()?;
        let headers = headers(&frame).ok().flatten();
        let mut content = Vec::with_capacity(bytes.len());
        Ethernet { vlan: None, ..frame }.emit(&mut content);
        Some(Frame { kind: frame.kind, tag: frame.vlan, headers, content: Content::Bytes(content.into()) })
    }

    /// The number of the packet, if a host sent the frame as a packet.
    pub(crate) fn number(&self) -> Option<usize> {
        match self.content {
            Content::Packet(number) => Some(number),
            Content::Bytes(_) => None,
        }
    }

    /// The same frame with another tag.
    pub(crate) fn tagged(&self, tag: Option<u16>) -> Frame {
        let headers = self.headers.map(|headers| Headers { tag, ..headers });
        Frame { tag, headers, ..self.clone() }
    }

    /// The bytes of the frame.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match (&self.content, &self.headers) {
            (Content::Bytes(bytes), _) => match Ethernet::parse(bytes) {
                Ok(frame) => Ethernet { vlan: self.tag, ..frame }.emit(&mut out),
                Err(_) => out.extend_from_slice(bytes),
            },
            (Content::Packet(_), Some(headers)) => {
                Ethernet { dst: DST, src: SRC, vlan: self.tag, kind: self.kind, payload: &ipv4(headers) }
                    .emit(&mut out);
            }
            (Content::Packet(_), None) => {}
        }
        out
    }

    /// Whether a match of OpenFlow includes the frame.
    pub(crate) fn matches(&self, flow: &FlowMatch, in_port: u32) -> bool {
        let vid = self.tag.map_or(0, |tag| VLAN_PRESENT | tag);
        let eth = |at: usize| match &self.content {
            Content::Bytes(bytes) => <[u8; 6]>::try_from(&bytes[at..at + 6]).unwrap_or_default(),
            Content::Packet(_) => [DST, SRC][at / 6],
        };
        flow.in_port.is_none_or(|port| port == in_port)
            && flow.eth_type.is_none_or(|kind| kind == self.kind)
            && flow.vlan_vid.is_none_or(|wanted| wanted == vid)
            && (!flow.vlan_tagged || self.tag.is_some())
            && flow.eth_dst.is_none_or(|dst| dst == eth(0))
            && flow.eth_src.is_none_or(|src| src == eth(6))
            && (!flow.to_station || eth(0)[0] & 1 == 0)
            && self.matches_arp(flow)
            && self.matches_ip(flow)
    }

    fn matches_arp(&self, flow: &FlowMatch) -> bool {
        if (flow.arp_op, flow.arp_spa, flow.arp_tpa, flow.arp_sha) == (None, None, None, None) {
            return true;
        }
        self.arp().is_some_and(|arp| {
            let op = if arp.request { 1 } else { 2 };
            flow.arp_op.is_none_or(|wanted| wanted == op)
                && flow.arp_spa.is_none_or(|wanted| Address::from(wanted) == arp.sender_ip)
                && flow.arp_sha.is_none_or(|wanted| wanted == arp.sender_mac.0)
                && under(flow.arp_tpa, arp.target_ip)
        })
    }

    /// Its contents, if it is ARP.
    pub(crate) fn arp(&self) -> Option<Arp> {
        let Content::Bytes(bytes) = &self.content else { return None };
        match path::read(bytes).ok()?.frame.body {
            Body::Arp(arp) => Some(arp),
            _ => None,
        }
    }

    fn matches_ip(&self, flow: &FlowMatch) -> bool {
        let ports = [flow.tcp_src, flow.tcp_dst, flow.udp_src, flow.udp_dst];
        let Some(headers) = &self.headers else {
            return (flow.ip_proto, flow.ip_dscp, flow.ipv4_src, flow.ipv4_dst) == (None, None, None, None)
                && ports == [None; 4];
        };
        let flow_tuple = &headers.five_tuple;
        let is = |wanted: Option<u16>, proto: u8, port: u16| {
            wanted.is_none_or(|wanted| flow_tuple.proto() == proto && wanted == port)
        };
        flow.ip_proto.is_none_or(|proto| proto == flow_tuple.proto())
            && flow.ip_dscp.is_none_or(|dscp| dscp == headers.dscp)
            && under(flow.ipv4_src, flow_tuple.src())
            && under(flow.ipv4_dst, flow_tuple.dst())
            && is(flow.tcp_src, PROTO_TCP, flow_tuple.src_port())
            && is(flow.tcp_dst, PROTO_TCP, flow_tuple.dst_port())
            && is(flow.udp_src, PROTO_UDP, flow_tuple.src_port())
            && is(flow.udp_dst, PROTO_UDP, flow_tuple.dst_port())
    }
}

/// Whether an address is under this one and its mask.
fn under(wanted: Option<(Ipv4Addr, Ipv4Addr)>, address: Address) -> bool {
    wanted.is_none_or(|(value, mask)| {
        address.v4().is_some_and(|address| u32::from(address) & u32::from(mask) == u32::from(value))
    })
}

/// The IPv4 packet with these headers and without data (RFC 791 §3.1). Checksums are 0: nobody reads them.
fn ipv4(headers: &Headers) -> Vec<u8> {
    let tuple = &headers.five_tuple;
    let ports = [tuple.src_port().to_be_bytes(), tuple.dst_port().to_be_bytes()].concat();
    let transport = match tuple.proto() {
        PROTO_TCP => [&ports[..], &[0; 8], &[5 << 4, headers.tcp_flags], &[0; 6]].concat(),
        PROTO_UDP => [&ports[..], &[0, 8, 0, 0]].concat(),
        _ => ports,
    };
    let length = (20 + transport.len() as u16).to_be_bytes();
    let mut out = vec![0x45, headers.dscp << 2, length[0], length[1], 0, 0, 0, 0, 64, tuple.proto(), 0, 0];
    out.extend([tuple.src(), tuple.dst()].map(|address| address.low().to_be_bytes()).concat());
    out.extend(transport);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_model::FiveTuple;

    #[test]
    fn a_packet_keeps_its_headers_as_bytes() {
        for proto in [PROTO_TCP, PROTO_UDP] {
            let (src, dst) = ([10, 0, 0, 1].into(), [10, 0, 7, 1].into());
            let five_tuple = FiveTuple::new(proto, (src, 1000), (dst, 80));
            let tcp_flags = if proto == PROTO_TCP { 2 } else { 0 };
            let headers = Headers { dscp: 8, tcp_flags, tag: Some(7), ..Headers::plain(five_tuple) };
            let read = Frame::from_bytes(&Frame::packet(0, headers).to_bytes()).unwrap();
            assert_eq!((read.headers, read.tag, read.kind), (Some(headers), Some(7), ETH_IPV4));
            assert_eq!(read.tagged(None).headers.unwrap().tag, None);
        }
    }
}
