//! Messages of generic netlink for MPTCP (linux/genetlink.h, linux/mptcp_pm.h): what the kernel tells about connections,
//! and what it is asked for. All bytes are those of messages; nothing here has a socket.

use std::net::{Ipv4Addr, SocketAddrV4};

/// Name of the family of messages.
pub const FAMILY: &str = "mptcp_pm";
/// Name of the group that events are sent to.
pub const EVENTS: &str = "mptcp_pm_events";
/// Type of messages about families themselves (GENL_ID_CTRL).
pub const CONTROL: u16 = 16;

const MESSAGE_BYTES: usize = 16;
const GENERIC_BYTES: usize = 4;
const ATTRIBUTE_BYTES: usize = 4;
const TYPE_MASK: u16 = 0x3fff;
const NESTED: u16 = 0x8000;
const REQUEST_AND_ACK: u16 = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
const GET_FAMILY: u8 = 3;
const VERSION: u8 = 1;
const SIGNAL: u32 = 1;

/// An end of a subflow, and the other one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Ends {
    /// The own end.
    pub local: SocketAddrV4,
    /// The other end.
    pub remote: SocketAddrV4,
}

/// What the kernel tells. `token` names the connection in its namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A connection may have more subflows from now on. `ends` are those of its first one.
    Established {
        /// The connection.
        token: u32,
        /// Whether this host has accepted it.
        accepted: bool,
        /// Of the first subflow.
        ends: Ends,
    },
    /// A connection is over.
    Closed {
        /// The connection.
        token: u32,
    },
    /// The other end has an address more.
    Announced {
        /// The connection.
        token: u32,
        /// Number that the other end gives it.
        id: u8,
        /// The address.
        address: Ipv4Addr,
        /// Its port, if that is another one than the connection's.
        port: Option<u16>,
    },
    /// The other end has an address less.
    Removed {
        /// The connection.
        token: u32,
        /// Number of the address.
        id: u8,
    },
    /// A subflow stands.
    SubflowEstablished {
        /// The connection.
        token: u32,
        /// Of the subflow.
        ends: Ends,
    },
    /// A subflow is over, or was never accepted.
    SubflowClosed {
        /// The connection.
        token: u32,
        /// Of the subflow.
        ends: Ends,
    },
}

/// What the kernel is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// One more subflow.
    Create {
        /// The connection.
        token: u32,
        /// The own address and its number. The kernel chooses the port.
        local: (u8, Ipv4Addr),
        /// The other end.
        remote: SocketAddrV4,
    },
    /// Tells the other end of an own address.
    Announce {
        /// The connection.
        token: u32,
        /// The address and its number.
        local: (u8, Ipv4Addr),
    },
}

/// One message of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message<'a> {
    /// Its type: a family's number, or one of netlink's own.
    pub kind: u16,
    /// Number of the request that it answers.
    pub sequence: u32,
    /// What stands behind the header.
    pub body: &'a [u8],
}

/// The messages of a datagram. A message that says it is longer than it is ends them.
pub fn messages(mut datagram: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let length = number32(datagram)? as usize;
        let body = datagram.get(MESSAGE_BYTES..length)?;
        let kind = number16(datagram.get(4..)?)?;
        let sequence = number32(datagram.get(8..)?)?;
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Message { kind, sequence, body })
    })
}

/// What the kernel answers to a request: `Ok` or a number of an error. `None` if this is no such message.
pub fn answer(message: &Message<'_>) -> Option<Result<(), i32>> {
    if i32::from(message.kind) != libc::NLMSG_ERROR {
        return None;
    }
    match number32(message.body)? as i32 {
        0 => Some(Ok(())),
        number => Some(Err(number.wrapping_neg())),
    }
}

/// Numbers of a family and of one of its groups.
pub fn family(body: &[u8], group: &str) -> Option<(u16, u32)> {
    let attributes = body.get(GENERIC_BYTES..)?;
    let number = number16(find(attributes, 1)?)?;
    let groups = find(attributes, 7)?;
    let of_group = |one: &[u8]| find(one, 1).and_then(|name| name.strip_suffix(b"\0")) == Some(group.as_bytes());
    let (_, found) = each(groups).find(|(_, one)| of_group(one))?;
    Some((number, number32(find(found, 2)?)?))
}

