//! Network namespaces: their cookies, and work that must be done inside one.

use pathloom_daemon::system::{clock_ns, enter};
use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};

const SO_NETNS_COOKIE: libc::c_int = 71;

/// A namespace that hosts are in.
#[derive(Debug)]
pub struct Namespace {
    /// Its file; `None` for the agent's own.
    pub path: Option<PathBuf>,
    /// Its number in the kernel, which is never used again.
    pub cookie: u64,
    file: File,
    home: File,
}

impl Namespace {
    /// Opens a namespace by its file (`/run/netns/NAME`), or the agent's own.
    pub fn open(path: Option<&Path>) -> io::Result<Namespace> {
        let own = Path::new("/proc/thread-self/ns/net");
        let (file, home) = (File::open(path.unwrap_or(own))?, File::open(own)?);
        let mut namespace = Namespace { path: path.map(Path::to_owned), cookie: 0, file, home };
        namespace.cookie = namespace.inside(cookie)??;
        Ok(namespace)
    }

    /// Does something inside the namespace, on this thread.
    pub fn inside<T>(&self, act: impl FnOnce() -> T) -> io::Result<T> {
        if self.path.is_none() {
            return Ok(act());
        }
        enter(&self.file)?;
        let done = act();
        enter(&self.home)?;
        Ok(done)
    }
}

/// The cookie of the namespace that this thread is in.
#[allow(unsafe_code)]
fn cookie() -> io::Result<u64> {
    let (mut cookie, mut length) = (0_u64, size_of::<u64>() as libc::socklen_t);
    // SAFETY: the socket is owned at once, and the option is written to a value of its length.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        let socket = OwnedFd::from_raw_fd(socket);
        let into = std::ptr::from_mut(&mut cookie).cast();
        match libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_NETNS_COOKIE, into, &mut length) {
            0 => Ok(cookie),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Monotonic time in nanoseconds, as BPF programs have it.
pub fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}
