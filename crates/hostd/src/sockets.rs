//! The kernel's list of TCP sockets (sock_diag), for machines that do not permit BPF, and labels for sockets of other
//! processes (pidfd_getfd).

use crate::namespaces::Namespace;
use pathloom_daemon_support::netlink::{find, message, messages, number32, Socket, SocketFlags, DUMP, SOCK_DIAG};
use pathloom_model::{Address, FiveTuple};
use rustix::net::sockopt::{ip_tos, set_ip_tos};
use rustix::process::{pidfd_getfd, pidfd_open, Pid, PidfdFlags, PidfdGetfdFlags};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const INET_DIAG_INFO: u16 = 2;
/// Bytes of `struct inet_diag_msg` (linux/inet_diag.h).
const DIAG_BYTES: usize = 72;
/// Offset of `tcpi_bytes_acked` in `struct tcp_info` (linux/tcp.h).
const ACKED_AT: usize = 120;
/// Bit mask of the listed states: all except LISTEN, SYN_SENT, SYN_RECV, TIME_WAIT and CLOSE.
const STATES: u32 = (1 << 1) | (1 << 4) | (1 << 5) | (1 << 8) | (1 << 9) | (1 << 11);

/// A connection in the socket list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listed {
    /// Bytes that the other end has acknowledged.
    pub acked_bytes: u64,
    /// Inode number of the socket.
    pub inode: u64,
}

/// The socket list of a namespace.
#[derive(Debug)]
pub struct SocketList {
    socket: Socket,
}

impl SocketList {
    /// Opens the socket list of a namespace.
    pub fn open(namespace: &Namespace) -> io::Result<SocketList> {
        let socket = namespace.inside(|| Socket::open(SOCK_DIAG, SocketFlags::empty(), 0))??;
        // A missing answer must not block the agent.
        let _ = socket.set_receive_timeout(Duration::from_secs(2));
        Ok(SocketList { socket })
    }

    /// Reads all IPv4 connections, including those of IPv6 sockets.
    pub fn read(&self) -> io::Result<BTreeMap<FiveTuple, Listed>> {
        let mut found = BTreeMap::new();
        for family in [libc::AF_INET, libc::AF_INET6] {
            self.ask(family as u8)?;
            while self.answers(&mut found)? {}
        }
        Ok(found)
    }

    fn ask(&self, family: u8) -> io::Result<()> {
        let mut body = vec![family, libc::IPPROTO_TCP as u8, 1 << (INET_DIAG_INFO - 1), 0];
        body.extend(STATES.to_ne_bytes());
        body.extend([0; 48]);
        self.socket.send(&message(SOCK_DIAG_BY_FAMILY, DUMP, 0, &body))
    }

    /// Reads a datagram of answers. Returns whether there are more.
    fn answers(&self, found: &mut BTreeMap<FiveTuple, Listed>) -> io::Result<bool> {
        parse(self.socket.receive(&mut vec![0_u8; 64 << 10])?, found)
    }
}

/// Reads the messages of a datagram. Returns whether more messages follow.
fn parse(datagram: &[u8], found: &mut BTreeMap<FiveTuple, Listed>) -> io::Result<bool> {
    for message in messages(datagram) {
        if i32::from(message.kind) == libc::NLMSG_DONE {
            return Ok(false);
        }
        match message.answer() {
            Some(answer) => return Err(io::Error::from_raw_os_error(answer.err().unwrap_or_default())),
            None => found.extend(connection(message.body)),
        }
    }
    Ok(true)
}

