//! Sockets to the kernel's MPTCP in one network namespace: one for events, and one for requests.

use super::wire::{self, Event, Request};
use crate::namespaces::Namespace;
use pathloom_daemon_support::netlink::{messages, Socket, SocketFlags, GENERIC};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Buffer size for waiting events. A connection causes about as many events as it has subflows, of about 150 bytes
/// each.
const EVENT_BUFFER_BYTES: usize = 8 << 20;
const DATAGRAM_BYTES: usize = 16 << 10;
const SETTING: &str = "/proc/sys/net/mptcp/pm_type";

/// The sockets for events and requests.
#[derive(Debug)]
pub struct Link {
    events: Socket,
    requests: Socket,
    family: u16,
    sequence: u32,
}

/// Result of reading events.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Heard {
    /// The events.
    pub events: Vec<Event>,
    /// Whether events were lost because the buffer was full.
    pub lost: bool,
}

impl Link {
    /// Opens both sockets. The error tells what is missing in the namespace.
    pub fn open(namespace: &Namespace) -> Result<Link, String> {
        let plain = |problem: io::Error| problem.to_string();
        let open = |flags| Socket::open(GENERIC, flags, 0);
        namespace.inside(check_setting).map_err(plain)??;
        let (events, requests) = namespace
            .inside(|| Ok((open(SocketFlags::NONBLOCK)?, open(SocketFlags::empty())?)))
            .and_then(|opened| opened)
            .map_err(plain)?;
        requests.set_receive_timeout(Duration::from_secs(2)).map_err(plain)?;
        let mut link = Link { events, requests, family: wire::CONTROL, sequence: 0 };
        let (family, group) = link.find_family().map_err(|problem| format!("the kernel's MPTCP: {problem}"))?;
        link.family = family;
        // Without the necessary privilege, the kernel's limit applies.
        let _ = link.events.force_receive_buffer_bytes(EVENT_BUFFER_BYTES);
        link.events.join(group).map_err(|problem| format!("MPTCP events: {problem}; run the agent as root"))?;
        Ok(link)
    }

    /// Descriptor that becomes readable when there are events.
    pub fn events_fd(&self) -> io::Result<OwnedFd> {
        self.events.as_fd().try_clone_to_owned()
    }

    /// Reads all waiting events.
    pub fn read_events(&self) -> io::Result<Heard> {
        let mut heard = Heard::default();
        let mut buffer = vec![0; DATAGRAM_BYTES];
        loop {
            match self.events.receive(&mut buffer) {
                Ok(datagram) => {
                    let own = messages(datagram).filter(|message| message.kind == self.family);
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

    /// Sends a request to the kernel and waits for the answer. The inner error is the kernel's error number.
    pub fn ask(&mut self, request: &Request) -> io::Result<Result<(), i32>> {
        self.sequence = self.sequence.wrapping_add(1);
        let sequence = self.sequence;
        self.requests.send(&request.emit(self.family, sequence))?;
        let mut buffer = vec![0; DATAGRAM_BYTES];
        loop {
            let datagram = self.requests.receive(&mut buffer)?;
            let mut answers = messages(datagram).filter(|message| message.sequence == sequence);
            if let Some(answer) = answers.find_map(|message| message.answer()) {
                return Ok(answer);
            }
        }
    }

    fn find_family(&mut self) -> io::Result<(u16, u32)> {
        self.sequence = self.sequence.wrapping_add(1);
        self.requests.send(&wire::ask_family(wire::FAMILY, self.sequence))?;
        let mut found = None;
        let mut buffer = vec![0; DATAGRAM_BYTES];
        loop {
            let datagram = self.requests.receive(&mut buffer)?;
            for message in messages(datagram).filter(|message| message.sequence == self.sequence) {
                match message.answer() {
                    Some(Ok(())) => return found.ok_or_else(|| io::ErrorKind::NotFound.into()),
                    Some(Err(number)) => return Err(io::Error::from_raw_os_error(number)),
                    None => found = found.or(wire::family(message.body, wire::EVENTS)),
                }
            }
        }
    }
}

/// Checks that the kernel leaves path management to user space in this namespace.
fn check_setting() -> Result<(), String> {
    let way = "set it with `sysctl -w net.mptcp.pm_type=1`, so that the agent can manage subflows";
    match fs::read_to_string(SETTING) {
        Ok(text) if text.trim() == "1" => Ok(()),
        Ok(text) => Err(format!("net.mptcp.pm_type is {}; {way}", text.trim())),
        Err(problem) => Err(format!("the kernel has no MPTCP with path managers in user space ({SETTING}: {problem})")),
    }
}
