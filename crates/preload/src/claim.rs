//! Preparation of a connection before it is opened: selects a source port, and claims a path for that port.

use crate::address;
use libc::c_int;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::time::Duration;

/// Time-out for the answer to a claim. `with-paths` gives the controller less time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// State of a TCP socket that has not been connected (TCP_CLOSE, linux/net/tcp_states.h).
const CLOSED: u8 = 7;
/// Binds without selecting a port; `connect` selects it (linux/in.h).
const IP_BIND_ADDRESS_NO_PORT: c_int = 24;

/// Returns the path of the Unix socket of `with-paths`.
fn socket_path() -> Option<&'static OsString> {
    static SOCKET_PATH: OnceLock<Option<OsString>> = OnceLock::new();
    SOCKET_PATH.get_or_init(|| std::env::var_os("PATHLOOM_WITH_PATHS").filter(|path| !path.is_empty())).as_ref()
}

/// Claims a path for the connection that a socket is about to open, or reports why it gets none.
pub(crate) fn claim_path(socket: c_int, destination: SocketAddr) {
    let Some(path) = socket_path() else { return };
    if destination.ip().is_loopback() || destination.ip().is_unspecified() {
        return;
    }
    let none = |why: &str| ask(path, format_args!("none {why} {destination}"));
    // Without an answer, the connection uses the default routes.
    let _ = match (address::option(socket, libc::SOL_SOCKET, libc::SO_PROTOCOL), destination.ip()) {
        (Some(libc::IPPROTO_MPTCP), _) if address::of(socket).is_some_and(|own| own.port() == 0) => none("mptcp"),
        (Some(libc::IPPROTO_TCP), ip) if is_fresh(socket) => match ip {
            IpAddr::V6(_) => none("ipv6"),
            IpAddr::V4(ip) => match bound(socket, SocketAddrV4::new(ip, destination.port())) {
                Some(source) => ask(path, format_args!("claim {source} {destination}")),
                None => none("port"),
            },
        },
        _ => return,
    };
}

/// Whether a TCP socket has not been connected. Programs call `connect` again to check its progress.
fn is_fresh(socket: c_int) -> bool {
    let (mut state, mut length) = (0_u8, 1);
    // SAFETY: the call writes one byte, the first of struct tcp_info, into one byte.
    let done = unsafe {
        let (state, length) = ((&raw mut state).cast(), &raw mut length);
        libc::getsockopt(socket, libc::IPPROTO_TCP, libc::TCP_INFO, state, length)
    };
    done == 0 && state == CLOSED
}

/// Returns the source address and port of a socket. Binds the socket first if it is not bound.
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
        // The port is already set, and the kernel will select the same address.
        return Some(SocketAddrV4::new(ip, present.port()));
    }
    address::set_option(socket, libc::IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 0);
    address::bind(socket, SocketAddrV4::new(ip, 0)).then(|| address::of(socket)).flatten()
}

/// Returns the address from which the kernel would send to `destination`.
fn source_towards(destination: SocketAddrV4) -> Option<Ipv4Addr> {
    let probe = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // Port 0 is refused, and any other port gives the same result.
    probe.connect((*destination.ip(), destination.port().max(1))).ok()?;
    match probe.local_addr().ok()?.ip() {
        std::net::IpAddr::V4(ip) => Some(ip),
        std::net::IpAddr::V6(_) => None,
    }
}

fn ask(path: &OsString, question: impl Display) -> std::io::Result<()> {
    let mut line = UnixStream::connect(path)?;
    line.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    line.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    line.write_all(format!("{question}\n").as_bytes())?;
    let mut answer = [0; 64];
    loop {
        match line.read(&mut answer) {
            Ok(count) if count > 0 && !answer[..count].contains(&b'\n') => {}
            Err(problem) if problem.kind() == std::io::ErrorKind::Interrupted => {}
            other => return other.map(drop),
        }
    }
}
