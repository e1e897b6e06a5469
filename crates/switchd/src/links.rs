//! Interfaces: which are up, and a socket to send by.

use pathloom_model::PortNo;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

const SEND_BUFFER_BYTES: libc::c_int = 1 << 24;
const EVENTS_BUFFER_BYTES: libc::c_int = 1 << 22;
const IFF_LOWER_UP: u32 = 1 << 16;
const MESSAGE_HEADER: usize = 16;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Moves this thread, which must be the only one, into a network namespace.
#[allow(unsafe_code)]
pub fn enter(namespace: &Path) -> io::Result<()> {
    let file = std::fs::File::open(namespace)?;
    // SAFETY: the descriptor is open, and the call touches no memory.
    check(unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) }).map(drop)
}

/// Nanoseconds of a clock of the system.
#[allow(unsafe_code)]
pub fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is written.
    unsafe { libc::clock_gettime(clock, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Number of an interface of this namespace; `None` if there is none of that name.
#[allow(unsafe_code)]
pub fn index_of(interface: &str) -> Option<u32> {
    let name = CString::new(interface).ok()?;
    // SAFETY: the name ends with a zero byte.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (index != 0).then_some(index)
}

/// A socket that sends whole frames and receives none.
#[derive(Debug)]
pub struct Sender {
    socket: OwnedFd,
}

impl Sender {
    #[allow(unsafe_code)]
    pub fn open() -> io::Result<Sender> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: the descriptor is owned at once.
        let socket = unsafe { OwnedFd::from_raw_fd(check(libc::socket(libc::AF_PACKET, kind, 0))?) };
        // One queue that is full must not keep frames from other ports.
        set_option(&socket, libc::SO_SNDBUFFORCE, SEND_BUFFER_BYTES)?;
        Ok(Sender { socket })
    }

    #[allow(unsafe_code)]
    pub fn send(&self, ifindex: u32, bytes: &[u8]) -> io::Result<()> {
        // SAFETY: all bytes of the structure may be 0.
        let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        to.sll_family = libc::AF_PACKET as u16;
        to.sll_ifindex = ifindex as i32;
        let kind = bytes.get(12..14).map_or(0, |kind| u16::from_ne_bytes([kind[0], kind[1]]));
        to.sll_protocol = kind;
        let (data, length) = (bytes.as_ptr().cast(), bytes.len());
        let size = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the pointers are to values that live, with their lengths.
        let sent =
            unsafe { libc::sendto(self.socket.as_raw_fd(), data, length, 0, std::ptr::from_ref(&to).cast(), size) };
        if sent < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }
}

#[allow(unsafe_code)]
fn set_option(socket: &OwnedFd, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let size = size_of::<libc::c_int>() as libc::socklen_t;
    let value = std::ptr::from_ref(&value).cast();
    // SAFETY: the value has the size that is said.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, value, size) }).map(drop)
}

/// Tells which interfaces have a carrier.
#[derive(Debug)]
pub struct Links {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl Links {
    #[allow(unsafe_code)]
    pub fn open() -> io::Result<Links> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: the descriptor is owned at once.
        let socket = unsafe { OwnedFd::from_raw_fd(check(libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE))?) };
        set_option(&socket, libc::SO_RCVBUFFORCE, EVENTS_BUFFER_BYTES)?;
        // SAFETY: all bytes of the structure may be 0.
        let mut own: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        own.nl_family = libc::AF_NETLINK as u16;
        own.nl_groups = libc::RTMGRP_LINK as u32;
        let size = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        // SAFETY: the address has the size that is said.
        check(unsafe { libc::bind(socket.as_raw_fd(), std::ptr::from_ref(&own).cast(), size) })?;
        Ok(Links { socket, buffer: vec![0; 1 << 16] })
    }

    /// Asks for the state of all interfaces.
    #[allow(unsafe_code)]
    pub fn ask(&self) -> io::Result<()> {
        let mut request = Vec::with_capacity(32);
        request.extend(32_u32.to_ne_bytes());
        request.extend(libc::RTM_GETLINK.to_ne_bytes());
        request.extend(((libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16).to_ne_bytes());
        request.resize(32, 0);
        // SAFETY: the buffer lives and has this length.
        let sent = unsafe { libc::send(self.socket.as_raw_fd(), request.as_ptr().cast(), request.len(), 0) };
        if sent < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }

    /// Adds what has been said since: by number of the interface, whether it is up.
    ///
    /// # Errors
    /// Something may have been missed: ask again.
    #[allow(unsafe_code)]
    pub fn take(&mut self, into: &mut BTreeMap<u32, bool>) -> io::Result<()> {
        loop {
            let (data, room) = (self.buffer.as_mut_ptr().cast(), self.buffer.len());
            // SAFETY: the buffer has the length that is said.
            let got = unsafe { libc::recv(self.socket.as_raw_fd(), data, room, 0) };
            if got < 0 {
                let problem = io::Error::last_os_error();
                return if problem.kind() == io::ErrorKind::WouldBlock { Ok(()) } else { Err(problem) };
            }
            read_links(&self.buffer[..got as usize], into);
        }
    }
}

impl AsRawFd for Links {
    fn as_raw_fd(&self) -> i32 {
        self.socket.as_raw_fd()
    }
}

/// Reads messages about interfaces (rtnetlink(7)).
fn read_links(mut bytes: &[u8], into: &mut BTreeMap<u32, bool>) {
    let word =
        |bytes: &[u8], at: usize| bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map(u32::from_ne_bytes);
    while let (Some(length), Some(kind)) = (word(bytes, 0), bytes.get(4..6)) {
        let kind = u16::from_ne_bytes([kind[0], kind[1]]);
        let (index, flags) = (word(bytes, MESSAGE_HEADER + 4), word(bytes, MESSAGE_HEADER + 8));
        if let (Some(index), Some(flags)) = (index, flags) {
            match kind {
                libc::RTM_NEWLINK => drop(into.insert(index, flags & IFF_LOWER_UP != 0 && flags & 1 != 0)),
                libc::RTM_DELLINK => drop(into.insert(index, false)),
                _ => {}
            }
        }
        let next = (length as usize).max(MESSAGE_HEADER).next_multiple_of(4);
        bytes = bytes.get(next..).unwrap_or_default();
    }
}

/// Ports and their interfaces.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    pub index_of: BTreeMap<PortNo, u32>,
    pub port_of: BTreeMap<u32, PortNo>,
}

