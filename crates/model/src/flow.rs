//! The headers that identify a flow on the wire.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::Ipv4Addr;

/// IP protocol number of TCP.
pub const PROTO_TCP: u8 = 6;
/// IP protocol number of UDP.
pub const PROTO_UDP: u8 = 17;
/// TCP flag bits, as in RFC 9293 §3.1.
pub const TCP_FIN: u8 = 0x01;
/// See [`TCP_FIN`].
pub const TCP_SYN: u8 = 0x02;
/// See [`TCP_FIN`].
pub const TCP_RST: u8 = 0x04;
/// See [`TCP_FIN`].
pub const TCP_ACK: u8 = 0x10;
/// The DSCP value with which hosts label long flows (class selector 1, the "lower effort" class of RFC 3662).
pub const LONG_FLOW_DSCP: u8 = 8;

/// Source and destination address and port, and protocol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FiveTuple {
    src: Ipv4Addr,
    dst: Ipv4Addr,
    proto: u8,
    src_port: u16,
    dst_port: u16,
}

impl FiveTuple {
    /// Returns the five-tuple of packets of this IP protocol, from an address and port to another.
    pub fn new(proto: u8, (src, src_port): (Ipv4Addr, u16), (dst, dst_port): (Ipv4Addr, u16)) -> FiveTuple {
        FiveTuple { src, dst, proto, src_port, dst_port }
    }

    /// Returns the source address.
    #[inline]
    pub fn src(&self) -> Ipv4Addr {
        self.src
    }

    /// Returns the destination address.
    #[inline]
    pub fn dst(&self) -> Ipv4Addr {
        self.dst
    }

    /// Returns the IP protocol number.
    #[inline]
    pub fn proto(&self) -> u8 {
        self.proto
    }

    /// Returns the source port.
    #[inline]
    pub fn src_port(&self) -> u16 {
        self.src_port
    }

    /// Returns the destination port.
    #[inline]
    pub fn dst_port(&self) -> u16 {
        self.dst_port
    }

    /// Returns the five-tuple with this source address.
    pub fn with_src(self, src: Ipv4Addr) -> FiveTuple {
        FiveTuple { src, ..self }
    }

    /// Returns the five-tuple with this destination address.
    pub fn with_dst(self, dst: Ipv4Addr) -> FiveTuple {
        FiveTuple { dst, ..self }
    }

    /// Returns the five-tuple with this IP protocol number.
    pub fn with_proto(self, proto: u8) -> FiveTuple {
        FiveTuple { proto, ..self }
    }

    /// Returns the five-tuple with this source port.
    pub fn with_src_port(self, src_port: u16) -> FiveTuple {
        FiveTuple { src_port, ..self }
    }

    /// Returns the five-tuple with this destination port.
    pub fn with_dst_port(self, dst_port: u16) -> FiveTuple {
        FiveTuple { dst_port, ..self }
    }

    /// Returns the five-tuple of packets in the opposite direction.
    pub fn reverse(self) -> FiveTuple {
        FiveTuple { src: self.dst, dst: self.src, proto: self.proto, src_port: self.dst_port, dst_port: self.src_port }
    }

    /// Returns a well-mixed 32-bit hash, as a switch uses it to select a member of an ECMP group. `salt` belongs to
    /// the switch, so that two consecutive switches do not make the same choice. The mixing is the 64-bit finaliser
    /// of MurmurHash3. It is applied first to the addresses, then to protocol and ports.
    pub fn ecmp_hash(&self, salt: u64) -> u32 {
        let addresses = (u64::from(u32::from(self.src)) << 32) | u64::from(u32::from(self.dst));
        let rest = (u64::from(self.proto) << 32) | (u64::from(self.src_port) << 16) | u64::from(self.dst_port);
        let mixed = mix64(mix64(addresses ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15)) ^ rest);
        (mixed >> 32) as u32
    }
}

/// Hash of a flow's hash at a switch and of a packet's entropy. The lower 16 bits of the flow's hash and the lower 24
/// bits of the entropy count.
#[inline]
pub fn entropy_hash(flow_hash: u32, entropy: u32) -> u32 {
    (mix64(u64::from(flow_hash & 0xFFFF) << 32 | u64::from(entropy & 0xFF_FFFF)) >> 32) as u32
}

/// Finaliser of MurmurHash3: each input bit changes about half of the output bits.
fn mix64(mut x: u64) -> u64 {
    x ^= x >> 33;
    x = x.wrapping_mul(0xff51_afd7_ed55_8ccd);
    x ^= x >> 33;
    x = x.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ (x >> 33)
}

impl fmt::Debug for FiveTuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}>{}:{}/{}", self.src, self.src_port, self.dst, self.dst_port, self.proto)
    }
}

/// The fields of an MPTCP option that a controller can use (RFC 8684 §3.1, §3.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum MptcpOption {
    /// First subflow of a connection. The token is derived from the receiver's key, which comes with the SYN+ACK.
    Capable {
        /// Token of the connection; `None` in a SYN.
        token: Option<u32>,
    },
    /// A further subflow of the connection with this token.
    Join {
        /// Token of the connection.
        token: u32,
    },
}

/// The parsed headers of a frame, as far as switches and controllers read them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Headers {
    /// Addresses, protocol and ports.
    pub five_tuple: FiveTuple,
    /// Differentiated-services code point, 0..64.
    pub dscp: u8,
    /// TCP flag bits; 0 for other protocols.
    pub tcp_flags: u8,
    /// VLAN tag. It distinguishes the two versions of a route during a change.
    pub tag: Option<u16>,
    /// MPTCP option of a SYN or SYN+ACK, if there is one.
    pub mptcp: Option<MptcpOption>,
}

impl Headers {
    /// Returns the headers of a plain data segment of `five_tuple`.
    pub fn plain(five_tuple: FiveTuple) -> Headers {
        Headers { five_tuple, dscp: 0, tcp_flags: TCP_ACK, tag: None, mptcp: None }
    }
}
