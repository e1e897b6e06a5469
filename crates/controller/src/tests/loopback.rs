//! A whole controller on the loopback, with fake switches, for tests of its interfaces.

use crate::commands::hub;
use crate::config::{check, CheckedConfig};
use crate::drivers::encrypted::{accept_tls, Encryption};
use crate::drivers::listening::accept_tcp;
use crate::drivers::persist::Persist;
use crate::drivers::storing::store_changes;
use crate::drivers::timers::{run_periodic_work, run_timers};
use pathloom_control::Input;
use pathloom_fake_switch::{connect, Work};
use pathloom_fake_switch::{Common, Fake};
use serde_json::Value;
use std::io::{BufRead, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

pub(crate) const READ: &str = "0123456789abcdef0123456789abcdef";
pub(crate) const OPERATE: &str = "fedcba9876543210fedcba9876543210";

/// A directory for one test. Dropping it deletes the directory.
pub(crate) struct Directory(pub PathBuf);

impl Directory {
    pub(crate) fn new() -> Directory {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("pathloom-test-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    pub(crate) fn write(&self, name: &str, mode: u32, text: &str) {
        let file = self.0.join(name);
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The workload of a fake switch that only keeps its session.
pub(crate) struct Idle;

impl Work for Idle {
    fn begin(&mut self, _out: &mut Vec<u8>) {}
    fn message(&mut self, _: std::time::Instant, _kind: u8, _bytes: &[u8], _out: &mut Vec<u8>) {}
}

/// A controller that runs as long as the process does.
pub(crate) struct Lab {
    pub api: SocketAddr,
    /// Address at which applications on hosts request paths, if it is configured.
    pub paths: Option<SocketAddr>,
    pub openflow: u16,
    _directory: Directory,
}

/// Starts the controller of a k=4 FatTree. `more` is added to its configuration. If `switches` is true, its switches
/// connect.
pub(crate) fn lab(directory: Directory, more: &str, switches: bool) -> Lab {
    start(directory, more, |_| switches)
}

/// The same, but the switches with these datapath identifiers do not connect.
pub(crate) fn lab_without(directory: Directory, more: &str, absent: &[u64]) -> Lab {
    start(directory, more, |dpid| !absent.contains(&dpid))
}

fn start(directory: Directory, more: &str, connects: impl Fn(u64) -> bool) -> Lab {
    directory.write("tokens", 0o600, &format!("read looker {READ}\noperate doer {OPERATE}\n"));
    // The switches forward nothing, so no probe gets through.
    let fabric = "fabric = { spec = \"fat-tree:k=4,rate=10Mbps\" }\ndiscovery = { links = \"off\" }";
    let text = format!("{fabric}\n{more}");
    let mut checked = check(&text, &directory.0).unwrap();
    crate::commands::greet_process(&mut checked).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let dpids = checked.fabric.switches().iter().map(|switch| u64::from(switch.0) + 1);
    let dpids: Vec<u64> = dpids.filter(|&dpid| connects(dpid)).collect();
    let sessions = dpids.len();
    std::thread::spawn(move || run(checked, &dpids, |places| sender.send(places).unwrap()));
    let Places { api, paths, openflow } = receiver.recv_timeout(Duration::from_secs(30)).unwrap();
    let lab = Lab { api, paths, openflow, _directory: directory };
    if sessions > 0 {
        wait("all sessions are up", || lab.get("/v1/state")["sessions"] == sessions);
    }
    lab
}

/// The addresses at which a controller listens.
struct Places {
    api: SocketAddr,
    paths: Option<SocketAddr>,
    openflow: u16,
}

fn run(checked: CheckedConfig, dpids: &[u64], told: impl FnOnce(Places)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let persist = Persist::new(checked.config.state.directory.clone());
        let shared = hub(&checked, &persist).unwrap().0;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (address, questions) = crate::api::start(checked.api.clone().unwrap()).unwrap();
        crate::drivers::process::begin(&checked, &shared);
        shared.drive(|hub, now| hub.handle(now, Input::Timeout));
        for &(prefix, at) in &checked.places {
            shared.drive(|hub, now| hub.handle(now, Input::Place { prefix, at: Some(at) }));
        }
        tokio::task::spawn_local(run_timers(shared.clone()));
        tokio::task::spawn_local(run_periodic_work(shared.clone(), persist.clone()));
        tokio::task::spawn_local(store_changes(shared.clone(), persist));
        tokio::task::spawn_local(crate::api::answer(shared.clone(), questions));
        let paths = checked.paths.clone().map(|paths| crate::api::start_for_hosts(paths).unwrap());
        let paths = paths.map(|(address, questions)| {
            tokio::task::spawn_local(crate::api::answer(shared.clone(), questions));
            address
        });
        for &dpid in dpids {
            let ports = checked.fabric.node(checked.datapaths[&dpid]).ports.len() as u32;
            let fake = Fake::new(dpid, ports, Common::default());
            connect(port, fake, Idle, Rc::new(Notify::new()));
        }
        told(Places { api: address, paths, openflow: port });
        match Encryption::new(&checked) {
            Some(encryption) => accept_tls(listener, encryption, shared).await,
            None => accept_tcp(listener, shared).await,
        }
    });
}

/// Waits until `done` returns true, for 60 s at most: only a defect takes so long.
pub(crate) fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < end, "{what}: not within 60 s");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The response to an HTTP request.
pub(crate) struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|problem| panic!("{problem}: {}", self.body))
    }
}

/// Reads a response to its end.
pub(crate) fn read_answer(mut stream: impl Read) -> Answer {
    let mut bytes = Vec::new();
    // The controller may have sent an answer before it closed the connection.
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Answer { status, head: head.to_lowercase(), body: body.to_owned() }
}

pub(crate) fn request(method: &str, path: &str, authorization: &str, body: &str) -> String {
    let length = body.len();
    let shown = if authorization.is_empty() { String::new() } else { format!("Authorization: {authorization}\r\n") };
    format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{shown}Content-Length: {length}\r\n\r\n{body}"
    )
}

impl Lab {
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.api).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    pub(crate) fn call(&self, method: &str, path: &str, authorization: &str, body: &str) -> Answer {
        let mut stream = self.connect();
        // The controller may close the connection of a refused request before all bytes are sent.
        let _ = stream.write_all(request(method, path, authorization, body).as_bytes());
        read_answer(stream)
    }

    /// Gets a resource that must exist.
    pub(crate) fn get(&self, path: &str) -> Value {
        let answer = self.call("GET", path, &format!("Bearer {READ}"), "");
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.json()
    }

    /// The stream of events.
    pub(crate) fn events(&self, authorization: &str) -> impl Iterator<Item = Value> {
        let mut stream = self.connect();
        stream.write_all(request("GET", "/v1/events", authorization, "").as_bytes()).unwrap();
        let lines = std::io::BufReader::new(stream).lines().map_while(Result::ok);
        lines.filter_map(|line| Some(serde_json::from_str(line.strip_prefix("data: ")?).unwrap()))
    }

    /// Sends a request that changes something. Returns the status and the answer.
    pub(crate) fn change(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let answer = self.call(method, path, &format!("Bearer {OPERATE}"), body);
        (answer.status, answer.json())
    }
}

/// The section `[api]` of a configuration, with these additional settings.
pub(crate) fn api(more: &str) -> String {
    let timeout = if more.starts_with("timeout") { "" } else { "timeout = \"1s\"\n" };
    format!("[api]\naddress = \"127.0.0.1:0\"\ntokens = \"tokens\"\n{timeout}{more}\n")
}
