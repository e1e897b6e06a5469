//! Response objects of the API. Identifiers of flows are decimal digits as text, because they have 64 bits, more than
//! JavaScript's numbers hold.

use super::parameters::{host_address, whole};
use crate::hub::gauges::HandOver;
pub(crate) use pathloom_control::link_name;
use pathloom_control::{decision_text, Controller, Reason};
use pathloom_model::{Address, Fabric, FiveTuple, Nanos, Path, PROTO_TCP};
use pathloom_scheme::{DefaultRoutes, FlowId, FlowView};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A page of a list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Pass this as `after` to get the next page; none on the last.
    pub next: Option<String>,
}

/// The controller as a whole.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StateRow {
    pub version: &'static str,
    /// The specification of the scheme in charge.
    pub scheme: String,
    /// Time at which the scheme was put in charge, in seconds since 1970.
    pub scheme_since_s: f64,
    /// The process of the configured scheme; none if the scheme is a part of the controller.
    pub scheme_process: Option<SchemeProcessRow>,
    /// Number of this start of the controller.
    pub epoch: u16,
    pub uptime_s: f64,
    /// How this controller leads; none if it is the only one.
    pub cluster: Option<ClusterRow>,
    pub fabric: String,
    pub hosts: usize,
    pub switches: usize,
    /// Switches with a session.
    pub sessions: usize,
    /// Cables between switches.
    pub cables: CableCounts,
    /// Differences between the cabling found and the configured one.
    pub cabling: Cabling,
    pub flows: FlowCounts,
    /// Host agents.
    pub agents: AgentCounts,
    /// Share of a core that the controller uses.
    pub busy_share: f64,
    /// Whether default routes are still being changed because of a link or switch that left service or came back.
    pub staging: bool,
    /// Position in the event log, which has the controller's inputs and outputs.
    pub log: LogPosition,
}

/// One of several controllers, which answers for itself.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClusterRow {
    /// The name of this controller.
    pub name: String,
    /// The name of the controller that leads, if one does.
    pub leader: Option<String>,
    /// The number of the election by which this controller leads.
    pub election: Option<u64>,
    /// Time at which this controller became the leader, in seconds since 1970.
    pub leads_since_s: Option<f64>,
    /// Whether this controller leads and etcd confirms it. If not, another controller may lead by now.
    pub confirmed: bool,
    /// Seconds since etcd gave what follows.
    pub age_s: Option<f64>,
    /// All controllers.
    pub members: Vec<MemberRow>,
    /// The last hand-over.
    pub hand_over: Option<HandOverRow>,
    /// Seconds since etcd stored the leader's state.
    pub stored_before_s: Option<f64>,
}

/// A hand-over between controllers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HandOverRow {
    /// The number of the election.
    pub election: u64,
    /// The controller that led before.
    pub from: Option<String>,
    /// The controller that leads since.
    pub to: String,
    /// When it became the leader, in seconds since 1970.
    pub at_s: f64,
    /// Why the one before does not lead any more.
    pub cause: String,
    /// Number of hand-overs so far.
    pub count: u64,
}

impl From<HandOver> for HandOverRow {
    fn from(HandOver { election, from, to, at_s, cause, count }: HandOver) -> HandOverRow {
        HandOverRow { election, from, to, at_s, cause, count }
    }
}

