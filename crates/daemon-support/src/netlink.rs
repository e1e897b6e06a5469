//! Netlink (netlink(7)): a socket, and the messages and attributes in its datagrams.

use netlink_packet_core::{DefaultNla, Emitable, ErrorBuffer, NetlinkBuffer, NetlinkHeader, NlasIterator};
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::sockopt::{set_socket_recv_buffer_size_force, set_socket_timeout, Timeout};
use rustix::net::{bind, recvfrom, send, socket_with, AddressFamily, RecvFlags, SendFlags, SocketType};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

pub use rustix::net::{Protocol, SocketFlags};

/// Interfaces, addresses and routes: protocol number 0 (`NETLINK_ROUTE`), which is no [`Protocol`].
pub const ROUTE: Option<Protocol> = None;
/// Families of generic netlink (`NETLINK_GENERIC`).
pub const GENERIC: Option<Protocol> = Some(netlink::GENERIC);
/// The list of sockets (`NETLINK_SOCK_DIAG`).
pub const SOCK_DIAG: Option<Protocol> = Some(netlink::SOCK_DIAG);

/// A request that the kernel acknowledges.
pub const ACKNOWLEDGED: u16 = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
/// A request for all entries.
pub const DUMP: u16 = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
/// Flag in the type of an attribute whose value consists of attributes.
pub const NESTED: u16 = libc::NLA_F_NESTED as u16;

/// Bytes of an attribute before its value.
const ATTRIBUTE_BYTES: usize = 4;

/// A netlink socket.
#[derive(Debug)]
pub struct Socket(OwnedFd);

impl Socket {
    /// Opens a socket of a protocol ([`ROUTE`]), for events of `groups`, a set of bits.
    pub fn open(protocol: Option<Protocol>, flags: SocketFlags, groups: u32) -> io::Result<Socket> {
        let flags = SocketFlags::CLOEXEC | flags;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
        // The kernel assigns a number to the socket. Without it, the kernel treats the socket as its own and sends no
        // events.
        bind(&socket, &SocketAddrNetlink::new(0, groups))?;
        Ok(Socket(socket))
    }

    /// Sets the time-out for an answer.
    pub fn set_receive_timeout(&self, after: Duration) -> io::Result<()> {
        Ok(set_socket_timeout(&self.0, Timeout::Recv, Some(after))?)
    }

    /// Sets the size of the receive buffer, beyond the limit of the system.
    pub fn force_receive_buffer_bytes(&self, bytes: usize) -> io::Result<()> {
        Ok(set_socket_recv_buffer_size_force(&self.0, bytes)?)
    }

