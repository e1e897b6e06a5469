//! Network namespaces: their cookies, and functions that must run inside one.

use pathloom_daemon_support::system::enter;
use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};

const SO_NETNS_COOKIE: libc::c_int = 71;

/// A network namespace that contains hosts.
#[derive(Debug)]
pub struct Namespace {
    /// File of the namespace. `None`: the namespace of the agent.
    pub path: Option<PathBuf>,
    /// Cookie: number of the namespace in the kernel, which is never reused.
    pub cookie: u64,
    file: File,
    home: File,
}

impl Namespace {
    /// Opens a namespace by its file (`/run/netns/NAME`), or the namespace of the agent.
    pub fn open(path: Option<&Path>) -> io::Result<Namespace> {
        let own = Path::new("/proc/thread-self/ns/net");
        let (file, home) = (File::open(path.unwrap_or(own))?, File::open(own)?);
        let mut namespace = Namespace { path: path.map(Path::to_owned), cookie: 0, file, home };
        namespace.cookie = namespace.inside(cookie)??;
        Ok(namespace)
    }

    /// Runs a function inside the namespace, on this thread.
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

/// Returns the cookie of this thread's namespace.
#[allow(unsafe_code)]
fn cookie() -> io::Result<u64> {
    let (mut cookie, mut length) = (0_u64, size_of::<u64>() as libc::socklen_t);
    // SAFETY: the socket is owned at once, and the option is written to a value of the given length.
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
