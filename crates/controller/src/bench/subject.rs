//! Processes to be measured: this program again, and rivals where they are installed.

use crate::load::resident_bytes;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a rival may take until it listens.
const PATIENCE: Duration = Duration::from_secs(20);

/// A controller in a process of its own; it ends with this value.
pub(crate) struct Subject {
    child: Child,
    /// Port of the loopback it listens on.
    port: u16,
}

impl Subject {
    /// This program, serving `learning` or `fabric:SCHEME:FABRIC`.
    pub(crate) fn ours(what: &str) -> Result<Subject, String> {
        let program = std::env::current_exe().map_err(|problem| problem.to_string())?;
        let mut command = Command::new(program);
        command.args(["bench", "serve", what]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|problem| format!("cannot start a controller: {problem}"))?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            let _ = BufReader::new(out).read_line(&mut line);
        }
        match line.trim().parse() {
            Ok(port) => Ok(Subject { child, port }),
            Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(format!("the controller for {what} did not start"))
            }
        }
    }

    /// A rival, if it is installed: its name and how it is started on a port.
    pub(crate) fn rival(name: &str) -> Option<Subject> {
        let port = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr()).ok()?.port();
        let mut command = Command::new(name);
        match name {
            "ovs-testcontroller" => {
                command.args(["-O", "OpenFlow13", "--unixctl=none", "-vconsole:off", "-vsyslog:off"]);
                command.arg(format!("ptcp:{port}:127.0.0.1"));
            }
            _ => {
                command.args(["--ofp-listen-host", "127.0.0.1", "--ofp-tcp-listen-port", &port.to_string()]);
                command.arg("os_ken.app.simple_switch_13");
            }
        }
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut subject = Subject { child: quiet.spawn().ok()?, port };
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let gone = subject.child.try_wait().ok().flatten().is_some();
            if gone || start.elapsed() > PATIENCE {
                return None;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(subject)
    }

    /// Its port, and its number among the processes.
    pub(crate) fn place(&self) -> (u16, u32) {
        (self.port, self.child.id())
    }

    /// Its memory.
    pub(crate) fn resident_bytes(&self) -> Option<u64> {
        resident_bytes(self.child.id())
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
