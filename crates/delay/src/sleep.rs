//! The clock, and waiting for packets or for the time that the next one is due.

use libc::{c_int, pollfd, timespec};
use std::io;

/// Priority among threads of the real-time class, where that is permitted.
const PRIORITY: c_int = 50;
/// A wait may last this much longer than it should, in ns: as little as the kernel permits.
const SLACK_NS: libc::c_ulong = 1;

/// Lets this process wake up in time.
pub(crate) fn prepare() {
    // SAFETY: both only read their arguments. Without permission it goes on as an ordinary process.
    unsafe {
        let mut priority: libc::sched_param = std::mem::zeroed();
        priority.sched_priority = PRIORITY;
        libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority);
        libc::prctl(libc::PR_SET_TIMERSLACK, SLACK_NS);
    }
}

/// A clock in ns.
pub(crate) fn read(clock: libc::clockid_t) -> u64 {
    let mut time = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes into the value of this function.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Nanoseconds of a clock that is never set.
pub(crate) fn now_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Waits until a time, or until a socket has a packet.
pub(crate) fn until(due_ns: u64, sockets: &[c_int]) -> io::Result<()> {
    let wait = due_ns.saturating_sub(now_ns());
    let time = timespec { tv_sec: (wait / 1_000_000_000) as _, tv_nsec: (wait % 1_000_000_000) as _ };
    let mut polled: Vec<pollfd> = sockets.iter().map(|&fd| pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
    // SAFETY: it reads and writes the values of this function.
    let done = unsafe { libc::ppoll(polled.as_mut_ptr(), polled.len() as _, &raw const time, std::ptr::null()) };
    let problem = io::Error::last_os_error();
    if done < 0 && problem.kind() != io::ErrorKind::Interrupted {
        return Err(problem);
    }
    Ok(())
}
