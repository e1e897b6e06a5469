//! Frames of no connection: their sizes on a link, their addresses, and their counts.

use crate::packet::Packet;
use pathloom_model::{Address, Arp, Body, Carried, Frame, Headers, Mac, NodeId, PathKind};
use pathloom_transport::{HEADER_BYTES, IPV6_MORE_BYTES};

/// A frame of no connection in the network.
pub(crate) struct Stored {
    pub(crate) frame: Frame,
    /// The packet of a connection that a switch has put into it.
    pub(crate) inner: Option<Packet>,
}

/// Bytes of the shortest Ethernet frame (IEEE 802.3 §3.2.8), without the check sequence: packets do not count it
/// either.
const SHORTEST: u64 = 60;
/// Bytes of an Ethernet header.
const ETHERNET: u64 = 14;
/// Bytes of a path message between its Ethernet header and the packet of a host that it carries
/// (docs/tcp-path-frames.md).
const PATH_HEADER: u64 = 40;
/// Bytes of an ARP packet (RFC 826).
const ARP: u64 = 28;
/// Bytes of a neighbour solicitation or advertisement with the address of its sender: the IPv6 header, the message and an option
/// (RFC 4861 §4.3, §4.4).
const NEIGHBOUR: u64 = 40 + 24 + 8;
/// Bytes by which a path message about IPv6 is longer: two addresses of 16 bytes in place of 4.
const PATH_IPV6: u64 = 24;

/// Bytes of a TCP segment without payload.
fn tcp_bytes(headers: &Headers) -> u64 {
    u64::from(HEADER_BYTES + if headers.five_tuple.is_v4() { 0 } else { IPV6_MORE_BYTES })
}

/// Bytes of an ARP packet, or of the message of neighbour discovery that takes its place.
fn arp_bytes(arp: &Arp) -> u64 {
    match arp.target_ip.is_v4() {
        true => ARP,
        false => NEIGHBOUR,
    }
}

/// Bytes of a frame of no connection on the wire.
pub(crate) fn wire_bytes(frame: &Frame, inner: Option<&Packet>) -> u64 {
    let ip = |headers: &Headers| inner.map_or(tcp_bytes(headers), Packet::wire) - ETHERNET;
    let bytes = match frame.body {
        Body::Ip(headers) => ETHERNET + ip(&headers),
        Body::Arp(arp) => ETHERNET + arp_bytes(&arp),
        Body::Hello(_) | Body::Other { .. } => SHORTEST,
        Body::Path(message) => {
            let carried = match message.carried {
                Carried::Nothing | Carried::Other { .. } => 0,
                Carried::Ip(headers) => ip(&headers),
                Carried::Arp(arp) => arp_bytes(&arp),
            };
            let addresses = if message.conversation.five_tuple.is_v4() { 0 } else { PATH_IPV6 };
            ETHERNET + PATH_HEADER + addresses + carried
        }
    };
    bytes.max(SHORTEST)
}

/// Ethernet address of the interface with an address: locally administered, and made from the last 32 bits of that address.
pub(crate) fn mac_of(address: Address) -> Mac {
    let [a, b, c, d] = address.low().to_be_bytes();
    Mac([2, 0, a, b, c, d])
}

/// Ethernet address of a switch.
pub(crate) fn switch_mac(node: NodeId) -> Mac {
    let [a, b, c, d] = node.0.to_be_bytes();
    Mac([2, 1, a, b, c, d])
}

/// Number of frames and of their bytes. A frame counts on every link that it is put on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crossings {
    /// Number of frames.
    pub frames: u64,
    /// Bytes of these frames.
    pub bytes: u64,
}

impl Crossings {
    fn add(&mut self, wire: u64) {
        self.frames += 1;
        self.bytes += wire;
    }
}

/// Counts of frames of no connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Frames that switches consumed: Hello, late copies, messages at their destination.
    pub(crate) used_up: u64,
    /// Messages of path protocols.
    pub(crate) exploration: Crossings,
    /// ARP packets outside messages of path protocols.
    pub(crate) arp: Crossings,
    pub(crate) hello: Crossings,
    /// Bytes of broadcast frames that ToRs received from other switches.
    pub(crate) broadcast_bytes: u64,
}

impl Counts {
    /// Counts a frame that was put on a link.
    pub(crate) fn sent(&mut self, frame: &Frame, wire: u64) {
        match frame.body {
            Body::Path(_) => self.exploration.add(wire),
            Body::Arp(_) => self.arp.add(wire),
            Body::Hello(_) => self.hello.add(wire),
            Body::Ip(_) | Body::Other { .. } => {}
        }
    }
}

/// Whether a frame is sent to all switches, in order to find one host.
pub(crate) fn is_broadcast(frame: &Frame) -> bool {
    match frame.body {
        Body::Path(message) => matches!(message.kind, PathKind::Request | PathKind::RecoveryRequest),
        Body::Hello(_) => false,
        _ => frame.dst.is_group(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_model::{Arp, Conversation, FiveTuple, Headers, PathMessage, PortNo};

    const HOST: Address = Address::new(10, 0, 0, 1);

    fn frame(body: Body) -> Frame {
        Frame { src: mac_of(HOST), dst: Mac::BROADCAST, body }
    }

    #[test]
    fn wire_bytes_counts_headers_padding_and_carried_packets() {
        let arp =
            Arp { request: true, sender_mac: mac_of(HOST), sender_ip: HOST, target_mac: Mac::ZERO, target_ip: HOST };
        let five_tuple = FiveTuple::new(6, (HOST, 1), (HOST, 2));
        let conversation = Conversation::of(mac_of(HOST), mac_of(HOST), five_tuple);
        let message = |carried| {
            let kind = PathKind::Request;
            frame(Body::Path(PathMessage { kind, conversation, exploration: 1, hops: 1, carried }))
        };
        assert_eq!(wire_bytes(&frame(Body::Arp(arp)), None), 60, "padded");
        assert_eq!(wire_bytes(&message(Carried::Nothing), None), 60, "padded");
        assert_eq!(wire_bytes(&message(Carried::Arp(arp)), None), 14 + 40 + 28);
        let syn = Packet::new(2, 0, 0, HEADER_BYTES as u16, 2);
        let carried = Carried::Ip(Headers::plain(five_tuple));
        assert_eq!(wire_bytes(&message(carried), Some(&syn)), 40 + u64::from(HEADER_BYTES), "one Ethernet header");
    }

    #[test]
    fn requests_and_group_addresses_are_broadcast() {
        let arp =
            |target_mac| Arp { request: true, sender_mac: mac_of(HOST), sender_ip: HOST, target_mac, target_ip: HOST };
        assert!(is_broadcast(&frame(Body::Arp(arp(Mac::ZERO)))));
        let answer = Frame { dst: mac_of(HOST), ..frame(Body::Arp(arp(mac_of(HOST)))) };
        assert!(!is_broadcast(&answer));
        let hello =
            pathloom_model::Hello { switch: switch_mac(NodeId(1)), port: PortNo(1), tier: None, boot: 1, heard: None };
        assert!(!is_broadcast(&frame(Body::Hello(hello))));
    }
}
