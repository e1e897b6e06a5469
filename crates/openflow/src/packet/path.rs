//! The frames of switch programs as bytes. Their layout is in `docs/tcp-path-frames.md`.

use super::{headers, Ethernet};
use crate::flow_match::{ETH_ARP, ETH_IPV4, ETH_VLAN};
use crate::wire::{Put, Reader};
use crate::ParseError;
use pathloom_model::{
    Address, Arp, Body, Carried, Conversation, FiveTuple, Frame, Heard, Hello, Mac, PathKind, PathMessage, PortNo, Tier,
};
use std::net::Ipv4Addr;

/// EtherType of path messages: IEEE 802's local experimental EtherType 1 (IEEE 802-2014 §9.2.4).
pub const ETH_PATH: u16 = 0x88b5;
/// EtherType of Hello: local experimental EtherType 2.
pub const ETH_HELLO: u16 = 0x88b6;
/// Version of both kinds of frame.
pub const PATH_VERSION: u8 = 1;
/// Bytes of a path message before the packet inside it.
pub const PATH_HEADER_BYTES: usize = 40;
/// Bytes of a Hello.
pub const HELLO_BYTES: usize = 40;

/// Padding that extends a frame without a packet to the minimum Ethernet size of 60 bytes.
const MOST_PADDING: usize = 6;

/// Values for the contents of a path message.
const NOTHING: u8 = 0;
const PACKET: u8 = 1;

/// A frame, and the bytes of the host's packet in it: the payload of a host's frame, or the packet inside a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadFrame<'a> {
    /// The frame.
    pub frame: Frame,
    /// The packet, from after its EtherType. Empty if there is none.
    pub packet: &'a [u8],
}

/// Parses a frame. Hellos and messages must be complete. For a host's packet, the headers are enough.
///
/// # Errors
/// The frame ends too early, has an unknown version, or has an undefined value.
pub fn read(bytes: &[u8]) -> Result<ReadFrame<'_>, ParseError> {
    let ethernet = Ethernet::parse(bytes)?;
    let (src, dst) = (Mac(ethernet.src), Mac(ethernet.dst));
    let (body, packet) = match (ethernet.kind, ethernet.vlan) {
        (ETH_HELLO, None) => (Body::Hello(hello(ethernet.payload)?), &[][..]),
        (ETH_PATH, None) => {
            let (message, packet) = message(ethernet.payload)?;
            (Body::Path(message), packet)
        }
        (ETH_IPV4, _) | (_, None) => (host_body(&ethernet)?, ethernet.payload),
        // Another frame with a tag: its payload begins with the tag.
        (_, Some(_)) => (Body::Other { ether_type: ETH_VLAN }, bytes.get(14..).unwrap_or_default()),
    };
    Ok(ReadFrame { frame: Frame { src, dst, body }, packet })
}

fn host_body(ethernet: &Ethernet<'_>) -> Result<Body, ParseError> {
    Ok(match ethernet.kind {
        ETH_IPV4 => headers(ethernet)?.map_or(Body::Other { ether_type: ethernet.kind }, Body::Ip),
        ETH_ARP if ethernet.vlan.is_none() => {
            arp(ethernet.payload)?.map_or(Body::Other { ether_type: ETH_ARP }, Body::Arp)
        }
        ether_type => Body::Other { ether_type },
    })
}

/// Parses an ARP packet for IPv4 over Ethernet; `None` for other packets (RFC 826).
fn arp(bytes: &[u8]) -> Result<Option<Arp>, ParseError> {
    let mut reader = Reader::new("an ARP packet", bytes);
    let kinds = (reader.u16()?, reader.u16()?, reader.u8()?, reader.u8()?);
    let operation = reader.u16()?;
    if kinds != (1, ETH_IPV4, 6, 4) || !matches!(operation, 1 | 2) {
        return Ok(None);
    }
    let (sender_mac, sender_ip) = (Mac(reader.array()?), reader.array::<4>()?.into());
    let (target_mac, target_ip) = (Mac(reader.array()?), reader.array::<4>()?.into());
    Ok(Some(Arp { request: operation == 1, sender_mac, sender_ip, target_mac, target_ip }))
}

