//! The routes of the API.

use super::assignments;
use super::document::Everywhere;
use super::handlers::{body, wait_for, Answer, Api};
use super::live;
use super::metrics::{in_plain_text, Sample};
use super::page;
use super::parameters::{
    flow_name, flow_paging, paging, whole, whole_or_none, FlowInPath, FlowPaging, LinkInPath, Paging, SwitchInPath,
    MOST_INTEGER,
};
use super::predict::{explain, try_scheme, AnnouncedRow, DryRunRow};
use super::problem::Problem;
use super::queries::{self, FlowName};
use super::rows::{ClusterRow, FlowRow, LinkRow, Page, StateRow, SwitchRow, TupleRow, WhyRow};
use super::rpc;
use crate::config::registry;
use crate::drivers::storing::Storing;
use crate::hub::Hub;
use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, Request, State};
use axum::http::{header, HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use pathloom_control::{DrainError, Input, SchemeChange, Target};
use pathloom_model::{Fabric, FiveTuple, LinkId, NodeId, PortNo};
use pathloom_scheme::{Detection, Scheme};
use serde::{Deserialize, Serialize};
use utoipa::{OpenApi, ToSchema};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Pathloom controller",
        description = "The state of the controller, the reasons for the paths of flows, and the commands of an operator. Send a token as `Authorization: Bearer TOKEN`."
    ),
    modifiers(&Everywhere),
    paths(
        page::page,
        live::fabric,
        live::events,
        live::token,
        document,
        metrics,
        state,
        cluster,
        switches,
        switch,
        drain_switch,
        undrain_switch,
        resync_switch,
        resync,
        links,
        link,
        drain_link,
        undrain_link,
        flows,
        flow,
        why,
        announce,
        scheme,
        set_scheme,
        dry_run,
        fall_back,
        assignments::assignments,
        assignments::assign,
        assignments::assignment,
        assignments::release,
        assignments::claim,
        rpc::call
    )
)]
struct Document;

/// The whole API.
pub(super) fn router(api: Api) -> Router {
    Router::new()
        .merge(page::router())
        .route("/v1/fabric", get(live::fabric))
        .route("/v1/events", get(live::events))
        .route("/v1/token", get(live::token))
        .route("/openapi.json", get(document))
        .route("/metrics", get(metrics))
        .route("/v1/state", get(state))
        .route("/v1/cluster", get(cluster))
        .route("/v1/switches", get(switches))
        .route("/v1/switches/{name}", get(switch))
        .route("/v1/switches/{name}/drain", post(drain_switch))
        .route("/v1/switches/{name}/undrain", post(undrain_switch))
        .route("/v1/switches/{name}/resync", post(resync_switch))
        .route("/v1/resync", post(resync))
        .route("/v1/links", get(links))
        .route("/v1/links/{id}", get(link))
        .route("/v1/links/{id}/drain", post(drain_link))
        .route("/v1/links/{id}/undrain", post(undrain_link))
        .route("/v1/flows", get(flows).post(announce))
        .route("/v1/flows/{flow}", get(flow))
        .route("/v1/flows/{flow}/why", get(why))
        .route("/v1/scheme", get(scheme).put(set_scheme))
        .route("/v1/scheme/dry-run", post(dry_run))
        .route("/v1/scheme/fall-back", post(fall_back))
        .merge(assigning())
        .fallback(nowhere)
        .method_not_allowed_fallback(no_such_method)
        .layer(axum::middleware::from_fn(readable))
        .with_state(api)
}

/// The routes for applications on hosts: only path assignments.
pub(super) fn host_router(api: Api) -> Router {
    assigning()
        .fallback(nowhere)
        .method_not_allowed_fallback(no_such_method)
        .layer(axum::middleware::from_fn(readable))
        .with_state(api)
}

fn assigning() -> Router<Api> {
    assignments::router().merge(rpc::router())
}

async fn nowhere(uri: axum::http::Uri) -> Problem {
    Problem::unknown(format!("there is nothing at {}", uri.path())).way_out("/openapi.json lists the addresses")
}

async fn no_such_method(method: axum::http::Method, uri: axum::http::Uri) -> Problem {
    let detail = format!("{} does not support {method}", uri.path());
    let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, "the address does not take this method", detail);
    problem.way_out("/openapi.json lists the addresses")
}

/// This description of the API, in JSON.
#[utoipa::path(get, path = "/openapi.json", responses((status = 200, content_type = "application/json", body = serde_json::Value)))]
async fn document() -> Json<utoipa::openapi::OpenApi> {
    Json(Document::openapi())
}