/// Reads an event. `None` for those that are of no use here, such as connections over IPv6.
pub fn event(body: &[u8]) -> Option<Event> {
    let command = *body.first()?;
    let attributes = body.get(GENERIC_BYTES..)?;
    let token = number32(find(attributes, 1)?)?;
    Some(match command {
        2 => {
            let accepted = find(attributes, 18).and_then(|value| value.first()).is_some_and(|&side| side != 0);
            Event::Established { token, accepted, ends: ends(attributes)? }
        }
        3 => Event::Closed { token },
        6 => {
            let port = find(attributes, 10).and_then(port).filter(|&port| port != 0);
            Event::Announced { token, id: byte(attributes, 4)?, address: address(find(attributes, 7)?)?, port }
        }
        7 => Event::Removed { token, id: byte(attributes, 4)? },
        10 => Event::SubflowEstablished { token, ends: ends(attributes)? },
        11 => Event::SubflowClosed { token, ends: ends(attributes)? },
        _ => return None,
    })
}

fn ends(attributes: &[u8]) -> Option<Ends> {
    let end = |at: u16, port_at: u16| {
        Some(SocketAddrV4::new(address(find(attributes, at)?)?, port(find(attributes, port_at)?)?))
    };
    Some(Ends { local: end(5, 9)?, remote: end(7, 10)? })
}

/// Asks for the numbers of a family by its name.
pub fn ask_family(name: &str, sequence: u32) -> Vec<u8> {
    let mut out = begin(CONTROL, sequence, GET_FAMILY);
    put(&mut out, 2, &[name.as_bytes(), b"\0"].concat());
    end(out)
}

impl Request {
    /// The message.
    pub fn emit(&self, family: u16, sequence: u32) -> Vec<u8> {
        let (command, token, (id, own)) = match *self {
            Request::Announce { token, local } => (8, token, local),
            Request::Create { token, local, .. } => (10, token, local),
        };
        let mut out = begin(family, sequence, command);
        put(&mut out, 4, &token.to_ne_bytes());
        let mut local = Vec::new();
        put(&mut local, 1, &(libc::AF_INET as u16).to_ne_bytes());
        put(&mut local, 3, &own.octets());
        put(&mut local, 2, &[id]);
        if let Request::Announce { .. } = self {
            put(&mut local, 6, &SIGNAL.to_ne_bytes());
        }
        put(&mut out, 1 | NESTED, &local);
        if let Request::Create { remote, .. } = self {
            let mut other = Vec::new();
            put(&mut other, 1, &(libc::AF_INET as u16).to_ne_bytes());
            put(&mut other, 3, &remote.ip().octets());
            put(&mut other, 5, &remote.port().to_ne_bytes());
            put(&mut out, 6 | NESTED, &other);
        }
        end(out)
    }

    /// The connection.
    pub fn token(&self) -> u32 {
        let (Request::Create { token, .. } | Request::Announce { token, .. }) = *self;
        token
    }
}

fn begin(kind: u16, sequence: u32, command: u8) -> Vec<u8> {
    let mut out = vec![0; 4];
    out.extend(kind.to_ne_bytes());
    out.extend(REQUEST_AND_ACK.to_ne_bytes());
    out.extend(sequence.to_ne_bytes());
    out.extend([0; 4]);
    out.extend([command, VERSION, 0, 0]);
    out
}

fn end(mut out: Vec<u8>) -> Vec<u8> {
    let length = out.len() as u32;
    out[..4].copy_from_slice(&length.to_ne_bytes());
    out
}

/// Appends an attribute; its value is of a few bytes.
fn put(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    out.extend(((ATTRIBUTE_BYTES + value.len()) as u16).to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// Attributes by type. One that says it is longer than it is ends them.
fn each(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(number16(rest)?);
        let kind = number16(rest.get(2..)?)?;
        let value = rest.get(ATTRIBUTE_BYTES..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind & TYPE_MASK, value))
    })
}

fn find(attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    each(attributes).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
}

fn byte(attributes: &[u8], wanted: u16) -> Option<u8> {
    find(attributes, wanted)?.first().copied()
}

fn number16(bytes: &[u8]) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.first_chunk()?))
}

fn number32(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.first_chunk()?))
}

/// Ports of events have the order of the network, those of requests the machine's.
fn port(bytes: &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.first_chunk()?))
}

fn address(bytes: &[u8]) -> Option<Ipv4Addr> {
    Some(Ipv4Addr::from(*bytes.first_chunk::<4>()?))
}