/// A controller among several ones.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MemberRow {
    /// Its name.
    pub name: String,
    /// Its API, as clients reach it.
    pub api: Option<String>,
    /// Its version.
    pub version: String,
    /// Seconds since it last told etcd about itself, with the difference between its clock and that of this machine.
    pub lag_s: f64,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SchemeProcessRow {
    /// `up`, `starting`, or `down`. Without a process, default routes and paths stay as they are.
    pub state: &'static str,
    /// Number of processes that were started.
    pub starts: u64,
    /// What has ended the last process.
    pub problem: Option<String>,
    /// Events that it has not answered.
    pub waiting: usize,
    /// Events at which the scheme had an error.
    pub errors: u64,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Cabling {
    /// Cables that are used at other ports than configured, as text.
    pub adopted: Vec<String>,
    /// Unused cabling that differs from the configuration, as text.
    pub refused: Vec<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CableCounts {
    pub up: usize,
    pub down: usize,
    pub drained: usize,
}

#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct FlowCounts {
    pub known: usize,
    /// Long flows, which the scheme was told of.
    pub long: usize,
    pub default_routes: usize,
    pub own_path: usize,
    pub changing_path: usize,
    pub held: usize,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AgentCounts {
    /// Number of hosts that have an agent.
    pub hosts: usize,
    /// Agents that were limited, refused or disconnected since the controller started, by name. Beyond 1024 names,
    /// further agents are counted together as `others`.
    pub offenders: Vec<OffenderRow>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OffenderRow {
    /// Address that the agent connects from, or `process N` of this machine.
    pub agent: String,
    pub times: u64,
    /// Time of the last offence, in seconds since 1970.
    pub last_s: f64,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LogPosition {
    pub inputs: u64,
    pub outputs: u64,
}

/// A switch.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub(crate) struct SwitchRow {
    pub name: String,
    /// 16 hexadecimal digits.
    pub datapath_id: String,
    pub tier: String,
    /// Address of its session, if it has one.
    pub peer: Option<String>,
    pub drained: bool,
    /// Number of rules that it should have.
    pub rules: u32,
    /// Number of foreign rules when it was last read.
    pub foreign_rules: u64,
    pub rtt_us: Option<f64>,
    pub ports: usize,
    pub ports_up: usize,
}

/// One direction of a cable.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LinkRow {
    /// `NODE:PORT` of its start.
    pub id: String,
    pub from: String,
    pub to: String,
    pub to_port: u32,
    pub rate_bps: u64,
    /// `up`, `down`, `drained`, or `draining` while packets may still cross it.
    pub state: &'static str,
    /// Number of flows with rules for a path over it.
    pub flows: u32,
    /// Its recent load by the counters of its port; none if they are not read.
    pub load_bps: Option<u64>,
    pub load_share: Option<f64>,
    /// Packets that its port has dropped.
    pub dropped_packets: u64,
}

/// A five-tuple.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TupleRow {
    #[serde(deserialize_with = "host_address")]
    #[schema(value_type = String, format = Ipv4, example = "10.0.0.1")]
    pub src: Address,
    #[serde(deserialize_with = "host_address")]
    #[schema(value_type = String, format = Ipv4, example = "10.0.7.1")]
    pub dst: Address,
    /// Protocol number; the default is TCP.
    #[serde(default = "tcp", deserialize_with = "whole")]
    #[schema(maximum = 255)]
    pub proto: u8,
    #[serde(deserialize_with = "whole")]
    #[schema(maximum = 65535)]
    pub src_port: u16,
    #[serde(deserialize_with = "whole")]
    #[schema(maximum = 65535)]
    pub dst_port: u16,
}

fn tcp() -> u8 {
    PROTO_TCP
}

impl From<FiveTuple> for TupleRow {
    fn from(tuple: FiveTuple) -> TupleRow {
        let (src, dst, proto) = (tuple.src(), tuple.dst(), tuple.proto());
        TupleRow { src, dst, proto, src_port: tuple.src_port(), dst_port: tuple.dst_port() }
    }
}

impl From<TupleRow> for FiveTuple {
    fn from(TupleRow { src, dst, proto, src_port, dst_port }: TupleRow) -> FiveTuple {
        FiveTuple::new(proto, (src, src_port), (dst, dst_port))
    }
}

/// A flow.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct FlowRow {
    #[schema(example = "4294967297")]
    pub id: String,
    pub five_tuple: TupleRow,
    pub src_host: String,
    pub dst_host: String,
    /// `default routes`, `own path`, `setting up a path`, `moving to another path`, or `waiting`: told not to send yet.
    pub phase: &'static str,
    /// Names of the switches that it crosses; none on the default routes.
    pub path: Option<Vec<String>>,
    /// The path that it will take next.
    pub pending: Option<Vec<String>>,
    /// Whether the scheme was told of it.
    pub long: bool,
    pub size_bytes: Option<u64>,
    /// Bytes counted at its source ToR, headers included.
    pub bytes: u64,
    pub rate_bps: Option<u64>,
    /// The rate that the scheme reserved for it.
    pub allocated_bps: Option<u64>,
    /// When the controller found it, in seconds since 1970.
    pub since_s: f64,
}

