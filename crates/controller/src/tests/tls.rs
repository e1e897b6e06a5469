//! TLS with certificates made for the test: fake switches, HTTPS, and a real Open vSwitch.

use crate::tests::loopback::{api, lab, read_answer, request, wait, Directory, Idle, Lab, READ};
use pathloom_fake_switch::drive;
use pathloom_fake_switch::{Common, Fake};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

pub(crate) type Issuer = CertifiedIssuer<'static, KeyPair>;

/// Creates a certificate authority.
pub(crate) fn authority() -> Issuer {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "authority");
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate with this common name, and its key, as PEM.
fn issued(authority: &Issuer, name: &str) -> (String, String) {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    (certificate.pem(), key.serialize_pem())
}

/// A directory with the certificates of the controller and of the authority.
fn directory(authority: &Issuer) -> Directory {
    let directory = Directory::new();
    let (certificate, key) = issued(authority, "controller");
    directory.write("certificate.pem", 0o644, &certificate);
    directory.write("key.pem", 0o600, &key);
    directory.write("ca.pem", 0o644, &authority.pem());
    directory
}

const FILES: &str = "certificate = \"certificate.pem\", key = \"key.pem\"";

/// A controller whose switches must show a certificate of this authority.
pub(crate) fn with_tls(authority: &Issuer, more: &str) -> Lab {
    let tls = format!("tls = {{ {FILES}, client_ca = \"ca.pem\"{more} }}");
    // No idle handshake times out before the test ends.
    let text = format!("listen = {{ {tls} }}\nsessions = {{ handshake_timeout = \"10min\" }}\n{}", api(""));
    lab(directory(authority), &text, false)
}

/// The TLS settings of a client that shows this certificate, or none.
fn client(trusted: &Issuer, shown: Option<(String, String)>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(trusted.pem().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_root_certificates(roots);
    Arc::new(match shown {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            builder.with_client_auth_cert(vec![certificate], key).unwrap()
        }
    })
}

/// Connects a fake switch and keeps it up in a thread.
fn switch(port: u16, config: Arc<ClientConfig>, dpid: u64) {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let name = ServerName::try_from("localhost").unwrap();
            let Ok(mut stream) = tokio_rustls::TlsConnector::from(config).connect(name, stream).await else { return };
            let fake = Fake::new(dpid, 4, Common::default());
            // This ends when the controller closes the connection.
            let _ = drive(&mut stream, fake, Idle, &tokio::sync::Notify::new()).await;
        });
    });
}

fn sessions(lab: &Lab) -> u64 {
    lab.get("/v1/state")["sessions"].as_u64().unwrap()
}

fn metric(lab: &Lab, line: &str) -> bool {
    lab.call("GET", "/metrics", &format!("Bearer {READ}"), "").body.lines().any(|other| other == line)
}

#[test]
fn a_switch_needs_a_trusted_certificate_with_its_name() {
    let (ours, other) = (authority(), authority());
    let lab = with_tls(&ours, ", bind_names = true");
    // Switches of a k=4 FatTree are the nodes 0 to 19. The API gives the names of two of them.
    let rows = lab.get("/v1/switches");
    let (name, dpid) = (rows["items"][0]["name"].as_str().unwrap(), rows["items"][0]["datapath_id"].as_str().unwrap());
    let number = u64::from_str_radix(dpid, 16).unwrap();
    switch(lab.openflow, client(&ours, Some(issued(&ours, name))), number);
    wait("the switch with its own name has a session", || sessions(&lab) == 1);
    let second = rows["items"][1]["datapath_id"].as_str().unwrap();
    let number = u64::from_str_radix(second, 16).unwrap();
    switch(lab.openflow, client(&ours, None), number);
    wait("a switch without a certificate is refused", || metric(&lab, "pathloom_offences_total 1"));
    switch(lab.openflow, client(&ours, Some(issued(&other, second))), number);
    wait("a certificate of another authority is refused", || metric(&lab, "pathloom_offences_total 2"));
    switch(lab.openflow, client(&ours, Some(issued(&ours, name))), number);
    wait("a certificate of another switch is refused", || metric(&lab, "pathloom_offences_total 3"));
    let mut plain = TcpStream::connect(("127.0.0.1", lab.openflow)).unwrap();
    plain.write_all(&[4, 0, 0, 8, 0, 0, 0, 1]).unwrap();
    wait("an unencrypted connection is refused", || metric(&lab, "pathloom_offences_total 4"));
    assert_eq!(sessions(&lab), 1);
    switch(lab.openflow, client(&ours, Some(issued(&ours, second))), number);
    wait("the switch with its datapath identifier has a session", || sessions(&lab) == 2);
}

