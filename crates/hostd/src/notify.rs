//! Messages to systemd (sd_notify): ready, and alive.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The agent takes part from now on.
pub fn ready() {
    send(b"READY=1");
}

/// The agent's loop turns (`WatchdogSec=`).
pub fn alive() {
    send(b"WATCHDOG=1");
}

fn send(words: &[u8]) {
    let Some(place) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match place.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&place),
    };
    // Nobody may listen; then nobody misses it.
    let _ = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(words, &address));
}
