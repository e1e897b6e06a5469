//! A library that `pathloom with-paths` (python/pathloom/streams/with_paths.py) preloads into programs. Before a TCP
//! connection is opened, by `connect` or with TCP Fast Open by `sendto` and `sendmsg`, the library selects its
//! source port and claims a path for it. The first packet leaves after the answer to the claim, so that its path exists.
//! If anything fails, the connection is opened as without this library.
//!
//! With `PATHLOOM_SOURCE_PORTS=map`, a line `choose SOURCE:0 DESTINATION:PORT` comes first. It is answered by `ports` and
//! source ports that take the path that is wanted. Only then are connections over IPv6 served.
//!
//! `with-paths` listens on the Unix socket in the environment variable `PATHLOOM_WITH_PATHS`. Each claim is a line
//! `claim SOURCE:PORT DESTINATION:PORT` on a separate connection, answered by one line. A connection without a path is
//! reported by a line `none CAUSE DESTINATION:PORT`. So threads and processes share nothing, and nothing remains when a
//! program dies.

#![allow(unsafe_code)] // It replaces functions of libc.

mod address;
mod claim;

use libc::{c_int, c_void, msghdr, size_t, sockaddr, socklen_t, ssize_t};
use std::ffi::CStr;
use std::sync::OnceLock;

type Connect = unsafe extern "C" fn(c_int, *const sockaddr, socklen_t) -> c_int;
type SendTo = unsafe extern "C" fn(c_int, *const c_void, size_t, c_int, *const sockaddr, socklen_t) -> ssize_t;
type SendMessage = unsafe extern "C" fn(c_int, *const msghdr, c_int) -> ssize_t;

/// Returns the address of the function that programs would call without this library. Sets `errno` if there is none.
fn next(known: &OnceLock<usize>, name: &CStr) -> Option<usize> {
    // SAFETY: the name ends with 0; errno belongs to this thread.
    let found = *known.get_or_init(|| unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize);
    if found == 0 {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = libc::ENOSYS };
    }
    (found != 0).then_some(found)
}

/// Claims a path for a connection that will be opened to `address`.
///
/// # Safety
/// `address` must be null or point to `length` bytes.
unsafe fn prepare(socket: c_int, address: *const sockaddr, length: socklen_t) {
    // SAFETY: the caller guarantees the address; errno belongs to this thread.
    unsafe {
        if let Some(destination) = address::read(address, length) {
            let errno = *libc::__errno_location();
            // A panic must not unwind through a program that is not written in Rust.
            let _ = std::panic::catch_unwind(|| claim::claim_path(socket, destination));
            *libc::__errno_location() = errno;
        }
    }
}

/// Replaces `connect(2)`, and claims a path for TCP connections.
///
/// # Safety
/// As for `connect(2)`: `address` must point to `length` bytes.
#[no_mangle]
pub unsafe extern "C" fn connect(socket: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    static NEXT: OnceLock<usize> = OnceLock::new();
    let Some(found) = next(&NEXT, c"connect") else { return -1 };
    // SAFETY: the caller guarantees the address. The symbol has this type (POSIX connect(2)).
    unsafe {
        prepare(socket, address, length);
        std::mem::transmute::<usize, Connect>(found)(socket, address, length)
    }
}

/// Replaces `sendto(2)`, which opens a connection with MSG_FASTOPEN (RFC 7413).
///
/// # Safety
/// As for `sendto(2)`.
#[no_mangle]
pub unsafe extern "C" fn sendto(
    socket: c_int,
    data: *const c_void,
    size: size_t,
    flags: c_int,
    address: *const sockaddr,
    length: socklen_t,
) -> ssize_t {
    static NEXT: OnceLock<usize> = OnceLock::new();
    let Some(found) = next(&NEXT, c"sendto") else { return -1 };
    // SAFETY: the caller guarantees the pointers. The symbol has this type (POSIX sendto(2)).
    unsafe {
        if flags & libc::MSG_FASTOPEN != 0 {
            prepare(socket, address, length);
        }
        std::mem::transmute::<usize, SendTo>(found)(socket, data, size, flags, address, length)
    }
}

/// Replaces `sendmsg(2)`, which opens a connection with MSG_FASTOPEN (RFC 7413).
///
/// # Safety
/// As for `sendmsg(2)`.
#[no_mangle]
pub unsafe extern "C" fn sendmsg(socket: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    static NEXT: OnceLock<usize> = OnceLock::new();
    let Some(found) = next(&NEXT, c"sendmsg") else { return -1 };
    // SAFETY: the caller guarantees the pointers. The symbol has this type (POSIX sendmsg(2)).
    unsafe {
        if flags & libc::MSG_FASTOPEN != 0 && !message.is_null() {
            prepare(socket, (*message).msg_name.cast(), (*message).msg_namelen);
        }
        std::mem::transmute::<usize, SendMessage>(found)(socket, message, flags)
    }
}
