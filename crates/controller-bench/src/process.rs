//! What the system knows about processes.

/// Nanoseconds that the main thread of a process ran so far; `None` if the system does not provide them.
pub(crate) fn ran_ns_of(process: u32) -> Option<u64> {
    std::fs::read_to_string(format!("/proc/{process}/schedstat")).ok()?.split(' ').next()?.parse().ok()
}

/// Resident memory of a process, in bytes; `None` if the system does not provide it.
pub(crate) fn resident_bytes(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kb| kb * 1024)
}
