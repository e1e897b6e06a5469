//! Inputs and outputs of the controller. They concern switches and hosts and do not depend on a protocol. The
//! switches of the simulator and live OpenFlow sessions are two drivers of the same messages, and a log of them can
//! be replayed in either world.

use crate::assign_error::AssignError;
use crate::path_requests::{Assigned, AssignmentId, ClaimKey, Owner, PathRequest};
use pathloom_model::rules::{Group, GroupId, Meter, MeterId, Refusal, Rule, RuleCounters, RuleKey};
use pathloom_model::{FiveTuple, Headers, Nanos, NodeId, PortNo, Prefix};
use pathloom_scheme::{OptionU64, State};
use serde::{Deserialize, Serialize};

/// One row of flow statistics.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RuleStats {
    /// The rule.
    pub key: RuleKey,
    /// Its cookie.
    pub cookie: u64,
    /// Its counters.
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

/// Something that can be taken out of service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// A switch.
    Switch(NodeId),
    /// Both directions of the cable of a link.
    Cable(pathloom_model::LinkId),
}

/// Why a rule was removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Removal {
    /// No packet matched it for its idle time-out.
    Idle,
    /// Its hard time-out expired.
    Hard,
    /// It was deleted.
    Deleted,
}

/// A message to the controller.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// A session to a switch was opened. Ports that are not listed as down are up.
    SwitchUp {
        /// The switch.
        switch: NodeId,
        /// Its ports without carrier.
        ports_down: Vec<PortNo>,
    },
    /// The session to a switch was lost. The switch keeps its rules.
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
        /// Whether it has carrier.
        up: bool,
    },
    /// A copy of the headers of a packet.
    PacketIn {
        /// The switch that copied it.
        switch: NodeId,
        /// Port at which the packet arrived.
        in_port: PortNo,
        /// Its headers.
        headers: Headers,
    },
    /// Answer to [`Output::FlowStatsRequest`]: the counters of the rules that count flows.
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
    /// A rule with removal notice was removed.
    RuleRemoved {
        /// The switch.
        switch: NodeId,
        /// The rule.
        key: RuleKey,
        /// Its cookie.
        cookie: u64,
        /// Its last counters.
        counters: RuleCounters,
        /// Why it was removed.
        why: Removal,
    },
    /// A switch refused message `xid`.
    Refused {
        /// The switch.
        switch: NodeId,
        /// The message.
        xid: u32,
        /// Why it was refused.
        why: Refusal,
    },
    /// The switch has carried out or refused every message before barrier `xid`.
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
    /// A part of the answer to [`Output::ReviewRequest`]. The answer can have any number of parts.
    Reviewed {
        /// The switch.
        switch: NodeId,
        /// Number of the review, from the request.
        number: u32,
        /// Some of its rules.
        rules: Vec<Rule>,
        /// All its groups, in the last part.
        groups: Vec<Group>,
        /// All its meters, in the last part.
        meters: Vec<Meter>,
        /// Whether this is the last part.
        last: bool,
    },
    /// One switch or all switches must be reviewed now.
    Resync {
        /// The switch; `None` for all.
        switch: Option<NodeId>,
    },
    /// A host has an agent from now on, or no longer. At the start no host has one. A host that has one already has a
    /// new one now, which does not know the rates of its flows.
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
    /// An announced transfer is over, or a labelled flow of a host that reports ends.
    TransferEnded {
        /// The connection.
        five_tuple: FiveTuple,
    },
    /// An application requests paths. The answer is [`Output::Assigned`].
    AssignPaths {
        /// Number of the request.
        request: u64,
        /// Owner that requests the paths.
        owner: Owner,
        /// The requested paths.
        paths: PathRequest,
    },
    /// An application claims the next path of its assignment for a connection. The answer is [`Output::Claimed`].
    ClaimPath {
        /// Number of the request.
        request: u64,
        /// Owner that claims the path.
        owner: Owner,
        /// The assignment.
        assignment: AssignmentId,
        /// The connection, which is open or will be opened.
        connection: ClaimKey,
        /// Index of the path in the assignment, counted from 0. `None`: the path with the fewest claims and
        /// connections.
        #[serde(default)]
        path: Option<u32>,
        /// Destination port of a connection that will be opened, if the application knows it. The connection then
        /// gets its path even if the controller sees no first packet of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        opens_to: Option<u16>,
    },
    /// An application releases its assignment. The answer is [`Output::Released`]. Open connections keep their paths.
    ReleasePaths {
        /// Number of the request.
        request: u64,
        /// Owner that releases the assignment.
        owner: Owner,
        /// The assignment.
        assignment: AssignmentId,
    },
    /// A switch has told how many rules its table of paths ([`crate::tables::LONG_FLOWS`]) can hold.
    Capacity {
        /// The switch.
        switch: NodeId,
        /// Maximum number of rules; 0 if the switch does not know.
        rules: u32,
    },
    /// The load of the controller process itself.
    Load {
        /// Busy share of about the last second, 0..=1.
        busy_share: f64,
    },
    /// A switch or a cable must leave service, or return to it. An invalid target is counted and ignored; see
    /// [`crate::Controller::check_drain`].
    Drain {
        /// The switch or cable.
        target: Target,
        /// Whether it leaves service (true) or returns to it (false).
        out: bool,
    },
    /// Addresses are at the port of a host: a single address, or a prefix that contains none of the fabric's own
    /// addresses or all of 10.0.0.0/8. An invalid place is counted and ignored.
    Place {
        /// The addresses.
        prefix: Prefix,
        /// The switch and its port that leads to the host. `None`: where the fabric has the addresses, if it has
        /// them.
        at: Option<(NodeId, PortNo)>,
    },
    /// A measured round-trip time to a switch.
    Rtt {
        /// The switch.
        switch: NodeId,
        /// Round-trip time.
        rtt: Nanos,
    },
    /// The answer to [`Output::Solve`].
    Solved {
        /// Number of the job.
        ticket: u64,
        /// The result of the solver.
        answer: State,
    },
    /// The time that [`crate::Controller::poll_timeout`] returned has come.
    Timeout,
}