/// Metrics for Prometheus, in its text format or in that of OpenMetrics, as the client accepts.
#[utoipa::path(get, path = "/metrics", responses((status = 200, content(
    (String = "text/plain"),
    (String = "application/openmetrics-text"),
))))]
async fn metrics(State(api): State<Api>, headers: HeaderMap) -> Result<Response, Problem> {
    let mut sample = api.asker.ask(Sample::take).await?;
    (sample.requests, sample.requests_closed) = (api.counts.answered(), api.counts.closed());
    let text = sample.into_text().map_err(|_| Problem::busy("the metrics could not be written"))?;
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (kind, text) = if accepted.contains("application/openmetrics-text") {
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", text)
    } else {
        ("text/plain; version=0.0.4; charset=utf-8", in_plain_text(&text))
    };
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

/// Refuses a request whose path is not UTF-8. Passes all other requests on.
async fn readable(request: Request, next: Next) -> Response {
    if is_text(request.uri().path()) {
        return next.run(request).await;
    }
    Problem::bad("the path is not UTF-8").at("path").expected("names as in the lists").into_response()
}

/// Whether a path is UTF-8 after decoding its escapes (RFC 3986 §2.1).
fn is_text(path: &str) -> bool {
    let (mut bytes, mut rest) = (Vec::with_capacity(path.len()), path.as_bytes());
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|_| first == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    std::str::from_utf8(&bytes).is_ok()
}

/// Refuses an integer that not every JSON implementation reads exactly.
fn exact(number: u64, place: &str) -> Result<(), Problem> {
    let problem =
        || Problem::bad(format!("{number} is too large")).at(place).expected(format!("at most {MOST_INTEGER}"));
    if number <= MOST_INTEGER {
        Ok(())
    } else {
        Err(problem())
    }
}

/// The state of the controller.
#[utoipa::path(get, path = "/v1/state", responses((status = 200, body = StateRow)))]
async fn state(State(api): State<Api>) -> Answer<StateRow> {
    api.ask(queries::state_row).await.map(Json)
}

/// Which of several controllers leads, and what is known of the others; null for one that is alone. A follower answers this
/// itself.
#[utoipa::path(get, path = "/v1/cluster", responses((status = 200, body = Option<ClusterRow>)))]
async fn cluster(State(api): State<Api>) -> Answer<Option<ClusterRow>> {
    api.asker.ask(|hub, now| queries::cluster_row(hub, now)).await.map(Json)
}

/// All switches.
#[utoipa::path(get, path = "/v1/switches", params(Paging), responses((status = 200, body = Page<SwitchRow>)))]
async fn switches(State(api): State<Api>, query: Result<Query<Paging>, QueryRejection>) -> Answer<Page<SwitchRow>> {
    let cut = paging(query)?;
    api.ask(move |hub, _| queries::switch_rows(hub, &cut)).await.map(Json)
}

fn find_switch(fabric: &Fabric, name: &str) -> Result<NodeId, Problem> {
    let found = fabric.find(name).filter(|&node| !fabric.is_host(node));
    let unknown = || Problem::unknown(format!("the fabric has no switch `{name}`")).way_out("/v1/switches lists them");
    found.ok_or_else(unknown)
}

/// A switch.
#[utoipa::path(get, path = "/v1/switches/{name}", params(SwitchInPath), responses((status = 200, body = SwitchRow)))]
async fn switch(State(api): State<Api>, Path(name): Path<String>) -> Answer<SwitchRow> {
    let node = find_switch(&*api.fabric().await?, &name)?;
    api.ask(move |hub, _| queries::switch_row(hub, node)).await.map(Json)
}

fn refused(fabric: &Fabric, what: &str, out: bool, problem: DrainError) -> Problem {
    let name = |node: NodeId| fabric.node(node).name.clone();
    match problem {
        DrainError::NotDrainable => {
            let problem = Problem::conflict(format!("{what} is a link of a host"));
            problem.expected("a switch, or a link between two switches")
        }
        DrainError::HasHosts(_) => Problem::conflict(format!("hosts are connected to {what} and have no other path"))
            .way_out("take its links out of service one by one, or move the hosts first"),
        DrainError::CutsOff(node) => Problem::conflict(format!("without {what}, {} would be unreachable", name(node)))
            .way_out("bring another path up first; /v1/links shows what is down or drained"),
        DrainError::NoSession(node) => {
            Problem::conflict(format!("the controller has just started, and {} has had no session yet", name(node)))
                .way_out("repeat it in some seconds; 10 s after the start, a switch without a session counts as gone")
        }
        DrainError::Already if out => Problem::conflict(format!("{what} is out of service already")),
        DrainError::Already => Problem::conflict(format!("{what} is in service already"))
            .way_out("a link stays out of service as long as a switch at an end of it does"),
    }
}

async fn service(api: &Api, what: String, target: Target, out: bool) -> Result<(), Problem> {
    let asked = move |hub: &mut Hub, now, storing: &Storing| {
        let done = queries::take_out(hub, now, target, out);
        if done.is_ok() {
            hub.assigning.note_change();
        }
        Some((done, storing.to_be_stored(hub)))
    };
    let (done, stored) = api.ask_and_store(asked).await?;
    let fabric = api.fabric().await?;
    done.map_err(|problem| refused(&fabric, &what, out, problem))?;
    wait_for(stored).await
}

/// Takes a switch out of service: the scheme moves its flows off it, and default routes avoid it, without loss.
#[utoipa::path(post, path = "/v1/switches/{name}/drain", params(SwitchInPath), responses((status = 200, body = SwitchRow), (status = 409, body = Problem)))]
async fn drain_switch(State(api): State<Api>, Path(name): Path<String>) -> Answer<SwitchRow> {
    serve_switch(api, name, true).await
}

/// Puts a switch back into service.
#[utoipa::path(post, path = "/v1/switches/{name}/undrain", params(SwitchInPath), responses((status = 200, body = SwitchRow), (status = 409, body = Problem)))]
async fn undrain_switch(State(api): State<Api>, Path(name): Path<String>) -> Answer<SwitchRow> {
    serve_switch(api, name, false).await
}

/// Reads the rules of a switch again now and repairs changes by others, without waiting for the next periodic review.
#[utoipa::path(post, path = "/v1/switches/{name}/resync", params(SwitchInPath), responses((status = 200, body = SwitchRow)))]
async fn resync_switch(State(api): State<Api>, Path(name): Path<String>) -> Answer<SwitchRow> {
    let node = find_switch(&*api.fabric().await?, &name)?;
    api.ask(move |hub, now| {
        hub.handle(now, Input::Resync { switch: Some(node) });
        queries::switch_row(hub, node)
    })
    .await
    .map(Json)
}

/// Reads the rules of all switches again now and repairs changes by others.
#[utoipa::path(post, path = "/v1/resync", responses((status = 200, body = StateRow)))]
async fn resync(State(api): State<Api>) -> Answer<StateRow> {
    api.ask(|hub, now| {
        hub.handle(now, Input::Resync { switch: None });
        queries::state_row(hub, now)
    })
    .await
    .map(Json)
}

async fn serve_switch(api: Api, name: String, out: bool) -> Answer<SwitchRow> {
    let node = find_switch(&*api.fabric().await?, &name)?;
    service(&api, name, Target::Switch(node), out).await?;
    api.ask(move |hub, _| queries::switch_row(hub, node)).await.map(Json)
}

/// All links, one entry per direction.
#[utoipa::path(get, path = "/v1/links", params(Paging), responses((status = 200, body = Page<LinkRow>)))]
async fn links(State(api): State<Api>, query: Result<Query<Paging>, QueryRejection>) -> Answer<Page<LinkRow>> {
    let cut = paging(query)?;
    api.ask(move |hub, _| queries::link_rows(hub, &cut)).await.map(Json)
}

fn find_link(fabric: &Fabric, name: &str) -> Result<LinkId, Problem> {
    let at_port = || {
        let (node, port) = name.rsplit_once(':')?;
        fabric.out_link(fabric.find(node)?, PortNo(port.parse().ok()?))
    };
    let between = || {
        let (from, to) = name.split_once(',')?;
        let (from, to) = (fabric.find(from)?, fabric.find(to)?);
        let joins = |link: &&pathloom_model::Link| link.from == from && link.to == to;
        let all = fabric.links().iter().filter(joins).count();
        fabric.link_between(from, to).filter(|_| all == 1)
    };
    at_port().or_else(between).ok_or_else(|| {
        Problem::unknown(format!("the fabric has no link `{name}`"))
            .at("link")
            .expected("NODE:PORT of its start, or FROM,TO if there is only one link between the two")
            .way_out("/v1/links lists them")
    })
}

/// A link.
#[utoipa::path(get, path = "/v1/links/{id}", params(LinkInPath), responses((status = 200, body = LinkRow)))]
async fn link(State(api): State<Api>, Path(id): Path<String>) -> Answer<LinkRow> {
    let link = find_link(&*api.fabric().await?, &id)?;
    link_row(&api, link).await
}

async fn link_row(api: &Api, link: LinkId) -> Answer<LinkRow> {
    let row = move |hub: &mut Hub, _| {
        let flows = hub.controller()?.flows_on_links();
        queries::link_row(hub, link, &flows)
    };
    api.ask(row).await.map(Json)
}

/// Takes a cable out of service, in both directions. It is safe to unplug when its state is `drained`.
#[utoipa::path(post, path = "/v1/links/{id}/drain", params(LinkInPath), responses((status = 200, body = LinkRow), (status = 409, body = Problem)))]
async fn drain_link(State(api): State<Api>, Path(id): Path<String>) -> Answer<LinkRow> {
    serve_link(api, id, true).await
}

/// Puts a cable back into service.
#[utoipa::path(post, path = "/v1/links/{id}/undrain", params(LinkInPath), responses((status = 200, body = LinkRow), (status = 409, body = Problem)))]
async fn undrain_link(State(api): State<Api>, Path(id): Path<String>) -> Answer<LinkRow> {
    serve_link(api, id, false).await
}

async fn serve_link(api: Api, id: String, out: bool) -> Answer<LinkRow> {
    let link = find_link(&*api.fabric().await?, &id)?;
    service(&api, format!("link {id}"), Target::Cable(link), out).await?;
    link_row(&api, link).await
}

/// All flows that the controller knows, oldest first.
#[utoipa::path(get, path = "/v1/flows", params(FlowPaging), responses((status = 200, body = Page<FlowRow>)))]
async fn flows(State(api): State<Api>, asked: Result<Query<FlowPaging>, QueryRejection>) -> Answer<Page<FlowRow>> {
    let (cut, long) = flow_paging(asked)?;
    api.ask(move |hub, _| queries::flow_rows(hub, &cut, long)).await.map(Json)
}

fn unknown_flow(text: &str) -> Problem {
    Problem::unknown(format!("no flow `{text}` is known")).way_out(
        "/v1/flows lists those that are; flows that have ended, and short ones that the scheme does not look for, are not known",
    )
}

/// A flow.
#[utoipa::path(get, path = "/v1/flows/{flow}", params(FlowInPath), responses((status = 200, body = FlowRow), (status = 404, body = Problem)))]
async fn flow(State(api): State<Api>, Path(text): Path<String>) -> Answer<FlowRow> {
    let name = flow_name(&text)?;
    let row = api.asker.ask(move |hub, _| queries::flow_row(hub, name)).await?;
    row.map(Json).ok_or_else(|| unknown_flow(&text))
}

/// Why a flow has its path, and which other paths it could take.
#[utoipa::path(get, path = "/v1/flows/{flow}/why", params(FlowInPath), responses((status = 200, body = WhyRow), (status = 404, body = Problem)))]
async fn why(State(api): State<Api>, Path(text): Path<String>) -> Answer<WhyRow> {
    let name = flow_name(&text)?;
    let why = api.asker.ask(move |hub, _| queries::why(hub, name)).await?.ok_or_else(|| unknown_flow(&text))?;
    Ok(Json(explain(why)))
}

/// A flow that an application is about to send.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Announcement {
    five_tuple: TupleRow,
    /// Payload bytes, if known.
    #[serde(default, deserialize_with = "whole_or_none")]
    #[schema(maximum = 9007199254740991i64)]
    size_bytes: Option<u64>,
}

