//! The sockets of agents: one task per connection reads lines and writes queued ones.

use super::{AgentId, LINE_BYTES};
use crate::current::Current;
use crate::session::Shared;
use pathloom_model::Nanos;
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

/// An agent may exceed its rate by the lines of this time before it is read more slowly.
const BURST: Nanos = Nanos::from_secs(1);
/// How long a disconnected agent has to read the reason.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Number of TLS handshakes of agents at a time.
const HANDSHAKES: usize = 64;
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
pub(crate) async fn accept_tcp(
    listener: TcpListener,
    tls: Option<Current<ServerConfig>>,
    shared: Shared,
    per_host: u32,
) {
    let handshakes = Rc::new(Semaphore::new(HANDSHAKES));
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let _ = stream.set_nodelay(true);
                if let Err(problem) = watch(&stream) {
                    tracing::warn!(%peer, %problem, "the controller will not detect when the host of this agent is gone");
                }
                let (shared, from) = (shared.clone(), Some(peer.ip()));
                let Some(tls) = &tls else {
                    let (reader, writer) = stream.into_split();
                    tokio::task::spawn_local(serve(shared, peer.to_string(), from, per_host, reader, writer));
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
                            return serve(shared, peer.to_string(), from, per_host, reader, writer).await;
                        }
                        Ok(Err(problem)) => problem.to_string(),
                        Err(_) => "its TLS handshake did not end in time".into(),
                    };
                    shared.hub.borrow_mut().hosts.not_encrypted(&peer.to_string(), &why);
                });
            }
            Err(problem) => crate::serve::wait_after_failed_accept(&problem).await,
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
pub(crate) async fn accept_unix(listener: UnixListener, shared: Shared, per_host: u32) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let process = stream.peer_cred().ok().and_then(|credentials| credentials.pid());
                let peer = process.map_or("a local agent".into(), |process| format!("process {process}"));
                let (reader, writer) = stream.into_split();
                let serving = serve(shared.clone(), peer, None, per_host, reader, writer);
                tokio::task::spawn_local(serving);
            }
            Err(problem) => crate::serve::wait_after_failed_accept(&problem).await,
        }
    }
}

async fn serve(
    shared: Shared,
    peer: String,
    only: Option<IpAddr>,
    per_host: u32,
    reader: impl AsyncRead + Unpin,
    writer: impl AsyncWrite + Unpin,
) {
    let id = {
        let mut hub = shared.hub.borrow_mut();
        let now = hub.clock.now();
        hub.hosts.connect(now, peer, only)
    };
    let Some(id) = id else { return };
    let why = tokio::select! {
        ended = read(&shared, id, per_host, reader) => ended.err().map_or("it closed the connection".into(), |e| e.to_string()),
        ended = write(&shared, id, writer) => ended.err().map_or("it was disconnected".into(), |e| e.to_string()),
        () = wait_for_disconnection(&shared, id) => "it was disconnected, and did not read".into(),
    };
    shared.hub.borrow_mut().hosts.disconnect(id, &why);
}

/// Ends soon after the agent was disconnected, because the writing task may wait for it to read.
async fn wait_for_disconnection(shared: &Shared, id: AgentId) {
    let Some(disconnected) = shared.hub.borrow().hosts.disconnected(id) else { return };
    disconnected.notified().await;
    sleep(CLOSE_TIMEOUT).await;
}

/// Reads lines. An agent that exceeds its rate is read more slowly; no line is lost.
async fn read(shared: &Shared, id: AgentId, per_host: u32, mut reader: impl AsyncRead + Unpin) -> io::Result<()> {
    let mut buffer = Vec::new();
    let mut allowance_used_until = shared.hub.borrow().hosts.allowance_used_until(id);
    loop {
        if reader.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
        let (lines, now, hosts) = work_off(shared, id, &mut buffer);
        if buffer.len() > LINE_BYTES {
            shared
                .hub
                .borrow_mut()
                .hosts
                .refuse_and_disconnect(id, &format!("a line is longer than {LINE_BYTES} bytes"));
            // The writing task closes the connection.
            return std::future::pending().await;
        }
        let per_s = u64::from(per_host.max(1)) * hosts.max(1) as u64;
        allowance_used_until = allowance_used_until.max(now).saturating_add(Nanos(lines * 1_000_000_000 / per_s));
        shared.hub.borrow_mut().hosts.set_allowance_used_until(id, allowance_used_until);
        let ahead = allowance_used_until.saturating_sub(now.saturating_add(BURST));
        if ahead > Nanos::ZERO {
            shared.hub.borrow_mut().hosts.log_slowed(id);
            sleep(Duration::from_nanos(ahead.0)).await;
        }
    }
}

/// Handles all whole lines. Returns their number, the time, and the number of hosts that the agent represents.
fn work_off(shared: &Shared, id: AgentId, buffer: &mut Vec<u8>) -> (u64, Nanos, usize) {
    let mut hub = shared.hub.borrow_mut();
    let (mut from, mut lines) = (0, 0);
    while let Some(length) = buffer[from..].iter().position(|&byte| byte == b'\n') {
        let line = &buffer[from..from + length];
        from += length + 1;
        if !line.trim_ascii().is_empty() {
            lines += 1;
            if let Some(input) = hub.hosts.line(id, line) {
                hub.queue_and_settle(input);
            }
        }
    }
    buffer.drain(..from);
    (lines, hub.clock.now(), hub.hosts.hosts_of(id))
}

async fn write(shared: &Shared, id: AgentId, mut writer: impl AsyncWrite + Unpin) -> io::Result<()> {
    let Some(wake) = shared.hub.borrow().hosts.waker(id) else { return Ok(()) };
    let mut buffer = Vec::new();
    loop {
        buffer.clear();
        let Some(closed) = shared.hub.borrow_mut().hosts.take_output(id, &mut buffer) else { return Ok(()) };
        if closed {
            let last_messages = async {
                writer.write_all(&buffer).await?;
                writer.shutdown().await
            };
            return tokio::time::timeout(CLOSE_TIMEOUT, last_messages).await.unwrap_or(Ok(()));
        }
        if buffer.is_empty() {
            wake.notified().await;
        } else {
            writer.write_all(&buffer).await?;
        }
    }
}