/// The bytes of an IPv4 address. Frames have no field for IPv6, and [`read`] returns none: its address would be 0.0.0.0, which is
/// no host's.
fn octets(address: Address) -> [u8; 4] {
    address.v4().unwrap_or(Ipv4Addr::UNSPECIFIED).octets()
}

/// Appends an ARP packet.
fn put_arp(out: &mut Vec<u8>, arp: &Arp) {
    out.put_u16(1);
    out.put_u16(ETH_IPV4);
    out.put(&[6, 4]);
    out.put_u16(if arp.request { 1 } else { 2 });
    out.put(&arp.sender_mac.0);
    out.put(&octets(arp.sender_ip));
    out.put(&arp.target_mac.0);
    out.put(&octets(arp.target_ip));
}

fn version(reader: &mut Reader<'_>) -> Result<(), ParseError> {
    match reader.u8()? {
        PATH_VERSION => Ok(()),
        found => Err(ParseError::PathVersion { found }),
    }
}

fn tier(byte: u8) -> Result<Option<Tier>, ParseError> {
    Ok(match byte {
        0 => None,
        1 => Some(Tier::Tor),
        2 => Some(Tier::Aggregation),
        3 => Some(Tier::Core),
        _ => return Err(ParseError::Value { what: "the tier in a Hello", found: byte.into() }),
    })
}

fn tier_byte(tier: Option<Tier>) -> u8 {
    match tier {
        None | Some(Tier::Host) => 0,
        Some(Tier::Tor) => 1,
        Some(Tier::Aggregation) => 2,
        Some(Tier::Core) => 3,
    }
}

fn hello(bytes: &[u8]) -> Result<Hello, ParseError> {
    let mut reader = Reader::new("a Hello", bytes);
    version(&mut reader)?;
    let tier = tier(reader.u8()?)?;
    let has_heard = reader.u16()?;
    let place = |reader: &mut Reader<'_>| -> Result<Heard, ParseError> {
        Ok(Heard { switch: Mac(reader.array()?), port: PortNo(reader.u32()?), boot: reader.u64()? })
    };
    let own = place(&mut reader)?;
    let heard = place(&mut reader)?;
    let heard = match has_heard {
        0 => None,
        1 => Some(heard),
        found => return Err(ParseError::Value { what: "the flags of a Hello", found: found.into() }),
    };
    Ok(Hello { switch: own.switch, port: own.port, tier, boot: own.boot, heard })
}

fn put_hello(out: &mut Vec<u8>, hello: &Hello) {
    out.put(&[PATH_VERSION, tier_byte(hello.tier)]);
    out.put_u16(u16::from(hello.heard.is_some()));
    let none = Heard { switch: Mac::ZERO, port: PortNo(0), boot: 0 };
    let own = Heard { switch: hello.switch, port: hello.port, boot: hello.boot };
    for place in [own, hello.heard.unwrap_or(none)] {
        out.put(&place.switch.0);
        out.put_u32(place.port.0);
        out.put_u64(place.boot);
    }
    // The minimum payload of Ethernet is 46 bytes.
    out.put_zeros(MOST_PADDING);
}

const KINDS: [PathKind; 7] = [
    PathKind::Request,
    PathKind::Reply,
    PathKind::Fail,
    PathKind::RecoveryRequest,
    PathKind::RecoveryReply,
    PathKind::Gone,
    PathKind::Check,
];

