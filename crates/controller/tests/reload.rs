//! A reload (SIGHUP): another scheme, other tokens and certificates. A configuration with unknown keys is refused
//! with the place of the key, at the start and at a reload. A refused reload changes nothing.

use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{channel, Receiver};
use std::sync::Arc;
use std::time::{Duration, Instant};

const GOOD: &str = "fabric = { spec = \"diamond:hosts=2,rate=10Mbps\" }\nlisten = { address = \"127.0.0.1:0\", unix = \"openflow\" }\n";
const BAD: &str =
    "fabric = { spec = \"diamond:hosts=2,rate=10Mbps\" }\nlisten = { address = \"127.0.0.1:0\", unix = \"openflow\" }\nsesions = 1\n";

/// A directory for one test. Dropping it deletes the directory.
struct Directory(PathBuf);

impl Directory {
    fn new(what: &str) -> Directory {
        let place = std::env::temp_dir().join(format!("pathloom-reload-{what}-{}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        Directory(place)
    }

    /// Writes a file that nobody else can read.
    fn write(&self, name: &str, text: &str) {
        let file = self.0.join(name);
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A controller, and the lines of its log.
struct Running {
    process: Child,
    log: Receiver<String>,
}

impl Running {
    fn start(place: &Path) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pathloom-controller"));
        command.args(["--config", "controller.toml"]).current_dir(place).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let (sender, log) = channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Running { process, log }
    }

    /// The next line of the log with these words.
    fn says(&self, words: &str) -> String {
        let mut heard = Vec::new();
        loop {
            match self.log.recv_timeout(Duration::from_secs(60)) {
                Ok(line) if line.contains(words) => return line,
                Ok(line) => heard.push(line),
                Err(problem) => panic!("{words}: {problem}; {heard:#?}"),
            }
        }
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.process.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn unknown_keys_are_named_and_change_nothing() {
    let place = Directory::new("keys");
    let write = |text: &str| place.write("controller.toml", text);
    write(BAD);
    let refused = Command::new(env!("CARGO_BIN_EXE_pathloom-controller"))
        .args(["--config", "controller.toml"])
        .current_dir(&place.0)
        .output()
        .unwrap();
    let why = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{why}");
    assert!(why.contains("sesions") && why.contains("line 3") && why.lines().count() == 1, "{why}");

    write(GOOD);
    let mut running = Running::start(&place.0);
    running.says("the controller runs");
    write(BAD);
    running.signal("-HUP");
    let line = running.says("the old one stays in use");
    assert!(line.contains("sesions") && line.contains("line 3") && line.contains("ERROR"), "{line}");
    // The controller keeps running, and accepts a valid configuration.
    assert!(running.process.try_wait().unwrap().is_none());
    write(&format!("{GOOD}[scheme]\nspec = \"lessor\"\n"));
    running.signal("-HUP");
    let line = running.says("another scheme is in charge");
    assert!(line.contains("ecmp") && line.contains("lessor"), "{line}");
    running.signal("-TERM");
    running.says("the rules stay in the switches");
    assert!(running.process.wait().unwrap().success());
}

/// The port in a line of the log.
fn port(line: &str) -> u16 {
    let digits = line.split("address=127.0.0.1:").nth(1).unwrap();
    digits.split(|one: char| !one.is_ascii_digit()).next().unwrap().parse().unwrap()
}

/// Sends a request with a token. Returns the status and the body of the answer.
fn ask(port: u16, token: &str, what: &str, body: &str) -> (String, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let length = body.len();
    write!(
        stream,
        "{what} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    (answer.split(' ').nth(1).unwrap().to_owned(), answer.split("\r\n\r\n").nth(1).unwrap().to_owned())
}

fn status(port: u16, token: &str) -> String {
    ask(port, token, "GET /v1/state", "").0
}

const OPERATOR: &str = "0123456789abcdef0123456789abcdef";

/// A controller with an API, and the port of the API.
fn with_api(place: &Directory, more: &str) -> (Running, u16) {
    place.write("tokens", &format!("operate ann {OPERATOR}\n"));
    let api = "[api]\naddress = \"127.0.0.1:0\"\ntokens = \"tokens\"\n";
    place.write("controller.toml", &format!("{GOOD}{api}{more}"));
    let running = Running::start(&place.0);
    let port = port(&running.says("the API listens"));
    running.says("the controller runs");
    (running, port)
}

/// An operator had a reason to fall back, which a new certificate does not change.
#[test]
fn a_reload_keeps_a_scheme_that_an_operator_put_in_charge() {
    let place = Directory::new("in-charge");
    let (running, port) = with_api(&place, "[scheme]\nspec = \"ofpt\"\n");
    assert_eq!(ask(port, OPERATOR, "POST /v1/scheme/fall-back", "").0, "200");
    running.signal("-HUP");
    assert!(running.says("names the same scheme").contains("ecmp"));
    let in_charge = || ask(port, OPERATOR, "GET /v1/scheme", "").1;
    assert!(in_charge().contains("\"scheme\":\"ecmp\""), "{}", in_charge());
    // A scheme that is new in the file is put in charge, and so is the same scheme with another seed.
    for scheme in ["lessor\"", "lessor\"\nseed = 7"] {
        let text = std::fs::read_to_string(place.0.join("controller.toml")).unwrap();
        let head = text.split("spec = \"").take(2).collect::<Vec<_>>().join("spec = \"");
        place.write("controller.toml", &format!("{head}spec = \"{scheme}\n"));
        running.signal("-HUP");
        running.says("another scheme is in charge");
        assert!(in_charge().contains("\"scheme\":\"lessor\""), "{}", in_charge());
    }
}

/// Shell commands in place of a scheme in Python, which need flows to be detected in this way.
fn far(detection: &str) -> String {
    format!(
        r#"read hello
echo '{{"protocol":1,"needs":{{"detection":"{detection}","subflows":false,"poll_period":null}}}}'
while read line; do
  id=${{line#*:}}; id=${{id%%,*}}
  echo "{{\"id\":$id,\"reply\":{{\"actions\":[{{\"set_defaults\":\"per_host\"}}]}}}}"
done
"#
    )
}

/// The file of a scheme has changed, the configuration has not. A file that is unusable changes nothing.
#[test]
fn the_file_of_a_scheme_is_read_again() {
    let place = Directory::new("file");
    place.write("far.py", &far("label"));
    // The last argument is the specification.
    place.write("python", "#!/bin/sh\n. \"${3%%:*}\"\n");
    std::fs::set_permissions(place.0.join("python"), std::fs::Permissions::from_mode(0o700)).unwrap();
    let scheme = "[scheme]\nspec = \"far.py:Far\"\npython = \"./python\"\n";
    let (running, port) = with_api(&place, scheme);
    running.says("the process of the scheme takes events");
    let row = || {
        let state: serde_json::Value = serde_json::from_str(&ask(port, OPERATOR, "GET /v1/state", "").1).unwrap();
        (state["scheme"].clone(), state["scheme_process"]["starts"].clone(), state["scheme_process"]["state"].clone())
    };
    for (broken, words) in [("read hello\nexit 1", "ended before its greeting"), (&*far("nothing"), "needs are others")]
    {
        place.write("far.py", broken);
        running.signal("-HUP");
        assert!(running.says("the old one stays").contains(words));
        assert_eq!(row(), ("far.py:Far".into(), 1.into(), "up".into()));
    }
    place.write("far.py", &far("label"));
    running.signal("-HUP");
    running.says("the process of the scheme takes events");
    assert_eq!(row(), ("far.py:Far".into(), 2.into(), "up".into()));
    // An operator has chosen another scheme.
    assert_eq!(ask(port, OPERATOR, "POST /v1/scheme/fall-back", "").0, "200");
    running.signal("-HUP");
    running.says("the scheme of the file is not in charge");
    assert_eq!(row().1, 2);
}

#[test]
fn drained_switches_stay_drained_if_the_snapshot_is_unusable() {
    let place = Directory::new("refused");
    let state = "[state]\ndirectory = \"state\"\n";
    let (mut running, port) = with_api(&place, state);
    // No switch connects, so the controller waits before it takes one out of service.
    let end = Instant::now() + Duration::from_secs(60);
    while ask(port, OPERATOR, "POST /v1/switches/c0/drain", "").0 != "200" {
        assert!(Instant::now() < end, "the drain is refused for ever");
        std::thread::sleep(Duration::from_millis(100));
    }
    running.signal("-TERM");
    running.says("the rules stay in the switches");
    running.process.wait().unwrap();
    // As after an upgrade, and on a machine whose clock was an hour ahead.
    let file = place.0.join("state/snapshot.json");
    let mut kept: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    kept["form"] = 99.into();
    kept["taken"] = (kept["taken"].as_u64().unwrap() + 3_600_000_000_000).into();
    place.write("state/snapshot.json", &kept.to_string());
    let (_running, port) = with_api(&place, state);
    let row = ask(port, OPERATOR, "GET /v1/switches/c0", "").1;
    assert!(row.contains("\"drained\":true"), "{row}");
    assert!(place.0.join("state/snapshot.refused.json").exists());
}

#[test]
fn times_continue_from_the_snapshot_if_the_clock_was_set_back() {
    let place = Directory::new("clock");
    let state = "[state]\ndirectory = \"state\"\n";
    let (mut running, _) = with_api(&place, state);
    running.signal("-TERM");
    running.says("the rules stay in the switches");
    running.process.wait().unwrap();
    let file = place.0.join("state/snapshot.json");
    let mut kept: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    kept["taken"] = (kept["taken"].as_u64().unwrap() + 3_600_000_000_000).into();
    place.write("state/snapshot.json", &kept.to_string());
    let running = Running::start(&place.0);
    assert!(running.says("times continue from the snapshot").contains("ahead_s=3"));
    running.says("the controller runs");
}

#[test]
fn tokens_are_read_again() {
    let place = Directory::new("tokens");
    let (first, second) = ("0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210");
    place.write("tokens", &format!("read ann {first}\n"));
    let api = "[api]\naddress = \"127.0.0.1:0\"\ntokens = \"tokens\"\n";
    place.write("controller.toml", &format!("{GOOD}{api}"));
    let running = Running::start(&place.0);
    let port = port(&running.says("the API listens"));
    assert_eq!((status(port, first), status(port, second)), ("200".into(), "401".into()));
    place.write("tokens", "nonsense\n");
    running.signal("-HUP");
    assert!(running.says("the old one stays in use").contains("tokens"));
    assert_eq!(status(port, first), "200");
    place.write("tokens", &format!("operate bob {second}\n"));
    running.signal("-HUP");
    running.says("names the same scheme");
    assert_eq!((status(port, first), status(port, second)), ("401".into(), "200".into()));
    // The log names what needs a restart.
    place.write("controller.toml", GOOD);
    running.signal("-HUP");
    assert!(running.says("needs a restart").contains("\"api\""));
    assert_eq!(status(port, second), "200");
}

/// A self-signed certificate for this machine, and its key, as PEM.
fn certificate(name: &str) -> (String, String) {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

/// The certificate that the server at a port shows, if the client trusts it.
fn shown(port: u16, trusted: &[&str]) -> Option<Vec<u8>> {
    let mut roots = RootCertStore::empty();
    trusted.iter().for_each(|one| roots.add(CertificateDer::from_pem_slice(one.as_bytes()).unwrap()).unwrap());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = builder.with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let mut session = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    while session.is_handshaking() {
        session.complete_io(&mut stream).ok()?;
    }
    session.peer_certificates().map(|all| all[0].to_vec())
}

#[test]
fn certificates_are_read_again() {
    let place = Directory::new("certificates");
    let (first, second) = (certificate("first"), certificate("second"));
    let write = |(certificate, key): &(String, String)| {
        place.write("certificate.pem", certificate);
        place.write("key.pem", key);
    };
    place.write("ca.pem", &first.0);
    place.write("tokens", "read ann 0123456789abcdef0123456789abcdef\n");
    let files = "certificate = \"certificate.pem\", key = \"key.pem\"";
    let text = format!(
        "fabric = {{ spec = \"diamond:hosts=2,rate=10Mbps\" }}\n\
         listen = {{ address = \"127.0.0.1:0\", tls = {{ {files}, client_ca = \"ca.pem\" }} }}\n\
         api = {{ address = \"127.0.0.1:0\", tokens = \"tokens\", tls = {{ {files} }} }}\n"
    );
    place.write("controller.toml", &text);
    write(&first);
    let running = Running::start(&place.0);
    let ports = ["listening for switches", "the API listens"].map(|words| port(&running.says(words)));
    let both = [first.0.as_str(), second.0.as_str()];
    let der = |pair: &(String, String)| CertificateDer::from_pem_slice(pair.0.as_bytes()).unwrap().to_vec();
    for port in ports {
        assert_eq!(shown(port, &both), Some(der(&first)));
    }
    // A key that does not belong to the certificate changes nothing.
    place.write("key.pem", &second.1);
    running.signal("-HUP");
    running.says("the old one stays in use");
    write(&second);
    running.signal("-HUP");
    running.says("names the same scheme");
    for port in ports {
        assert_eq!(shown(port, &both), Some(der(&second)));
        assert_eq!(shown(port, &both[..1]), None);
    }
}
