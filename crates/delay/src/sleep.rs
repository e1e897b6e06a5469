//! The clock, and waiting until a packet arrives or the next one is due.

use libc::{c_int, pollfd, timespec};
use std::io;

/// Priority among real-time threads, if that is permitted.
const PRIORITY: c_int = 50;
/// Longest additional delay of a wait, in ns: the least that the kernel permits.
const SLACK_NS: libc::c_ulong = 1;

/// Requests that this process wakes up in time.
pub(crate) fn prepare() {
    // SAFETY: both calls only read their arguments. Without permission, this remains an ordinary process.
    unsafe {
        let mut priority: libc::sched_param = std::mem::zeroed();
        priority.sched_priority = PRIORITY;
        libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority);
        libc::prctl(libc::PR_SET_TIMERSLACK, SLACK_NS);
    }
}

/// Returns the time of a clock in ns.
pub(crate) fn read(clock: libc::clockid_t) -> u64 {
    let mut time = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes into a local value.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns the time in ns of a clock that is never set.
pub(crate) fn now_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Waits until the given time, or until a socket has a packet.
pub(crate) fn until(due_ns: u64, sockets: &[c_int]) -> io::Result<()> {
    let wait = due_ns.saturating_sub(now_ns());
    let time = timespec { tv_sec: (wait / 1_000_000_000) as _, tv_nsec: (wait % 1_000_000_000) as _ };
    let mut polled: Vec<pollfd> = sockets.iter().map(|&fd| pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
    // SAFETY: the call reads and writes local values.
    let done = unsafe { libc::ppoll(polled.as_mut_ptr(), polled.len() as _, &raw const time, std::ptr::null()) };
    let problem = io::Error::last_os_error();
    if done < 0 && problem.kind() != io::ErrorKind::Interrupted {
        return Err(problem);
    }
    Ok(())
}
