//! Ethernet frames as switch programs see them: values, no bytes. `pathloom_openflow::packet` reads and writes the bytes.

use crate::{FiveTuple, Headers, PortNo, Tier, PROTO_TCP};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::Ipv4Addr;

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// The broadcast address.
    pub const BROADCAST: Mac = Mac([0xff; 6]);
    /// No address.
    pub const ZERO: Mac = Mac([0; 6]);

    /// Whether it is a group or broadcast address, which cannot be a sender (IEEE 802-2014 §8.2.2).
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 == 1
    }

    /// Whether it can be the address of a sender.
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
    /// Sender. In frames between switches ([`Body::Hello`], [`Body::Path`]), the switch that sent this copy.
    pub src: Mac,
    /// Receiver; a group address in frames between switches.
    pub dst: Mac,
    /// What it carries.
    pub body: Body,
}

/// What a frame carries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Body {
    /// An IPv4 packet.
    Ip(Headers),
    /// An address resolution packet.
    Arp(Arp),
    /// A switch says that it is there.
    Hello(Hello),
    /// A message of a path protocol.
    Path(PathMessage),
    /// Anything else, forwarded by addresses alone.
    Other {
        /// EtherType.
        ether_type: u16,
    },
}

/// An ARP packet for IPv4 over Ethernet (RFC 826).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Arp {
    /// Whether it asks. If not, it answers.
    pub request: bool,
    /// Hardware address of the sender.
    pub sender_mac: Mac,
    /// Protocol address of the sender.
    pub sender_ip: Ipv4Addr,
    /// Hardware address of the target; zero in a request.
    pub target_mac: Mac,
    /// Protocol address of the target.
    pub target_ip: Ipv4Addr,
}

/// The periodic announcement of a switch (tcp-path.txt §III.A). Beyond the paper, it says which neighbour the switch hears on
/// the port, so that links that work in one direction alone are found, and which start of the program sent it, so that
/// a restart is noticed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Hello {
    /// The switch.
    pub switch: Mac,
    /// Port that it leaves by.
    pub port: PortNo,
    /// Tier of the switch, if it knows.
    pub tier: Option<Tier>,
    /// Number of this start of the switch's program; differs between two starts.
    pub boot: u64,
    /// Neighbour whose Hello the switch hears on the port, and the neighbour's port and boot.
    pub heard: Option<Heard>,
}

/// The neighbour that a switch hears.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Heard {
    /// The neighbour.
    pub switch: Mac,
    /// Port of the neighbour.
    pub port: PortNo,
    /// Start of the neighbour's program.
    pub boot: u64,
}

/// What a path is for: a connection, or all traffic between two hosts if `five_tuple.proto` is 0. The source is the end
/// on whose side the exploration began.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Conversation {
    /// Ethernet address of the source.
    pub src: Mac,
    /// Ethernet address of the destination; the broadcast or a group address if the message carries a frame for all.
    pub dst: Mac,
    /// Addresses and ports from the source to the destination. Ports and `proto` are 0 for hosts.
    pub five_tuple: FiveTuple,
}

impl Conversation {
    /// The conversation of an IP frame from `src` to `dst`.
    pub fn of(src: Mac, dst: Mac, five_tuple: FiveTuple) -> Conversation {
        Conversation { src, dst, five_tuple }
    }

    /// All traffic between two hosts.
    pub fn hosts(src: Mac, dst: Mac, src_ip: Ipv4Addr, dst_ip: Ipv4Addr) -> Conversation {
        Conversation {
            src,
            dst,
            five_tuple: FiveTuple { src: src_ip, dst: dst_ip, proto: 0, src_port: 0, dst_port: 0 },
        }
    }

    /// Whether it is a TCP connection.
    pub fn is_connection(&self) -> bool {
        self.five_tuple.proto == PROTO_TCP
    }

    /// The conversation with source and destination exchanged.
    pub fn reverse(self) -> Conversation {
        Conversation { src: self.dst, dst: self.src, five_tuple: self.five_tuple.reverse() }
    }
}

/// A message of a path protocol: TCP-Path's five (tcp-path.txt §III.B and D), and with [`Conversation`]s of hosts the
/// same for ARP-Path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PathMessage {
    /// Which message.
    pub kind: PathKind,
    /// What the path is for.
    pub conversation: Conversation,
    /// Exploration it belongs to. Of two explorations for one source, the later has the higher number. In a Path Fail,
    /// 0 stands for any.
    pub exploration: u64,
    /// Switches that the message has left.
    pub hops: u8,
    /// The host's packet inside.
    pub carried: Carried,
}

/// The kinds of [`PathMessage`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PathKind {
    /// Explores all paths, with a SYN or a broadcast frame inside.
    Request,
    /// Confirms the path of a Request, with the SYN+ACK or ARP reply inside.
    Reply,
    /// Says that the path is broken; erases it on its way.
    Fail,
    /// Explores without a host's packet.
    RecoveryRequest,
    /// Confirms the path of a Recovery Request.
    RecoveryReply,
}

/// The host's packet inside a [`PathMessage`]. Its Ethernet addresses are those of the conversation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Carried {
    /// None.
    Nothing,
    /// An IPv4 packet.
    Ip(Headers),
    /// An ARP packet.
    Arp(Arp),
    /// Anything else that hosts broadcast.
    Other {
        /// EtherType.
        ether_type: u16,
    },
}

impl Carried {
    /// The body of a host's frame, for travelling inside a message. `None` for frames between switches.
    pub fn from_body(body: Body) -> Option<Carried> {
        match body {
            Body::Ip(headers) => Some(Carried::Ip(headers)),
            Body::Arp(arp) => Some(Carried::Arp(arp)),
            Body::Other { ether_type } => Some(Carried::Other { ether_type }),
            Body::Hello(_) | Body::Path(_) => None,
        }
    }

    /// The body of the frame that leaves the message again. `None` if there is none inside.
    pub fn into_body(self) -> Option<Body> {
        match self {
            Carried::Nothing => None,
            Carried::Ip(headers) => Some(Body::Ip(headers)),
            Carried::Arp(arp) => Some(Body::Arp(arp)),
            Carried::Other { ether_type } => Some(Body::Other { ether_type }),
        }
    }
}
