//! Path assignments over HTTP, in JSON. [`super::rpc`] has the same in XML-RPC.

use super::caller::Caller;
use super::handlers::{body, wait_for, Answer, Api};
use super::measured::Measured;
use super::parameters::{host_address, paging, whole, whole_or_none, Paging};
use super::problem::Problem;
use super::queries::Cut;
use super::rows::{seconds, Page};
use crate::drivers::storing::Storing;
use crate::hub::assigning::CONFIRMATION;
use crate::hub::hosts::names;
use crate::hub::Hub;
use axum::body::Bytes;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Extension, Path, Query, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use pathloom_control::{AssignError, Assigned, AssignmentId, ClaimKey, Input, Listed, Output, PathRequest, PathSearch};
use pathloom_model::{Address, Fabric, Nanos};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::{IntoParams, ToSchema};

/// The routes of assignments.
pub(super) fn router() -> Router<Api> {
    Router::new()
        .route("/v1/assignments", get(assignments).post(assign))
        .route("/v1/assignments/{assignment}", get(assignment).delete(release))
        .route("/v1/assignments/{assignment}/claims", post(claim))
}

/// An assignment.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code)] // Only describes the parameter.
pub(super) struct AssignmentInPath {
    /// Id of the assignment.
    #[param(minimum = 1, maximum = 2147483647)]
    assignment: u32,
}

/// How paths are searched.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
enum SearchRow {
    /// The loop-free paths of fewest hops.
    BreadthFirst,
    /// Paths that share no cable.
    EdgeDisjoint,
}

impl From<PathSearch> for SearchRow {
    fn from(search: PathSearch) -> SearchRow {
        match search {
            PathSearch::BreadthFirst => SearchRow::BreadthFirst,
            PathSearch::EdgeDisjoint => SearchRow::EdgeDisjoint,
        }
    }
}

impl From<SearchRow> for PathSearch {
    fn from(search: SearchRow) -> PathSearch {
        match search {
            SearchRow::BreadthFirst => PathSearch::BreadthFirst,
            SearchRow::EdgeDisjoint => PathSearch::EdgeDisjoint,
        }
    }
}

/// Paths that an application asks for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    /// Address of the sending host.
    #[serde(deserialize_with = "host_address")]
    #[schema(value_type = String, format = Ipv4, example = "10.0.0.1")]
    src: Address,
    /// Address of the receiving host.
    #[serde(deserialize_with = "host_address")]
    #[schema(value_type = String, format = Ipv4, example = "10.0.7.1")]
    dst: Address,
    /// Number of paths. Fewer are assigned if fewer exist.
    #[serde(deserialize_with = "whole")]
    #[schema(minimum = 1, maximum = 64)]
    count: u32,
    /// How to search; `paths.search` of the configuration if it is left out.
    search: Option<SearchRow>,
    /// Seconds for which the assignment is kept while nobody uses it; `control.assignments.lifetime` if it is left out.
    #[serde(default, deserialize_with = "whole_or_none")]
    #[schema(minimum = 1, maximum = 86400)]
    lifetime_s: Option<u64>,
}

/// A path of an assignment.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AssignedPathRow {
    /// Names of its switches, from ToR to ToR; empty if both hosts are at one ToR.
    switches: Vec<String>,
    /// Number of claims and connections that use it.
    users: u32,
    /// Rate of its slowest link, in b/s, the links of both hosts included.
    rate_bps: u64,
    /// Smallest free rate of its links, in b/s: the rate less the load by port counters; null if a counter was not
    /// read.
    available_bps: Option<u64>,
    /// Round-trip time between both hosts, in seconds. Links between switches count with the delay that probes
    /// measured, if they did. All other links count with the delay of the fabric.
    round_trip_s: f64,
    /// Whether probes measured all its links between switches.
    round_trip_measured: bool,
}

