//! The sockets of agents: one task per connection reads lines and writes queued ones.

use crate::config::Current;
use crate::drivers::failed_accepts::FailedAccepts;
use crate::drivers::session::{Shared, Wakers};
use crate::hub::connection::Transmit;
use crate::hub::hosts::AgentId;
use rustls::ServerConfig;
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// Maximum number of bytes of one read.
const READ_BYTES: usize = 16 << 10;
/// Number of TLS handshakes of agents at a time.
pub(crate) const HANDSHAKES: usize = 64;
/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Time without a packet from an agent's host after which the kernel probes the host (TCP keep-alive).
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
/// Time between two such probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Number of unanswered probes after which the host is gone.
const KEEPALIVE_RETRIES: u32 = 3;
/// How long sent bytes may stay unacknowledged before the host is gone.
const UNREAD: Duration = Duration::from_secs(30);

/// Accepts agents by TCP. Each represents the host that it connects from.
pub(crate) async fn accept_tcp(listener: TcpListener, tls: Option<Current<ServerConfig>>, shared: Shared) {
    let handshakes = Rc::new(Semaphore::new(HANDSHAKES));
    let mut failed = FailedAccepts::new("host agents");
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                failed.accepted();
                let _ = stream.set_nodelay(true);
                if let Err(problem) = watch(&stream) {
                    tracing::warn!(%peer, %problem, "the controller will not detect when the host of this agent is gone");
                }
                let (shared, from) = (shared.clone(), Some(peer.ip()));
                let Some(tls) = &tls else {
                    let (reader, writer) = stream.into_split();
                    tokio::task::spawn_local(serve(shared, peer.to_string(), from, reader, writer));
                    continue;
                };
                let (acceptor, handshakes) = (TlsAcceptor::from(tls.get()), handshakes.clone());
                tokio::task::spawn_local(async move {
                    // The agent tries again later.
                    let Ok(place) = handshakes.try_acquire() else { return };
                    let accepted = timeout(HANDSHAKE, acceptor.accept(stream)).await;
                    drop(place);
                    let why = match accepted {
                        Ok(Ok(stream)) => {
                            let (reader, writer) = tokio::io::split(stream);
                            return serve(shared, peer.to_string(), from, reader, writer).await;
                        }
                        Ok(Err(problem)) => problem.to_string(),
                        Err(_) => "its TLS handshake did not end in time".into(),
                    };
                    shared.drive(|hub, now| hub.hosts.not_encrypted(now, &peer.to_string(), &why));
                });
            }
            Err(problem) => failed.failed(&problem).await,
        }
    }
}

/// Makes the kernel detect when the host of an agent is gone. An agent may be silent for hours, and the controller
/// sends it no echo requests as it does to switches.
fn watch(stream: &TcpStream) -> io::Result<()> {
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
    socket.set_tcp_keepalive(&keepalive.with_retries(KEEPALIVE_RETRIES))?;
    // The kernel sends no keep-alive probes while data is unacknowledged. By default, it would retransmit for a quarter
    // of an hour.
    socket.set_tcp_user_timeout(Some(UNREAD))
}

/// Accepts agents by a Unix socket. They may represent any host.
pub(crate) async fn accept_unix(listener: UnixListener, shared: Shared) {
    let mut failed = FailedAccepts::new("host agents");
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                failed.accepted();
                let process = stream.peer_cred().ok().and_then(|credentials| credentials.pid());
                let peer = process.map_or("a local agent".into(), |process| format!("process {process}"));
                let (reader, writer) = stream.into_split();
                let serving = serve(shared.clone(), peer, None, reader, writer);
                tokio::task::spawn_local(serving);
            }
            Err(problem) => failed.failed(&problem).await,
        }
    }
}

async fn serve(
    shared: Shared,
    peer: String,
    only: Option<IpAddr>,
    reader: impl AsyncRead + Unpin,
    writer: impl AsyncWrite + Unpin,
) {
    let Some(id) = shared.drive(|hub, now| hub.hosts.connect(now, peer, only)) else { return };
    let wakers = shared.wakers_of_agent(id);
    let why = tokio::select! {
        ended = read(&shared, id, reader) => ended.err().map_or("it closed the connection".into(), |e| e.to_string()),
        ended = write(&shared, id, &wakers, writer) => ended.err().map_or("it was disconnected".into(), |e| e.to_string()),
        () = wakers.ended.notified() => return,
    };
    shared.drive(|hub, now| hub.hosts.disconnect(now, id, &why));
}

/// Reads lines, more slowly from an agent that exceeds its rate.
async fn read(shared: &Shared, id: AgentId, mut reader: impl AsyncRead + Unpin) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(READ_BYTES);
    loop {
        buffer.clear();
        if reader.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
        if let Some(until) = shared.drive(|hub, now| hub.agent_received(now, id, &buffer)) {
            sleep(shared.clock.until(until)).await;
        }
    }
}

async fn write(shared: &Shared, id: AgentId, wakers: &Wakers, mut writer: impl AsyncWrite + Unpin) -> io::Result<()> {
    let mut buffer = Vec::new();
    loop {
        buffer.clear();
        let transmit = shared.hub.borrow_mut().hosts.transmit(id, &mut buffer);
        writer.write_all(&buffer).await?;
        match transmit {
            Transmit::Open if buffer.is_empty() => wakers.wake.notified().await,
            Transmit::Open => {}
            Transmit::Closing => return writer.shutdown().await,
            Transmit::Gone => return Ok(()),
        }
    }
}
