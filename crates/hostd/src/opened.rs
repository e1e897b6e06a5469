//! `pathloom-hostd opened PID`: reports the TCP connections that the programs started by a process open, for
//! `pathloom with-paths`. Unlike its library, this also finds connections of static programs, and of programs that call
//! the kernel without the C library, such as those in Go.
//!
//! The command moves the process into a new cgroup below its own, and prints `ready`. Programs that the process starts
//! now are in that cgroup. After a line on standard input, the command moves the process back, and prints `left`. Each
//! connection that the programs open is a line, printed when its first packet leaves: `open SRC:PORT DST:PORT`, or
//! `none CAUSE DST` if it cannot have a path. `lost N` is the number of connections that could not be printed.
//! When its standard input ends, the command moves processes that still run out of the cgroup, and removes it. Nothing
//! is pinned, so the kernel forgets the BPF program even if the command is killed.

use crate::run::register;
use aya::maps::{Array, MapData, RingBuf};
use aya::programs::{CgroupAttachMode, SockOps};
use aya::EbpfLoader;
use pathloom_daemon_support::pins::{require, take_map};
use pathloom_daemon_support::report::one_line;
use rustix::mount::{fsconfig_create, fsmount, fsopen, FsMountFlags, FsOpenFlags, MountAttrFlags};
use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use tokio::io::AsyncReadExt;

/// The compiled BPF program. Empty if clang was missing.
static PROGRAM: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/opened.bpf.o"));
/// Causes for which a connection cannot have a path, by their number in the BPF program. 0 is none.
const CAUSES: [&str; 3] = ["", "ipv6", "mptcp"];

/// A connection that a program opens (`struct opened` in C).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Opened {
    kind: u32,
    /// Address in network order.
    src: u32,
    /// Address in network order. IPv4 addresses are mapped (RFC 4291 §2.5.5.2).
    dst: [u32; 4],
    /// Ports in the byte order of the machine.
    src_port: u32,
    dst_port: u32,
}

impl Opened {
    #[allow(unsafe_code)]
    fn read(bytes: &[u8]) -> Option<Opened> {
        // SAFETY: the length is checked, any bytes are a valid `Opened`, and the read needs no alignment.
        (bytes.len() >= size_of::<Opened>()).then(|| unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) })
    }

    /// Returns the line for this connection. `None` if the connection is to this machine's loopback.
    fn line(&self) -> Option<String> {
        let mut octets = [0; 16];
        for (part, word) in octets.chunks_exact_mut(4).zip(self.dst) {
            part.copy_from_slice(&word.to_ne_bytes());
        }
        let ip = IpAddr::V6(Ipv6Addr::from(octets)).to_canonical();
        let dst = SocketAddr::new(ip, self.dst_port as u16);
        let src = SocketAddrV4::new(Ipv4Addr::from(self.src.to_ne_bytes()), self.src_port as u16);
        match CAUSES.get(self.kind as usize).copied().unwrap_or_default() {
            _ if ip.is_loopback() => None,
            "" => Some(format!("open {src} {dst}")),
            cause => Some(format!("none {cause} {dst}")),
        }
    }
}

/// Prints the connections of programs that process `pid` starts, until standard input ends.
///
/// # Errors
/// The cgroup cannot be created, or the kernel does not permit the BPF program. The error is one line.
pub async fn report(pid: u32) -> Result<(), String> {
    let group = Group::below_that_of(pid)?;
    watch(pid, &group).await.map_err(|problem| one_line(problem.as_ref()))
}

async fn watch(pid: u32, group: &Group) -> Result<(), Box<dyn Error>> {
    require(PROGRAM)?;
    let mut ebpf = EbpfLoader::new().load(PROGRAM)?;
    let mut openings = RingBuf::try_from(take_map(&mut ebpf, "openings")?)?;
    let unreported: Array<MapData, u64> = Array::try_from(take_map(&mut ebpf, "unreported")?)?;
    let program: &mut SockOps = ebpf.program_mut("opens").ok_or("no BPF program `opens`")?.try_into()?;
    program.load()?;
    program.attach(File::open(&group.place)?, CgroupAttachMode::Single)?;
    let ready = register(openings.as_fd().try_clone_to_owned()?)?;
    group.add(pid)?;
    let mut out = io::stdout();
    writeln!(out, "ready")?;
    let (mut input, mut lost, mut buffer) = (tokio::io::stdin(), 0, [0; 64]);
    loop {
        let mut lines = String::new();
        let mut ended = false;
        tokio::select! {
            guard = ready.readable() => guard?.clear_ready(),
            read = input.read(&mut buffer) => match read? {
                0 => ended = true,
                _ => {
                    group.remove(pid)?;
                    lines += "left\n";
                }
            },
        }
        while let Some(item) = openings.next() {
            lines.extend(Opened::read(&item).and_then(|opened| opened.line()).map(|line| line + "\n"));
        }
        let now = unreported.get(&0, 0)?;
        if now > lost {
            lines += &format!("lost {}\n", now - lost);
            lost = now;
        }
        out.write_all(lines.as_bytes())?;
        out.flush()?;
        if ended {
            return Ok(());
        }
    }
}