/// An assignment.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AssignmentRow {
    id: u32,
    #[schema(value_type = String)]
    src: Address,
    #[schema(value_type = String)]
    dst: Address,
    search: SearchRow,
    /// Number of paths that were requested.
    asked: u32,
    /// Paths found, in the order in which they are claimed.
    paths: Vec<AssignedPathRow>,
    /// Number of claims whose connection has not begun yet.
    waiting: usize,
    /// Number of connections on its paths.
    connections: usize,
    /// When it expires if nobody uses it, in seconds since 1970; null while there are claims or connections.
    expires_s: Option<f64>,
    /// Whether it is released and only waits for its connections to end.
    released: bool,
}

impl AssignmentRow {
    fn new(hub: &mut Hub, fabric: &Fabric, listed: Listed) -> AssignmentRow {
        let Listed { id, request, paths, waiting, connections, until, released, .. } = listed;
        let PathRequest { src, dst, count: asked, search, .. } = request;
        let path = |(path, users)| {
            let measured = Measured::take(hub, src, dst, &path);
            AssignedPathRow {
                switches: switch_names(fabric, &path),
                users,
                rate_bps: measured.map_or(0, |measured| measured.rate_bps),
                available_bps: measured.and_then(|measured| measured.available_bps),
                round_trip_s: measured.map_or(0.0, |measured| measured.round_trip.0 as f64 / 1e9),
                round_trip_measured: measured.is_some_and(|measured| measured.is_timed),
            }
        };
        let (search, expires_s) = (search.into(), until.map(seconds));
        let paths = paths.into_iter().map(path).collect();
        AssignmentRow { id: id.0, src, dst, search, asked, paths, waiting, connections, expires_s, released }
    }
}

/// A connection that an application is about to open, or one that exists.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Claim {
    /// Address of the sending host, which opens the connection. For an existing connection, this may be either end.
    #[serde(deserialize_with = "host_address")]
    #[schema(value_type = String, format = Ipv4, example = "10.0.0.1")]
    src: Address,
    /// Address of the receiving host.
    #[serde(deserialize_with = "host_address")]
    #[schema(value_type = String, format = Ipv4, example = "10.0.7.1")]
    dst: Address,
    /// Source port of the connection.
    #[serde(deserialize_with = "whole")]
    #[schema(minimum = 1, maximum = 65535)]
    src_port: u16,
    /// Destination port of an existing connection, which moves to the path at once. It is left out for a new
    /// connection.
    #[serde(default, deserialize_with = "whole_or_none")]
    #[schema(minimum = 1, maximum = 65535)]
    dst_port: Option<u16>,
    /// Destination port of a new connection, if it is known. The connection then has its path 0.1 s after the claim,
    /// even if its first packet was not seen.
    #[serde(default, deserialize_with = "whole_or_none")]
    #[schema(minimum = 1, maximum = 65535)]
    opens_to: Option<u16>,
    /// Number of the path in the assignment, from 0. If it is left out, the path with the fewest users is claimed.
    #[serde(default, deserialize_with = "whole_or_none")]
    #[schema(minimum = 0, maximum = 63)]
    path: Option<u64>,
}

/// The path that a connection will take.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ClaimedRow {
    /// Names of its switches, from ToR to ToR.
    switches: Vec<String>,
}

/// Reads the id of an assignment in the path of a request.
fn name(path: Result<Path<String>, PathRejection>) -> Result<AssignmentId, Problem> {
    let text = path.map_or_else(|problem| problem.body_text(), |Path(text)| text);
    let digits = (1..=10).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|&number: &u32| digits && number > 0);
    number.map(AssignmentId).ok_or_else(|| {
        Problem::bad(format!("`{text}` is not the id of an assignment")).at("assignment").expected("1 to 2147483647")
    })
}

/// The assignments that the caller may see, oldest first.
#[utoipa::path(get, path = "/v1/assignments", params(Paging), responses((status = 200, body = Page<AssignmentRow>)))]
pub(super) async fn assignments(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    asked: Result<Query<Paging>, QueryRejection>,
) -> Answer<Page<AssignmentRow>> {
    let Cut { limit, after } = paging(asked)?;
    let after = after.map(|after| AssignmentId(u32::try_from(after).unwrap_or(u32::MAX)));
    let rows = move |hub: &mut Hub, _| {
        let fabric = hub.fabric.clone()?;
        let owner = caller.sees();
        let mut listed = hub.controller()?.assignments().list(after, owner.as_ref());
        let shown: Vec<Listed> = listed.by_ref().take(limit).collect();
        let next = shown.last().filter(|_| listed.next().is_some()).map(|one| one.id.to_string());
        drop(listed);
        let items = shown.into_iter().map(|one| AssignmentRow::new(hub, &fabric, one)).collect();
        Some(Page { items, next })
    };
    api.ask(rows).await.map(Json)
}