#[test]
fn idle_handshakes_do_not_block_switches_of_the_same_address() {
    let ours = authority();
    let lab = with_tls(&ours, "");
    let idle: Vec<TcpStream> = (0..400).map(|_| TcpStream::connect(("127.0.0.1", lab.openflow)).unwrap()).collect();
    let dpid = lab.get("/v1/switches")["items"][0]["datapath_id"].as_str().unwrap().to_owned();
    let number = u64::from_str_radix(&dpid, 16).unwrap();
    switch(lab.openflow, client(&ours, Some(issued(&ours, &dpid))), number);
    wait("the switch has its session", || sessions(&lab) == 1);
    assert!(metric(&lab, "pathloom_handshakes_failed_total 145"), "400 and one, of which 256 have a place");
    drop(idle);
}

#[test]
fn the_api_answers_over_https() {
    let (ours, other) = (authority(), authority());
    let lab = lab(directory(&ours), &api(&format!("tls = {{ {FILES} }}")), false);
    let ask = |trusted: &Issuer| {
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(client(trusted, None), name).unwrap();
        let mut stream = StreamOwned::new(connection, lab.connect());
        let asked = request("GET", "/v1/state", &format!("Bearer {READ}"), "");
        stream.write_all(asked.as_bytes()).map(|()| read_answer(stream).status)
    };
    assert_eq!(ask(&ours).unwrap(), 200);
    assert!(ask(&other).is_err());
    assert_eq!(lab.call("GET", "/v1/state", &format!("Bearer {READ}"), "").status, 0, "not without TLS");
}

#[test]
fn unusable_certificates_are_named() {
    let ours = authority();
    let directory = directory(&ours);
    let (_, strange) = issued(&ours, "x");
    directory.write("strange.pem", 0o600, &strange);
    directory.write("empty.pem", 0o600, "");
    let cases = [
        ("certificate = \"empty.pem\", key = \"key.pem\"", ["listen.tls.certificate", "no certificate"]),
        ("certificate = \"certificate.pem\", key = \"empty.pem\"", ["listen.tls.key", "empty.pem"]),
        ("certificate = \"certificate.pem\", key = \"strange.pem\"", ["listen.tls.certificate and key", ""]),
    ];
    for (files, words) in cases {
        let text = format!(
            "fabric = {{ spec = \"fat-tree:k=4\" }}\nlisten = {{ tls = {{ {files}, client_ca = \"ca.pem\" }} }}"
        );
        let problem = crate::config::check(&text, &directory.0).unwrap_err();
        assert!(words.iter().all(|word| problem.contains(word)) && !problem.contains('\n'), "{problem}");
    }
    directory.write("tokens", 0o644, &format!("read x {READ}"));
    let text = format!("fabric = {{ spec = \"fat-tree:k=4\" }}\n{}", api(""));
    let problem = crate::config::check(&text, &directory.0).unwrap_err();
    assert!(problem.contains("chmod 600"), "{problem}");
    directory.write("tokens", 0o600, &format!("read x {READ}"));
    let problem = crate::config::check(&text.replace("127.0.0.1", "0.0.0.0"), &directory.0).unwrap_err();
    assert!(problem.contains("api.tls"), "{problem}");
}

