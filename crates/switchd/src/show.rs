//! The report that `pathloom-switch show` prints, and the control socket that provides it.

use crate::layout::Port;
use pathloom_daemon_support::files::bind_private;
use pathloom_model::PortNo;
use pathloom_switching::program::DropCause;
use pathloom_switching::{Saved, Tables};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long both ends of the control socket wait for each other.
const PATIENCE: Duration = Duration::from_secs(5);

/// Tables and counters of a switch.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Report {
    pub name: String,
    pub protocol: String,
    pub process: u32,
    /// Time since this start.
    pub uptime_s: f64,
    /// Whether the switch continued with the tables of an earlier start.
    pub taken_over: bool,
    pub ports: Vec<PortRow>,
    /// Number of directed connection entries as in the paper, and number of those of confirmed connections.
    pub connection_entries: usize,
    pub confirmed_entries: usize,
    pub explorations: u64,
    pub recoveries: u64,
    pub fails: u64,
    pub unreadable: u64,
    /// Number of frames that could not be sent, for example because of a full queue or a port that is down.
    pub send_failures: u64,
    /// Dropped frames by cause.
    pub dropped: BTreeMap<String, u64>,
    /// Number of flows that the kernel forwards.
    pub kernel_flows: usize,
    pub hosts: Vec<HostRow>,
    pub neighbours: Vec<NeighbourRow>,
    pub connections: Vec<ConnectionRow>,
}

/// A port.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PortRow {
    pub number: u32,
    pub interface: String,
    pub up: bool,
    /// Frames forwarded by the kernel, and their bytes.
    pub forwarded: u64,
    pub forwarded_bytes: u64,
    /// Frames passed to user space.
    #[serde(rename = "told")]
    pub upcalls: u64,
    /// Frames dropped by the kernel because the port sends too many frames to user space.
    pub limited: u64,
    /// Frames dropped because the ring to user space was full, and because they were too long for it.
    pub lost: u64,
    pub too_long: u64,
    /// Number of flows of the port that the kernel forwards.
    pub kernel_flows: usize,
    /// Number of times that the BPF program was attached again, after others had removed it.
    pub put_back: u64,
    /// Number of frames that were refused, and the cause of the last refusal.
    pub refused: u64,
    pub refused_last: Option<String>,
}

/// The way to a host.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HostRow {
    pub mac: String,
    pub port: u32,
    pub local: bool,
}

/// A neighbouring switch.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct NeighbourRow {
    pub port: u32,
    pub mac: String,
    pub its_port: u32,
}

/// A confirmed connection.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ConnectionRow {
    pub source: String,
    pub destination: String,
    pub to_source: u32,
    pub to_destination: u32,
}

/// Returns the name of the cause of a refusal, or `unreadable`.
pub fn refused_name(cause: Option<DropCause>) -> &'static str {
    cause.map_or("unreadable", DropCause::name)
}

impl PortRow {
    /// Creates the row of a port from its counters in the kernel.
    pub fn new(number: PortNo, interface: &str, up: bool, kernel: Port) -> PortRow {
        PortRow {
            number: number.0,
            interface: interface.into(),
            up,
            forwarded: kernel.forwarded,
            forwarded_bytes: kernel.forwarded_bytes,
            upcalls: kernel.told,
            limited: kernel.limited,
            lost: kernel.lost,
            too_long: kernel.too_long,
            kernel_flows: 0,
            put_back: 0,
            refused: 0,
            refused_last: None,
        }
    }
}

impl Report {
    /// Fills in the tables of the program.
    pub fn fill(&mut self, tables: &Tables, saved: &Saved) {
        (self.connection_entries, self.confirmed_entries) = (tables.connections, tables.confirmed);
        (self.explorations, self.recoveries, self.fails) = (tables.explorations, tables.recoveries, tables.fails);
        self.unreadable = tables.unreadable;
        let causes = DropCause::ALL.iter().zip(tables.dropped).filter(|(_, count)| *count > 0);
        self.dropped = causes.map(|(cause, count)| (cause.name().into(), count)).collect();
        for refused in &tables.refused {
            if let Some(row) = self.ports.iter_mut().find(|row| row.number == refused.port.0) {
                (row.refused, row.refused_last) = (refused.frames, Some(refused_name(refused.last).into()));
            }
        }
        let host = |host: &pathloom_switching::SavedHost| HostRow {
            mac: host.mac.to_string(),
            port: host.port.0,
            local: host.local,
        };
        self.hosts = saved.hosts.iter().map(host).collect();
        let neighbour = |one: &pathloom_switching::SavedNeighbour| NeighbourRow {
            port: one.port.0,
            mac: one.switch.to_string(),
            its_port: one.its_port.0,
        };
        self.neighbours = saved.neighbours.iter().map(neighbour).collect();
        let connection = |one: &pathloom_switching::SavedConnection| {
            let (src, dst, src_port, dst_port) = (
                one.conversation.five_tuple.src(),
                one.conversation.five_tuple.dst(),
                one.conversation.five_tuple.src_port(),
                one.conversation.five_tuple.dst_port(),
            );
            ConnectionRow {
                source: format!("{src}:{src_port}"),
                destination: format!("{dst}:{dst_port}"),
                to_source: one.to_source.0,
                to_destination: one.to_destination.0,
            }
        };
        self.connections = saved.connections.iter().map(connection).collect();
    }