/// An assignment.
#[utoipa::path(get, path = "/v1/assignments/{assignment}", params(AssignmentInPath), responses((status = 200, body = AssignmentRow), (status = 404, body = Problem)))]
pub(super) async fn assignment(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    path: Result<Path<String>, PathRejection>,
) -> Answer<AssignmentRow> {
    let id = name(path)?;
    api.ask(move |hub, _| Some(row(hub, caller, id))).await?.map(Json)
}

fn row(hub: &mut Hub, caller: Caller, id: AssignmentId) -> Result<AssignmentRow, Problem> {
    let listed = hub.controller().and_then(|controller| controller.assignments().get(id));
    let listed = listed.ok_or_else(|| refused(&AssignError::Unknown(id)))?;
    if caller.sees().is_some_and(|owner| owner != listed.owner) {
        return Err(refused(&AssignError::NotYours(id)));
    }
    let fabric = hub.fabric.clone().ok_or_else(|| Problem::unknown("this controller has no fabric"))?;
    Ok(AssignmentRow::new(hub, &fabric, listed))
}

/// Assigns paths between two hosts to an application.
///
/// The application claims one of them for each connection that it opens.
#[utoipa::path(post, path = "/v1/assignments", request_body = Asked, responses((status = 201, body = AssignmentRow), (status = 409, body = Problem)))]
pub(super) async fn assign(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    bytes: Bytes,
) -> Result<(StatusCode, Json<AssignmentRow>), Problem> {
    let Asked { src, dst, count, search, lifetime_s } = body(&bytes)?;
    let search = search.map_or(api.search, PathSearch::from);
    let lifetime = lifetime_s.map(|seconds| Nanos(seconds.saturating_mul(1_000_000_000)));
    let id = api.assign(caller, PathRequest { src, dst, count, search, lifetime }).await?.assignment;
    let row = api.ask(move |hub, _| Some(row(hub, caller, id))).await??;
    Ok((StatusCode::CREATED, Json(row)))
}

/// Claims the next path of an assignment for a connection.
///
/// The first packet of a new connection must arrive within `control.assignments.claim_timeout`. With `dst_port`, the
/// connection exists already.
#[utoipa::path(post, path = "/v1/assignments/{assignment}/claims", params(AssignmentInPath), request_body = Claim, responses((status = 201, body = ClaimedRow), (status = 409, body = Problem)))]
pub(super) async fn claim(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    path: Result<Path<String>, PathRejection>,
    bytes: Bytes,
) -> Result<(StatusCode, Json<ClaimedRow>), Problem> {
    let id = name(path)?;
    let Claim { src, dst, src_port, dst_port, opens_to, path } = body(&bytes)?;
    let wish = path.map(|path| u32::try_from(path).unwrap_or(u32::MAX));
    let switches = api.claim(caller, id, ClaimKey { src, dst, src_port, dst_port }, (wish, opens_to)).await?;
    Ok((StatusCode::CREATED, Json(ClaimedRow { switches })))
}

/// Releases an assignment: it accepts no more claims. Connections keep their paths.
#[utoipa::path(delete, path = "/v1/assignments/{assignment}", params(AssignmentInPath), responses((status = 200, body = AssignmentRow), (status = 404, body = Problem)))]
pub(super) async fn release(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    path: Result<Path<String>, PathRejection>,
) -> Answer<AssignmentRow> {
    let id = name(path)?;
    let before = api.ask(move |hub, _| Some(row(hub, caller, id))).await??;
    api.release(caller, id).await?;
    // The assignment is gone unless it has connections.
    let row = api.ask(move |hub, _| Some(row(hub, caller, id).ok())).await?;
    Ok(Json(row.unwrap_or(AssignmentRow { waiting: 0, connections: 0, expires_s: None, released: true, ..before })))
}

