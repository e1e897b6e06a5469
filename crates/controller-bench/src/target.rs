//! Processes to measure: this program again, and installed rivals.

use crate::process::resident_bytes;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit until a rival listens.
const PATIENCE: Duration = Duration::from_secs(20);

/// Another controller, for comparison.
pub(crate) struct Rival {
    pub name: &'static str,
    /// Maximum number of switches, if it has a limit, and the cause of the limit.
    most: Option<(usize, &'static str)>,
    /// How it is started on a port.
    command: fn(u16) -> Command,
}

/// The result of starting a rival.
pub(crate) enum Start {
    /// It is not installed.
    Absent,
    /// It cannot do the measurement.
    Unfit(String),
    Runs(Target),
}

/// All rivals.
pub(crate) const RIVALS: [Rival; 2] = [
    Rival { name: "ovs-testcontroller", most: Some((16, "MAX_SWITCHES in its source")), command: ovs },
    Rival { name: "os-ken", most: None, command: os_ken },
];

fn ovs(port: u16) -> Command {
    let mut command = Command::new("ovs-testcontroller");
    command.args(["-O", "OpenFlow13", "--unixctl=none", "-vconsole:off", "-vsyslog:off"]);
    command.arg(format!("ptcp:{port}:127.0.0.1"));
    command
}

fn os_ken(port: u16) -> Command {
    let beside = std::env::current_exe().ok().and_then(|program| {
        let python = program.parent()?.parent()?.join("judges/bin/python");
        python.exists().then_some(python)
    });
    let named = std::env::var_os("PATHLOOM_OSKEN_PYTHON").map(PathBuf::from);
    let mut command = Command::new(named.or(beside).unwrap_or("python3".into()));
    command.args(["-c", include_str!("rival_os_ken.py"), &port.to_string()]);
    command
}

impl Rival {
    /// Starts it for this number of switches.
    pub(crate) fn start(&self, switches: usize) -> Start {
        if let Some((most, why)) = self.most.filter(|&(most, _)| switches > most) {
            return Start::Unfit(format!("it accepts {most} switches at most ({why})"));
        }
        let port = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
        let Ok(port) = port.map(|address| address.port()) else { return Start::Absent };
        let mut command = (self.command)(port);
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(child) = quiet.spawn() else { return Start::Absent };
        let mut target = Target { child, port, second_port: None };
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if target.child.try_wait().ok().flatten().is_some() {
                return Start::Absent;
            }
            if start.elapsed() > PATIENCE {
                return Start::Unfit(format!("it did not listen within {PATIENCE:?}"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        // It must notice that this connection is gone, because it may count connections.
        std::thread::sleep(Duration::from_millis(200));
        Start::Runs(target)
    }
}

/// A controller in its own process, which ends when this value is dropped.
pub(crate) struct Target {
    child: Child,
    /// Port of the loopback it listens on.
    port: u16,
    /// Port for applications that request paths, if it has one.
    second_port: Option<u16>,
}

impl Target {
    /// This program, serving `learning` or `fabric:SCHEME:FABRIC`.
    pub(crate) fn start(what: &str) -> Result<Target, String> {
        Target::start_with(&[what])
    }

    /// The same as the leader of a cluster with the etcd at this endpoint.
    pub(crate) fn start_in_cluster(what: &str, endpoint: &str) -> Result<Target, String> {
        Target::start_with(&[what, endpoint])
    }

    fn start_with(words: &[&str]) -> Result<Target, String> {
        let program = std::env::current_exe().map_err(|problem| problem.to_string())?;
        let mut command = Command::new(program);
        command.arg("serve").args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|problem| format!("cannot start a controller: {problem}"))?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            let _ = BufReader::new(out).read_line(&mut line);
        }
        let mut ports = line.split_whitespace().map(str::parse);
        match ports.next() {
            Some(Ok(port)) => Ok(Target { child, port, second_port: ports.next().and_then(Result::ok) }),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                Err(format!("the controller for {} did not start", words.join(" ")))
            }
        }
    }

    /// Its port and its process identifier.
    pub(crate) fn place(&self) -> (u16, u32) {
        (self.port, self.child.id())
    }

    /// Its port for applications that request paths.
    pub(crate) fn second_port(&self) -> Option<u16> {
        self.second_port
    }

    /// Its memory.
    pub(crate) fn resident_bytes(&self) -> Option<u64> {
        resident_bytes(self.child.id())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
