//! Connections to the API: a thread of their own, a limit on their number, and time-outs for everything that a client may
//! be slow in.

use super::ask::{channel, Asker, Questions};
use super::door::{keep, Book, Door};
use super::routes::router;
use super::settings::ReadyApi;
use crate::places::{Places, Refused};
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
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

/// How much longer than a request a client may keep a connection without one.
const IDLE: u32 = 6;

/// Starts the API; returns where it listens, and where its questions come out.
///
/// # Errors
/// It cannot listen there, or there can be no thread.
pub(crate) fn start(ready: ReadyApi) -> io::Result<(SocketAddr, Questions)> {
    let listener = std::net::TcpListener::bind(ready.address)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let (asker, questions) = channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(2).build()?;
    std::thread::Builder::new().name("api".into()).spawn(move || {
        runtime.block_on(async {
            match TcpListener::from_std(listener) {
                Ok(listener) => accept(listener, ready, asker).await,
                Err(problem) => tracing::error!(%problem, "the API does not run"),
            }
        });
    })?;
    Ok((address, questions))
}

async fn accept(listener: TcpListener, ready: ReadyApi, asker: Asker) {
    let book = Arc::new(Book::default());
    let ReadyApi { tokens, tls, connections, body_bytes, timeout: patience, .. } = ready;
    let door = Door { tokens, body_bytes, timeout: patience, book: book.clone() };
    let app = router(asker, book).layer(axum::middleware::from_fn_with_state(door, keep));
    let places = Places::halved(connections);
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(taken) => taken,
            Err(problem) => {
                tracing::warn!(%problem, "a connection to the API was not taken");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let place = match places.take(Some(peer.ip())) {
            Ok(place) => place,
            Err(refused) => {
                if refused.is_named() {
                    let Refused { why, count } = refused;
                    tracing::warn!(%peer, why, count, "too many connections to the API; this one was closed");
                }
                continue;
            }
        };
        let (app, tls) = (app.clone(), tls.as_ref().map(|tls| TlsAcceptor::from(tls.get())));
        tokio::spawn(async move {
            let _place = place;
            let done = match tls {
                None => serve(stream, peer, app, patience).await,
                Some(tls) => match timeout(patience, tls.accept(stream)).await {
                    Ok(Ok(stream)) => serve(stream, peer, app, patience).await,
                    Ok(Err(problem)) => Err(problem.to_string()),
                    Err(_) => Err("its TLS handshake did not end in time".into()),
                },
            };
            if let Err(problem) = done {
                tracing::debug!(%peer, problem, "a connection to the API ended");
            }
        });
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: SocketAddr,
    app: Router,
    patience: Duration,
) -> Result<(), String> {
    let mut stream = TimeoutStream::new(stream);
    stream.set_read_timeout(Some(patience * IDLE));
    stream.set_write_timeout(Some(patience));
    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(peer));
        app.clone().oneshot(request)
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(patience).max_buf_size(64 << 10);
    let stream = TokioIo::new(Box::pin(stream));
    http.serve_connection(stream, service).await.map_err(|problem| problem.to_string())
}
