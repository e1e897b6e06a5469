//! `pathloom-hostd check`: tests which features this machine permits.

use crate::bpf::{clean, Bpf, Setup};
use crate::mptcp::link::Link;
use crate::namespaces::Namespace;
use crate::sockets::SocketList;
use std::fs;
use std::path::{Path, PathBuf};

/// The result for one feature.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The feature.
    pub what: &'static str,
    /// Details, or the reason why the feature is not available.
    pub answer: Result<String, String>,
}

/// Tries each feature. Everything that a test creates is removed again.
pub fn check(cgroup: &Path, bpf_fs: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut note = |what, answer| findings.push(Finding { what, answer });
    note("BPF programs compiled in", Some(String::new()).filter(|_| Bpf::is_built()).ok_or("clang was missing".into()));
    note("root", if is_root() { Ok(String::new()) } else { Err("run it as root".into()) });
    note("cgroup version 2", filesystem(cgroup, "cgroup2", "mount -t cgroup2 none"));
    note("BPF file system", filesystem(bpf_fs, "bpf", "mount -t bpf none"));
    note("MPTCP: subflows", Namespace::open(None).map_err(|why| why.to_string()).and_then(|own| try_mptcp(&own)));
    note("BPF: detection, labels, paces and holds", try_bpf(cgroup, bpf_fs));
    let list = Namespace::open(None).and_then(|own| SocketList::open(&own)).and_then(|list| list.read());
    note(
        "socket list (the fallback): detection, labels",
        match list {
            Ok(list) => Ok(format!("{} connections", list.len())),
            Err(problem) => Err(problem.to_string()),
        },
    );
    findings
}

fn try_mptcp(own: &Namespace) -> Result<String, String> {
    Link::open(own).map(|_| String::new())
}

#[allow(unsafe_code)]
fn is_root() -> bool {
    // SAFETY: the function has no arguments and accesses no memory.
    unsafe { libc::geteuid() == 0 }
}

/// Checks that a path is in a file system of this kind. `mount` is the command that mounts one.
fn filesystem(path: &Path, kind: &str, mount: &str) -> Result<String, String> {
    let mounts = fs::read_to_string("/proc/self/mounts").map_err(|problem| problem.to_string())?;
    let of_kind: Vec<&str> = mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            let place = words.next()?;
            words.next().filter(|found| *found == kind).map(|_| place)
        })
        .collect();
    let real = fs::canonicalize(path).map_err(|problem| format!("{}: {problem}", path.display()))?;
    if of_kind.iter().any(|place| real.starts_with(place)) {
        return Ok(path.display().to_string());
    }
    let elsewhere = match of_kind.first() {
        Some(place) => format!("; there is one at {place}"),
        None => format!("; `{mount} {}` mounts one", path.display()),
    };
    Err(format!("{} is not in a {kind} file system{elsewhere}", path.display()))
}

/// Loads and attaches the BPF programs beside those of a running agent, with separate pins.
fn try_bpf(cgroup: &Path, bpf_fs: &Path) -> Result<String, String> {
    let pins: PathBuf = bpf_fs.join(format!("pathloom-hostd-check-{}", std::process::id()));
    let setup = Setup {
        cgroup: cgroup.to_owned(),
        pins: pins.clone(),
        threshold_bytes: u64::MAX,
        tos: 0,
        prefixes: Vec::new(),
    };
    let tried = Bpf::start(&setup, &[]).and_then(|mut bpf| {
        let own = Namespace::open(None).map_err(|problem| problem.to_string())?;
        bpf.sweep(&own)
    });
    let _ = clean(&pins);
    let _ = fs::remove_dir(&pins);
    tried.map(|()| String::new())
}
