//! What is done before a connection is opened: a source port for it, and a path for that port.

use crate::address;
use libc::c_int;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::time::Duration;

/// How long the answer to a claim is waited for. `with-paths` gives the controller less.
const PATIENCE: Duration = Duration::from_secs(5);
/// State of a TCP socket that has not been connected (TCP_CLOSE, linux/net/tcp_states.h).
const CLOSED: u8 = 7;
/// Bind without choosing a port, which is left to `connect` (linux/in.h).
const IP_BIND_ADDRESS_NO_PORT: c_int = 24;

/// The Unix socket of `with-paths`.
fn door() -> Option<&'static OsString> {
    static DOOR: OnceLock<Option<OsString>> = OnceLock::new();
    DOOR.get_or_init(|| std::env::var_os("PATHLOOM_WITH_PATHS").filter(|place| !place.is_empty())).as_ref()
}

/// Claims a path for the connection that a socket is about to open.
pub(crate) fn before(socket: c_int, destination: SocketAddrV4) {
    let Some(door) = door() else { return };
    if destination.ip().is_loopback() || destination.ip().is_unspecified() || !is_fresh_tcp(socket) {
        return;
    }
    let Some(source) = bound(socket, destination) else { return };
    // Without an answer the connection takes the default routes.
    let _ = ask(door, source, destination);
}

/// Whether it is a TCP socket that has not been connected. Programs call `connect` again to see how far it is.
fn is_fresh_tcp(socket: c_int) -> bool {
    if address::option(socket, libc::SOL_SOCKET, libc::SO_PROTOCOL) != Some(libc::IPPROTO_TCP) {
        return false;
    }
    let (mut state, mut length) = (0_u8, 1);
    // SAFETY: one byte is asked for, the first of struct tcp_info, and one is there.
    let done = unsafe {
        let (state, length) = ((&raw mut state).cast(), &raw mut length);
        libc::getsockopt(socket, libc::IPPROTO_TCP, libc::TCP_INFO, state, length)
    };
    done == 0 && state == CLOSED
}

/// The source address and port of a socket, which is bound if it was not.
fn bound(socket: c_int, destination: SocketAddrV4) -> Option<SocketAddrV4> {
    let present = address::of(socket)?;
    if present.port() != 0 && !present.ip().is_unspecified() {
        return Some(present);
    }
    let ip = match *present.ip() {
        Ipv4Addr::UNSPECIFIED => source_towards(destination)?,
        chosen => chosen,
    };
    if present.port() != 0 {
        // The port is chosen, and the kernel will choose the same address.
        return Some(SocketAddrV4::new(ip, present.port()));
    }
    address::set_option(socket, libc::IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 0);
    address::bind(socket, SocketAddrV4::new(ip, 0)).then(|| address::of(socket)).flatten()
}

/// The address from which the kernel would send there.
fn source_towards(destination: SocketAddrV4) -> Option<Ipv4Addr> {
    let probe = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // A port of 0 is refused, and it does not matter which.
    probe.connect((*destination.ip(), destination.port().max(1))).ok()?;
    match probe.local_addr().ok()?.ip() {
        std::net::IpAddr::V4(ip) => Some(ip),
        std::net::IpAddr::V6(_) => None,
    }
}

fn ask(door: &OsString, source: SocketAddrV4, destination: SocketAddrV4) -> std::io::Result<()> {
    let mut line = UnixStream::connect(door)?;
    line.set_read_timeout(Some(PATIENCE))?;
    line.set_write_timeout(Some(PATIENCE))?;
    line.write_all(format!("claim {source} {destination}\n").as_bytes())?;
    let mut answer = [0; 64];
    loop {
        match line.read(&mut answer) {
            Ok(count) if count > 0 && !answer[..count].contains(&b'\n') => {}
            Err(problem) if problem.kind() == std::io::ErrorKind::Interrupted => {}
            other => return other.map(drop),
        }
    }
}
