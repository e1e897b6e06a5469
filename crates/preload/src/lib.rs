//! A library that `pathloom with-paths` (python/pathloom/streams/with_paths.py) preloads into programs. Before a TCP
//! connection over IPv4 is opened, the library selects its source port and claims a path for it. The first packet
//! leaves after the answer to the claim, so that its path exists. If anything fails, the connection is opened as
//! without this library.
//!
//! `with-paths` listens on the Unix socket in the environment variable `PATHLOOM_WITH_PATHS`. Each claim is a line
//! `claim SOURCE:PORT DESTINATION:PORT` on a separate connection, answered by one line. So threads and processes
//! share nothing, and nothing remains when a program dies.

#![allow(unsafe_code)] // It replaces a function of libc.

mod address;
mod claim;

use libc::{c_int, sockaddr, socklen_t};
use std::sync::OnceLock;

type Connect = unsafe extern "C" fn(c_int, *const sockaddr, socklen_t) -> c_int;

/// Returns the `connect` that programs would call without this library.
fn next_connect() -> Option<Connect> {
    static NEXT: OnceLock<Option<Connect>> = OnceLock::new();
    *NEXT.get_or_init(|| {
        // SAFETY: the name ends with 0; the symbol has this type (POSIX connect(2)).
        unsafe {
            let found = libc::dlsym(libc::RTLD_NEXT, c"connect".as_ptr());
            (!found.is_null()).then(|| std::mem::transmute::<*mut libc::c_void, Connect>(found))
        }
    })
}

/// Replaces `connect(2)`, and claims a path for TCP connections over IPv4.
///
/// # Safety
/// As for `connect(2)`: `address` must point to `length` bytes.
#[no_mangle]
pub unsafe extern "C" fn connect(socket: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: the caller guarantees the address; errno belongs to this thread.
    unsafe {
        let Some(next) = next_connect() else {
            *libc::__errno_location() = libc::ENOSYS;
            return -1;
        };
        if let Some(destination) = address::read(address, length) {
            let errno = *libc::__errno_location();
            // A panic must not unwind through a program that is not written in Rust.
            let _ = std::panic::catch_unwind(|| claim::claim_path(socket, destination));
            *libc::__errno_location() = errno;
        }
        next(socket, address, length)
    }
}
