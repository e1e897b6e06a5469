//! Messages of generic netlink for MPTCP (linux/genetlink.h, linux/mptcp_pm.h): events of the kernel about connections,
//! and requests to the kernel. This module only reads and writes bytes and has no sockets.

use pathloom_daemon_support::netlink::{attributes, find, message, number16, number32, put, ACKNOWLEDGED, NESTED};
use std::net::{Ipv4Addr, SocketAddrV4};

/// Name of the netlink family.
pub const FAMILY: &str = "mptcp_pm";
/// Name of the multicast group of the events.
pub const EVENTS: &str = "mptcp_pm_events";
/// Type of messages about families themselves (GENL_ID_CTRL).
pub const CONTROL: u16 = 16;

const GENERIC_BYTES: usize = 4;
const GET_FAMILY: u8 = 3;
const VERSION: u8 = 1;
const SIGNAL: u32 = 1;
/// Flag of events about connections, since Linux 6.18 (MPTCP_PM_EV_FLAG_DENY_JOIN_ID0).
const DENY_JOIN_ID0: u16 = 1;

/// The two ends of a subflow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Ends {
    /// The end at this host.
    pub local: SocketAddrV4,
    /// The other end.
    pub remote: SocketAddrV4,
}

/// The reset with which the other end closed a subflow (MP_TCPRST, RFC 8684 §3.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reset {
    /// Its reason (§3.6); 0 says nothing.
    pub reason: u32,
    /// Whether the subflow may be opened again later.
    pub is_transient: bool,
}

/// An event of the kernel. `token` identifies the connection in its namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A connection is established and may have more subflows from now on.
    Established {
        /// The connection.
        token: u32,
        /// Whether this host has accepted the connection.
        accepted: bool,
        /// Whether the other end accepts no further subflows to the address and port of the first (flag C of
        /// MP_CAPABLE, RFC 8684 §3.1).
        is_first_only: bool,
        /// Ends of the first subflow.
        ends: Ends,
    },
    /// A connection has ended.
    Closed {
        /// The connection.
        token: u32,
    },
    /// The other end has announced an address.
    Announced {
        /// The connection.
        token: u32,
        /// Address identifier, chosen by the other end.
        id: u8,
        /// The address.
        address: Ipv4Addr,
        /// Port of the address, if it differs from that of the connection.
        port: Option<u16>,
    },
    /// The other end has withdrawn an address.
    Removed {
        /// The connection.
        token: u32,
        /// Address identifier.
        id: u8,
    },
    /// A subflow is established.
    SubflowEstablished {
        /// The connection.
        token: u32,
        /// Ends of the subflow.
        ends: Ends,
    },
    /// A subflow has ended, or was never accepted.
    SubflowClosed {
        /// The connection.
        token: u32,
        /// Ends of the subflow.
        ends: Ends,
        /// The reset of the other end, if it gave a reason.
        reset: Option<Reset>,
    },
}

/// A request to the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// Opens one more subflow.
    Create {
        /// The connection.
        token: u32,
        /// The own address and its identifier. The kernel chooses the port.
        local: (u8, Ipv4Addr),
        /// The other end.
        remote: SocketAddrV4,
    },
    /// Announces an own address to the other end.
    Announce {
        /// The connection.
        token: u32,
        /// The address and its identifier.
        local: (u8, Ipv4Addr),
    },
}

/// Reads the numbers of a family and of one of its groups.
pub fn family(body: &[u8], group: &str) -> Option<(u16, u32)> {
    let own = body.get(GENERIC_BYTES..)?;
    let number = number16(find(own, 1)?)?;
    let groups = find(own, 7)?;
    let of_group = |one: &[u8]| find(one, 1).and_then(|name| name.strip_suffix(b"\0")) == Some(group.as_bytes());
    let (_, found) = attributes(groups).find(|(_, one)| of_group(one))?;
    Some((number, number32(find(found, 2)?)?))
}

