//! Netlink (netlink(7)): a socket, and the messages and attributes in its datagrams.

use crate::system::check;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// A request that the kernel acknowledges.
pub const ACKNOWLEDGED: u16 = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
/// A request for all entries.
pub const DUMP: u16 = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
/// Flag in the type of an attribute whose value consists of attributes.
pub const NESTED: u16 = 0x8000;

const HEADER_BYTES: usize = 16;
const ATTRIBUTE_BYTES: usize = 4;
const TYPE_MASK: u16 = 0x3fff;
const SOL_NETLINK: libc::c_int = 270;
const NETLINK_ADD_MEMBERSHIP: libc::c_int = 1;

/// A netlink socket.
#[derive(Debug)]
pub struct Socket(OwnedFd);

impl Socket {
    /// Opens a socket of a protocol (`NETLINK_ROUTE`), for events of `groups`. `flags` can contain `SOCK_NONBLOCK`.
    #[allow(unsafe_code)]
    pub fn open(protocol: libc::c_int, flags: libc::c_int, groups: libc::c_int) -> io::Result<Socket> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | flags;
        // SAFETY: the descriptor gets an owner at once; all zeros are a valid address, which is read with its length.
        unsafe {
            let socket = OwnedFd::from_raw_fd(check(libc::socket(libc::AF_NETLINK, kind, protocol))?);
            // The kernel assigns a number to the socket. Without it, the kernel treats the socket as its own and
            // sends no events.
            let mut own: libc::sockaddr_nl = std::mem::zeroed();
            own.nl_family = libc::AF_NETLINK as libc::sa_family_t;
            own.nl_groups = groups as u32;
            let length = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
            check(libc::bind(socket.as_raw_fd(), std::ptr::from_ref(&own).cast(), length))?;
            Ok(Socket(socket))
        }
    }

    /// Sets the time-out for an answer.
    pub fn set_receive_timeout_s(&self, seconds: i64) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_RCVTIMEO, &libc::timeval { tv_sec: seconds, tv_usec: 0 })
    }

    /// Sets the size of the receive buffer, beyond the limit of the system.
    pub fn force_receive_buffer_bytes(&self, bytes: libc::c_int) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &bytes)
    }

    /// Joins a group, to receive its messages.
    pub fn join(&self, group: u32) -> io::Result<()> {
        self.set(SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group)
    }

    #[allow(unsafe_code)]
    fn set<T>(&self, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
        let length = size_of::<T>() as libc::socklen_t;
        let value = std::ptr::from_ref(value).cast();
        // SAFETY: the option is read from a value of the given length.
        check(unsafe { libc::setsockopt(self.0.as_raw_fd(), level, name, value, length) }).map(drop)
    }

    /// Sends a message.
    #[allow(unsafe_code)]
    pub fn send(&self, message: &[u8]) -> io::Result<()> {
        // SAFETY: the buffer is valid for its length.
        match unsafe { libc::send(self.0.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) } {
            0.. => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Receives a datagram. A datagram that is not from the kernel is returned as an empty one.
    #[allow(unsafe_code)]
    pub fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
        let mut length = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        // SAFETY: all zeros are a valid address; buffer and address are valid for their lengths.
        let (got, from) = unsafe {
            let mut from: libc::sockaddr_nl = std::mem::zeroed();
            let into = buffer.as_mut_ptr().cast();
            let address = std::ptr::from_mut(&mut from).cast();
            (libc::recvfrom(self.0.as_raw_fd(), into, buffer.len(), 0, address, &mut length), from)
        };
        if got < 0 {
            return Err(io::Error::last_os_error());
        }
        let is_kernel = from.nl_pid == 0;
        Ok(if is_kernel { buffer.get(..got as usize).unwrap_or_default() } else { &[] })
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
    let mut out = ((HEADER_BYTES + body.len()) as u32).to_ne_bytes().to_vec();
    out.extend(kind.to_ne_bytes());
    out.extend(flags.to_ne_bytes());
    out.extend(sequence.to_ne_bytes());
    out.extend([0; 4]);
    out.extend(body);
    out
}

/// Appends an attribute with a short value.
pub fn put(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    out.extend(((ATTRIBUTE_BYTES + value.len()) as u16).to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(value);
    out.resize(out.len().next_multiple_of(4), 0);
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
        match number32(self.body)? as i32 {
            0 => Some(Ok(())),
            number => Some(Err(number.wrapping_neg())),
        }
    }
}

/// Returns the messages of a datagram. Stops at a message whose length field exceeds the datagram.
pub fn messages(mut datagram: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let length = number32(datagram)? as usize;
        let body = datagram.get(HEADER_BYTES..length)?;
        let kind = number16(datagram.get(4..)?)?;
        let sequence = number32(datagram.get(8..)?)?;
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Message { kind, sequence, body })
    })
}

/// Returns the attributes with their types. Stops at an attribute whose length field exceeds the bytes.
pub fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(number16(rest)?);
        let kind = number16(rest.get(2..)?)?;
        let value = rest.get(ATTRIBUTE_BYTES..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind & TYPE_MASK, value))
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
            let whole = if cut < HEADER_BYTES + body.len() { 0 } else { 1 };
            assert_eq!(messages(&datagram[..cut]).count(), whole, "cut at {cut}");
        }
    }

    #[test]
    fn the_kernel_answers_a_request() {
        let socket = Socket::open(libc::NETLINK_ROUTE, 0, 0).unwrap();
        socket.set_receive_timeout_s(2).unwrap();
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
