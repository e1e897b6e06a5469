//! Connections to the API: their own thread, a limit on their number, and time-outs for all that a slow client can
//! delay.

use super::ask::{channel, Asker, Questions};
use super::door::{keep, Admits, Book, Closed, Door};
use super::routes::{host_router, router, Api};
use super::seats::{Seat, Seated, Seats};
use super::settings::{ReadyApi, ReadyPaths};
use crate::current::Current;
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
    book: Arc<Book>,
    tls: Option<Current<rustls::ServerConfig>>,
    connections: usize,
    timeout: Duration,
    header_timeout: Duration,
}

/// Starts the API; returns the address on which it listens, and the receiving end of its requests.
///
/// # Errors
/// It cannot listen there, or cannot start a thread.
pub(crate) fn start(ready: ReadyApi) -> io::Result<(SocketAddr, Questions)> {
    launch("api", ready.address, |asker| {
        let book = Arc::new(Book::default());
        let ReadyApi { tokens, tls, connections, body_bytes, timeout, header_timeout, search, .. } = ready;
        let door = Door { tokens, body_bytes, timeout, book: book.clone(), admits: Admits::Tokens };
        let app = router(Api { asker, book: book.clone(), search });
        let app = app.layer(axum::middleware::from_fn_with_state(door, keep));
        Service { app, book, tls, connections, timeout, header_timeout }
    })
}

/// Starts the address at which applications on hosts request paths. Returns the same as [`start`].
///
/// # Errors
/// The same as [`start`].
pub(crate) fn start_for_hosts(ready: ReadyPaths) -> io::Result<(SocketAddr, Questions)> {
    launch("paths", ready.address, |asker| {
        let book = Arc::new(Book::default());
        let ReadyPaths { address, tokens, tls, connections, body_bytes, timeout, header_timeout, search } = ready;
        let admits = Admits::Hosts { tokens: tls.is_some() || address.ip().is_loopback() };
        let door = Door { tokens, body_bytes, timeout, book: book.clone(), admits };
        let app = host_router(Api { asker, book: book.clone(), search });
        let app = app.layer(axum::middleware::from_fn_with_state(door, keep));
        Service { app, book, tls, connections, timeout, header_timeout }
    })
}

fn launch(name: &str, address: SocketAddr, make: impl FnOnce(Asker) -> Service) -> io::Result<(SocketAddr, Questions)> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let (asker, questions) = channel();
    let service = make(asker);
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
    let Service { app, book, tls, connections, timeout: patience, header_timeout } = service;
    let seats = Seats::new(connections);
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(taken) => taken,
            Err(problem) => {
                tracing::warn!(%problem, "a connection to the API was not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // Answers are short, and callers wait for them.
        let _ = stream.set_nodelay(true);
        while seats.should_wait() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let Some(Seated { seat, made_room }) = seats.take(peer.ip()) else {
            book.close(peer.ip(), Closed::NoRoom);
            continue;
        };
        if let Some(other) = made_room {
            book.close(other, Closed::MadeRoom);
        }
        let (seat, book, app) = (Arc::new(seat), book.clone(), app.clone());
        let tls = tls.as_ref().map(|tls| TlsAcceptor::from(tls.get()));
        tokio::spawn(async move {
            let done = tokio::select! {
                done = greet(stream, tls, (peer, seat.clone()), app, patience) => done,
                // This close was already counted.
                () = seat.gives_way() => Err("it made room for another".into()),
                () = stays_strange(&seat, header_timeout) => {
                    book.close(peer.ip(), Closed::Late);
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
async fn stays_strange(seat: &Seat, header_timeout: Duration) {
    tokio::time::sleep(header_timeout).await;
    if !seat.is_stranger() {
        std::future::pending().await
    }
}

/// Serves a connection, with TLS if configured.
async fn greet(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    who: (SocketAddr, Arc<Seat>),
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
    (peer, seat): (SocketAddr, Arc<Seat>),
    app: Router,
    patience: Duration,
) -> Result<(), String> {
    let mut stream = TimeoutStream::new(stream);
    stream.set_read_timeout(Some(patience * IDLE));
    stream.set_write_timeout(Some(patience));
    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(peer));
        request.extensions_mut().insert(seat.clone());
        app.clone().oneshot(request)
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(patience).max_buf_size(HEADER_BYTES);
    let stream = TokioIo::new(Box::pin(stream));
    http.serve_connection(stream, service).await.map_err(|problem| problem.to_string())
}
