//! Sessions of switches over TLS.

use crate::config::CheckedConfig;
use crate::config::Current;
use crate::drivers::failed_accepts::FailedAccepts;
use crate::drivers::session::Shared;
use crate::hub::newcomers::Newcomers;
use crate::hub::places::{Place, Places, Refused};
use rustls::ServerConfig;
use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::rc::{Rc, Weak};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// Settings and limits of TLS sessions.
#[derive(Clone)]
pub(crate) struct Encryption {
    /// The TLS settings as last read.
    config: Current<ServerConfig>,
    /// Limits the handshakes at a time. Each costs the controller's thread about a millisecond.
    handshakes: Places,
    /// Handshakes in progress. The oldest one is ended if no place is free.
    under_way: Rc<RefCell<Newcomers<Weak<Handshake>>>>,
    patience: Duration,
}

/// Maximum number of handshakes in progress. One address has at most half of them, unless it is a loopback address.
pub(crate) const HANDSHAKES: usize = 256;

impl Encryption {
    /// Uses the settings of the configuration; `None` without certificates.
    pub(crate) fn new(checked: &CheckedConfig) -> Option<Encryption> {
        let config = checked.listen_tls.clone()?;
        let (handshakes, under_way) = (Places::new(HANDSHAKES), Rc::new(RefCell::new(Newcomers::new(HANDSHAKES))));
        Some(Encryption { config, handshakes, under_way, patience: checked.config.sessions.handshake_timeout })
    }

    /// Begins a handshake. If no place is free, the oldest one ends; also returns the reason for that.
    fn begin(&self, peer: IpAddr) -> (Option<Rc<Handshake>>, Option<&'static str>) {
        let (mut under_way, is_going) = (self.under_way.borrow_mut(), |one: &Weak<Handshake>| one.strong_count() > 0);
        let mut place = self.handshakes.take(Some(peer));
        let refused = place.as_ref().err().copied();
        if let Some(Refused { is_share, .. }) = refused {
            if let Some(oldest) = under_way.take(Some(peer), !is_share, is_going).and_then(|oldest| oldest.upgrade()) {
                oldest.place.take();
                oldest.give_way.notify_one();
                place = self.handshakes.take(Some(peer));
            }
        }
        let handshake = place.ok().map(|place| {
            let handshake = Rc::new(Handshake { place: RefCell::new(Some(place)), give_way: Notify::new() });
            under_way.push(Some(peer), Rc::downgrade(&handshake), is_going);
            handshake
        });
        (handshake, refused.map(|refused| refused.why))
    }
}

/// A handshake in progress.
struct Handshake {
    /// Removed when the handshake is ended for another one.
    place: RefCell<Option<Place>>,
    give_way: Notify,
}

/// Accepts connections of peers with a trusted certificate.
pub(crate) async fn accept_tls(listener: TcpListener, encryption: Encryption, shared: Shared) {
    let mut failed = FailedAccepts::new("switches");
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                failed.accepted();
                let (handshake, refused) = encryption.begin(peer.ip());
                if let Some(why) = refused {
                    let what = "too many TLS handshakes at a time; the oldest was closed";
                    shared.drive(|hub, now| hub.handshake_refused(now, &peer.to_string(), why, what));
                }
                let Some(handshake) = handshake else { continue };
                let (encryption, shared) = (encryption.clone(), shared.clone());
                tokio::task::spawn_local(async move {
                    tokio::select! {
                        () = handshake_and_serve(stream, peer, encryption, shared) => {}
                        () = handshake.give_way.notified() => {}
                    }
                });
            }
            Err(problem) => failed.failed(&problem).await,
        }
    }
}

async fn handshake_and_serve(stream: TcpStream, peer: SocketAddr, encryption: Encryption, shared: Shared) {
    let _ = stream.set_nodelay(true);
    let acceptor = TlsAcceptor::from(encryption.config.get());
    let stream = match timeout(encryption.patience, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(problem)) => {
            let (why, what) = (
                problem.to_string(),
                "a TLS handshake failed: a switch needs a certificate that listen.tls.client_ca has issued",
            );
            return shared.drive(|hub, now| hub.handshake_failed(now, &peer.to_string(), &why, what));
        }
        Err(_) => {
            let (why, what) = ("it took too long", "a TLS handshake did not end in time");
            return shared.drive(|hub, now| hub.handshake_failed(now, &peer.to_string(), why, what));
        }
    };
    let shown = stream.get_ref().1.peer_certificates().and_then(|certificates| certificates.first());
    let names = shown.map(crate::config::names).unwrap_or_default();
    let (reader, writer) = tokio::io::split(stream);
    tokio::task::spawn_local(shared.serve_as(peer.to_string(), Some(names), reader, writer));
}
