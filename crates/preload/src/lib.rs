//! Preloaded into programs by `pathloom with-paths` (python/pathloom/streams/with_paths.py): before a TCP connection over
//! IPv4 is opened, its source port is chosen and a path is claimed for it. The first packet leaves when the claim is
//! answered, so that it finds its path. Whatever goes wrong, the connection is opened as without this library.
//!
//! `with-paths` listens on the Unix socket that the environment variable `PATHLOOM_WITH_PATHS` names. Each claim is a line
//! `claim SOURCE:PORT DESTINATION:PORT` on a connection of its own, answered by one line. So nothing is shared between threads
//! and processes, and nothing is left when a program dies.

#![allow(unsafe_code)] // It stands in for a function of libc.

mod address;
mod claim;

use libc::{c_int, sockaddr, socklen_t};
use std::sync::OnceLock;

type Connect = unsafe extern "C" fn(c_int, *const sockaddr, socklen_t) -> c_int;

/// The `connect` that programs would have without this library.
fn next_connect() -> Option<Connect> {
    static NEXT: OnceLock<Option<Connect>> = OnceLock::new();
    *NEXT.get_or_init(|| {
        // SAFETY: the name ends with 0; what is found under it has this type (POSIX connect(2)).
        unsafe {
            let found = libc::dlsym(libc::RTLD_NEXT, c"connect".as_ptr());
            (!found.is_null()).then(|| std::mem::transmute::<*mut libc::c_void, Connect>(found))
        }
    })
}

/// `connect(2)`, with a path claimed for TCP connections over IPv4.
///
/// # Safety
/// As for `connect(2)`: `address` points to `length` bytes.
#[no_mangle]
pub unsafe extern "C" fn connect(socket: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: the caller vouches for the address; errno is this thread's own.
    unsafe {
        let Some(next) = next_connect() else {
            *libc::__errno_location() = libc::ENOSYS;
            return -1;
        };
        if let Some(destination) = address::read(address, length) {
            let before = *libc::__errno_location();
            // A panic must not pass through a program that knows nothing of Rust.
            let _ = std::panic::catch_unwind(|| claim::before(socket, destination));
            *libc::__errno_location() = before;
        }
        next(socket, address, length)
    }
}
