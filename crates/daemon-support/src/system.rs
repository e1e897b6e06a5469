//! Network namespaces and clocks.

use rustix::thread::{move_into_link_name_space, LinkNameSpaceType};
use rustix::time::{clock_gettime, ClockId};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;

/// Moves this thread into a network namespace.
pub fn enter(namespace: &File) -> io::Result<()> {
    Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
}

/// Returns the nanoseconds since the machine was started, a clock that BPF programs read too.
pub fn monotonic_ns() -> u64 {
    ns_of(ClockId::Monotonic)
}

/// Returns the nanoseconds since 1970.
pub fn realtime_ns() -> u64 {
    ns_of(ClockId::Realtime)
}

fn ns_of(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
