//! Reads the headers of a frame that switches and controllers use.

use super::mptcp::{find, JoinStep, Key, Keys, TcpOption};
use super::Ethernet;
use crate::flow_match::ETH_IPV4;
use crate::wire::Reader;
use crate::ParseError;
use pathloom_model::{FiveTuple, Headers, MptcpOption, PROTO_TCP, PROTO_UDP, TCP_ACK};

/// Returns the headers of an IPv4 frame; `None` for other frames. Ports are 0 for protocols without ports, and for
/// all but the first fragment. The frame can be truncated after its headers by a switch.
///
/// # Errors
/// The frame ends within its headers, or has an invalid length or version.
pub fn headers(frame: &Ethernet<'_>) -> Result<Option<Headers>, ParseError> {
    if frame.kind != ETH_IPV4 {
        return Ok(None);
    }
    let mut reader = Reader::new("an IPv4 header", frame.payload);
    let [version, service] = reader.array()?;
    if version >> 4 != 4 {
        return Err(ParseError::Value { what: "the version of an IPv4 header", found: u64::from(version >> 4) });
    }
    let length = usize::from(version & 15) * 4;
    if length < 20 {
        return Err(ParseError::Length { what: "an IPv4 header", said: length });
    }
    reader.skip(4)?;
    let fragment = reader.u16()? & 0x1fff;
    reader.skip(1)?;
    let proto = reader.u8()?;
    reader.skip(2)?;
    let (src, dst) = (reader.array::<4>()?.into(), reader.array::<4>()?.into());
    reader.skip(length - 20)?;
    let mut five_tuple = FiveTuple::new(proto, (src, 0), (dst, 0));
    let (mut tcp_flags, mut mptcp) = (0, None);
    if fragment == 0 && matches!(proto, PROTO_TCP | PROTO_UDP) {
        let mut reader = Reader::new("a transport header", reader.rest());
        five_tuple = five_tuple.with_src_port(reader.u16()?).with_dst_port(reader.u16()?);
        if proto == PROTO_TCP {
            (tcp_flags, mptcp) = tcp(&mut reader)?;
        }
    }
    Ok(Some(Headers { five_tuple, dscp: service >> 2, tcp_flags, tag: frame.vlan, mptcp }))
}

/// Reads flags and MPTCP option of a TCP header, starting after the ports.
fn tcp(reader: &mut Reader<'_>) -> Result<(u8, Option<MptcpOption>), ParseError> {
    reader.skip(8)?;
    let [offset, flags] = reader.array()?;
    let length = usize::from(offset >> 4) * 4;
    if length < 20 {
        return Err(ParseError::Length { what: "a TCP header", said: length });
    }
    reader.skip(6)?;
    // An option that a switch truncated, or that has a wrong length, is ignored.
    let rest = reader.rest();
    Ok((flags, mptcp(flags, &rest[..rest.len().min(length - 20)])))
}

/// Returns the MPTCP option that describes the connection to a controller (RFC 8684 §3.1, §3.2). The token of the
/// connection is derived from the receiver's key, which is in the SYN+ACK. (The key in a SYN of version 0 is that of
/// the sender.)
fn mptcp(flags: u8, options: &[u8]) -> Option<MptcpOption> {
    let receiver = |keys| match keys {
        Keys::Both { receiver, .. } => Some(receiver),
        Keys::Sender(key) if flags & TCP_ACK != 0 => Some(key),
        Keys::Sender(_) | Keys::None => None,
    };
    match find(options)?.ok()? {
        TcpOption::Capable { keys, .. } => Some(MptcpOption::Capable { token: receiver(keys).map(Key::token) }),
        TcpOption::Join { step: JoinStep::Syn { token, .. }, .. } => Some(MptcpOption::Join { token }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{PacketBuilder, TcpOptionElement};
    use pathloom_model::Address;
    use pathloom_model::TCP_SYN;

    fn segment(build: impl Fn(etherparse::PacketBuilderStep<etherparse::TcpHeader>) -> Vec<u8>) -> Vec<u8> {
        build(PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 1, 2], 64).tcp(1234, 80, 7, 1000))
    }

    #[test]
    fn headers_of_another_library_are_read() {
        let bytes = segment(|builder| {
            let mut out = Vec::new();
            let syn = builder.syn().options(&[TcpOptionElement::MaximumSegmentSize(1448)]).unwrap();
            syn.write(&mut out, b"data").unwrap();
            out
        });
        let found = headers(&Ethernet::parse(&bytes).unwrap()).unwrap().unwrap();
        let src = Address::new(10, 0, 0, 1);
        let dst = Address::new(10, 0, 1, 2);
        assert_eq!(found.five_tuple, FiveTuple::new(6, (src, 1234), (dst, 80)));
        assert_eq!((found.tcp_flags, found.tag, found.mptcp, found.dscp), (2, None, None, 0));
        for cut in 0..bytes.len() {
            let whole = cut >= 14 + 20 + 20;
            let read = Ethernet::parse(&bytes[..cut]).and_then(|frame| headers(&frame));
            assert_eq!(read.is_ok(), whole, "cut at {cut}");
        }
    }

    #[test]
    fn reads_tags_and_labels() {
        let mut bytes = Vec::new();
        let udp = PacketBuilder::ethernet2([2; 6], [4; 6]).single_vlan(etherparse::VlanId::try_new(7).unwrap());
        udp.ipv4([10, 0, 0, 1], [10, 0, 1, 2], 64).udp(5, 6).write(&mut bytes, b"x").unwrap();
        bytes[14 + 4 + 1] = 8 << 2;
        let found = headers(&Ethernet::parse(&bytes).unwrap()).unwrap().unwrap();
        assert_eq!((found.tag, found.dscp, found.five_tuple.proto(), found.five_tuple.dst_port()), (Some(7), 8, 17, 6));
    }

    #[test]
    fn finds_mptcp_among_other_options() {
        let join = [1, 1, 2, 4, 5, 180, 30, 12, 0x10, 3, 0xde, 0xad, 0xbe, 0xef, 9, 9, 9, 9];
        assert_eq!(mptcp(TCP_SYN, &join), Some(MptcpOption::Join { token: 0xdead_beef }));
        assert_eq!(mptcp(TCP_SYN, &[30, 4, 0x01, 0x81]), Some(MptcpOption::Capable { token: None }));
        assert_eq!(mptcp(TCP_SYN, &[30, 0, 0x01]), None);
        assert_eq!(mptcp(TCP_SYN, &[2, 200, 5]), None);
        let mut both = vec![30, 20, 0x01, 0x81];
        both.extend([1; 8]);
        both.extend([0, 0, 0, 0, 0, 0, 0, 42]);
        // printf '\0\0\0\0\0\0\0*' | sha256sum
        assert_eq!(mptcp(TCP_ACK, &both), Some(MptcpOption::Capable { token: Some(0xa6bb_133c) }));
    }
}
