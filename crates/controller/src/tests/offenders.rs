//! Malicious peers at the sockets of a controller that others use: a switch that does not read, switches without
//! encryption, and API clients without a token. `virtual_time` has everything that needs no socket.

use super::tls::{authority, with_tls};
use crate::tests::loopback::{api, lab_without, wait, Directory, Idle, Lab, READ};
use pathloom_fake_switch::{append_message, Common, Fake};
use pathloom_openflow::Message;
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

/// A ToR that no flow of others crosses, so that a rogue can take its place.
const TOR: u64 = 1;

static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Sink;

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOG.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Lines of the log, of all controllers of this process, that contain these words.
fn logged(words: &[&str]) -> Vec<String> {
    let log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    let text = String::from_utf8_lossy(&log);
    text.lines().filter(|line| words.iter().all(|word| line.contains(word))).map(str::to_owned).collect()
}

const MORE: &str = "[scheme]\nspec = \"ofpt:sizes=announced\"\n";

/// A controller whose log is kept. Its switches with these identifiers do not connect by themselves.
fn standing(absent: &[u64]) -> Lab {
    keep_log();
    lab_without(Directory::new(), &api(MORE), absent)
}

fn keep_log() {
    static KEPT: Once = Once::new();
    KEPT.call_once(|| tracing_subscriber::fmt().with_ansi(false).with_writer(|| Sink).init());
}

/// Checks that others are served: a transfer from ToR e1_0 to e2_0 gets its path, and the number of sessions
/// is right.
fn goes_on(lab: &Lab, src_port: u16, sessions: u64) {
    let five_tuple = json!({"src": "10.0.2.1", "dst": "10.0.4.1", "src_port": src_port, "dst_port": 80});
    let (status, answer) =
        lab.change("POST", "/v1/flows", &json!({"five_tuple": five_tuple, "size_bytes": 10_000_000}).to_string());
    assert_eq!(status, 202, "{answer}");
    let flow = answer["flow"]["id"].as_str().unwrap().to_owned();
    wait("the flow of another host is on its path", || lab.get(&format!("/v1/flows/{flow}"))["phase"] == "own path");
    wait("the number of sessions is right", || lab.get("/v1/state")["sessions"] == sessions);
}

/// A connection to the controller that acts as a switch when it is told to.
struct Rogue {
    stream: TcpStream,
    fake: Fake,
    heard: Vec<u8>,
    work: Idle,
}

impl Rogue {
    fn connect(lab: &Lab, dpid: u64, ports: u32) -> Rogue {
        let stream = TcpStream::connect(("127.0.0.1", lab.openflow)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
        let fake = Fake::new(dpid, ports, Common::default());
        let mut rogue = Rogue { stream, fake, heard: Vec::new(), work: Idle };
        let mut hello = Vec::new();
        rogue.fake.hello(&mut hello);
        rogue.send(&hello);
        rogue
    }

    /// The address by which the controller names it.
    fn peer(&self) -> String {
        self.stream.local_addr().unwrap().to_string()
    }

    /// Sends these bytes. Returns whether the connection is still open.
    fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// Answers the messages that have arrived. Returns whether the connection is still open.
    fn serve(&mut self) -> bool {
        let mut buffer = [0; 1 << 16];
        match self.stream.read(&mut buffer) {
            Ok(0) => return false,
            Ok(count) => self.heard.extend_from_slice(&buffer[..count]),
            Err(problem) => {
                return matches!(problem.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
            }
        }
        let mut out = Vec::new();
        let used = self.fake.read(&self.heard, &mut out, &mut self.work).unwrap();
        self.heard.drain(..used);
        self.send(&out)
    }

    /// Sends echo requests and reads none of the answers, until the controller has so much to write that it stops
    /// reading.
    fn stop_reading(&mut self) {
        self.stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
        let (mut echo, end) = (Vec::new(), Instant::now() + Duration::from_secs(60));
        append_message(&Message::EchoRequest(&[0; 60_000]), 1, &mut echo);
        while self.send(&echo) {
            assert!(Instant::now() < end, "the controller reads without end");
        }
    }
}

#[test]
fn a_switch_that_does_not_read_is_replaced_and_its_connection_ends() {
    let lab = standing(&[TOR]);
    let sessions = || lab.get("/v1/state")["sessions"] == 20;
    let mut old = Rogue::connect(&lab, TOR, 4);
    wait("it has its session", || old.serve() && sessions());
    old.stop_reading();
    let mut heir = Rogue::connect(&lab, TOR, 4);
    let peer = old.peer();
    wait("it is replaced", || heir.serve() && !logged(&[&peer, "took its place"]).is_empty());
    wait("its connection ends", || !old.serve());
    wait("the other one has its session", || heir.serve() && sessions());
    goes_on(&lab, 1000, 20);
}

#[test]
fn requests_without_a_token_are_logged_ever_less_often() {
    let lab = standing(&[]);
    let named = || logged(&["a request to the API was refused", "peer=127.0.0.1"]).len();
    let before = named();
    for number in 0..300 {
        let shown = if number % 2 == 0 { "" } else { "Bearer of bad news" };
        assert_eq!(lab.call("GET", "/v1/state", shown, "").status, 401);
    }
    let lines = named() - before;
    // The first, the second, the fourth and so on are logged. Parallel tests also have refused requests.
    assert!((9..40).contains(&lines), "{lines}");
    goes_on(&lab, 1000, 20);
    let metrics = lab.call("GET", "/metrics", &format!("Bearer {READ}"), "").body;
    assert!(metrics.contains("pathloom_api_requests_total{status=\"401\"} 300"), "{metrics}");
}

/// Connects and sends these bytes. Returns the answer that came before the connection was closed.
fn turned_away(lab: &Lab, said: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(("127.0.0.1", lab.openflow)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut answer = Vec::new();
    // The connection may be closed before all bytes are sent.
    let _ = stream.write_all(said);
    match stream.read_to_end(&mut answer) {
        Err(problem) if problem.kind() != std::io::ErrorKind::ConnectionReset => panic!("{problem}"),
        _ => answer,
    }
}

#[test]
fn switches_that_are_not_encrypted_are_counted_and_named_once() {
    keep_log();
    let lab = with_tls(&authority(), "");
    for _ in 0..100 {
        turned_away(&lab, &[4, 0, 0, 8, 0, 0, 0, 1]);
    }
    let metrics = lab.call("GET", "/metrics", &format!("Bearer {READ}"), "").body;
    assert!(metrics.contains("pathloom_offences_total 100\n"), "{metrics}");
    assert!(metrics.contains("pathloom_handshakes_failed_total 100\n"), "{metrics}");
    // Parallel tests also disconnect switches.
    let lines = logged(&["a TLS handshake failed"]);
    assert!((1..20).contains(&lines.len()), "{lines:?}");
}