/// Announces a flow, before its first packet.
#[utoipa::path(post, path = "/v1/flows", request_body = Announcement, responses((status = 202, body = AnnouncedRow), (status = 409, body = Problem)))]
async fn announce(State(api): State<Api>, bytes: Bytes) -> Result<(StatusCode, Json<AnnouncedRow>), Problem> {
    let Announcement { five_tuple, size_bytes } = body(&bytes)?;
    exact(size_bytes.unwrap_or(0), "size_bytes")?;
    let (tuple, fabric) = (FiveTuple::from(five_tuple), api.fabric().await?);
    for (place, address) in [("five_tuple.src", tuple.src()), ("five_tuple.dst", tuple.dst())] {
        if fabric.attachment(address).is_none() {
            let problem = Problem::unknown(format!("no host of the fabric has the address {address}"));
            return Err(problem.at(place).way_out("`pathloom fabric show` lists the addresses of the fabric"));
        }
    }
    if tuple.src() == tuple.dst() {
        return Err(Problem::conflict("both ends are one host").at("five_tuple").expected("two hosts"));
    }
    let told = move |hub: &mut Hub, now| {
        hub.handle(now, Input::TransferAnnounced { five_tuple: tuple, size_bytes });
        let detection = hub.controller()?.needs().detection;
        Some((queries::flow_row(hub, FlowName::Tuple(tuple)), detection))
    };
    let (flow, detection) = api.ask(told).await?;
    let note = match (&flow, detection) {
        (Some(_), _) => "the flow is known",
        (None, Detection::Nothing) => "the scheme in charge looks for no flows: this one uses the default routes",
        (None, _) => {
            "noted; the flow is known when the rules of its source ToR have been read, unless its host has too many"
        }
    };
    Ok((StatusCode::ACCEPTED, Json(AnnouncedRow { flow, note: note.into() })))
}

