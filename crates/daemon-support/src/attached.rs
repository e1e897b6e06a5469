//! The BPF programs of a cgroup, which others can detach at any time.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Maximum number of programs at a hook (BPF_CGROUP_MAX_PROGS, kernel/bpf/cgroup.c).
const MOST: usize = 64;
/// The command of bpf(2) that lists programs (BPF_PROG_QUERY).
const QUERY: libc::c_long = 16;

/// Where programs run (enum bpf_attach_type, linux/bpf.h).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hook {
    /// At each packet that a socket sends (BPF_CGROUP_INET_EGRESS).
    Egress = 1,
    /// At events of TCP connections (BPF_CGROUP_SOCK_OPS).
    SockOps = 3,
}

/// The part of union bpf_attr for the query.
#[repr(C)]
#[derive(Default)]
struct Query {
    target: u32,
    hook: u32,
    flags: u32,
    attached_with: u32,
    programs: u64,
    count: u32,
    zero: u32,
}

/// Returns the identifiers of the programs that are attached to a cgroup itself, in their order.
///
/// # Errors
/// The file is no directory of a cgroup of version 2, or the caller may not use BPF.
#[allow(unsafe_code)]
pub fn programs(cgroup: &File, hook: Hook) -> io::Result<Vec<u32>> {
    let mut found = vec![0_u32; MOST];
    let mut query = Query {
        target: cgroup.as_raw_fd() as u32,
        hook: hook as u32,
        programs: found.as_mut_ptr() as u64,
        count: MOST as u32,
        ..Query::default()
    };
    // SAFETY: the kernel reads and writes the structure of the given size, and writes at most `count` numbers.
    let done = unsafe { libc::syscall(libc::SYS_bpf, QUERY, &raw mut query, size_of::<Query>()) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    found.truncate(query.count as usize);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_no_cgroup_is_an_error() {
        assert_eq!(size_of::<Query>(), 32);
        let problem = programs(&File::open("/tmp").unwrap(), Hook::SockOps).unwrap_err();
        // The second one: without the privileges of BPF.
        assert!(matches!(problem.raw_os_error(), Some(libc::EBADF | libc::EPERM)), "{problem}");
    }
}