/// Parses a message, and returns the packet inside it.
fn message(bytes: &[u8]) -> Result<(PathMessage, &[u8]), ParseError> {
    let mut reader = Reader::new("a path message", bytes);
    version(&mut reader)?;
    let kind = reader.u8()?;
    let kind = *usize::from(kind)
        .checked_sub(1)
        .and_then(|index| KINDS.get(index))
        .ok_or(ParseError::Value { what: "the kind of a path message", found: kind.into() })?;
    let (hops, inside, ether_type) = (reader.u8()?, reader.u8()?, reader.u16()?);
    let exploration = reader.u64()?;
    let (src, dst) = (Mac(reader.array()?), Mac(reader.array()?));
    let (src_ip, dst_ip) = (reader.array::<4>()?.into(), reader.array::<4>()?.into());
    let (src_port, dst_port) = (reader.u16()?, reader.u16()?);
    let five_tuple = FiveTuple::new(reader.u8()?, (src_ip, src_port), (dst_ip, dst_port));
    reader.skip(1)?;
    let packet = reader.rest();
    let conversation = Conversation { src, dst, five_tuple };
    let (carried, packet) = match (inside, ether_type) {
        // The remaining bytes are padding.
        (NOTHING, 0) => (Carried::Nothing, &[][..]),
        (PACKET, ETH_PATH | ETH_HELLO) => {
            return Err(ParseError::Value { what: "the EtherType inside a path message", found: ether_type.into() })
        }
        (PACKET, _) => {
            let inner = Ethernet { dst: dst.0, src: src.0, vlan: None, kind: ether_type, payload: packet };
            (Carried::from_body(host_body(&inner)?).unwrap_or(Carried::Nothing), packet)
        }
        (found, _) => return Err(ParseError::Value { what: "the contents of a path message", found: found.into() }),
    };
    Ok((PathMessage { kind, conversation, exploration, hops, carried }, packet))
}

fn put_message(out: &mut Vec<u8>, message: &PathMessage, packet: &[u8]) {
    let kind = KINDS.iter().position(|&kind| kind == message.kind).unwrap_or(0) as u8 + 1;
    let (inside, ether_type) = match message.carried {
        Carried::Nothing => (NOTHING, 0),
        Carried::Ip(_) => (PACKET, ETH_IPV4),
        Carried::Arp(_) => (PACKET, ETH_ARP),
        Carried::Other { ether_type } => (PACKET, ether_type),
    };
    out.put(&[PATH_VERSION, kind, message.hops, inside]);
    out.put_u16(ether_type);
    out.put_u64(message.exploration);
    let Conversation { src, dst, five_tuple } = message.conversation;
    out.put(&src.0);
    out.put(&dst.0);
    out.put(&octets(five_tuple.src()));
    out.put(&octets(five_tuple.dst()));
    out.put_u16(five_tuple.src_port());
    out.put_u16(five_tuple.dst_port());
    out.put(&[five_tuple.proto(), 0]);
    match message.carried {
        Carried::Nothing => out.put_zeros(MOST_PADDING),
        Carried::Arp(arp) if packet.is_empty() => put_arp(out, &arp),
        _ => out.put(packet),
    }
}