fn connection(body: &[u8]) -> Option<(FiveTuple, Listed)> {
    if body.len() < DIAG_BYTES {
        return None;
    }
    let is_mapped = |at: usize| body[at..at + 10] == [0; 10] && body[at + 10..at + 12] == [0xff; 2];
    let at = match i32::from(body[0]) {
        libc::AF_INET => 0,
        libc::AF_INET6 if is_mapped(8) && is_mapped(24) => 12,
        _ => return None,
    };
    let address = |at: usize| Address::new(body[at], body[at + 1], body[at + 2], body[at + 3]);
    let flow = FiveTuple::new(
        libc::IPPROTO_TCP as u8,
        (address(8 + at), u16::from_be_bytes([body[4], body[5]])),
        (address(24 + at), u16::from_be_bytes([body[6], body[7]])),
    );
    let info = find(&body[DIAG_BYTES..], INET_DIAG_INFO)?;
    let acked = info.get(ACKED_AT..ACKED_AT + 8)?.try_into().ok()?;
    Some((flow, Listed { acked_bytes: u64::from_ne_bytes(acked), inode: number32(&body[68..])?.into() }))
}

/// Labels sockets of other processes, unless they already have a label. Returns the number of sockets with a label
/// afterwards. This searches all processes once.
pub fn label(inodes: &[u64], tos: u8) -> usize {
    let mut left: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    let mut labelled = 0;
    let Ok(processes) = fs::read_dir("/proc") else { return 0 };
    for process in processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()) {
        let Ok(files) = fs::read_dir(format!("/proc/{process}/fd")) else { continue };
        for file in files.flatten() {
            let Ok(target) = fs::read_link(file.path()) else { continue };
            let Some(place) = left.iter().position(|name| target.as_os_str() == name.as_str()) else { continue };
            let Some(number) = file.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            left.swap_remove(place);
            labelled += usize::from(duplicate(process, number).is_ok_and(|socket| set_label(&socket, tos).is_ok()));
        }
        if left.is_empty() {
            break;
        }
    }
    labelled
}

/// Returns a descriptor of this process for a file of another process.
fn duplicate(process: i32, number: i32) -> io::Result<OwnedFd> {
    let process = Pid::from_raw(process).ok_or(io::ErrorKind::NotFound)?;
    let handle = pidfd_open(process, PidfdFlags::empty())?;
    Ok(pidfd_getfd(handle, number, PidfdGetfdFlags::empty())?)
}

fn set_label(socket: &OwnedFd, tos: u8) -> io::Result<()> {
    if ip_tos(socket).unwrap_or_default() >> 2 != 0 {
        return Ok(());
    }
    Ok(set_ip_tos(socket, tos)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::{AsFd, AsRawFd};

    #[test]
    fn a_listed_connection_has_its_bytes_and_can_be_labelled() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(&[7; 5000]).unwrap();
        server.read_exact(&mut [0; 5000]).unwrap();
        let list = SocketList::open(&Namespace::open(None).unwrap()).unwrap();
        let found = list.read().unwrap();
        let (from, to) = (client.local_addr().unwrap(), server.local_addr().unwrap());
        let local = Address::new(127, 0, 0, 1);
        let flow = FiveTuple::new(6, (local, from.port()), (local, to.port()));
        let listed = found[&flow];
        assert!((1..=5001).contains(&listed.acked_bytes), "{listed:?}");
        // In this test, the other process is this process.
        let copy = duplicate(std::process::id() as i32, client.as_raw_fd()).unwrap();
        set_label(&copy, 0x20).unwrap();
        assert_eq!(ip_tos(&client).unwrap(), 0x20);
        set_label(&client.as_fd().try_clone_to_owned().unwrap(), 0x40).unwrap();
        assert_eq!(ip_tos(&client).unwrap(), 0x20, "an existing label is kept");
        assert_eq!(label(&[found[&flow].inode], 0x20), 1);
    }

    #[test]
    fn short_or_wrong_answers_are_harmless() {
        let mut found = BTreeMap::new();
        for length in [0, 3, 15, 16, 40, 200] {
            let mut message = vec![0; length];
            if length >= 4 {
                message[..4].copy_from_slice(&(length as u32).to_ne_bytes());
            }
            assert!(parse(&message, &mut found).unwrap());
        }
        assert!(found.is_empty());
    }
}
