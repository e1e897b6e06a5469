//! Network interfaces: their carrier state, and a socket that sends frames.

use pathloom_daemon_support::netlink::{
    attributes, find, message, messages, number32, Message, Socket, SocketFlags, DUMP, ROUTE,
};
use pathloom_daemon_support::system;
use pathloom_model::PortNo;
use rustix::net::sockopt::set_socket_send_buffer_size_force;
use rustix::net::{socket_with, AddressFamily, SocketType};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

const SEND_BUFFER_BYTES: usize = 1 << 24;
const EVENTS_BUFFER_BYTES: usize = 1 << 22;
const IFF_LOWER_UP: u32 = 1 << 16;
/// Bytes of struct ifinfomsg (linux/rtnetlink.h).
const HEADER_BYTES: usize = 16;
/// The XDP programs of an interface (IFLA_XDP), and the part that says how one is attached (IFLA_XDP_ATTACHED), which is 0
/// without one (linux/if_link.h).
const XDP: u16 = 43;
const XDP_ATTACHED: u16 = 2;

/// Moves this thread into a network namespace. It must be the only thread of the process.
pub fn enter(namespace: &Path) -> io::Result<()> {
    system::enter(&std::fs::File::open(namespace)?)
}

/// Returns the index of an interface of this namespace. `None` if no interface has this name.
#[allow(unsafe_code)]
pub fn index_of(interface: &str) -> Option<u32> {
    let name = CString::new(interface).ok()?;
    // SAFETY: the name ends with a zero byte.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (index != 0).then_some(index)
}

/// Returns the name of an interface of this namespace. `None` if no interface has this index.
#[allow(unsafe_code)]
pub fn name_of(index: u32) -> Option<String> {
    let mut name = [0_u8; libc::IF_NAMESIZE];
    // SAFETY: the kernel writes at most that many bytes, with a zero byte at the end.
    let found = unsafe { libc::if_indextoname(index, name.as_mut_ptr().cast()) };
    let text = (!found.is_null()).then(|| CStr::from_bytes_until_nul(&name).ok())??;
    Some(text.to_string_lossy().into_owned())
}

/// A socket that sends whole frames and receives none.
#[derive(Debug)]
pub struct Sender {
    socket: OwnedFd,
}

impl Sender {
    pub fn open() -> io::Result<Sender> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
        // A full queue of one port must not block frames to other ports.
        set_socket_send_buffer_size_force(&socket, SEND_BUFFER_BYTES)?;
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
        // SAFETY: the pointers point to live values, and the lengths are those of the values.
        let sent =
            unsafe { libc::sendto(self.socket.as_raw_fd(), data, length, 0, std::ptr::from_ref(&to).cast(), size) };
        if sent < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }
}

/// What has happened to interfaces.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    /// Whether interfaces are up, by index.
    pub up: BTreeMap<u32, bool>,
    /// Interfaces of which a tc filter or a queueing discipline was deleted.
    pub stripped: BTreeSet<u32>,
    /// Whether interfaces have an XDP program, by index.
    pub xdp: BTreeMap<u32, bool>,
}

/// Watches which interfaces have carrier, and which lose tc filters.
#[derive(Debug)]
pub struct Links {
    socket: Socket,
    buffer: Vec<u8>,
}

impl Links {
    pub fn open() -> io::Result<Links> {
        let socket = Socket::open(ROUTE, SocketFlags::NONBLOCK, (libc::RTMGRP_LINK | libc::RTMGRP_TC) as u32)?;
        socket.force_receive_buffer_bytes(EVENTS_BUFFER_BYTES)?;
        Ok(Links { socket, buffer: vec![0; 1 << 16] })
    }

    /// Requests the state of all interfaces.
    pub fn ask(&self) -> io::Result<()> {
        self.socket.send(&message(libc::RTM_GETLINK, DUMP, 0, &[0; 16]))
    }

    /// Adds the changes that were received since the last call.
    ///
    /// # Errors
    /// Messages may have been lost. Call [`Links::ask`] again.
    pub fn take(&mut self, into: &mut Changes) -> io::Result<()> {
        loop {
            match self.socket.receive(&mut self.buffer) {
                Ok(datagram) => read_links(datagram, into),
                Err(problem) if problem.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(problem) => return Err(problem),
            }
        }
    }
}

