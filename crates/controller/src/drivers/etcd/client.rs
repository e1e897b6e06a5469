//! A client of etcd's JSON gateway. Each request has a connection of its own, because there are only a few in a second.

use super::json::{decode, decode_changes, encode};
use crate::config::{CheckedCluster, Endpoint};
use axum::body::{to_bytes, Body};
use futures_util::StreamExt;
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use pathloom_cluster::etcd::{Answer, Change, Failure, Request};
use rustls::pki_types::ServerName;
use serde_json::{json, Value};
use std::cell::{Cell, RefCell};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Maximum size of an answer. Etcd refuses requests above 1.5 MiB.
const MOST_BYTES: usize = 8 << 20;

/// A client. It uses one machine of etcd until that does not answer, and then the next.
pub struct Client {
    settings: CheckedCluster,
    /// Index of the endpoint in use.
    current: Cell<usize>,
    /// What etcd has given for the user and the password.
    token: RefCell<Option<String>>,
    /// How long to wait for a connection, and for an answer.
    patience: Duration,
}

impl Client {
    /// A client of the machines in these settings. It connects when it is asked.
    pub fn new(settings: CheckedCluster) -> Client {
        // Two waits fit between two heartbeats.
        let patience = Duration::from_secs(settings.member.ttl_s) / 6;
        Client::with_patience(settings, patience)
    }

    /// A client that waits as long as this for a connection, and for an answer.
    pub fn with_patience(settings: CheckedCluster, patience: Duration) -> Client {
        Client { settings, current: Cell::new(0), token: RefCell::new(None), patience }
    }

    /// Sends a request, except a watch.
    ///
    /// # Errors
    /// Etcd's refusal. [`Failure::Unanswered`] if there was no answer: the request may have been carried out.
    pub async fn ask(&self, request: &Request) -> Result<Answer, Failure> {
        let (path, body) = encode(request);
        let response = self.post(path, &body).await?;
        let bytes = timeout(self.patience, to_bytes(response, MOST_BYTES)).await;
        let Ok(Ok(bytes)) = bytes else { return Err(self.no_answer()) };
        let Ok(answer) = serde_json::from_slice(&bytes) else { return Err(self.no_answer()) };
        let answer = decode(request, &answer);
        match &answer {
            Err(Failure::Other(why)) if why.contains("auth token") => *self.token.borrow_mut() = None,
            // For example a machine that has lost the others.
            Err(Failure::Other(_)) => drop(self.no_answer()),
            _ => {}
        }
        answer
    }

    /// Watches keys until the watch fails. Passes on all changes.
    pub async fn watch(&self, request: &Request, mut each: impl FnMut(Vec<Change>)) -> Failure {
        let (path, body) = encode(request);
        let response = match self.post(path, &body).await {
            Ok(response) => response,
            Err(failure) => return failure,
        };
        let (mut parts, mut line) = (response.into_data_stream(), Vec::new());
        while let Some(Ok(part)) = parts.next().await {
            line.extend_from_slice(&part);
            while let Some(length) = line.iter().position(|&byte| byte == b'\n') {
                let value: Result<Value, _> = serde_json::from_slice(&line[..length]);
                line.drain(..=length);
                match value.map_err(|_| Failure::Unanswered).and_then(|value| decode_changes(&value)) {
                    Ok(changes) => each(changes),
                    Err(failure) => return failure,
                }
            }
            if line.len() > MOST_BYTES {
                break;
            }
        }
        Failure::Unanswered
    }

    /// Posts to the first machine that accepts a connection. It is sent once: another machine could carry it out again.
    async fn post(&self, path: &str, body: &Value) -> Result<Body, Failure> {
        let count = self.settings.endpoints.len();
        for _ in 0..count {
            let endpoint = &self.settings.endpoints[self.current.get() % count];
            let Ok(Ok(stream)) = timeout(self.patience, self.connect(endpoint)).await else {
                self.no_answer();
                continue;
            };
            if self.settings.user.is_some() && self.token.borrow().is_none() && path != AUTHENTICATE {
                Box::pin(self.authenticate()).await?;
            }
            return match timeout(self.patience, self.send(endpoint, stream, path, body)).await {
                Ok(Ok(body)) => Ok(body),
                _ => Err(self.no_answer()),
            };
        }
        Err(Failure::Unanswered)
    }

    /// Uses another machine from now on.
    fn no_answer(&self) -> Failure {
        self.current.set(self.current.get().wrapping_add(1));
        Failure::Unanswered
    }

    async fn authenticate(&self) -> Result<(), Failure> {
        let Some((name, password)) = &self.settings.user else { return Ok(()) };
        let response = self.post(AUTHENTICATE, &json!({"name": name, "password": password})).await?;
        let bytes = to_bytes(response, MOST_BYTES).await.map_err(|_| Failure::Unanswered)?;
        let answer: Value = serde_json::from_slice(&bytes).map_err(|_| Failure::Unanswered)?;
        let Some(token) = answer.get("token").and_then(Value::as_str) else {
            let why = answer.get("error").and_then(Value::as_str).unwrap_or("no token");
            return Err(Failure::Other(format!("etcd refuses cluster.user: {why}")));
        };
        *self.token.borrow_mut() = Some(token.to_owned());
        Ok(())
    }

    async fn connect(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Stream>> {
        let stream = TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await?;
        stream.set_nodelay(true)?;
        match self.settings.tls.as_ref().filter(|_| endpoint.is_encrypted) {
            None => Ok(Box::new(stream)),
            Some(tls) => {
                let name = ServerName::try_from(endpoint.host.clone()).map_err(io::Error::other)?;
                Ok(Box::new(TlsConnector::from(tls.clone()).connect(name, stream).await?))
            }
        }
    }

    async fn send(
        &self,
        endpoint: &Endpoint,
        stream: Box<dyn Stream>,
        path: &str,
        body: &Value,
    ) -> Result<Body, io::Error> {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        tokio::task::spawn_local(connection);
        let mut request = hyper::Request::post(path)
            .header(HOST, format!("{}:{}", endpoint.host, endpoint.port))
            .header(CONTENT_TYPE, "application/json");
        if let Some(token) = &*self.token.borrow() {
            request = request.header(AUTHORIZATION, token);
        }
        let request = request.body(Body::from(body.to_string())).map_err(io::Error::other)?;
        let response = sender.send_request(request).await.map_err(io::Error::other)?;
        Ok(Body::new(response.into_body()))
    }
}

const AUTHENTICATE: &str = "/v3/auth/authenticate";

/// A connection, encrypted or not.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}
