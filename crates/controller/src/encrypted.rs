//! Sessions of switches over TLS.

use crate::config::Ready;
use crate::current::Current;
use crate::serve::breathe;
use crate::session::Shared;
use rustls::ServerConfig;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// What TLS sessions need.
#[derive(Clone)]
pub(crate) struct Encryption {
    /// As it was read last.
    config: Current<ServerConfig>,
    /// Handshakes at a time: each costs the controller's thread about a millisecond.
    handshakes: Arc<Semaphore>,
    patience: Duration,
}

/// Handshakes that may be under way.
const HANDSHAKES: usize = 256;

impl Encryption {
    /// As the configuration has it; `None` without certificates.
    pub(crate) fn new(ready: &Ready) -> Option<Encryption> {
        let config = ready.listen_tls.clone()?;
        let handshakes = Arc::new(Semaphore::new(HANDSHAKES));
        Some(Encryption { config, handshakes, patience: ready.config.sessions.handshake_timeout })
    }
}

/// Takes connections whose peers show a certificate that is trusted.
pub(crate) async fn accept_tls(listener: TcpListener, encryption: Encryption, shared: Shared) {
    let mut refused = 0u64;
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => match encryption.handshakes.clone().try_acquire_owned() {
                Ok(permit) => {
                    let (encryption, shared) = (encryption.clone(), shared.clone());
                    tokio::task::spawn_local(async move {
                        let _permit = permit;
                        greet(stream, peer, encryption, shared).await;
                    });
                }
                Err(_) => {
                    refused += 1;
                    if refused.is_power_of_two() {
                        tracing::warn!(%peer, refused, "too many TLS handshakes at a time; a connection was closed");
                    }
                }
            },
            Err(problem) => breathe(&problem).await,
        }
    }
}

async fn greet(stream: TcpStream, peer: SocketAddr, encryption: Encryption, shared: Shared) {
    let _ = stream.set_nodelay(true);
    let acceptor = TlsAcceptor::from(encryption.config.get());
    let stream = match timeout(encryption.patience, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(problem)) => {
            shared.hub.borrow_mut().counts.offences += 1;
            let way_out = "its certificate must be issued by listen.tls.client_ca";
            return tracing::warn!(%peer, %problem, way_out, "a connection was not encrypted as it must be");
        }
        Err(_) => {
            shared.hub.borrow_mut().counts.offences += 1;
            return tracing::warn!(%peer, "a TLS handshake did not end in time");
        }
    };
    let shown = stream.get_ref().1.peer_certificates().and_then(|certificates| certificates.first());
    let names = shown.map(crate::tls::names).unwrap_or_default();
    let (reader, writer) = tokio::io::split(stream);
    tokio::task::spawn_local(shared.serve_as(peer.to_string(), Some(names), reader, writer));
}