/// Converts an error of the controller into a problem.
fn refused(problem: &AssignError) -> Problem {
    use AssignError as E;
    let (status, title) = match problem {
        E::Count { .. } | E::Lifetime { .. } | E::SameHost { .. } | E::Port => {
            (StatusCode::BAD_REQUEST, "the request makes no sense")
        }
        E::UnknownAddress { .. } | E::Unknown(_) | E::NoSuchPath { .. } => {
            (StatusCode::NOT_FOUND, "there is no such thing")
        }
        E::NotYours(_) => (StatusCode::FORBIDDEN, "this is another host's assignment"),
        E::NoPath { .. } | E::OtherEnds { .. } | E::PortTaken { .. } | E::NotNow { .. } => {
            (StatusCode::CONFLICT, "it cannot be done as things stand")
        }
        E::OwnerFull { .. } | E::Full { .. } | E::TooManyClaims { .. } => {
            (StatusCode::TOO_MANY_REQUESTS, "there are too many")
        }
    };
    Problem::new(status, title, problem.to_string())
}

impl Api {
    /// Assigns paths. Waits until the assignment is stored and the first packets of its connections will be seen.
    pub(super) async fn assign(&self, caller: Caller, paths: PathRequest) -> Result<Assigned, Problem> {
        let owner = caller.acts_for(paths.src)?;
        let asked = move |hub: &mut Hub, now, storing: &Storing| {
            let assign = |request| Input::AssignPaths { request, owner, paths };
            let Output::Assigned { answer, .. } = hub.request(now, assign)? else { return None };
            let seen = storing.when_visible(hub.when_visible(now, paths.src));
            Some((answer, storing.to_be_stored(hub), seen))
        };
        let (answer, stored, seen) = self.ask_and_store(asked).await?;
        let assigned = answer.map_err(|problem| refused(&problem))?;
        wait_for(stored).await?;
        if tokio::time::timeout(Duration::from_nanos(CONFIRMATION.0), seen).await.is_err() {
            tracing::warn!(
                %paths.src,
                "its switch has not confirmed the rules: its first connections may miss their paths"
            );
        }
        Ok(assigned)
    }

    /// Claims a path. Returns the names of its switches.
    pub(super) async fn claim(
        &self,
        caller: Caller,
        id: AssignmentId,
        key: ClaimKey,
        (wish, opens_to): (Option<u32>, Option<u16>),
    ) -> Result<Vec<String>, Problem> {
        caller.acts_for(key.src)?;
        let asked = move |hub: &mut Hub, now| {
            let fabric = hub.fabric.clone()?;
            let Some(owner) = caller.uses(hub, id) else { return Some(Err(AssignError::Unknown(id))) };
            let claim =
                |request| Input::ClaimPath { request, owner, assignment: id, connection: key, path: wish, opens_to };
            let Output::Claimed { answer, .. } = hub.request(now, claim)? else { return None };
            let first = |claimed: Assigned| claimed.paths.first().map(|path| switch_names(&fabric, path));
            answer.map(first).transpose()
        };
        self.ask(asked).await?.map_err(|problem| refused(&problem))
    }

    /// Releases an assignment. Waits until the change is stored.
    pub(super) async fn release(&self, caller: Caller, id: AssignmentId) -> Result<(), Problem> {
        let asked = move |hub: &mut Hub, now, storing: &Storing| {
            let Some(owner) = caller.uses(hub, id) else { return Some((Err(AssignError::Unknown(id)), None)) };
            let release = |request| Input::ReleasePaths { request, owner, assignment: id };
            let Output::Released { answer, .. } = hub.request(now, release)? else { return None };
            Some((answer, storing.to_be_stored(hub)))
        };
        let (answer, stored) = self.ask_and_store(asked).await?;
        answer.map_err(|problem| refused(&problem))?;
        wait_for(stored).await
    }
}

fn switch_names(fabric: &Fabric, path: &pathloom_model::Path) -> Vec<String> {
    names(fabric, path).into_iter().map(str::to_owned).collect()
}