impl AsRawFd for Links {
    fn as_raw_fd(&self) -> i32 {
        self.socket.as_raw_fd()
    }
}

/// Reads messages about interfaces (rtnetlink(7)).
fn read_links(datagram: &[u8], into: &mut Changes) {
    for Message { kind, body, .. } in messages(datagram) {
        let word = |at: usize| body.get(at..).and_then(number32);
        let (Some(index), Some(flags)) = (word(4), word(8)) else { continue };
        match kind {
            libc::RTM_NEWLINK => {
                into.up.insert(index, flags & IFF_LOWER_UP != 0 && flags & 1 != 0);
                into.xdp.extend(has_xdp(body).map(|has| (index, has)));
            }
            libc::RTM_DELLINK => drop(into.up.insert(index, false)),
            // The index is at the same place in struct tcmsg.
            libc::RTM_DELQDISC | libc::RTM_DELTFILTER => drop(into.stripped.insert(index)),
            _ => {}
        }
    }
}

/// Whether the interface of a message has an XDP program. `None` if the message does not say it.
fn has_xdp(body: &[u8]) -> Option<bool> {
    let (_, value) = attributes(body.get(HEADER_BYTES..)?).find(|&(kind, _)| kind == XDP)?;
    Some(*find(value, XDP_ATTACHED)?.first()? != 0)
}

/// Assignment of ports to the indices of their interfaces.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    pub index_of: BTreeMap<PortNo, u32>,
    pub port_of: BTreeMap<u32, PortNo>,
}

impl Numbers {
    /// Assigns an interface to a port.
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
    use pathloom_daemon_support::netlink::{put, NESTED};

    fn about(kind: u16, index: u32, flags: u32) -> Vec<u8> {
        let mut body = vec![0; 4];
        body.extend(index.to_ne_bytes());
        body.extend(flags.to_ne_bytes());
        body.resize(20, 0);
        message(kind, 0, 0, &body)
    }

    #[test]
    fn a_port_is_up_if_it_is_enabled_and_has_carrier() {
        let both = IFF_LOWER_UP | 1;
        let rows = [(7, both, true), (8, 1, false), (9, IFF_LOWER_UP, false)];
        let mut bytes: Vec<u8> =
            rows.iter().flat_map(|&(index, flags, _)| about(libc::RTM_NEWLINK, index, flags)).collect();
        bytes.extend(about(libc::RTM_DELLINK, 10, both));
        bytes.extend(about(libc::RTM_NEWADDR, 11, both));
        bytes.extend(about(libc::RTM_DELTFILTER, 12, 0));
        bytes.extend(about(libc::RTM_NEWTFILTER, 13, 0));
        let mut found = Changes::default();
        read_links(&bytes, &mut found);
        assert_eq!(found.up, [(7, true), (8, false), (9, false), (10, false)].into());
        assert_eq!(found.stripped, [12].into());
    }

    #[test]
    fn an_interface_tells_whether_it_has_an_xdp_program() {
        let told = |attached: Option<u8>| {
            let mut value = Vec::new();
            attached.into_iter().for_each(|attached| put(&mut value, XDP_ATTACHED, &[attached]));
            let mut body = about(libc::RTM_NEWLINK, 7, 1)[16..16 + HEADER_BYTES].to_vec();
            put(&mut body, 3, b"eth0\0");
            put(&mut body, XDP | NESTED, &value);
            let mut found = Changes::default();
            read_links(&message(libc::RTM_NEWLINK, 0, 0, &body), &mut found);
            assert_eq!(found.up, [(7, false)].into());
            found.xdp
        };
        assert_eq!([0, 1, 2].map(|attached| told(Some(attached))), [false, true, true].map(|has| [(7, has)].into()));
        assert_eq!(told(None), BTreeMap::new());
    }

    #[test]
    fn an_index_has_a_name_while_its_interface_exists() {
        assert_eq!(index_of("lo").and_then(name_of).as_deref(), Some("lo"));
        assert_eq!(name_of(u32::MAX), None);
    }

    #[test]
    fn truncated_messages_are_ignored() {
        let bytes = about(libc::RTM_NEWLINK, 7, 1);
        for cut in 0..28 {
            let mut found = Changes::default();
            read_links(&bytes[..cut], &mut found);
            assert_eq!(found, Changes::default(), "cut at {cut}");
        }
    }
}
