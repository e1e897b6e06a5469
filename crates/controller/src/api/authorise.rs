//! Authorisation of requests, before all handlers.

use super::caller::{Bearer, Caller};
use super::problem::{Moved, Problem, Refusal};
use super::rpc;
use super::slots::{ActiveRequest, ConnectionSlot};
use crate::config::{ApiTokens as Tokens, Authority, Current, Leader, May, Role};
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{ConnectInfo, Extension, Request, State};
use axum::http::uri::{Authority as Named, PathAndQuery};
use axum::http::{header, HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use data_encoding::BASE64;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Number of bytes beyond the limit that are read from an XML-RPC call before it is refused. Many clients read a
/// refusal only after they have sent the whole call.
const UNUSED_BYTES: usize = 16 << 20;
/// Maximum number of remembered addresses with refused requests.
const REMEMBERED: usize = 1024;

/// Authorises requests.
#[derive(Clone)]
pub(crate) struct Authoriser {
    /// The tokens as last read.
    pub tokens: Current<Tokens>,
    pub body_bytes: usize,
    pub timeout: Duration,
    pub counts: Arc<RequestCounts>,
    pub admits: Admits,
    pub authority: Authority,
}

/// Clients whose requests are accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Admits {
    /// Clients with a token.
    Tokens,
    /// Every host, identified by its address, and clients with a token.
    Hosts {
        /// Whether tokens are accepted. Without encryption, others could read them.
        tokens: bool,
        /// Names under which requests without a token are answered, besides IP addresses and `localhost`.
        names: Arc<[String]>,
    },
}

/// Counters. Their locks are held briefly, and only by the API's own thread.
#[derive(Default)]
pub(crate) struct RequestCounts {
    refused: Mutex<BTreeMap<IpAddr, u64>>,
    answered: Mutex<BTreeMap<u16, u64>>,
    closed: Mutex<BTreeMap<Closed, u64>>,
}

/// Why a connection was closed early.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Closed {
    /// It was closed to make room for a later one.
    MadeRoom,
    /// It arrived while requests were in progress on all others.
    NoRoom,
    /// It showed no valid token in time.
    Late,
}

impl Closed {
    /// Its name in metrics.
    fn name(self) -> &'static str {
        match self {
            Closed::MadeRoom => "made_room",
            Closed::NoRoom => "no_room",
            Closed::Late => "no_token_in_time",
        }
    }
}

impl RequestCounts {
    /// Requests answered so far, by status.
    pub(crate) fn answered(&self) -> Vec<(String, u64)> {
        let answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        answered.iter().map(|(status, &count)| (status.to_string(), count)).collect()
    }

    /// Connections closed early, by reason.
    pub(crate) fn closed(&self) -> Vec<(String, u64)> {
        let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        closed.iter().map(|(why, &count)| (why.name().to_owned(), count)).collect()
    }

    /// Counts a closed connection. Logs the first, the second, the fourth of a kind, and so on.
    pub(crate) fn close(&self, peer: IpAddr, why: Closed) {
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        let count = closed.entry(why).or_default();
        *count += 1;
        if count.is_power_of_two() {
            tracing::warn!(%peer, count, why = why.name(), "a connection to the API was closed");
        }
    }

    fn answer(&self, status: StatusCode) {
        *self.answered.lock().unwrap_or_else(PoisonError::into_inner).entry(status.as_u16()).or_default() += 1;
    }

    /// Counts a refused request. Logs its address the first time, the second, the fourth, and so on.
    fn refuse(&self, peer: IpAddr, why: &str) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.len() >= REMEMBERED && !refused.contains_key(&peer) {
            refused.clear();
        }
        let count = refused.entry(peer).or_default();
        *count += 1;
        if count.is_power_of_two() {
            tracing::warn!(%peer, count, why, "a request to the API was refused");
        }
    }
}

/// How a client sent its token.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// As a bearer token, by a program.
    Bearer,
    /// As a password. Browsers send it for requests of any page, so it only allows reading.
    Basic,
}

/// Passes a request on, or refuses it.
pub(crate) async fn authorise(
    State(authoriser): State<Authoriser>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Extension(slot): Extension<Arc<ConnectionSlot>>,
    request: Request,
    next: Next,
) -> Response {
    let is_call = request.uri().path() == rpc::PATH && request.method() == Method::POST;
    let response = match authoriser.admit(peer, &slot, request).await {
        Ok((request, _busy)) => next.run(request).await,
        Err(refusal) => {
            let problem = &refusal.problem;
            let refused = [401, 403, 408, 413, 421, 429].contains(&problem.status);
            if refused {
                authoriser.counts.refuse(peer.ip(), problem.title);
            }
            // XML-RPC clients understand faults, and the statuses 401 and 307.
            let is_fault = is_call && problem.status != StatusCode::UNAUTHORIZED.as_u16() && refusal.moved.is_none();
            let mut response = if is_fault { rpc::refuse(problem) } else { refusal.into_response() };
            // The rest of the request is not read.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            response
        }
    };
    authoriser.counts.answer(response.status());
    response
}

