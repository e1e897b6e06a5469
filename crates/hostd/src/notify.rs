//! Messages to systemd (sd_notify).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Reports that the agent is ready.
pub fn ready() {
    send(b"READY=1");
}

/// Reports that the main loop is running (`WatchdogSec=`).
pub fn alive() {
    send(b"WATCHDOG=1");
}

fn send(words: &[u8]) {
    let Some(place) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match place.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&place),
    };
    // If nobody listens, the message is not needed.
    let _ = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(words, &address));
}