/// Appends a frame. `packet` contains the bytes of the host's packet in it, as [`read`] returned them. An ARP packet
/// without bytes is built from its fields.
pub fn emit(frame: &Frame, packet: &[u8], out: &mut Vec<u8>) {
    let (kind, vlan) = match frame.body {
        Body::Ip(headers) => (ETH_IPV4, headers.tag),
        Body::Arp(_) => (ETH_ARP, None),
        Body::Hello(_) => (ETH_HELLO, None),
        Body::Path(_) => (ETH_PATH, None),
        Body::Other { ether_type } => (ether_type, None),
    };
    Ethernet { dst: frame.dst.0, src: frame.src.0, vlan, kind, payload: &[] }.emit(out);
    match frame.body {
        Body::Hello(hello) => put_hello(out, &hello),
        Body::Path(message) => put_message(out, &message, packet),
        Body::Arp(arp) if packet.is_empty() => put_arp(out, &arp),
        _ => out.put(packet),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_model::{Headers, PROTO_TCP, TCP_SYN};
    use proptest::prelude::*;

    fn syn(tuple: FiveTuple) -> Vec<u8> {
        let builder = etherparse::PacketBuilder::ipv4(octets(tuple.src()), octets(tuple.dst()), 64);
        let mut out = Vec::new();
        builder.tcp(tuple.src_port(), tuple.dst_port(), 7, 1000).syn().write(&mut out, &[]).unwrap();
        out
    }

    fn any_mac() -> impl Strategy<Value = Mac> {
        any::<[u8; 6]>().prop_map(Mac)
    }

    fn any_tuple() -> impl Strategy<Value = FiveTuple> {
        any::<([u8; 4], [u8; 4], u16, u16)>().prop_map(|(src, dst, src_port, dst_port)| {
            FiveTuple::new(PROTO_TCP, (src.into(), src_port), (dst.into(), dst_port))
        })
    }

    fn any_arp() -> impl Strategy<Value = Arp> {
        (any::<bool>(), any_mac(), any::<[u8; 4]>(), any_mac(), any::<[u8; 4]>()).prop_map(
            |(request, sender_mac, sender_ip, target_mac, target_ip)| Arp {
                request,
                sender_mac,
                sender_ip: sender_ip.into(),
                target_mac,
                target_ip: target_ip.into(),
            },
        )
    }

    fn any_heard() -> impl Strategy<Value = Heard> {
        (any_mac(), any::<u32>(), any::<u64>()).prop_map(|(switch, port, boot)| Heard {
            switch,
            port: PortNo(port),
            boot,
        })
    }

    fn any_hello() -> impl Strategy<Value = Hello> {
        let tiers = proptest::sample::select(vec![None, Some(Tier::Tor), Some(Tier::Aggregation), Some(Tier::Core)]);
        (any_heard(), tiers, proptest::option::of(any_heard())).prop_map(|(own, tier, heard)| Hello {
            switch: own.switch,
            port: own.port,
            tier,
            boot: own.boot,
            heard,
        })
    }

    /// Generates a frame, and the bytes of the packet in it.
    fn any_frame() -> impl Strategy<Value = (Frame, Vec<u8>)> {
        let kinds = proptest::sample::select(KINDS.to_vec());
        let message = (kinds, any_tuple(), any_mac(), any_mac(), any::<(u64, u8, u8)>(), any_arp()).prop_map(
            |(kind, five_tuple, src, dst, (exploration, hops, inside), arp)| {
                let headers = Headers { tcp_flags: TCP_SYN, ..Headers::plain(five_tuple) };
                let (carried, packet) = match inside % 4 {
                    0 => (Carried::Nothing, Vec::new()),
                    1 => (Carried::Ip(headers), syn(five_tuple)),
                    2 => (Carried::Arp(arp), {
                        let mut bytes = Vec::new();
                        put_arp(&mut bytes, &arp);
                        bytes
                    }),
                    _ => (Carried::Other { ether_type: 0x86dd }, vec![inside; 50]),
                };
                let conversation = Conversation { src, dst, five_tuple };
                (Body::Path(PathMessage { kind, conversation, exploration, hops, carried }), packet)
            },
        );
        let packet = (any_tuple(), proptest::option::of(0u16..4096)).prop_map(|(tuple, tag)| {
            (Body::Ip(Headers { tcp_flags: TCP_SYN, tag, ..Headers::plain(tuple) }), syn(tuple))
        });
        let body = prop_oneof![
            message,
            packet,
            any_hello().prop_map(|hello| (Body::Hello(hello), Vec::new())),
            any_arp().prop_map(|arp| {
                let mut bytes = Vec::new();
                put_arp(&mut bytes, &arp);
                (Body::Arp(arp), bytes)
            }),
        ];
        (any_mac(), any_mac(), body).prop_map(|(src, dst, (body, packet))| (Frame { src, dst, body }, packet))
    }

    proptest! {
        #[test]
        fn frames_round_trip((frame, packet) in any_frame()) {
            let mut bytes = Vec::new();
            emit(&frame, &packet, &mut bytes);
            prop_assert_eq!(read(&bytes).unwrap(), ReadFrame { frame, packet: &packet });
            if !matches!(frame.body, Body::Arp(_) | Body::Ip(_)) {
                prop_assert!(bytes.len() >= 60, "the minimum frame size of Ethernet");
            }
        }

        #[test]
        fn padding_changes_nothing((frame, packet) in any_frame()) {
            let mut bytes = Vec::new();
            emit(&frame, &packet, &mut bytes);
            bytes.extend([0; 9]);
            prop_assert_eq!(read(&bytes).unwrap().frame, frame);
        }

        #[test]
        fn truncated_and_mutated_frames_are_errors_or_frames(
            (frame, packet) in any_frame(),
            cut in 0usize..150,
            changes in proptest::collection::vec((0usize..150, any::<u8>()), 0..4),
        ) {
            let mut bytes = Vec::new();
            emit(&frame, &packet, &mut bytes);
            for (place, value) in changes {
                if let Some(byte) = bytes.get_mut(place) {
                    *byte = value;
                }
            }
            bytes.truncate(bytes.len().saturating_sub(cut));
            if let Ok(found) = read(&bytes) {
                let mut again = Vec::new();
                emit(&found.frame, found.packet, &mut again);
                prop_assert_eq!(read(&again).unwrap().frame, found.frame);
            }
        }
    }

    #[test]
    fn frames_are_cut_at_every_byte() {
        let five_tuple = FiveTuple::new(PROTO_TCP, ([10, 0, 0, 1].into(), 5), ([10, 0, 1, 1].into(), 80));
        let conversation = Conversation::of(Mac([2; 6]), Mac([4; 6]), five_tuple);
        let carried = Carried::Ip(Headers { tcp_flags: TCP_SYN, ..Headers::plain(five_tuple) });
        let message = PathMessage { kind: PathKind::Request, conversation, exploration: 7, hops: 1, carried };
        let frame = Frame { src: Mac([6; 6]), dst: Mac([3; 6]), body: Body::Path(message) };
        let mut bytes = Vec::new();
        emit(&frame, &syn(five_tuple), &mut bytes);
        assert_eq!(bytes.len(), 14 + PATH_HEADER_BYTES + 40);
        for cut in 0..bytes.len() {
            assert!(read(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        let mut later = bytes.clone();
        later[14] = 2;
        assert_eq!(read(&later), Err(ParseError::PathVersion { found: 2 }));
        for (place, value) in [(15, 0), (15, 8), (17, 2), (17, 0), (18, 0x88), (14 + 1, 99)] {
            let mut wrong = bytes.clone();
            wrong[place] = value;
            if place == 18 {
                wrong[19] = 0xb5;
            }
            assert!(read(&wrong).is_err(), "byte {place} is {value}");
        }
    }

    #[test]
    fn a_tagged_frame_that_is_not_ip_keeps_its_tag() {
        for kind in [ETH_ARP, ETH_PATH, ETH_VLAN, 0] {
            let mut bytes = Vec::new();
            Ethernet { dst: [2; 6], src: [4; 6], vlan: Some(7), kind, payload: &[1; 50] }.emit(&mut bytes);
            let found = read(&bytes).unwrap();
            assert_eq!(found.frame.body, Body::Other { ether_type: ETH_VLAN });
            let mut again = Vec::new();
            emit(&found.frame, found.packet, &mut again);
            assert_eq!(again, bytes);
        }
    }

    #[test]
    fn an_arp_packet_is_made_from_its_fields() {
        let target_ip = [10, 0, 0, 2].into();
        let arp = Arp {
            request: true,
            sender_mac: Mac([2; 6]),
            sender_ip: [10, 0, 0, 1].into(),
            target_mac: Mac::ZERO,
            target_ip,
        };
        let frame = Frame { src: Mac([2; 6]), dst: Mac::BROADCAST, body: Body::Arp(arp) };
        let mut bytes = Vec::new();
        emit(&frame, &[], &mut bytes);
        assert_eq!(read(&bytes).unwrap().frame, frame);
        let parsed = etherparse::SlicedPacket::from_ethernet(&bytes).unwrap();
        assert!(matches!(parsed.net, Some(etherparse::NetSlice::Arp(arp)) if arp.sender_hw_addr() == [2; 6]));
    }
}
