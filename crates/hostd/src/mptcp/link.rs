//! The way to the kernel's MPTCP in one network namespace: a socket for events, and one for requests.

use super::wire::{self, Event, Request};
use crate::namespaces::Namespace;
use std::fs;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const SOL_NETLINK: libc::c_int = 270;
const NETLINK_ADD_MEMBERSHIP: libc::c_int = 1;
const NETLINK_GENERIC: libc::c_int = 16;
/// Room for events that wait: of a connection there are about as many as it has subflows, of some 150 bytes.
const EVENT_BUFFER_BYTES: libc::c_int = 8 << 20;
const DATAGRAM_BYTES: usize = 16 << 10;
const SETTING: &str = "/proc/sys/net/mptcp/pm_type";

/// Both sockets.
#[derive(Debug)]
pub struct Link {
    events: OwnedFd,
    requests: OwnedFd,
    family: u16,
    sequence: u32,
}

/// What reading events came to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Heard {
    /// The events.
    pub events: Vec<Event>,
    /// Whether the kernel had no room for some.
    pub lost: bool,
}

impl Link {
    /// Opens both. The error says what the namespace lacks.
    pub fn open(namespace: &Namespace) -> Result<Link, String> {
        let plain = |problem: io::Error| problem.to_string();
        namespace.inside(check_setting).map_err(plain)??;
        let (events, requests) =
            namespace.inside(|| Ok((open(libc::SOCK_NONBLOCK)?, open(0)?))).and_then(|opened| opened).map_err(plain)?;
        set(&requests, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &libc::timeval { tv_sec: 2, tv_usec: 0 }).map_err(plain)?;
        let mut link = Link { events, requests, family: wire::CONTROL, sequence: 0 };
        let (family, group) = link.find_family().map_err(|problem| format!("the kernel's MPTCP: {problem}"))?;
        link.family = family;
        // Without the right to force it, the kernel's limit applies.
        let _ = set(&link.events, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &EVENT_BUFFER_BYTES);
        set(&link.events, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &(group as libc::c_int))
            .map_err(|problem| format!("events of MPTCP: {problem}; run it as root"))?;
        Ok(link)
    }

    /// Descriptor that becomes readable when there are events.
    pub fn events_fd(&self) -> io::Result<OwnedFd> {
        self.events.try_clone()
    }

    /// Reads all events that wait.
    pub fn read_events(&self) -> io::Result<Heard> {
        let mut heard = Heard::default();
        let mut buffer = vec![0; DATAGRAM_BYTES];
        loop {
            match receive(&self.events, &mut buffer) {
                Ok(datagram) => {
                    let own = wire::messages(datagram).filter(|message| message.kind == self.family);
                    heard.events.extend(own.filter_map(|message| wire::event(message.body)));
                }
                Err(problem) => match problem.raw_os_error() {
                    Some(libc::ENOBUFS) => heard.lost = true,
                    Some(libc::EINTR) => {}
                    Some(libc::EAGAIN) => return Ok(heard),
                    _ => return Err(problem),
                },
            }
        }
    }

    /// Asks the kernel for something. The inner error is the number with which it refuses.
    pub fn ask(&mut self, request: &Request) -> io::Result<Result<(), i32>> {
        self.sequence = self.sequence.wrapping_add(1);
        let sequence = self.sequence;
        send(&self.requests, &request.emit(self.family, sequence))?;
        let mut buffer = vec![0; DATAGRAM_BYTES];
        loop {
            let datagram = receive(&self.requests, &mut buffer)?;
            let mut answers = wire::messages(datagram).filter(|message| message.sequence == sequence);
            if let Some(answer) = answers.find_map(|message| wire::answer(&message)) {
                return Ok(answer);
            }
        }
    }

    fn find_family(&mut self) -> io::Result<(u16, u32)> {
        self.sequence = self.sequence.wrapping_add(1);
        send(&self.requests, &wire::ask_family(wire::FAMILY, self.sequence))?;
        let mut found = None;
        let mut buffer = vec![0; DATAGRAM_BYTES];
        loop {
            let datagram = receive(&self.requests, &mut buffer)?;
            for message in wire::messages(datagram).filter(|message| message.sequence == self.sequence) {
                match wire::answer(&message) {
                    Some(Ok(())) => return found.ok_or_else(|| io::ErrorKind::NotFound.into()),
                    Some(Err(number)) => return Err(io::Error::from_raw_os_error(number)),
                    None => found = found.or(wire::family(message.body, wire::EVENTS)),
                }
            }
        }
    }
}

/// Whether path management is left to programs here.
fn check_setting() -> Result<(), String> {
    let way = "`sysctl -w net.mptcp.pm_type=1` leaves the subflows of new connections to the agent";
    match fs::read_to_string(SETTING) {
        Ok(text) if text.trim() == "1" => Ok(()),
        Ok(text) => Err(format!("net.mptcp.pm_type is {}; {way}", text.trim())),
        Err(problem) => Err(format!("the kernel has no MPTCP with path managers of its own ({SETTING}: {problem})")),
    }
}

#[allow(unsafe_code)]
fn open(flags: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: the descriptor is owned at once; all-zero bytes make the address, which is read for its length.
    unsafe {
        let number = libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC | flags, NETLINK_GENERIC);
        if number < 0 {
            return Err(io::Error::last_os_error());
        }
        let socket = OwnedFd::from_raw_fd(number);
        // The kernel gives it a number. Without one it takes the socket for its own, and sends it no events.
        let mut address: libc::sockaddr_nl = std::mem::zeroed();
        address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        let length = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        match libc::bind(number, std::ptr::from_ref(&address).cast(), length) {
            0 => Ok(socket),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[allow(unsafe_code)]
fn set<T>(socket: &OwnedFd, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the option is read from a value of the given length.
    match unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), length) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[allow(unsafe_code)]
fn send(socket: &OwnedFd, message: &[u8]) -> io::Result<()> {
    // SAFETY: the buffer is valid for its length.
    match unsafe { libc::send(socket.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) } {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Receives a datagram. One that is not the kernel's is taken for an empty one.
#[allow(unsafe_code)]
fn receive<'a>(socket: &OwnedFd, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
    let mut length = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
    // SAFETY: all-zero bytes make the address; buffer and address are valid for their lengths.
    let (got, from) = unsafe {
        let mut from: libc::sockaddr_nl = std::mem::zeroed();
        let into = buffer.as_mut_ptr().cast();
        let address = std::ptr::from_mut(&mut from).cast();
        (libc::recvfrom(socket.as_raw_fd(), into, buffer.len(), 0, address, &mut length), from)
    };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    let is_kernel = from.nl_pid == 0;
    Ok(if is_kernel { buffer.get(..got as usize).unwrap_or_default() } else { &[] })
}