/// An Open vSwitch of the test, in user space only.
struct OpenVSwitch<'a> {
    place: &'a Path,
    children: Vec<std::process::Child>,
}

impl Drop for OpenVSwitch<'_> {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl<'a> OpenVSwitch<'a> {
    /// Starts Open vSwitch; `None` if it is not installed.
    fn start(place: &'a Path) -> Option<OpenVSwitch<'a>> {
        let schema = "/usr/share/openvswitch/vswitch.ovsschema";
        let database = place.join("conf.db");
        let made = Command::new("ovsdb-tool").arg("create").arg(&database).arg(schema).output();
        if !made.is_ok_and(|made| made.status.success()) {
            return None;
        }
        let mut all = OpenVSwitch { place, children: Vec::new() };
        let remote = format!("--remote=punix:{}", place.join("db.sock").display());
        all.spawn(Command::new("ovsdb-server").arg(&database).arg(remote));
        wait("the database answers", || place.join("db.sock").exists());
        let database = format!("unix:{}", place.join("db.sock").display());
        all.spawn(Command::new("ovs-vswitchd").args([
            database.as_str(),
            "--enable-dummy=override",
            "--disable-system",
        ]));
        Some(all)
    }

    fn spawn(&mut self, command: &mut Command) {
        for name in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"] {
            command.env(name, self.place);
        }
        let quiet = command.args(["-vconsole:off", "--pidfile"]).stdout(std::process::Stdio::null());
        self.children.push(quiet.stderr(std::process::Stdio::null()).spawn().unwrap());
    }

    fn configure(&self, words: &[&str]) {
        let database = format!("--db=unix:{}", self.place.join("db.sock").display());
        let done = Command::new("ovs-vsctl").arg(database).arg("--timeout=20").args(words).output().unwrap();
        assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    }
}

#[test]
fn open_vswitch_connects_only_with_a_trusted_certificate() {
    let (ours, other) = (authority(), authority());
    let lab = with_tls(&ours, ", bind_names = true");
    let rows = lab.get("/v1/switches");
    let (name, dpid) = (rows["items"][3]["name"].as_str().unwrap(), rows["items"][3]["datapath_id"].as_str().unwrap());
    let place = Directory::new();
    let Some(switch) = OpenVSwitch::start(&place.0) else {
        eprintln!("Open vSwitch is not installed; TLS with it was not tried");
        return;
    };
    place.write("ca.pem", 0o644, &ours.pem());
    let certificates = |issuer: &Issuer| {
        let (certificate, key) = issued(issuer, name);
        place.write("sc.pem", 0o644, &certificate);
        place.write("sc-key.pem", 0o600, &key);
        let file = |name: &str| place.0.join(name).display().to_string();
        switch.configure(&["set-ssl", &file("sc-key.pem"), &file("sc.pem"), &file("ca.pem")]);
    };
    certificates(&other);
    let (id, target) = (format!("other-config:datapath-id={dpid}"), format!("ssl:127.0.0.1:{}", lab.openflow));
    switch.configure(&[
        "add-br",
        "br",
        "--",
        "set",
        "bridge",
        "br",
        "datapath_type=dummy",
        "protocols=OpenFlow13",
        &id,
    ]);
    switch.configure(&["set-controller", "br", &target]);
    wait("the certificate of another authority is refused", || !metric(&lab, "pathloom_offences_total 0"));
    assert_eq!(sessions(&lab), 0);
    certificates(&ours);
    switch.configure(&["del-controller", "br", "--", "set-controller", "br", &target]);
    wait("the switch with its own certificate has a session", || sessions(&lab) == 1);
    assert_eq!(lab.get(&format!("/v1/switches/{name}"))["drained"], false);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(sessions(&lab), 1);
}
