//! How the process of a scheme is started, and ended with all processes that it has started, or how it is reached at its socket.

use crate::config::{Launch, ProcessCommand};
use crate::hub::scheme_process::{read_greeting, START_WITHIN};
use pathloom_scheme::remote::Greeting;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{kill_process_group, Pid, Signal};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Maximum length of a line of a process.
pub(super) const LINE_BYTES: u64 = 64 << 20;
/// The variables of the environment that a process gets.
const VARIABLES: [&str; 6] = ["PATH", "PYTHONPATH", "VIRTUAL_ENV", "HOME", "LANG", "TZ"];

/// A process that runs until this value is dropped.
pub(super) struct Running {
    child: Child,
}

impl Drop for Running {
    fn drop(&mut self) {
        // It leads a group. It has not been waited for, so no other process has its number.
        if let Some(group) = Pid::from_raw(self.child.id() as i32) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Gets a process. It runs until the first value is dropped, or the connection is closed if others have started it.
pub(super) fn open(launch: &Launch) -> io::Result<(Option<Running>, UnixStream)> {
    match launch {
        Launch::Start(command) => start(command).map(|(running, pipe)| (Some(running), pipe)),
        Launch::Connect { socket, user } => connect(socket, *user).map(|stream| (None, stream)),
    }
}

/// Connects to a socket at which a process of `user` listens. Does not wait: a listener that is busy is an error.
fn connect(socket: &Path, user: Option<u32>) -> io::Result<UnixStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let stream = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    net::connect(&stream, &SocketAddrUnix::new(socket)?)?;
    let peer = net::sockopt::socket_peercred(&stream)?.uid.as_raw();
    if let Some(user) = user.filter(|&user| user != peer) {
        return Err(io::Error::other(format!("user {peer} listens there; expected user {user} (scheme.user)")));
    }
    let stream = UnixStream::from(stream);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Starts the process. Its standard input and output are the other end of the returned socket. Its errors go where those
/// of the controller go. Its working directory is `/`, which every user may enter. It gets few variables of the environment, because others may hold secrets.
fn start(wanted: &ProcessCommand) -> io::Result<(Running, UnixStream)> {
    let (own, other) = UnixStream::pair()?;
    let output = other.try_clone()?;
    let mut command = Command::new(&wanted.program);
    command.args(&wanted.arguments).current_dir("/").process_group(0).env_clear();
    command.envs(VARIABLES.iter().filter_map(|&name| Some((name, std::env::var_os(name)?))));
    command.stdin(Stdio::from(OwnedFd::from(other))).stdout(Stdio::from(OwnedFd::from(output)));
    if let Some((user, group)) = wanted.user {
        // Supplementary groups of root are dropped with the user.
        command.uid(user).gid(group);
    }
    Ok((Running { child: command.spawn()? }, own))
}

/// Gets a process only to read its greeting.
///
/// # Errors
/// It cannot be started, ends, or says no greeting in time.
pub(super) fn greet(launch: &Launch, hello: &str) -> Result<Greeting, String> {
    let failed = |problem: io::Error| format!("{launch}: {problem}");
    let (_running, mut pipe) = open(launch).map_err(failed)?;
    pipe.set_read_timeout(Some(Duration::from_nanos(START_WITHIN.0))).map_err(failed)?;
    // If the process has ended, the missing greeting says it.
    let _ = pipe.write_all(hello.as_bytes()).and_then(|()| pipe.write_all(b"\n"));
    let mut line = String::new();
    match BufReader::new(pipe.take(LINE_BYTES)).read_line(&mut line) {
        Ok(0) => Err("the process ended before its greeting; its errors are above".to_owned()),
        Ok(_) => read_greeting(line.trim_end()),
        Err(problem) => Err(format!("the process said no greeting: {problem}")),
    }
}