/// The scheme in charge, and all schemes.
#[derive(Debug, Serialize, ToSchema)]
struct SchemeRow {
    scheme: String,
    /// Seconds since 1970.
    since_s: f64,
    available: Vec<&'static str>,
}

/// The scheme in charge.
#[utoipa::path(get, path = "/v1/scheme", responses((status = 200, body = SchemeRow)))]
async fn scheme(State(api): State<Api>) -> Answer<SchemeRow> {
    let (scheme, since) = api.asker.ask(|hub, _| hub.gauges.scheme.clone()).await?;
    let central = |name: &&str| registry().parse(name).is_ok_and(|spec| spec.require_central(1).is_ok());
    let available = registry().names().into_iter().filter(central).collect();
    Ok(Json(SchemeRow { scheme, since_s: super::rows::seconds(since), available }))
}

/// A scheme, as on the command line.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Wanted {
    #[schema(example = "hedera:period=1s")]
    scheme: String,
    /// Seed of its random choices; the default is 1.
    #[serde(default = "one", deserialize_with = "whole")]
    #[schema(maximum = 9007199254740991i64)]
    seed: u64,
}

fn one() -> u64 {
    1
}

impl Wanted {
    async fn make(self, api: &Api) -> Result<(SchemeChange, Box<dyn Scheme>), Problem> {
        exact(self.seed, "seed")?;
        let parsed = registry().parse(&self.scheme);
        let spec = parsed.map_err(|problem| {
            Problem::bad(problem.to_string()).at("scheme").way_out("`pathloom scheme list` lists them, with their keys")
        })?;
        let central = spec.require_central(self.seed);
        let none = |problem| Problem::bad(problem).at("scheme").expected("a central scheme");
        let change = SchemeChange { spec: spec.label.clone(), seed: self.seed };
        let central = central.map_err(none)?;
        let fabric = api.fabric().await?;
        spec.check_fabric(&fabric).map_err(|problem| Problem::bad(problem).at("scheme"))?;
        Ok((change, central))
    }
}