/// A cgroup that is removed when it is dropped.
struct Group {
    /// The cgroups (version 2) of the machine. They need not be mounted at any place.
    _mount: OwnedFd,
    place: PathBuf,
}

impl Group {
    fn below_that_of(pid: u32) -> Result<Group, String> {
        let list = format!("/proc/{pid}/cgroup");
        let list = fs::read_to_string(&list).map_err(|problem| format!("{list}: {problem}"))?;
        let own = own_cgroup(&list).ok_or("this kernel has no cgroups of version 2")?;
        let failed = |what: &str, problem: io::Error| format!("{what}: {problem}; run the command as root");
        let mount = mount_cgroups().map_err(|problem| failed("cgroups (version 2) cannot be mounted", problem))?;
        let parent = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd())).join(own);
        let place = parent.join(format!("pathloom-with-paths-{}", std::process::id()));
        fs::create_dir(&place).map_err(|problem| failed(&format!("cgroup below /{own}"), problem))?;
        Ok(Group { _mount: mount, place })
    }

    /// Moves a process into this cgroup.
    fn add(&self, pid: u32) -> io::Result<()> {
        fs::write(self.place.join("cgroup.procs"), pid.to_string())
    }

    /// Moves a process into the cgroup above.
    fn remove(&self, pid: u32) -> io::Result<()> {
        fs::write(self.place.with_file_name("cgroup.procs"), pid.to_string())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process can be started while the others move.
        for _ in 0..100 {
            let processes = fs::read_to_string(self.place.join("cgroup.procs")).unwrap_or_default();
            processes.lines().filter_map(|one| one.parse().ok()).for_each(|pid| drop(self.remove(pid)));
            if fs::remove_dir(&self.place).is_ok() {
                return;
            }
        }
    }
}

/// Returns the cgroup of version 2 in the list of a process's cgroups, without its first slash (cgroups(7)).
fn own_cgroup(list: &str) -> Option<&str> {
    list.lines().find_map(|line| line.strip_prefix("0::/"))
}

fn mount_cgroups() -> io::Result<OwnedFd> {
    let context = fsopen("cgroup2", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(context.as_fd())?;
    Ok(fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(kind: u32, dst: IpAddr) -> Opened {
        let v6 = match dst {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let mut words = [0; 4];
        for (word, part) in words.iter_mut().zip(v6.octets().chunks_exact(4)) {
            *word = u32::from_ne_bytes([part[0], part[1], part[2], part[3]]);
        }
        let src = u32::from_ne_bytes([10, 0, 0, 1]);
        Opened { kind, src, dst: words, src_port: 40_000, dst_port: 5_201 }
    }

    #[test]
    fn connections_are_lines_in_the_words_of_the_library() {
        let line = |kind, dst: &str| opened(kind, dst.parse().unwrap()).line();
        assert_eq!(line(0, "10.0.7.1").unwrap(), "open 10.0.0.1:40000 10.0.7.1:5201");
        assert_eq!(line(1, "2001:db8::1").unwrap(), "none ipv6 [2001:db8::1]:5201");
        assert_eq!(line(2, "10.0.7.1").unwrap(), "none mptcp 10.0.7.1:5201");
        assert_eq!((line(0, "127.0.0.1"), line(1, "::1"), line(2, "127.1.2.3")), (None, None, None));
    }

    #[test]
    fn a_short_event_is_not_read() {
        assert_eq!(size_of::<Opened>(), 32);
        assert!(Opened::read(&[0; 31]).is_none() && Opened::read(&[0; 32]).is_some());
    }

    #[test]
    fn the_cgroup_of_version_2_is_found() {
        assert_eq!(own_cgroup("4:memory:/a\n0::/user.slice/session-1.scope\n"), Some("user.slice/session-1.scope"));
        assert_eq!((own_cgroup("0::/\n"), own_cgroup("4:memory:/a\n")), (Some(""), None));
    }
}
