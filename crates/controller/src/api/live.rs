//! Data for the web page, besides the lists: the fabric as a whole, and a stream of changes.

use super::caller::Bearer;
use super::handlers::{Answer, Api};
use super::problem::Problem;
use super::queries::{self, LinkState};
use super::rows::{StateRow, SwitchRow};
use crate::config::Role;
use axum::extract::{Extension, State};
use axum::response::sse::{Event, Sse};
use axum::response::IntoResponse;
use axum::Json;
use futures_util::stream;
use pathloom_control::link_name;
use pathloom_model::Fabric;
use serde::Serialize;
use std::convert::Infallible;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use utoipa::ToSchema;

/// Time between two events.
const PERIOD: Duration = Duration::from_secs(1);
/// A stream ends after this number of events, and its client must send its token again. So a removed token cannot be
/// used for long.
const EVENTS: u32 = 30;
/// Number of links that are read between two messages of switches.
const LINKS_AT_A_TIME: usize = 1000;

/// A fabric. Its order of nodes and links never changes.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct FabricRow {
    spec: String,
    nodes: Vec<NodeRow>,
    links: LinkColumns,
}

#[derive(Debug, Serialize, ToSchema)]
struct NodeRow {
    name: String,
    /// `host`, `tor`, `aggregation` or `core`.
    tier: &'static str,
    pod: Option<u32>,
    /// x and y, if the input file has them.
    position: Option<(f64, f64)>,
}

/// Directed links, by column. Links 2n and 2n + 1 are the two directions of one cable.
#[derive(Debug, Serialize, ToSchema)]
struct LinkColumns {
    /// `NODE:PORT` of the start.
    id: Vec<String>,
    /// Position of the start among the nodes.
    source: Vec<u32>,
    target: Vec<u32>,
    rate_bps: Vec<u64>,
}

impl FabricRow {
    fn new(fabric: &Fabric) -> FabricRow {
        let node = |node: &pathloom_model::Node| NodeRow {
            name: node.name.clone(),
            tier: node.tier.name(),
            pod: node.pod,
            position: node.position,
        };
        let links = fabric.links();
        FabricRow {
            spec: fabric.spec().to_owned(),
            nodes: fabric.nodes().iter().map(node).collect(),
            links: LinkColumns {
                id: (0..links.len() as u32).map(|link| link_name(fabric, pathloom_model::LinkId(link))).collect(),
                source: links.iter().map(|link| link.from.0).collect(),
                target: links.iter().map(|link| link.to.0).collect(),
                rate_bps: links.iter().map(|link| link.settings.rate_bps).collect(),
            },
        }
    }
}

/// The whole fabric, for drawings. Its links have the order of the event stream.
#[utoipa::path(get, path = "/v1/fabric", responses((status = 200, body = FabricRow)))]
pub(super) async fn fabric(State(api): State<Api>) -> Answer<FabricRow> {
    let fabric = api.ask(|hub, _| hub.fabric.clone()).await?;
    Ok(Json(FabricRow::new(&fabric)))
}

/// The token of the request.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TokenRow {
    /// Its name in the file of tokens.
    name: String,
    /// `read` or `operate`. A token that was sent as a password may only read.
    role: &'static str,
}

/// The name and the role of the token that the request shows.
#[utoipa::path(get, path = "/v1/token", responses((status = 200, body = TokenRow)))]
pub(super) async fn token(Extension(Bearer { name, role }): Extension<Bearer>) -> Json<TokenRow> {
    let role = match role {
        Role::Read => "read",
        Role::Operate => "operate",
    };
    Json(TokenRow { name, role })
}

/// The changes in a second. The first event of a stream has everything.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ChangesRow {
    /// Seconds since 1970.
    at_s: f64,
    state: StateRow,
    /// Switches that changed.
    switches: Vec<SwitchRow>,
    links: LinkChanges,
}

/// Directed links that changed, by column.
#[derive(Debug, Default, Serialize, ToSchema)]
struct LinkChanges {
    /// Position among the links of the fabric.
    index: Vec<u32>,
    /// `up`, `down`, `drained`, or `draining` while packets may still cross it.
    state: Vec<&'static str>,
    /// Number of flows with rules for a path over it.
    flows: Vec<u32>,
    /// Its recent load by the counters of its port; null if they are not read.
    load_bps: Vec<Option<u64>>,
    dropped_packets: Vec<u64>,
}

/// The rows that a stream has sent so far.
#[derive(Default)]
struct SentRows {
    switches: Vec<SwitchRow>,
    links: Vec<LinkState>,
}

impl SentRows {
    async fn changes(&mut self, api: &Api) -> Result<ChangesRow, Problem> {
        let state = api.ask(queries::state_row).await?;
        let switches = api.ask(|hub, _| queries::all_switch_rows(hub)).await?;
        let flows = api.ask(|hub, _| Some(hub.controller()?.flows_on_links())).await?;
        let mut links = Vec::with_capacity(flows.len());
        for first in (0..flows.len()).step_by(LINKS_AT_A_TIME) {
            let flows = flows.clone();
            links.extend(api.ask(move |hub, _| queries::link_states(hub, first, LINKS_AT_A_TIME, &flows)).await?);
        }
        let mut changed = LinkChanges::default();
        for (index, link) in links.iter().enumerate().filter(|&(index, link)| self.links.get(index) != Some(link)) {
            changed.index.push(index as u32);
            changed.state.push(link.state);
            changed.flows.push(link.flows);
            changed.load_bps.push(link.load_bps);
            changed.dropped_packets.push(link.dropped_packets);
        }
        self.links = links;
        let known = std::mem::replace(&mut self.switches, switches);
        let all = self.switches.iter().enumerate();
        let switches = all.filter(|&(index, row)| known.get(index) != Some(row)).map(|(_, row)| row.clone()).collect();
        let at_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        Ok(ChangesRow { at_s, state, switches, links: changed })
    }
}

/// Server-sent events, one a second: the state, and the switches and links that changed.
///
/// The first event has all switches and links. The stream ends after half a minute; clients connect again.
#[utoipa::path(get, path = "/v1/events", responses((status = 200, content_type = "text/event-stream", body = ChangesRow)))]
pub(super) async fn events(State(api): State<Api>) -> impl IntoResponse {
    let next = |(api, mut sent, count): (Api, SentRows, u32)| async move {
        if count == EVENTS {
            return None;
        }
        if count > 0 {
            tokio::time::sleep(PERIOD).await;
        }
        // The stream ends if the controller is stopping or does not answer in time.
        let changes = sent.changes(&api).await.ok()?;
        let event = Event::default().json_data(&changes).ok()?;
        Some((Ok::<_, Infallible>(event), (api, sent, count + 1)))
    };
    Sse::new(stream::unfold((api, SentRows::default(), 0), next))
}
