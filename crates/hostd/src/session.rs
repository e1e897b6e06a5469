//! The connection to the controller: connects, reconnects with growing pauses, and passes lines both ways.

use crate::agent::ControllerId;
use crate::config::{Controller, Place, Tls};
use crate::messages::LINE_BYTES;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, UnixStream};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout, Instant};
use tokio_rustls::TlsConnector;

/// First pause before another attempt to connect. The pause doubles with each attempt.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Longest pause for a controller on the same machine.
const LONGEST_LOCAL_PAUSE: Duration = Duration::from_millis(500);
/// After a session that lasted longer than this, the pause is the shortest again.
const STABLE: Duration = Duration::from_secs(10);
/// Longest time of an attempt to connect.
const PATIENCE: Duration = Duration::from_secs(5);

/// An event of the connection to a controller.
#[derive(Debug)]
pub struct Event {
    /// The controller.
    pub controller: ControllerId,
    /// What has happened.
    pub what: What,
}

/// What has happened to a connection.
#[derive(Debug)]
pub enum What {
    /// The connection is open. Lines to the controller go into this queue.
    Open(mpsc::Sender<String>),
    /// A line of the controller has arrived.
    Line(Vec<u8>),
    /// The connection is closed, or could not be opened. The text is the reason.
    Lost(String),
}

trait Stream: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

/// Where the events of one controller go.
struct Events {
    controller: ControllerId,
    queue: mpsc::Sender<Event>,
}

impl Events {
    /// Passes on an event. Returns false if the agent is ending.
    async fn send(&self, what: What) -> bool {
        self.queue.send(Event { controller: self.controller, what }).await.is_ok()
    }
}

/// Maintains connections to all controllers.
pub fn keep_all(controller: &Controller, source: IpAddr, queue: &mpsc::Sender<Event>) {
    for (number, place) in controller.places().into_iter().enumerate() {
        let events = Events { controller: ControllerId(number), queue: queue.clone() };
        tokio::task::spawn_local(keep(controller.clone(), place, source, events));
    }
}

/// Maintains a connection to a controller forever.
async fn keep(controller: Controller, place: Place, source: IpAddr, events: Events) {
    let mut pause = FIRST_PAUSE;
    let longest = if matches!(place, Place::Unix(_)) { LONGEST_LOCAL_PAUSE } else { LONGEST_PAUSE };
    loop {
        let began = Instant::now();
        let why = match timeout(PATIENCE, connect(&controller, &place, source)).await {
            Ok(Ok(stream)) => converse(stream, &events).await,
            Ok(Err(problem)) => problem,
            Err(_) => "the controller does not answer".into(),
        };
        if !events.send(What::Lost(why)).await {
            return;
        }
        pause = if began.elapsed() > STABLE { FIRST_PAUSE } else { pause };
        sleep(pause).await;
        pause = (pause * 2).min(longest);
    }
}

async fn connect(controller: &Controller, place: &Place, source: IpAddr) -> Result<Box<dyn Stream>, String> {
    let address = match place {
        Place::Unix(path) => {
            let stream = UnixStream::connect(path).await.map_err(|problem| format!("{}: {problem}", path.display()))?;
            return Ok(Box::new(stream));
        }
        Place::Address(address) => *address,
    };
    let named = |problem: io::Error| format!("{address}: {problem}");
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }.map_err(named)?;
    if source.is_ipv4() == address.is_ipv4() && !address.ip().is_loopback() || controller.source.is_some() {
        let source = controller.source.unwrap_or(source);
        socket.bind(SocketAddr::new(source, 0)).map_err(|problem| format!("source {source}: {problem}"))?;
    }
    let stream = socket.connect(address).await.map_err(named)?;
    stream.set_nodelay(true).map_err(named)?;
    let Some(tls) = &controller.tls else { return Ok(Box::new(stream)) };
    let name = match &tls.name {
        Some(name) => {
            ServerName::try_from(name.clone()).map_err(|problem| format!("controller.tls.name: {problem}"))?
        }
        None => ServerName::from(address.ip()),
    };
    let stream = TlsConnector::from(load(tls)?).connect(name, stream).await.map_err(named)?;
    Ok(Box::new(stream))
}

