//! Preparation of a connection before it is opened: selects a source port, and claims a path for that port.

use crate::address;
use libc::c_int;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
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

/// Whether `with-paths` chooses source ports from a map, rather than paths for the ports that the kernel chooses.
fn chooses_ports() -> bool {
    static CHOOSES: OnceLock<bool> = OnceLock::new();
    *CHOOSES.get_or_init(|| std::env::var_os("PATHLOOM_SOURCE_PORTS").is_some_and(|value| value == "map"))
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
            IpAddr::V6(_) if !chooses_ports() => none("ipv6"),
            _ => match bound(socket, destination, path) {
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
fn bound(socket: c_int, destination: SocketAddr, path: &OsString) -> Option<SocketAddr> {
    let present = address::of(socket)?;
    if present.port() != 0 && !present.ip().is_unspecified() {
        return Some(present);
    }
    let ip = if present.ip().is_unspecified() { source_towards(destination)? } else { present.ip() };
    if present.port() != 0 {
        // The port is already set, and the kernel will select the same address.
        return Some(SocketAddr::new(ip, present.port()));
    }
    address::set_option(socket, libc::IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 0);
    let ports = if chooses_ports() { offered(path, ip, destination) } else { Vec::new() };
    // Port 0 lets the kernel select one.
    let mut wanted = ports.into_iter().chain([0]);
    wanted.any(|port| address::bind(socket, SocketAddr::new(ip, port))).then(|| address::of(socket)).flatten()
}

/// Returns the source ports that `with-paths` offers for a connection, the best one first.
fn offered(path: &OsString, source: IpAddr, destination: SocketAddr) -> Vec<u16> {
    let question = format_args!("choose {} {destination}", SocketAddr::new(source, 0)).to_string();
    let answer = ask(path, question).unwrap_or_default();
    answer.split_ascii_whitespace().skip(1).map_while(|word| word.parse().ok()).collect()
}

/// Returns the address from which the kernel would send to `destination`.
fn source_towards(destination: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = if destination.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let probe = UdpSocket::bind((any, 0)).ok()?;
    // Port 0 is refused, and any other port gives the same result.
    probe.connect((destination.ip(), destination.port().max(1))).ok()?;
    Some(probe.local_addr().ok()?.ip())
}

/// Asks `with-paths` a question, and returns its answer, which is one line.
fn ask(path: &OsString, question: impl Display) -> std::io::Result<String> {
    let mut line = UnixStream::connect(path)?;
    line.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    line.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    line.write_all(format!("{question}\n").as_bytes())?;
    let (mut answer, mut known) = ([0; 256], 0);
    while known < answer.len() && !answer[..known].contains(&b'\n') {
        match line.read(&mut answer[known..]) {
            Ok(0) => break,
            Ok(count) => known += count,
            Err(problem) if problem.kind() == std::io::ErrorKind::Interrupted => {}
            Err(problem) => return Err(problem),
        }
    }
    Ok(String::from_utf8_lossy(&answer[..known]).into_owned())
}