impl Numbers {
    /// A port has this interface from now on.
    pub fn set(&mut self, port: PortNo, index: u32) {
        if let Some(before) = self.index_of.insert(port, index) {
            self.port_of.remove(&before);
        }
        self.port_of.insert(index, port);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, index: u32, flags: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(36_u32.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.resize(MESSAGE_HEADER + 4, 0);
        bytes.extend(index.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.resize(36, 0);
        bytes
    }

    #[test]
    fn a_port_is_up_if_it_is_wanted_and_has_a_carrier() {
        let both = IFF_LOWER_UP | 1;
        let rows = [(7, both, true), (8, 1, false), (9, IFF_LOWER_UP, false)];
        let mut bytes: Vec<u8> =
            rows.iter().flat_map(|&(index, flags, _)| message(libc::RTM_NEWLINK, index, flags)).collect();
        bytes.extend(message(libc::RTM_DELLINK, 10, both));
        bytes.extend(message(libc::RTM_NEWADDR, 11, both));
        let mut found = BTreeMap::new();
        read_links(&bytes, &mut found);
        assert_eq!(found, [(7, true), (8, false), (9, false), (10, false)].into());
    }

    #[test]
    fn messages_that_are_cut_off_are_no_messages() {
        let bytes = message(libc::RTM_NEWLINK, 7, 1);
        for cut in 0..MESSAGE_HEADER + 12 {
            let mut found = BTreeMap::new();
            read_links(&bytes[..cut], &mut found);
            assert!(found.is_empty(), "cut at {cut}");
        }
    }
}