/// Puts another scheme in charge, without loss.
///
/// The new scheme starts with all long flows on their present paths. It stays in charge until the next start, which
/// uses the scheme of the configuration.
#[utoipa::path(put, path = "/v1/scheme", request_body = Wanted, responses((status = 200, body = StateRow), (status = 400, body = Problem)))]
async fn set_scheme(State(api): State<Api>, bytes: Bytes) -> Answer<StateRow> {
    let wanted: Wanted = body(&bytes)?;
    take_charge(api, wanted).await
}

/// Puts ecmp in charge: every flow goes back to the default routes, and every switch hashes over all shortest paths.
#[utoipa::path(post, path = "/v1/scheme/fall-back", responses((status = 200, body = StateRow)))]
async fn fall_back(State(api): State<Api>) -> Answer<StateRow> {
    take_charge(api, Wanted { scheme: "ecmp".into(), seed: 1 }).await
}

async fn take_charge(api: Api, wanted: Wanted) -> Answer<StateRow> {
    let (change, scheme) = wanted.make(&api).await?;
    let put = move |hub: &mut Hub, now| {
        hub.set_scheme(now, change, scheme);
        queries::state_row(hub, now)
    };
    api.ask(put).await.map(Json)
}

/// Predicts the effect of another scheme on the existing flows. Nothing is sent to switches.
#[utoipa::path(post, path = "/v1/scheme/dry-run", request_body = Wanted, responses((status = 200, body = DryRunRow), (status = 400, body = Problem)))]
async fn dry_run(State(api): State<Api>, bytes: Bytes) -> Answer<DryRunRow> {
    let (change, scheme) = body::<Wanted>(&bytes)?.make(&api).await?;
    let fork = api.ask(queries::fork).await?;
    let tried = tokio::task::spawn_blocking(move || try_scheme(fork, change.spec, scheme)).await;
    tried.map(Json).map_err(|_| Problem::busy("the dry run of the scheme failed"))
}