/// Reads the files for TLS. The error contains the key of the configuration and the file.
pub fn load(tls: &Tls) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("ca", &tls.ca)? {
        roots.add(certificate).map_err(|problem| format!("controller.tls.ca: {}: {problem}", tls.ca.display()))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|problem| problem.to_string())?.with_root_certificates(roots);
    let config = match (&tls.certificate, &tls.key) {
        (Some(certificate), Some(file)) => {
            let key = PrivateKeyDer::from_pem_file(file)
                .map_err(|problem| format!("controller.tls.key: {}: {problem}", file.display()))?;
            let made = builder.with_client_auth_cert(certificates("certificate", certificate)?, key);
            made.map_err(|problem| format!("controller.tls.certificate and key: {problem}"))?
        }
        _ => builder.with_no_client_auth(),
    };
    Ok(Arc::new(config))
}

fn certificates(what: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    let problem = match read {
        Ok(found) if !found.is_empty() => return Ok(found),
        Ok(_) => "the file contains no certificate".to_owned(),
        Err(problem) => problem.to_string(),
    };
    Err(format!("controller.tls.{what}: {}: {problem}; certificates as PEM were expected", file.display()))
}

/// Passes lines in both directions until the connection is closed. Returns the reason.
async fn converse(stream: impl Stream, events: &Events) -> String {
    let (lines, mut queue) = mpsc::channel::<String>(4096);
    if !events.send(What::Open(lines)).await {
        return "the agent is ending".into();
    }
    let (mut reader, mut writer) = tokio::io::split(stream);
    let write = async {
        while let Some(mut line) = queue.recv().await {
            line.push('\n');
            writer.write_all(line.as_bytes()).await?;
            writer.flush().await?;
        }
        // The agent has dropped the queue, because the controller did not read fast enough.
        Ok::<(), io::Error>(())
    };
    let read = async {
        let mut buffer = Vec::new();
        loop {
            match reader.read_buf(&mut buffer).await {
                Ok(0) => return "the controller closed the connection".to_owned(),
                Ok(_) => {}
                Err(problem) => return problem.to_string(),
            }
            for line in take_lines(&mut buffer) {
                if !events.send(What::Line(line)).await {
                    return "the agent is ending".into();
                }
            }
            if buffer.len() > LINE_BYTES {
                return format!("the controller sent a line of more than {LINE_BYTES} bytes");
            }
        }
    };
    tokio::select! {
        why = read => why,
        ended = write => ended.err().map_or("the controller reads too slowly".into(), |problem| problem.to_string()),
    }
}

/// Removes the complete lines from a buffer. Returns those that are not empty.
pub fn take_lines(buffer: &mut Vec<u8>) -> Vec<Vec<u8>> {
    let Some(end) = buffer.iter().rposition(|&byte| byte == b'\n') else { return Vec::new() };
    let rest = buffer.split_off(end + 1);
    let whole = std::mem::replace(buffer, rest);
    let lines = whole.split(|&byte| byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
    lines.map(<[u8]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use tokio::net::TcpListener;

    #[test]
    fn the_agent_has_a_connection_to_each_controller_of_the_list() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let mut listeners = Vec::new();
            for _ in 0..2 {
                listeners.push(TcpListener::bind("127.0.0.1:0").await.unwrap());
            }
            let addresses = listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
            let (queue, mut events) = mpsc::channel(16);
            let controller = Controller { addresses, ..Controller::default() };
            keep_all(&controller, "127.0.0.1".parse().unwrap(), &queue);
            for (number, listener) in listeners.iter().enumerate() {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.write_all(format!("{number}\n").as_bytes()).await.unwrap();
                stream.shutdown().await.unwrap();
            }
            let (mut lines, mut queues) = (BTreeMap::new(), Vec::new());
            while lines.len() < 2 {
                let Event { controller, what } = events.recv().await.unwrap();
                match what {
                    What::Open(queue) => queues.push(queue),
                    What::Line(line) => drop(lines.insert(controller, line)),
                    What::Lost(_) => {}
                }
            }
            assert_eq!(lines, [(ControllerId(0), b"0".to_vec()), (ControllerId(1), b"1".to_vec())].into());
        });
    }

    #[test]
    fn only_complete_lines_are_taken() {
        let mut buffer = b"one\n\ntwo\nthr".to_vec();
        assert_eq!(take_lines(&mut buffer), [b"one".to_vec(), b"two".to_vec()]);
        assert!(take_lines(&mut buffer).is_empty());
        buffer.extend(b"ee\n");
        assert_eq!(take_lines(&mut buffer), [b"three".to_vec()]);
        assert!(buffer.is_empty());
    }
}
