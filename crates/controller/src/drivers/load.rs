//! Load of the process.

use std::time::Instant;

/// Share of a core that the main thread, which runs the controller, used since the last call.
pub(crate) struct Load {
    asked: Instant,
    ran_ns: Option<u64>,
}

impl Load {
    pub(crate) fn new() -> Load {
        Load { asked: Instant::now(), ran_ns: ran_ns() }
    }

    /// The share since the last call; `None` if the system does not provide it.
    pub(crate) fn busy_share(&mut self) -> Option<f64> {
        let (now, ran) = (Instant::now(), ran_ns());
        let wall_ns = now.duration_since(std::mem::replace(&mut self.asked, now)).as_nanos() as f64;
        let before = std::mem::replace(&mut self.ran_ns, ran);
        Some((ran?.saturating_sub(before?) as f64 / wall_ns.max(1.0)).min(1.0))
    }
}

/// Nanoseconds that the main thread ran so far; `None` if the system does not provide them.
fn ran_ns() -> Option<u64> {
    std::fs::read_to_string("/proc/self/schedstat").ok()?.split(' ').next()?.parse().ok()
}

/// Resident memory of this process, in bytes; `None` if the system does not provide it.
pub(crate) fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kb| kb * 1024)
}
