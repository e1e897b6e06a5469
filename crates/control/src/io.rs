//! What goes into the controller and what comes out: switch- and host-level, and neutral of any protocol. The
//! simulator's switches and live OpenFlow sessions are two drivers of these same messages, and a log of them replays
//! in either world.

use crate::assignments::{AssignError, Assigned, AssignmentId, ClaimKey, Owner, PathRequest};
use pathloom_model::rules::{Group, GroupId, Meter, MeterId, Refusal, Rule, RuleCounters, RuleKey};
use pathloom_model::{FiveTuple, Headers, Nanos, NodeId, PortNo, Prefix};
use pathloom_scheme::State;
use serde::{Deserialize, Serialize};

/// One row of flow statistics.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RuleStats {
    /// The rule.
    pub key: RuleKey,
    /// Its cookie.
    pub cookie: u64,
    /// What it has counted.
    pub counters: RuleCounters,
}

/// One row of port statistics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PortStats {
    /// The port.
    pub port: PortNo,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Packets dropped on the way out.
    pub tx_dropped: u64,
}

/// What can be taken out of service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// A switch.
    Switch(NodeId),
    /// Both directions of the cable of a link.
    Cable(pathloom_model::LinkId),
}

/// Why a rule is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Removal {
    /// No frame for its idle time-out.
    Idle,
    /// Its hard time-out is over.
    Hard,
    /// It was deleted.
    Deleted,
}

/// Something the controller learns.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// A session to a switch stands. Ports not listed as down are up.
    SwitchUp {
        /// The switch.
        switch: NodeId,
        /// Its ports without carrier.
        ports_down: Vec<PortNo>,
    },
    /// The session to a switch was lost. The switch goes on with the rules it has.
    SwitchDown {
        /// The switch.
        switch: NodeId,
    },
    /// A port gained or lost carrier.
    PortStatus {
        /// The switch.
        switch: NodeId,
        /// Its port.
        port: PortNo,
        /// Carrier.
        up: bool,
    },
    /// A copy of a frame's headers.
    PacketIn {
        /// The switch that copied it.
        switch: NodeId,
        /// Port it came in by.
        in_port: PortNo,
        /// Its headers.
        headers: Headers,
    },
    /// Answer to [`Output::FlowStatsRequest`]: the rules that count flows.
    FlowStats {
        /// The switch.
        switch: NodeId,
        /// One row per rule whose cookie is [`crate::SOURCE_COOKIE`] under [`crate::SOURCE_COOKIE_MASK`].
        rows: Vec<RuleStats>,
    },
    /// Answer to [`Output::PortStatsRequest`].
    PortStats {
        /// The switch.
        switch: NodeId,
        /// One row per port.
        rows: Vec<PortStats>,
    },
    /// A rule that asked for it was removed.
    RuleRemoved {
        /// The switch.
        switch: NodeId,
        /// The rule.
        key: RuleKey,
        /// Its cookie.
        cookie: u64,
        /// What it had counted.
        counters: RuleCounters,
        /// Why.
        why: Removal,
    },
    /// A switch refused what message `xid` asked.
    Refused {
        /// The switch.
        switch: NodeId,
        /// The message.
        xid: u32,
        /// Why.
        why: Refusal,
    },
    /// Everything sent to the switch before barrier `xid` has been carried out or refused.
    BarrierReply {
        /// The switch.
        switch: NodeId,
        /// The barrier.
        xid: u32,
    },
    /// Answer to [`Output::DumpRequest`].
    RuleDump {
        /// The switch.
        switch: NodeId,
        /// All its rules.
        rules: Vec<Rule>,
        /// All its groups.
        groups: Vec<Group>,
        /// All its meters.
        meters: Vec<Meter>,
    },
    /// A part of the answer to [`Output::ReviewRequest`]. Parts come in any number.
    Reviewed {
        /// The switch.
        switch: NodeId,
        /// As in the request.
        number: u32,
        /// Some of its rules.
        rules: Vec<Rule>,
        /// All its groups, with the last part.
        groups: Vec<Group>,
        /// All its meters, with the last part.
        meters: Vec<Meter>,
        /// Whether this is the last part.
        last: bool,
    },
    /// Switches are to be reviewed now.
    Resync {
        /// The one; `None` for all.
        switch: Option<NodeId>,
    },
    /// An agent speaks for a host from now on, or no longer. At the start no host has one.
    Agent {
        /// The host.
        host: NodeId,
        /// Whether it has an agent.
        speaks: bool,
    },
    /// An application is about to send.
    TransferAnnounced {
        /// The connection it will use.
        five_tuple: FiveTuple,
        /// Payload bytes, if known.
        size_bytes: Option<u64>,
    },
    /// An announced transfer, or a labelled flow of a host that reports ends, is over.
    TransferEnded {
        /// The connection.
        five_tuple: FiveTuple,
    },
    /// An application asks for paths; answered by [`Output::Assigned`].
    AssignPaths {
        /// Names the request.
        request: u64,
        /// Who asks.
        owner: Owner,
        /// What is asked for.
        paths: PathRequest,
    },
    /// An application claims the next path of its assignment for a connection; answered by [`Output::Claimed`].
    ClaimPath {
        /// Names the request.
        request: u64,
        /// Who asks.
        owner: Owner,
        /// The assignment.
        assignment: AssignmentId,
        /// The connection: one to come, or one that stands.
        connection: ClaimKey,
        /// Which of the assignment's paths, counted from 0; `None` for the one that the fewest have.
        #[serde(default)]
        path: Option<u32>,
        /// The port to which a connection to come is about to be opened, if the application knows it. The connection then
        /// gets its path even if the controller sees no first packet of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        opens_to: Option<u16>,
    },
    /// An application has no more use for its assignment; answered by [`Output::Released`]. Connections that stand keep their
    /// paths.
    ReleasePaths {
        /// Names the request.
        request: u64,
        /// Who asks.
        owner: Owner,
        /// The assignment.
        assignment: AssignmentId,
    },
    /// The controller process's own load.
    Load {
        /// Busy share of the last second or so, 0..=1.
        busy_share: f64,
    },
    /// Something is to be taken out of service, or back into it. What makes no sense is counted and left alone; see
    /// [`crate::Controller::check_drain`].
    Drain {
        /// What.
        target: Target,
        /// Out of service, or back.
        out: bool,
    },
    /// Addresses are at a host's port: a single one, or a prefix that holds none of the fabric's own addresses or all of
    /// 10.0.0.0/8. What makes no sense is counted and left alone.
    Place {
        /// The addresses.
        prefix: Prefix,
        /// The switch and its port that leads to the host; `None` for where the fabric lays them out, if it does.
        at: Option<(NodeId, PortNo)>,
    },
    /// A measured round trip to a switch.
    Rtt {
        /// The switch.
        switch: NodeId,
        /// Round-trip time.
        rtt: Nanos,
    },
    /// The answer to [`Output::Solve`].
    Solved {
        /// As there.
        ticket: u64,
        /// What the solver returned.
        answer: State,
    },
    /// The time that [`crate::Controller::poll_timeout`] named has come.
    Timeout,
}

