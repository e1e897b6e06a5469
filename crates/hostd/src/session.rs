//! The connection to the controller: connects, reconnects with growing pauses, and passes lines both ways.

use crate::config::{Controller, Tls};
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

/// An event of the connection.
#[derive(Debug)]
pub enum Event {
    /// The connection is open. Lines to the controller go into this queue.
    Open(mpsc::Sender<String>),
    /// A line of the controller has arrived.
    Line(Vec<u8>),
    /// The connection is closed, or could not be opened. The text is the reason.
    Lost(String),
}

trait Stream: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

/// Maintains a connection to the controller forever.
pub async fn keep(controller: Controller, source: IpAddr, events: mpsc::Sender<Event>) {
    let mut pause = FIRST_PAUSE;
    let longest = if controller.unix.is_some() { LONGEST_LOCAL_PAUSE } else { LONGEST_PAUSE };
    loop {
        let began = Instant::now();
        let why = match timeout(PATIENCE, connect(&controller, source)).await {
            Ok(Ok(stream)) => converse(stream, &events).await,
            Ok(Err(problem)) => problem,
            Err(_) => "the controller does not answer".into(),
        };
        if events.send(Event::Lost(why)).await.is_err() {
            return;
        }
        pause = if began.elapsed() > STABLE { FIRST_PAUSE } else { pause };
        sleep(pause).await;
        pause = (pause * 2).min(longest);
    }
}

async fn connect(controller: &Controller, source: IpAddr) -> Result<Box<dyn Stream>, String> {
    if let Some(path) = &controller.unix {
        let stream = UnixStream::connect(path).await.map_err(|problem| format!("{}: {problem}", path.display()))?;
        return Ok(Box::new(stream));
    }
    let Some(address) = controller.address else { return Err("no address of the controller is configured".into()) };
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
async fn converse(stream: impl Stream, events: &mpsc::Sender<Event>) -> String {
    let (lines, mut queue) = mpsc::channel::<String>(4096);
    if events.send(Event::Open(lines)).await.is_err() {
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
                if events.send(Event::Line(line)).await.is_err() {
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