impl Authoriser {
    async fn admit(
        &self,
        peer: SocketAddr,
        slot: &Arc<ConnectionSlot>,
        request: Request,
    ) -> Result<(Request, ActiveRequest), Box<Refusal>> {
        let method = request.method();
        let changes = method != Method::GET && method != Method::HEAD;
        let looks = request.uri().path().ends_with("/dry-run");
        let (name, caller, role) = self.identify(peer, &request, changes, looks)?;
        let is_own = OWN.contains(&request.uri().path());
        permit(self.authority.get(), &self.admits, request.uri().path_and_query(), changes && !looks, is_own)?;
        let busy = slot.begin(&name)?;
        if changes && !looks && caller == Caller::Token {
            tracing::info!(%peer, name, %method, path = request.uri().path(), "a request to the API changes something");
        }
        let unused = if request.uri().path() == rpc::PATH { UNUSED_BYTES } else { 0 };
        let (parts, body) = request.into_parts();
        let read = tokio::time::timeout(self.timeout, read_body(body, self.body_bytes, unused));
        match read.await {
            Ok(Some(bytes)) => {
                let mut request = Request::from_parts(parts, Body::from(bytes));
                request.extensions_mut().insert(caller);
                request.extensions_mut().insert(Bearer { name, role });
                Ok((request, busy))
            }
            Ok(None) => {
                let detail = format!("the body has more than {} bytes, or ended early", self.body_bytes);
                let problem = Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "the body is too long", detail);
                Err(problem.way_out("no request of this API needs so many bytes; body_bytes is the limit").into())
            }
            Err(_) => {
                let detail = format!("the body did not arrive within {} s", self.timeout.as_secs_f64());
                Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "the request takes too long", detail).into())
            }
        }
    }

    /// Returns the name under which the requests of a client are counted, the caller, and its role.
    fn identify(
        &self,
        peer: SocketAddr,
        request: &Request,
        changes: bool,
        looks: bool,
    ) -> Result<(String, Caller, Role), Problem> {
        if let Admits::Hosts { tokens, names } = &self.admits {
            if !request.headers().contains_key(header::AUTHORIZATION) {
                check_host(request, names)?;
                let IpAddr::V4(address) = peer.ip().to_canonical() else {
                    let detail = format!("{} is not an IPv4 address, and all hosts of a fabric have one", peer.ip());
                    return Err(Problem::new(StatusCode::FORBIDDEN, "no host of a fabric", detail));
                };
                return Ok((address.to_string(), Caller::Host(address.into()), Role::Read));
            }
            if !*tokens {
                let detail = "this address is not encrypted, so others could read the token";
                let problem = Problem::new(StatusCode::FORBIDDEN, "no tokens here", detail);
                return Err(problem.at("Authorization").way_out("use the address of [api], or set [paths.tls]"));
            }
        }
        let (shown, token) = shown(request.headers())?;
        let tokens = self.tokens.get();
        let Some((name, role)) = tokens.find(&token) else {
            let problem =
                Problem::new(StatusCode::UNAUTHORIZED, "the token is not known", "no token like this is in the file");
            return Err(problem.at("Authorization").way_out("`pathloom controller token` makes one"));
        };
        if changes && (shown == Shown::Basic || (role < Role::Operate && !looks)) {
            let detail = format!("{} changes something, and `{name}` may only read", request.method());
            let problem = Problem::new(StatusCode::FORBIDDEN, "this token may not do that", detail);
            return Err(problem.at("Authorization").expected("a token of role operate, as a bearer token"));
        }
        let role = if shown == Shown::Basic { Role::Read } else { role };
        Ok((name.to_owned(), Caller::Token, role))
    }
}

/// Reads a body of up to `most` bytes; `None` if it is longer or ends early. Reads up to `unused` more bytes of a
/// longer one.
async fn read_body(body: Body, most: usize, unused: usize) -> Option<Bytes> {
    let mut body = pin!(body);
    let end = most.saturating_add(unused);
    if body.size_hint().lower() > end as u64 {
        return None;
    }
    let (mut bytes, mut length) = (Vec::new(), 0);
    while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        let Ok(data) = frame.ok()?.into_data() else { continue };
        length += data.len();
        if length > end {
            return None;
        }
        if length <= most {
            bytes.extend_from_slice(&data);
        }
    }
    (length <= most).then(|| bytes.into())
}

/// Refuses a request without a token that names another server. A page in a browser on a host could send it, if the name
/// of the page's server is made to resolve to this address (DNS rebinding). A program that names no server is no browser.
fn check_host(request: &Request, names: &[String]) -> Result<(), Problem> {
    let Some(host) = request.headers().get(header::HOST) else { return Ok(()) };
    let authority: Option<Named> = host.to_str().ok().and_then(|text| text.parse().ok());
    let name = authority.as_ref().map_or("", |authority| authority.host().trim_end_matches('.'));
    let is_address = name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    if is_address || names.iter().map(String::as_str).chain(["localhost"]).any(|own| own.eq_ignore_ascii_case(name)) {
        return Ok(());
    }
    let detail = format!("`{}` is not a name of this address", host.as_bytes().escape_ascii());
    let problem = Problem::new(StatusCode::MISDIRECTED_REQUEST, "another server is meant", detail);
    Err(problem.at("Host").expected("an IP address, or a name in [paths] names"))
}