/// Something the controller wants done. Messages to one switch are carried out in the order they come out; messages to
/// two switches are not ordered but by barriers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    /// Add or replace a rule.
    AddRule {
        /// The switch.
        switch: NodeId,
        /// Named by [`Input::Refused`].
        xid: u32,
        /// The rule.
        rule: Rule,
    },
    /// Delete just this rule.
    DeleteRule {
        /// The switch.
        switch: NodeId,
        /// Named by [`Input::Refused`].
        xid: u32,
        /// The rule.
        key: RuleKey,
    },
    /// Add or replace a group.
    AddGroup {
        /// The switch.
        switch: NodeId,
        /// Named by [`Input::Refused`].
        xid: u32,
        /// The group.
        group: Group,
    },
    /// Delete a group.
    DeleteGroup {
        /// The switch.
        switch: NodeId,
        /// Named by [`Input::Refused`].
        xid: u32,
        /// The group.
        group: GroupId,
    },
    /// Add or replace a meter.
    AddMeter {
        /// The switch.
        switch: NodeId,
        /// Named by [`Input::Refused`].
        xid: u32,
        /// The meter.
        meter: Meter,
    },
    /// Delete a meter.
    DeleteMeter {
        /// The switch.
        switch: NodeId,
        /// Named by [`Input::Refused`].
        xid: u32,
        /// The meter.
        meter: MeterId,
    },
    /// Answer by [`Input::BarrierReply`] when all before it is done.
    Barrier {
        /// The switch.
        switch: NodeId,
        /// Its number.
        xid: u32,
    },
    /// Read the counters of the rules whose cookie is [`crate::SOURCE_COOKIE`] under [`crate::SOURCE_COOKIE_MASK`].
    FlowStatsRequest {
        /// The switch.
        switch: NodeId,
    },
    /// Read the port counters.
    PortStatsRequest {
        /// The switch.
        switch: NodeId,
    },
    /// Read all rules, groups and meters.
    DumpRequest {
        /// The switch.
        switch: NodeId,
    },
    /// Read all rules, groups and meters in parts, each of which is worked off when it comes.
    ReviewRequest {
        /// The switch.
        switch: NodeId,
        /// To be repeated in the answer.
        number: u32,
    },
    /// A review of a switch found something that was not as it should be. For the log: nothing is to be done.
    Repaired {
        /// The switch.
        at: NodeId,
        /// Rules and groups that were put back.
        restored: u64,
        /// Rules that were deleted.
        surplus: u64,
    },
    /// Keep a flow from sending until released or until the lease is over.
    HoldFlow {
        /// Host that sends it.
        host: NodeId,
        /// The flow.
        five_tuple: FiveTuple,
        /// How long at most.
        lease: Nanos,
    },
    /// Let a held flow send.
    ReleaseFlow {
        /// Host that sends it.
        host: NodeId,
        /// The flow.
        five_tuple: FiveTuple,
    },
    /// Limit what a flow puts on its access link.
    PaceFlow {
        /// Host that sends it.
        host: NodeId,
        /// The flow.
        five_tuple: FiveTuple,
        /// The limit; `None` lifts it.
        rate_bps: Option<u64>,
    },
    /// Run the scheme's solver on a snapshot of the view.
    Solve {
        /// Number of the job, to be repeated in the answer.
        ticket: u64,
        /// What the solver gets.
        input: State,
        /// What a simulator charges for it.
        modelled: Nanos,
    },
    /// Answers [`Input::AssignPaths`].
    Assigned {
        /// The request.
        request: u64,
        /// The assignment, or why there is none.
        answer: Result<Assigned, AssignError>,
    },
    /// Answers [`Input::ClaimPath`].
    Claimed {
        /// The request.
        request: u64,
        /// The assignment and the one path that the connection will take, or why there is none.
        answer: Result<Assigned, AssignError>,
    },
    /// Answers [`Input::ReleasePaths`].
    Released {
        /// The request.
        request: u64,
        /// Why it was not released, if so.
        answer: Result<(), AssignError>,
    },
}