/// Reads an event. `None` for events that are not used, for example about connections over IPv6.
pub fn event(body: &[u8]) -> Option<Event> {
    let command = *body.first()?;
    let attributes = body.get(GENERIC_BYTES..)?;
    let token = number32(find(attributes, 1)?)?;
    Some(match command {
        2 => {
            let accepted = find(attributes, 18).and_then(|value| value.first()).is_some_and(|&side| side != 0);
            let flags = find(attributes, 13).and_then(number16).unwrap_or(0);
            Event::Established { token, accepted, is_first_only: flags & DENY_JOIN_ID0 != 0, ends: ends(attributes)? }
        }
        3 => Event::Closed { token },
        6 => {
            let port = find(attributes, 10).and_then(port).filter(|&port| port != 0);
            Event::Announced { token, id: byte(attributes, 4)?, address: address(find(attributes, 7)?)?, port }
        }
        7 => Event::Removed { token, id: byte(attributes, 4)? },
        10 => Event::SubflowEstablished { token, ends: ends(attributes)? },
        11 => Event::SubflowClosed { token, ends: ends(attributes)?, reset: reset(attributes) },
        _ => return None,
    })
}

fn reset(attributes: &[u8]) -> Option<Reset> {
    let number = |kind: u16| find(attributes, kind).and_then(number32);
    Some(Reset { reason: number(16)?, is_transient: number(17)? != 0 })
}

fn ends(attributes: &[u8]) -> Option<Ends> {
    let end = |at: u16, port_at: u16| {
        Some(SocketAddrV4::new(address(find(attributes, at)?)?, port(find(attributes, port_at)?)?))
    };
    Some(Ends { local: end(5, 9)?, remote: end(7, 10)? })
}

/// Returns the request for the numbers of a family with this name.
pub fn ask_family(name: &str, sequence: u32) -> Vec<u8> {
    let mut body = begin(GET_FAMILY);
    put(&mut body, 2, &[name.as_bytes(), b"\0"].concat());
    message(CONTROL, ACKNOWLEDGED, sequence, &body)
}

impl Request {
    /// Returns the message of the request.
    pub fn emit(&self, family: u16, sequence: u32) -> Vec<u8> {
        let (command, token, (id, own)) = match *self {
            Request::Announce { token, local } => (8, token, local),
            Request::Create { token, local, .. } => (10, token, local),
        };
        let mut body = begin(command);
        put(&mut body, 4, &token.to_ne_bytes());
        let mut local = Vec::new();
        put(&mut local, 1, &(libc::AF_INET as u16).to_ne_bytes());
        put(&mut local, 3, &own.octets());
        put(&mut local, 2, &[id]);
        if let Request::Announce { .. } = self {
            put(&mut local, 6, &SIGNAL.to_ne_bytes());
        }
        put(&mut body, 1 | NESTED, &local);
        if let Request::Create { remote, .. } = self {
            let mut other = Vec::new();
            put(&mut other, 1, &(libc::AF_INET as u16).to_ne_bytes());
            put(&mut other, 3, &remote.ip().octets());
            put(&mut other, 5, &remote.port().to_ne_bytes());
            put(&mut body, 6 | NESTED, &other);
        }
        message(family, ACKNOWLEDGED, sequence, &body)
    }

    /// Returns the token of the connection.
    pub fn token(&self) -> u32 {
        let (Request::Create { token, .. } | Request::Announce { token, .. }) = *self;
        token
    }
}

/// Returns the header of generic netlink (linux/genetlink.h).
fn begin(command: u8) -> Vec<u8> {
    vec![command, VERSION, 0, 0]
}

fn byte(attributes: &[u8], wanted: u16) -> Option<u8> {
    find(attributes, wanted)?.first().copied()
}

/// Reads a port of an event, which is in network byte order. Ports of requests have the byte order of the machine.
fn port(bytes: &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.first_chunk()?))
}

fn address(bytes: &[u8]) -> Option<Ipv4Addr> {
    Some(Ipv4Addr::from(*bytes.first_chunk::<4>()?))
}