/// The token of a request, and how it was sent.
fn shown(headers: &HeaderMap) -> Result<(Shown, String), Problem> {
    let problem = |detail: &str| {
        let problem = Problem::new(StatusCode::UNAUTHORIZED, "no token", detail);
        problem.at("Authorization").expected("Bearer TOKEN").way_out("`pathloom controller token` makes one")
    };
    let value = headers.get(header::AUTHORIZATION).ok_or_else(|| problem("the request shows no token"))?;
    let value = value.to_str().map_err(|_| problem("the header is not text"))?;
    let (way, rest) = value.split_once(' ').ok_or_else(|| problem("the header has only one word"))?;
    match way.to_ascii_lowercase().as_str() {
        "bearer" => Ok((Shown::Bearer, rest.trim().to_owned())),
        "basic" => {
            let decoded = BASE64.decode(rest.trim().as_bytes()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            let (_, password) = decoded
                .as_deref()
                .and_then(|text| text.split_once(':'))
                .ok_or_else(|| problem("the password is not encoded as RFC 7617 says"))?;
            Ok((Shown::Basic, password.to_owned()))
        }
        _ => Err(problem("the header names another scheme of authentication")),
    }
}

/// What a follower answers itself.
const OWN: [&str; 3] = ["/v1/cluster", "/metrics", "/openapi.json"];

/// Refuses a request that changes something unless etcd confirms that this controller leads. A follower knows nothing of
/// the fabric, so it sends all requests to the leader except those about itself.
fn permit(
    may: May,
    admits: &Admits,
    asked: Option<&PathAndQuery>,
    changes: bool,
    is_own: bool,
) -> Result<(), Box<Refusal>> {
    let nobody = |problem| Err(Box::new(Refusal { problem, moved: None, is_temporary: true }));
    match may {
        May::Everything => Ok(()),
        May::Read if !changes => Ok(()),
        May::Read => {
            let detail = "etcd does not confirm that this controller leads, so another one may lead by now";
            let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "this controller may not lead", detail);
            nobody(problem.way_out("ask the other controllers, or ask again when etcd answers"))
        }
        May::Follow(_) if is_own && !changes => Ok(()),
        May::Follow(None) => {
            let problem =
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, "no controller leads", "no controller is elected now");
            nobody(problem.way_out("ask again in a moment"))
        }
        May::Follow(Some(Leader { name, api, paths })) => {
            let url = if *admits == Admits::Tokens { api } else { paths };
            let detail = format!("this controller follows {name}");
            let Some(url) = url else {
                let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "another controller leads", detail);
                let way_out = format!("ask {name}; with cluster.api and cluster.paths it names its addresses");
                return nobody(problem.way_out(way_out));
            };
            let problem = Problem::new(StatusCode::TEMPORARY_REDIRECT, "another controller leads", detail);
            let asked = asked.map_or("/", PathAndQuery::as_str);
            let location = format!("{}{asked}", url.trim_end_matches('/'));
            let moved = Some(Moved { leader: name, location });
            Err(Box::new(Refusal { problem: problem.way_out("ask the leader"), moved, is_temporary: false }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(may: May, admits: &Admits, changes: bool, path: &str) -> Result<(), Box<Refusal>> {
        permit(may, admits, Some(&path.parse().unwrap()), changes, OWN.contains(&path))
    }

    #[test]
    fn changes_are_refused_until_etcd_confirms_again() {
        assert_eq!(asked(May::Everything, &Admits::Tokens, true, "/v1/resync"), Ok(()));
        let refusal = asked(May::Read, &Admits::Tokens, true, "/v1/resync").unwrap_err();
        assert_eq!((refusal.problem.status, refusal.is_temporary), (503, true));
        assert_eq!(refusal.into_response().headers()[header::RETRY_AFTER], "1");
        assert_eq!(asked(May::Read, &Admits::Tokens, false, "/v1/state"), Ok(()));
    }

    #[test]
    fn a_follower_sends_clients_to_the_leader_and_answers_what_it_knows_itself() {
        let api = Some("http://10.0.0.2:6680/".to_owned());
        let leader = Leader { name: "c1".into(), api, paths: None };
        let follows = || May::Follow(Some(leader.clone()));
        let moved = asked(follows(), &Admits::Tokens, true, "/v1/flows?limit=3").unwrap_err();
        let location = "http://10.0.0.2:6680/v1/flows?limit=3".to_owned();
        assert_eq!((moved.problem.status, moved.moved), (307, Some(Moved { leader: "c1".into(), location })));
        assert_eq!(asked(follows(), &Admits::Tokens, false, "/v1/cluster"), Ok(()));
        let hosts = Admits::Hosts { tokens: false, names: [].into() };
        assert_eq!(asked(follows(), &hosts, true, "/v1/assignments").unwrap_err().problem.status, 503);
        let nobody = asked(May::Follow(None), &Admits::Tokens, true, "/v1/resync").unwrap_err();
        assert_eq!((nobody.problem.status, nobody.is_temporary), (503, true));
    }
}