/// A message from the controller. A switch carries out its messages in the order in which they are returned. Between
/// two switches, only barriers ensure an order.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    /// Add or replace a rule.
    AddRule {
        /// The switch.
        switch: NodeId,
        /// Number of the message; [`Input::Refused`] repeats it.
        xid: u32,
        /// The rule.
        rule: Rule,
    },
    /// Delete exactly this rule.
    DeleteRule {
        /// The switch.
        switch: NodeId,
        /// Number of the message; [`Input::Refused`] repeats it.
        xid: u32,
        /// The rule.
        key: RuleKey,
    },
    /// Add or replace a group.
    AddGroup {
        /// The switch.
        switch: NodeId,
        /// Number of the message; [`Input::Refused`] repeats it.
        xid: u32,
        /// The group.
        group: Group,
    },
    /// Delete a group.
    DeleteGroup {
        /// The switch.
        switch: NodeId,
        /// Number of the message; [`Input::Refused`] repeats it.
        xid: u32,
        /// The group.
        group: GroupId,
    },
    /// Add or replace a meter.
    AddMeter {
        /// The switch.
        switch: NodeId,
        /// Number of the message; [`Input::Refused`] repeats it.
        xid: u32,
        /// The meter.
        meter: Meter,
    },
    /// Delete a meter.
    DeleteMeter {
        /// The switch.
        switch: NodeId,
        /// Number of the message; [`Input::Refused`] repeats it.
        xid: u32,
        /// The meter.
        meter: MeterId,
    },
    /// Answer with [`Input::BarrierReply`] when all earlier messages have been carried out.
    Barrier {
        /// The switch.
        switch: NodeId,
        /// Number of the message.
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
    /// Read all rules, groups and meters in parts. The controller handles each part when it arrives.
    ReviewRequest {
        /// The switch.
        switch: NodeId,
        /// Number of the review; the answer repeats it.
        number: u32,
    },
    /// A review of a switch found deviations and corrected them. This output is for the log and needs no action.
    Repaired {
        /// The switch.
        at: NodeId,
        /// Rules and groups that were added again.
        restored: u64,
        /// Rules that were deleted.
        surplus: u64,
    },
    /// Stop a flow from sending until it is released or the lease is over.
    HoldFlow {
        /// Host that sends it.
        host: NodeId,
        /// The flow.
        five_tuple: FiveTuple,
        /// Longest time that the flow is held.
        lease: Nanos,
    },
    /// Let a held flow send.
    ReleaseFlow {
        /// Host that sends it.
        host: NodeId,
        /// The flow.
        five_tuple: FiveTuple,
    },
    /// Limit the rate of a flow on its access link.
    PaceFlow {
        /// Host that sends it.
        host: NodeId,
        /// The flow.
        five_tuple: FiveTuple,
        /// The limit; `None` removes it.
        rate_bps: Option<u64>,
    },
    /// Run the scheme's solver on a snapshot of the view.
    Solve {
        /// Number of the job; the answer repeats it.
        ticket: u64,
        /// Input of the solver.
        input: State,
        /// Time that a simulator charges for the job.
        modelled: Nanos,
    },
    /// Answers [`Input::AssignPaths`].
    Assigned {
        /// The request.
        request: u64,
        /// The assignment, or the error.
        answer: Result<Assigned, AssignError>,
        /// By path: the bandwidth that it has left, with the links of both hosts; unknown if port counters are not
        /// read.
        available_bps: Vec<OptionU64>,
    },
    /// Answers [`Input::ClaimPath`].
    Claimed {
        /// The request.
        request: u64,
        /// The assignment and the one path that the connection will use, or the error.
        answer: Result<Assigned, AssignError>,
    },
    /// Answers [`Input::ReleasePaths`].
    Released {
        /// The request.
        request: u64,
        /// The error, if the assignment was not released.
        answer: Result<(), AssignError>,
    },
}

impl Input {
    /// The switch whose session delivers the input. `None` for inputs from hosts, applications and the driver itself.
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
            | Input::Capacity { switch, .. }
            | Input::Reviewed { switch, .. } => Some(switch),
            _ => None,
        }
    }
}

impl Output {
    /// The switch that gets the output. `None` for outputs to hosts, solvers and applications, and for
    /// [`Output::Repaired`].
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