    /// Returns the report as text for people.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let start = if self.taken_over { "with the tables of an earlier start" } else { "without earlier tables" };
        let _ = writeln!(
            out,
            "{}: {}, process {}, running for {:.0} s, started {start}",
            self.name, self.protocol, self.process, self.uptime_s
        );
        let _ = writeln!(
            out,
            "  tables      {} connection entries ({} confirmed), {} hosts, {} neighbours, {} flows in the kernel",
            self.connection_entries,
            self.confirmed_entries,
            self.hosts.len(),
            self.neighbours.len(),
            self.kernel_flows
        );
        let _ = writeln!(
            out,
            "  started     {} explorations, {} recoveries, {} Path Fail messages",
            self.explorations, self.recoveries, self.fails
        );
        let drops: Vec<String> = self.dropped.iter().map(|(cause, count)| format!("{cause} {count}")).collect();
        let _ = writeln!(
            out,
            "  dropped     {}; unreadable {}, not sent {}",
            if drops.is_empty() { "nothing".into() } else { drops.join(", ") },
            self.unreadable,
            self.send_failures
        );
        for port in &self.ports {
            let _ = writeln!(
                out,
                "  port {:<4}   {:15} {:4} kernel {} frames, user space {}, limited {}, lost {}, too long {}",
                port.number,
                port.interface,
                if port.up { "up" } else { "down" },
                port.forwarded,
                port.upcalls,
                port.limited,
                port.lost,
                port.too_long
            );
            if let Some(last) = &port.refused_last {
                let _ = writeln!(out, "              refused {} frames, last: {last}", port.refused);
            }
        }
        for one in &self.neighbours {
            let _ = writeln!(out, "  neighbour   {} port {} at port {}", one.mac, one.its_port, one.port);
        }
        for one in &self.hosts {
            let _ = writeln!(
                out,
                "  host        {} by port {}{}",
                one.mac,
                one.port,
                if one.local { ", at this switch" } else { "" }
            );
        }
        for one in &self.connections {
            let _ = writeln!(
                out,
                "  connection  {} > {}: ports {} > {}",
                one.source, one.destination, one.to_source, one.to_destination
            );
        }
        out
    }
}

/// Returns the path of the control socket of a switch.
pub fn socket(directory: &Path) -> PathBuf {
    directory.join("control.sock")
}

/// Opens the control socket. Only root may use it.
pub fn listen(directory: &Path) -> io::Result<UnixListener> {
    bind_private(&socket(directory))
}

/// Answers on a separate thread, so that a slow reader does not delay frames.
pub fn answer(mut stream: UnixStream, report: Report) {
    std::thread::spawn(move || {
        let text = serde_json::to_vec(&report).unwrap_or_default();
        let _ = stream.set_nonblocking(false);
        let _ = stream.set_write_timeout(Some(PATIENCE));
        let _ = stream.write_all(&text);
    });
}

/// Requests the report of a switch. `None` if the switch does not run.
pub fn ask(directory: &Path) -> Result<Option<Report>, String> {
    let Ok(mut stream) = UnixStream::connect(socket(directory)) else { return Ok(None) };
    let _ = stream.set_read_timeout(Some(PATIENCE));
    let mut text = String::new();
    let read = stream.read_to_string(&mut text).map_err(|problem| problem.to_string());
    read.map_err(|problem| format!("{}: {problem}", socket(directory).display()))?;
    serde_json::from_str(&text).map(Some).map_err(|problem| format!("unreadable answer of the switch: {problem}"))
}