impl Input {
    /// The switch whose session it comes by, or is about; `None` for what hosts, applications and the driver itself tell.
    pub fn switch(&self) -> Option<NodeId> {
        match *self {
            Input::SwitchUp { switch, .. }
            | Input::SwitchDown { switch }
            | Input::PortStatus { switch, .. }
            | Input::PacketIn { switch, .. }
            | Input::FlowStats { switch, .. }
            | Input::PortStats { switch, .. }
            | Input::RuleRemoved { switch, .. }
            | Input::Refused { switch, .. }
            | Input::BarrierReply { switch, .. }
            | Input::RuleDump { switch, .. }
            | Input::Reviewed { switch, .. } => Some(switch),
            _ => None,
        }
    }
}

impl Output {
    /// The switch it is for; `None` for what hosts, solvers and applications get.
    pub fn switch(&self) -> Option<NodeId> {
        match *self {
            Output::AddRule { switch, .. }
            | Output::DeleteRule { switch, .. }
            | Output::AddGroup { switch, .. }
            | Output::DeleteGroup { switch, .. }
            | Output::AddMeter { switch, .. }
            | Output::DeleteMeter { switch, .. }
            | Output::Barrier { switch, .. }
            | Output::FlowStatsRequest { switch }
            | Output::PortStatsRequest { switch }
            | Output::DumpRequest { switch }
            | Output::ReviewRequest { switch, .. } => Some(switch),
            Output::Repaired { .. }
            | Output::HoldFlow { .. }
            | Output::ReleaseFlow { .. }
            | Output::PaceFlow { .. }
            | Output::Solve { .. }
            | Output::Assigned { .. }
            | Output::Claimed { .. }
            | Output::Released { .. } => None,
        }
    }
}