    /// Joins a group, to receive its messages.
    #[allow(unsafe_code)]
    pub fn join(&self, group: u32) -> io::Result<()> {
        let (value, length) = (std::ptr::from_ref(&group).cast(), size_of::<u32>() as libc::socklen_t);
        let (socket, name) = (self.0.as_raw_fd(), libc::NETLINK_ADD_MEMBERSHIP);
        // SAFETY: the option is read from a value of the given length.
        match unsafe { libc::setsockopt(socket, libc::SOL_NETLINK, name, value, length) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Sends a message.
    pub fn send(&self, message: &[u8]) -> io::Result<()> {
        send(&self.0, message, SendFlags::empty())?;
        Ok(())
    }

    /// Receives a datagram. A datagram that is not from the kernel is returned as an empty one.
    pub fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
        let (got, _, from) = recvfrom(&self.0, &mut *buffer, RecvFlags::empty())?;
        let is_kernel = from.is_none_or(|from| SocketAddrNetlink::try_from(from).is_ok_and(|from| from.pid() == 0));
        Ok(if is_kernel { &buffer[..got] } else { &[] })
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Creates a message with this body. `kind` is the number of a family or of netlink itself. Answers repeat `sequence`.
pub fn message(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    (header.message_type, header.flags, header.sequence_number) = (kind, flags, sequence);
    header.length = (header.buffer_len() + body.len()) as u32;
    let mut out = vec![0; header.buffer_len()];
    header.emit(&mut out);
    out.extend(body);
    out
}

/// Appends an attribute with a short value.
pub fn put(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let (attribute, start) = (DefaultNla::new(kind, value.to_vec()), out.len());
    out.resize(start + attribute.buffer_len(), 0);
    attribute.emit(&mut out[start..]);
}

/// One message of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message<'a> {
    /// Type of the message: the number of a family or of netlink itself.
    pub kind: u16,
    /// Number of the request that the message answers.
    pub sequence: u32,
    /// Bytes after the header.
    pub body: &'a [u8],
}

impl Message<'_> {
    /// Returns the kernel's answer to a request: `Ok` or an error number. `None` if this message is not an answer.
    pub fn answer(&self) -> Option<Result<(), i32>> {
        if i32::from(self.kind) != libc::NLMSG_ERROR {
            return None;
        }
        let code = ErrorBuffer::new_checked(self.body).ok()?.code();
        Some(code.map_or(Ok(()), |code| Err(code.get().wrapping_neg())))
    }
}

/// Returns the messages of a datagram. Stops at a message whose length field exceeds the datagram.
pub fn messages(mut datagram: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let next = NetlinkBuffer::new_checked(datagram).ok()?;
        datagram = datagram.get((next.length() as usize).next_multiple_of(4)..).unwrap_or_default();
        Some(Message { kind: next.message_type(), sequence: next.sequence_number(), body: next.payload() })
    })
}

/// Returns the attributes with their types. Stops at an attribute whose length field exceeds the bytes.
pub fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    NlasIterator::new(bytes).map_while(|attribute| {
        let attribute = attribute.ok()?;
        let value = ATTRIBUTE_BYTES..usize::from(attribute.length());
        Some((attribute.kind(), &attribute.into_inner()[value]))
    })
}

/// Returns the value of the first attribute of a type.
pub fn find(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
}

/// Returns the number in the first two bytes, in the byte order of the machine.
pub fn number16(bytes: &[u8]) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.first_chunk()?))
}

/// Returns the number in the first four bytes, in the byte order of the machine.
pub fn number32(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_and_attributes_round_trip() {
        let mut body = Vec::new();
        put(&mut body, 3, b"odd");
        put(&mut body, 7 | NESTED, &5_u32.to_ne_bytes());
        let mut datagram = message(20, DUMP, 9, &body);
        datagram.extend(message(21, ACKNOWLEDGED, 10, &[]));
        let found: Vec<_> = messages(&datagram).collect();
        assert_eq!(found[0], Message { kind: 20, sequence: 9, body: &body });
        assert_eq!(found[1], Message { kind: 21, sequence: 10, body: &[] });
        assert_eq!(attributes(&body).collect::<Vec<_>>(), [(3, &b"odd"[..]), (7, &5_u32.to_ne_bytes()[..])]);
        assert_eq!((find(&body, 7).and_then(number32), find(&body, 8)), (Some(5), None));
        for cut in 0..datagram.len() {
            let whole = if cut < 16 + body.len() { 0 } else { 1 };
            assert_eq!(messages(&datagram[..cut]).count(), whole, "cut at {cut}");
        }
    }

    #[test]
    fn the_kernel_answers_a_request() {
        let socket = Socket::open(ROUTE, SocketFlags::empty(), 0).unwrap();
        socket.set_receive_timeout(Duration::from_secs(2)).unwrap();
        // No such interface.
        let mut body = vec![0; 16];
        body[4..8].copy_from_slice(&i32::MAX.to_ne_bytes());
        socket.send(&message(libc::RTM_GETLINK, ACKNOWLEDGED, 77, &body)).unwrap();
        let mut buffer = vec![0; 1 << 16];
        let datagram = socket.receive(&mut buffer).unwrap();
        let answer = messages(datagram).find(|message| message.sequence == 77).unwrap();
        assert_eq!(answer.answer(), Some(Err(libc::ENODEV)));
    }
}
