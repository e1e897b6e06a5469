//! Network namespaces, clocks, and results of C library calls.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Checks the result of a call that returns a negative number on failure.
pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    match result {
        0.. => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Moves this thread into a network namespace.
#[allow(unsafe_code)]
pub fn enter(namespace: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open, and the call accesses no memory.
    check(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) }).map(drop)
}

/// Returns the time of a clock in nanoseconds, such as `CLOCK_MONOTONIC`, which BPF programs read too.
#[allow(unsafe_code)]
pub fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes into a local structure.
    unsafe { libc::clock_gettime(clock, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
