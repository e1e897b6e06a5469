//! Events of what others change on the machine: interfaces and addresses of namespaces (rtnetlink(7)), and the entries of
//! directories (inotify(7)). After an event the agent looks at once after what others can remove. The kernel reports
//! neither that a program of a cgroup is detached, nor that a namespace is mounted on its file, so the agent also looks
//! periodically.

use pathloom_daemon_support::netlink::{Socket, SocketFlags, ROUTE};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// Bytes of an event buffer.
const BUFFER_BYTES: usize = 1 << 16;

/// A source of events.
#[derive(Debug)]
pub enum Watch {
    /// Interfaces and IPv4 addresses of one namespace.
    Addresses(Socket),
    /// Entries of directories.
    Directories(File),
}

impl Watch {
    /// Watches the interfaces and addresses of this thread's namespace.
    pub fn addresses() -> io::Result<Watch> {
        let groups = (libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR) as u32;
        Ok(Watch::Addresses(Socket::open(ROUTE, SocketFlags::NONBLOCK, groups)?))
    }

    /// Watches which entries of directories are created, moved or removed. Directories that do not exist are left out.
    #[allow(unsafe_code)]
    pub fn directories<'a>(paths: impl IntoIterator<Item = &'a Path>) -> io::Result<Watch> {
        // SAFETY: the descriptor is owned at once.
        let file = unsafe {
            let descriptor = libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC);
            if descriptor < 0 {
                return Err(io::Error::last_os_error());
            }
            File::from_raw_fd(descriptor)
        };
        for path in paths.into_iter().filter(|path| path.is_dir()) {
            let name = CString::new(path.as_os_str().as_bytes())?;
            let wanted = libc::IN_CREATE | libc::IN_DELETE | libc::IN_MOVE | libc::IN_DELETE_SELF | libc::IN_ONLYDIR;
            // SAFETY: the name ends with a zero byte.
            if unsafe { libc::inotify_add_watch(file.as_raw_fd(), name.as_ptr(), wanted) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(Watch::Directories(file))
    }

    /// Reads the events that wait. Returns whether there were any, or some were lost.
    pub fn take(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        let mut any = false;
        loop {
            let got = match self {
                Watch::Addresses(socket) => socket.receive(buffer).map(|_| ()),
                Watch::Directories(file) => file.read(buffer).map(|_| ()),
            };
            match got {
                Ok(()) => any = true,
                Err(problem) if problem.kind() == io::ErrorKind::WouldBlock => return Ok(any),
                Err(problem) if problem.raw_os_error() == Some(libc::ENOBUFS) => any = true,
                Err(problem) => return Err(problem),
            }
        }
    }
}

impl AsRawFd for Watch {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Watch::Addresses(socket) => socket.as_raw_fd(),
            Watch::Directories(file) => file.as_raw_fd(),
        }
    }
}

/// Notifies `changed` of each event, until the returned value is dropped. Logs sources that cannot be watched.
pub fn watch(sources: Vec<io::Result<Watch>>, changed: &Arc<Notify>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for source in sources {
        match source.and_then(register) {
            Ok(source) => drop(tasks.spawn_local(follow(source, Arc::clone(changed)))),
            Err(problem) => tracing::warn!(%problem, "some changes of the machine are noticed only every few seconds"),
        }
    }
    tasks
}

#[allow(unsafe_code)]
fn register(source: Watch) -> io::Result<AsyncFd<Watch>> {
    // SAFETY: a `Watch` owns its descriptor, which is open as long as it exists, and its number never changes.
    unsafe { AsyncFd::register(source) }.map_err(io::Error::from)
}

async fn follow(mut source: AsyncFd<Watch>, changed: Arc<Notify>) {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let Ok(mut guard) = source.readable_mut().await else { return };
        let taken = guard.get_inner_mut().take(&mut buffer);
        guard.clear_ready();
        match taken {
            Ok(any) if any => changed.notify_one(),
            Ok(_) => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_and_a_removed_entry_of_a_directory_are_events() {
        let folder = std::env::temp_dir().join(format!("pathloom-changes-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("inside")).unwrap();
        let mut watch = Watch::directories([folder.as_path(), Path::new("/no/such/directory")]).unwrap();
        let mut take = || watch.take(&mut [0; 4096]).unwrap();
        assert!(!take());
        std::fs::write(folder.join("pin"), b"").unwrap();
        assert!(take());
        assert!(!take(), "each event is reported once");
        std::fs::write(folder.join("inside/other"), b"").unwrap();
        assert!(!take(), "entries of other directories are none");
        std::fs::remove_file(folder.join("pin")).unwrap();
        assert!(take());
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(take());
    }

    #[test]
    fn a_namespace_in_which_nothing_happens_has_no_events() {
        let mut watch = Watch::addresses().unwrap();
        // Others may change interfaces at any time. Each event is read once, so reading ends.
        let mut buffer = [0; 4096];
        assert!((0..1000).any(|_| !watch.take(&mut buffer).unwrap()));
    }
}
