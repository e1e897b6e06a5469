//! Connections to the API: their own thread, a limit on their number, and time-outs for all that a slow client can
//! delay.

use super::ask::{channel, Questions};
use super::authorise::{authorise, Admits, Authoriser, Closed, RequestCounts};
use super::handlers::Api;
use super::routes::{host_router, router};
use super::slots::{Admission, ConnectionSlot, ConnectionSlots};
use crate::config::Current;
use crate::config::{CheckedAddress, ClientLimits as Limits};
use crate::drivers::failed_accepts::FailedAccepts;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::Router;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

/// Number of request time-outs for which a client may keep an idle connection.
const IDLE: u32 = 6;
/// Maximum size of a request's headers. A connection takes little more memory, plus `body_bytes` after it has shown a
/// token.
const HEADER_BYTES: usize = 32 << 10;

/// How one address is served.
struct Service {
    app: Router,
    counts: Arc<RequestCounts>,
    tls: Option<Current<rustls::ServerConfig>>,
    limits: Limits,
}

/// Starts the API; returns the address on which it listens, and the receiving end of its requests.
///
/// # Errors
/// It cannot listen there, or cannot start a thread.
pub(crate) fn start(checked: CheckedAddress) -> io::Result<(SocketAddr, Questions)> {
    launch("api", checked, Admits::Tokens, router)
}

/// Starts the address at which applications on hosts request paths. Returns the same as [`start`].
///
/// # Errors
/// The same as [`start`].
pub(crate) fn start_for_hosts(checked: CheckedAddress) -> io::Result<(SocketAddr, Questions)> {
    let tokens = checked.tls.is_some() || checked.address.ip().is_loopback();
    let admits = Admits::Hosts { tokens, names: checked.names.clone() };
    launch("paths", checked, admits, host_router)
}

/// Serves these routes at an address, in a thread with this name.
fn launch(
    name: &str,
    checked: CheckedAddress,
    admits: Admits,
    routes: fn(Api) -> Router,
) -> io::Result<(SocketAddr, Questions)> {
    let CheckedAddress { address, tokens, tls, limits, search, authority, .. } = checked;
    let listener = crate::drivers::listening::listen_tcp(address)?;
    let address = listener.local_addr()?;
    let (asker, questions) = channel();
    let counts = Arc::new(RequestCounts::default());
    let Limits { body_bytes, timeout, .. } = limits;
    let authoriser = Authoriser { tokens, body_bytes, timeout, counts: counts.clone(), admits, authority };
    let app = routes(Api { asker, counts: counts.clone(), search });
    let app = app.layer(axum::middleware::from_fn_with_state(authoriser, authorise));
    let service = Service { app, counts, tls, limits };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(2).build()?;
    std::thread::Builder::new().name(name.into()).spawn(move || {
        runtime.block_on(async {
            match TcpListener::from_std(listener) {
                Ok(listener) => accept(listener, service).await,
                Err(problem) => tracing::error!(%problem, "the API does not run"),
            }
        });
    })?;
    Ok((address, questions))
}

async fn accept(listener: TcpListener, service: Service) {
    let Service { app, counts, tls, limits } = service;
    let Limits { connections, timeout: patience, header_timeout, .. } = limits;
    let slots = ConnectionSlots::new(connections);
    let mut failed = FailedAccepts::new("the API or of applications");
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(taken) => taken,
            Err(problem) => {
                failed.failed(&problem).await;
                continue;
            }
        };
        failed.accepted();
        // Answers are short, and callers wait for them.
        let _ = stream.set_nodelay(true);
        while slots.should_wait() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let Some(Admission { slot, evicted }) = slots.take(peer.ip()) else {
            counts.close(peer.ip(), Closed::NoRoom);
            continue;
        };
        if let Some(other) = evicted {
            counts.close(other, Closed::MadeRoom);
        }
        let (slot, counts, app) = (Arc::new(slot), counts.clone(), app.clone());
        let tls = tls.as_ref().map(|tls| TlsAcceptor::from(tls.get()));
        tokio::spawn(async move {
            let done = tokio::select! {
                done = serve_connection(stream, tls, (peer, slot.clone()), app, patience) => done,
                // This close was already counted.
                () = slot.wait_for_eviction() => Err("it made room for another".into()),
                () = token_timeout(&slot, header_timeout) => {
                    counts.close(peer.ip(), Closed::Late);
                    Err("it showed no valid token in time".into())
                }
            };
            if let Err(problem) = done {
                tracing::debug!(%peer, problem, "a connection to the API ended");
            }
        });
    }
}

/// Waits until the time for a connection to show a valid token is over. Never ends if the connection has shown one.
async fn token_timeout(slot: &ConnectionSlot, header_timeout: Duration) {
    tokio::time::sleep(header_timeout).await;
    if !slot.is_unauthenticated() {
        std::future::pending().await
    }
}

/// Serves a connection, with TLS if configured.
async fn serve_connection(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    who: (SocketAddr, Arc<ConnectionSlot>),
    app: Router,
    patience: Duration,
) -> Result<(), String> {
    match tls {
        None => serve(stream, who, app, patience).await,
        Some(tls) => {
            let stream = tls.accept(stream).await.map_err(|problem| problem.to_string())?;
            serve(stream, who, app, patience).await
        }
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    (peer, slot): (SocketAddr, Arc<ConnectionSlot>),
    app: Router,
    patience: Duration,
) -> Result<(), String> {
    let mut stream = TimeoutStream::new(stream);
    stream.set_read_timeout(Some(patience * IDLE));
    stream.set_write_timeout(Some(patience));
    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(peer));
        request.extensions_mut().insert(slot.clone());
        app.clone().oneshot(request)
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(patience).max_buf_size(HEADER_BYTES);
    let stream = TokioIo::new(Box::pin(stream));
    http.serve_connection(stream, service).await.map_err(|problem| problem.to_string())
}
