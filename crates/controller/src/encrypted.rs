//! Sessions of switches over TLS.

use crate::config::Ready;
use crate::current::Current;
use crate::places::{Places, Refused};
use crate::serve::breathe;
use crate::session::Shared;
use rustls::ServerConfig;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// What TLS sessions need.
#[derive(Clone)]
pub(crate) struct Encryption {
    /// As it was read last.
    config: Current<ServerConfig>,
    /// Handshakes at a time: each costs the controller's thread about a millisecond.
    handshakes: Places,
    patience: Duration,
}

/// Handshakes that may be under way; one address has half of them at most, unless it is this machine's own.
const HANDSHAKES: usize = 256;

impl Encryption {
    /// As the configuration has it; `None` without certificates.
    pub(crate) fn new(ready: &Ready) -> Option<Encryption> {
        let config = ready.listen_tls.clone()?;
        let handshakes = Places::for_switches(HANDSHAKES);
        Some(Encryption { config, handshakes, patience: ready.config.sessions.handshake_timeout })
    }
}

/// Takes connections whose peers show a certificate that is trusted.
pub(crate) async fn accept_tls(listener: TcpListener, encryption: Encryption, shared: Shared) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => match encryption.handshakes.take(Some(peer.ip())) {
                Ok(place) => {
                    let (encryption, shared) = (encryption.clone(), shared.clone());
                    tokio::task::spawn_local(async move {
                        let _place = place;
                        greet(stream, peer, encryption, shared).await;
                    });
                }
                Err(Refused { why, .. }) => {
                    let mut hub = shared.hub.borrow_mut();
                    hub.counts.handshakes += 1;
                    hub.complain(&peer.to_string(), why, "too many TLS handshakes at a time; a connection was closed");
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
            let mut hub = shared.hub.borrow_mut();
            hub.counts.offences += 1;
            hub.counts.handshakes += 1;
            let what =
                "a connection was not encrypted as it must be: its certificate must be issued by listen.tls.client_ca";
            hub.complain(&peer.to_string(), &problem.to_string(), what);
            return;
        }
        Err(_) => {
            let mut hub = shared.hub.borrow_mut();
            hub.counts.offences += 1;
            hub.counts.handshakes += 1;
            hub.complain(&peer.to_string(), "it came too late", "a TLS handshake did not end in time");
            return;
        }
    };
    let shown = stream.get_ref().1.peer_certificates().and_then(|certificates| certificates.first());
    let names = shown.map(crate::tls::names).unwrap_or_default();
    let (reader, writer) = tokio::io::split(stream);
    tokio::task::spawn_local(shared.serve_as(peer.to_string(), Some(names), reader, writer));
}