impl FlowRow {
    pub(crate) fn new(fabric: &Fabric, id: FlowId, flow: &FlowView, held: bool) -> FlowRow {
        let phase = match (held, &flow.route, &flow.pending) {
            (true, ..) => "waiting",
            (_, None, None) => "default routes",
            (_, None, Some(_)) => "setting up a path",
            (_, Some(_), Some(_)) => "moving to another path",
            (_, Some(_), None) => "own path",
        };
        let named = |path: &Path| path_names(fabric, flow, path);
        FlowRow {
            id: id.0.to_string(),
            five_tuple: flow.five_tuple.into(),
            src_host: fabric.node(flow.src_host).name.clone(),
            dst_host: fabric.node(flow.dst_host).name.clone(),
            phase,
            path: flow.route.as_ref().map(named),
            pending: flow.pending.as_ref().map(named),
            long: flow.long,
            size_bytes: flow.size_bytes.get(),
            bytes: flow.bytes,
            rate_bps: flow.rate_bps.get(),
            allocated_bps: flow.allocated_bps.get(),
            since_s: seconds(flow.arrived),
        }
    }
}

/// Names of the switches of a path.
pub(crate) fn path_names(fabric: &Fabric, flow: &FlowView, path: &Path) -> Vec<String> {
    path.switches(fabric, flow.src_tor).into_iter().map(|switch| fabric.node(switch).name.clone()).collect()
}

/// Why a flow has its path.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WhyRow {
    pub flow: FlowRow,
    /// The reason, as a sentence.
    pub why: String,
    /// The decision that put it there; none if it never left the default routes, or if a restart lost the decision.
    pub placed: Option<ReasonRow>,
    /// Recent decisions about it, oldest first.
    pub history: Vec<ReasonRow>,
    /// The shortest paths that it could take now, at most 64 of them, with the load of the fullest link of each.
    pub candidates: Vec<CandidateRow>,
}

/// A decision and its cause.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReasonRow {
    /// Seconds since 1970.
    pub at_s: f64,
    pub scheme: &'static str,
    /// The cause.
    pub cause: String,
    /// The decision.
    pub decision: String,
}

/// A path that a flow could take.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CandidateRow {
    pub path: Vec<String>,
    /// Whether the flow is on it.
    pub current: bool,
    /// Its link with the highest load relative to its rate, and that load: the rates that the scheme reserved for the
    /// flows with paths over it, or else their measured rates.
    pub fullest: Option<String>,
    pub load_bps: u64,
    pub load_share: f64,
}

impl ReasonRow {
    pub(crate) fn new(controller: &Controller, fabric: &Fabric, reason: &Reason) -> ReasonRow {
        let cause = reason.cause_text(controller);
        let decision = decision_text(fabric, &reason.decision);
        ReasonRow { at_s: seconds(reason.at), scheme: reason.scheme, cause, decision }
    }
}

/// Describes in words how the default routes are chosen.
pub(crate) fn defaults_text(how: DefaultRoutes) -> &'static str {
    match how {
        DefaultRoutes::SinglePath => "one shortest path per destination ToR",
        DefaultRoutes::Ecmp => "a hash over all shortest next hops",
        DefaultRoutes::SpanningTree => "one spanning tree for all traffic",
        DefaultRoutes::PerHost => "a shortest path per destination host, in turn",
        DefaultRoutes::Weighted => "a hash over all shortest next hops, weighted by the capacity behind them",
    }
}

/// Seconds since 1970.
pub(crate) fn seconds(at: Nanos) -> f64 {
    at.0 as f64 / 1e9
}
