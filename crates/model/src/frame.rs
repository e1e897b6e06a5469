//! Ethernet frames as values, as switch programs see them. `pathloom_openflow::packet` converts them to and from
//! bytes.

use crate::{Address, FiveTuple, Headers, PortNo, Tier, PROTO_TCP};
use serde::{Deserialize, Serialize};
use std::fmt;

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// The broadcast address.
    pub const BROADCAST: Mac = Mac([0xff; 6]);
    /// No address.
    pub const ZERO: Mac = Mac([0; 6]);

    /// Whether the address is a group or broadcast address, which cannot be a sender (IEEE 802-2014 §8.2.2).
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 == 1
    }

    /// Whether the address can be that of a sender.
    pub fn is_station(self) -> bool {
        !self.is_group() && self != Mac::ZERO
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// An Ethernet frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Frame {
    /// Sender. In frames between switches ([`Body::Hello`], [`Body::Path`]): the switch that sent this copy.
    pub src: Mac,
    /// Receiver; a group address in frames between switches.
    pub dst: Mac,
    /// Content of the frame.
    pub body: Body,
}

/// Content of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Body {
    /// An IPv4 packet.
    Ip(Headers),
    /// An address resolution packet.
    Arp(Arp),
    /// The periodic announcement of a switch.
    Hello(Hello),
    /// A message of a path protocol.
    Path(PathMessage),
    /// Any other content; the frame is forwarded by its addresses alone.
    Other {
        /// EtherType.
        ether_type: u16,
    },
}

/// An ARP packet for IPv4 over Ethernet (RFC 826). With IPv6 addresses, the question or answer of neighbour discovery (RFC 4861) that
/// takes its place; it goes to all hosts, as ARP does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Arp {
    /// Whether the packet is a request. If not, it is a reply.
    pub request: bool,
    /// Hardware address of the sender.
    pub sender_mac: Mac,
    /// Protocol address of the sender.
    pub sender_ip: Address,
    /// Hardware address of the target; zero in a request.
    pub target_mac: Mac,
    /// Protocol address of the target.
    pub target_ip: Address,
}

/// The periodic announcement of a switch (tcp-path.txt §III.A). Two fields are not in the paper. The neighbour that
/// the switch hears on the port reveals links that work in one direction only. The boot number of the sending program
/// reveals restarts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Hello {
    /// Switch that sends the announcement.
    pub switch: Mac,
    /// Port that the announcement leaves by.
    pub port: PortNo,
    /// Tier of the switch, if the switch knows it.
    pub tier: Option<Tier>,
    /// Boot number of the switch's program; it differs between two starts.
    pub boot: u64,
    /// Neighbour whose Hello the switch receives on the port, with the neighbour's port and boot number.
    pub heard: Option<Heard>,
}

/// The neighbour that a switch receives announcements from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Heard {
    /// The neighbour.
    pub switch: Mac,
    /// Port of the neighbour.
    pub port: PortNo,
    /// Boot number of the neighbour's program.
    pub boot: u64,
}

/// The traffic that a path is for: a connection, or all traffic between two hosts if `five_tuple.proto` is 0. The
/// source is the end where the exploration began.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Conversation {
    /// Ethernet address of the source.
    pub src: Mac,
    /// Ethernet address of the destination; the broadcast or a group address if the message carries such a frame.
    pub dst: Mac,
    /// Addresses and ports from the source to the destination. Ports and `proto` are 0 for all traffic of two hosts.
    pub five_tuple: FiveTuple,
}

impl Conversation {
    /// Returns the conversation of an IP frame from `src` to `dst`.
    pub fn of(src: Mac, dst: Mac, five_tuple: FiveTuple) -> Conversation {
        Conversation { src, dst, five_tuple }
    }

    /// Returns the conversation that covers all traffic between two hosts.
    pub fn hosts(src: Mac, dst: Mac, src_ip: Address, dst_ip: Address) -> Conversation {
        Conversation { src, dst, five_tuple: FiveTuple::new(0, (src_ip, 0), (dst_ip, 0)) }
    }

    /// Whether the conversation is a TCP connection.
    pub fn is_connection(&self) -> bool {
        self.five_tuple.proto() == PROTO_TCP
    }

    /// Returns the conversation with source and destination exchanged.
    pub fn reverse(self) -> Conversation {
        Conversation { src: self.dst, dst: self.src, five_tuple: self.five_tuple.reverse() }
    }
}

/// A message of a path protocol: the five messages of TCP-Path (tcp-path.txt §III.B and D), and two for hosts that move.
/// With [`Conversation`]s of hosts, ARP-Path uses the same messages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PathMessage {
    /// Kind of the message.
    pub kind: PathKind,
    /// Traffic that the path is for.
    pub conversation: Conversation,
    /// Exploration that the message belongs to. Of two explorations for one source, the later one has the higher
    /// number. In a Path Fail, 0 means any exploration.
    pub exploration: u64,
    /// Number of switches that the message has left.
    pub hops: u8,
    /// The host's packet inside the message.
    pub carried: Carried,
}

/// The kinds of [`PathMessage`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PathKind {
    /// Explores all paths, with a SYN or a broadcast frame inside.
    Request,
    /// Confirms the path of a Request, with the SYN+ACK or ARP reply inside.
    Reply,
    /// Reports that the path is broken, and erases the path on its way.
    Fail,
    /// Explores without a host's packet.
    RecoveryRequest,
    /// Confirms the path of a Recovery Request.
    RecoveryReply,
    /// Reports to all switches that a host has left its switch, and erases the ways to it. Not in the paper.
    Gone,
    /// Asks the switch of a host whether the host is still there, because frames with its address arrive elsewhere. Not
    /// in the paper.
    Check,
}

/// The host's packet inside a [`PathMessage`]. Its Ethernet addresses are those of the conversation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Carried {
    /// No packet.
    Nothing,
    /// An IPv4 packet.
    Ip(Headers),
    /// An ARP packet.
    Arp(Arp),
    /// Any other packet that hosts broadcast.
    Other {
        /// EtherType.
        ether_type: u16,
    },
}

impl Carried {
    /// Returns the body of a host's frame for transport inside a message. `None` for frames between switches.
    pub fn from_body(body: Body) -> Option<Carried> {
        match body {
            Body::Ip(headers) => Some(Carried::Ip(headers)),
            Body::Arp(arp) => Some(Carried::Arp(arp)),
            Body::Other { ether_type } => Some(Carried::Other { ether_type }),
            Body::Hello(_) | Body::Path(_) => None,
        }
    }

    /// Returns the body of the frame inside the message. `None` if there is none.
    pub fn into_body(self) -> Option<Body> {
        match self {
            Carried::Nothing => None,
            Carried::Ip(headers) => Some(Body::Ip(headers)),
            Carried::Arp(arp) => Some(Body::Arp(arp)),
            Carried::Other { ether_type } => Some(Body::Other { ether_type }),
        }
    }
}
