//! The headers that identify a flow on the wire.

use crate::{Address, GOLDEN};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};

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

/// The bits of a flow label (RFC 6437 §2).
const FLOW_LABEL_MASK: u32 = 0xF_FFFF;

/// Source and destination address and port, and protocol; of IPv6 also the flow label.
///
/// Both addresses are of one family in all packets. The flow label (RFC 6437) is that of the whole flow. It is 0 if the source
/// sets none, and always for IPv4. Labels that differ between the packets of a flow are entropies of packets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FiveTuple {
    src: Address,
    dst: Address,
    proto: u8,
    src_port: u16,
    dst_port: u16,
    #[serde(default, skip_serializing_if = "is_zero")]
    flow_label: u32,
}

fn is_zero(flow_label: &u32) -> bool {
    *flow_label == 0
}

impl FiveTuple {
    /// Returns the five-tuple of packets of this IP protocol, from an address and port to another.
    pub fn new(proto: u8, (src, src_port): (Address, u16), (dst, dst_port): (Address, u16)) -> FiveTuple {
        FiveTuple { src, dst, proto, src_port, dst_port, flow_label: 0 }
    }

    /// Returns the source address.
    #[inline]
    pub fn src(&self) -> Address {
        self.src
    }

    /// Returns the destination address.
    #[inline]
    pub fn dst(&self) -> Address {
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

    /// Returns the flow label of IPv6, 20 bits; 0 if there is none.
    #[inline]
    pub fn flow_label(&self) -> u32 {
        self.flow_label
    }

    /// Whether both addresses are of IPv4.
    #[inline]
    pub fn is_v4(&self) -> bool {
        self.src.is_v4() && self.dst.is_v4()
    }

    /// Returns source and destination of IPv4; `None` if one of them is of IPv6.
    pub fn v4(&self) -> Option<(Ipv4Addr, Ipv4Addr)> {
        Some((self.src.v4()?, self.dst.v4()?))
    }

    /// Returns the five-tuple with the lower 20 bits of this number as its flow label. IPv4 has none, and stays as it is.
    pub fn with_flow_label(self, flow_label: u32) -> FiveTuple {
        FiveTuple { flow_label: if self.is_v4() { 0 } else { flow_label & FLOW_LABEL_MASK }, ..self }
    }

    /// Returns the five-tuple with this source address.
    pub fn with_src(self, src: Address) -> FiveTuple {
        FiveTuple { src, ..self }
    }

    /// Returns the five-tuple with this destination address.
    pub fn with_dst(self, dst: Address) -> FiveTuple {
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

    /// Returns the five-tuple of packets in the opposite direction. They have the same flow label, as from hosts that reflect it
    /// (Linux: `net.ipv6.flowlabel_reflect`), so the reverse of the reverse is the five-tuple itself.
    pub fn reverse(self) -> FiveTuple {
        FiveTuple { src: self.dst, dst: self.src, src_port: self.dst_port, dst_port: self.src_port, ..self }
    }

    /// Returns 64 bits of the addresses and the flow label: both addresses of IPv4 one after the other, or a hash of all 276 bits
    /// of IPv6.
    #[inline]
    pub fn address_bits(&self) -> u64 {
        if self.is_v4() {
            u64::from(self.src.low()) << 32 | u64::from(self.dst.low())
        } else {
            self.hash_v6()
        }
    }

    #[cold]
    fn hash_v6(&self) -> u64 {
        let (src, dst) = (self.src.to_bits(), self.dst.to_bits());
        let words = [(src >> 64) as u64, src as u64, (dst >> 64) as u64, dst as u64];
        words.into_iter().fold(u64::from(self.flow_label), |hash, word| mix64(hash ^ word).wrapping_add(GOLDEN))
    }

    /// Returns a well-mixed 32-bit hash, as a switch uses it to select a member of an ECMP group. `salt` belongs to
    /// the switch, so that two consecutive switches do not make the same choice. The mixing is the 64-bit finaliser
    /// of MurmurHash3. It is applied first to the addresses, then to protocol and ports. The flow label of IPv6 counts beside the
    /// other fields (RFC 6438 §3).
    pub fn ecmp_hash(&self, salt: u64) -> u32 {
        let rest = (u64::from(self.proto) << 32) | (u64::from(self.src_port) << 16) | u64::from(self.dst_port);
        let mixed = mix64(mix64(self.address_bits() ^ salt.wrapping_mul(GOLDEN)) ^ rest);
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

/// IPv6 addresses are in brackets (RFC 5952 §6). A flow label, if there is one, is at the end.
impl fmt::Debug for FiveTuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [src, dst] = [(self.src, self.src_port), (self.dst, self.dst_port)]
            .map(|(address, port)| SocketAddr::new(address.ip(), port));
        write!(f, "{src}>{dst}/{}", self.proto)?;
        match self.flow_label {
            0 => Ok(()),
            label => write!(f, "#{label:05x}"),
        }
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
