//! Settings of a controller.

use pathloom_model::Nanos;
use pathloom_scheme::{Detection, Migration, Needs, RuleSharing};
use serde::{Deserialize, Serialize};

/// Polling period where flows must be measured and neither settings nor scheme give a period (Hedera §IV.B; OFPT
/// polls with the same period).
const MEASURED_PERIOD: Nanos = Nanos::from_secs(5);

/// Settings of a controller. Every field has a default.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Number of this start of the controller. Two starts on one fabric must have different numbers, because the
    /// number makes flow identifiers unique. The driver increments it.
    pub epoch: u16,
    /// Overrides the way in which the scheme wants long flows to be detected.
    pub detection: Option<Detection>,
    /// Overrides the period with which the scheme wants the flow counters of the ToRs to be read.
    pub poll_period: Option<Nanos>,
    /// Period with which the port counters of all switches are read. A shorter period of the scheme has precedence.
    pub link_loads_every: Option<Nanos>,
    /// Overrides the way in which the scheme wants flows to be moved.
    pub migration: Option<Migration>,
    /// Overrides whether the scheme wants flows to share rules.
    pub rules: Option<RuleSharing>,
    /// How long a polling round waits for a ToR that does not answer.
    pub poll_patience: Nanos,
    /// A flow that sends nothing for this many seconds is over.
    pub idle_timeout_s: u16,
    /// Idle time-out in seconds of the rule that puts a flow on its own path. If it expires, the rule is added again
    /// until the flow is over. Without a controller, a sender that waits longer than this between two attempts
    /// returns to the default routes; TCP does so when no packet gets through. `None`: the time-out is that of the
    /// flow.
    pub path_idle_timeout_s: Option<u16>,
    /// How long the rules of an abandoned path stay for packets in transit. `None`: the worst case that follows from
    /// the buffers and delays of the path.
    pub drain: Option<Nanos>,
    /// Number of rules that a switch may have: the size of its TCAM, or less. Hosts share it ([`crate::budget`]), and
    /// paths that would not fit are rejected without asking the switch. `None`: the switches refuse rules that do not
    /// fit.
    pub rule_limit: Option<u32>,
    /// Where the rates are enforced that a scheme gives its flows. `None`: at the hosts.
    pub enforcement: Option<Enforcement>,
    /// Maximum number of flows per host at a time. Further flows use the default routes, and the controller does not
    /// know them.
    pub max_flows_per_host: u32,
    /// Maximum number of rules at a ToR that count flows without announcement and label. Each such flow needs one
    /// rule. Further flows use the default routes and are not counted. A host gets no more rules than are free for
    /// all other hosts, so one host alone gets half of them.
    pub max_counted_per_tor: u32,
    /// Period in which every switch is reviewed once, and changes by others are corrected ([`crate::review`]). `None`
    /// where nobody else can change rules.
    pub reconcile: Option<Nanos>,
    /// Period of the search for connections that began unseen ([`crate::sweep`]). `None` where every first packet is
    /// seen.
    pub sweep: Option<Nanos>,
    /// Whether the data that the accepting side of a TCP connection sends is a flow too, which is detected by its
    /// SYN+ACK. Hosts of the simulator send data in one direction only.
    pub both_directions: bool,
    /// Whether long flows of hosts can be unlabelled. If not, [`Detection::Any`] means [`Detection::Label`].
    pub unlabelled: bool,
    /// Limits of path assignments.
    pub assignments: AssignmentLimits,
    /// Priorities of the rules.
    pub priorities: Priorities,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            epoch: 1,
            detection: None,
            poll_period: None,
            link_loads_every: None,
            migration: None,
            rules: None,
            poll_patience: Nanos::from_secs(1),
            idle_timeout_s: 10,
            path_idle_timeout_s: None,
            drain: None,
            rule_limit: None,
            enforcement: None,
            max_flows_per_host: 20_000,
            max_counted_per_tor: 4096,
            reconcile: None,
            sweep: None,
            both_directions: false,
            unlabelled: false,
            assignments: AssignmentLimits::default(),
            priorities: Priorities::default(),
        }
    }
}

impl Config {
    /// Whether switches must report the removal of rules without a time-out.
    pub(crate) fn is_watched(&self) -> bool {
        self.reconcile.is_some()
    }

    /// The needs of the scheme, with the overrides of these settings.
    pub(crate) fn needs(&self, asked: Needs) -> Needs {
        let detection = match self.detection.unwrap_or(asked.detection) {
            Detection::Any { .. } if !self.unlabelled => Detection::Label,
            detection => detection,
        };
        let least = detection.nic_share().map(|_| MEASURED_PERIOD);
        let poll_period = self.poll_period.or(asked.poll_period).filter(|&period| period > Nanos::ZERO).or(least);
        let migration = self.migration.unwrap_or(asked.migration);
        let link_loads_every = asked.link_loads_every.into_iter().chain(self.link_loads_every).min();
        let rules = self.rules.unwrap_or(asked.rules);
        Needs { detection, poll_period, migration, rules, link_loads_every, ..asked }
    }
}

/// Priorities of the rules, per table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Priorities {
    /// Copies of first packets (table control). The rules for path assignments have a priority one above.
    pub first: u16,
    /// Copies of last packets (table control). The rules for path assignments have a priority one above.
    pub last: u16,
    /// Copies of packets of unknown flows without a handshake (table long-flows).
    pub unknown: u16,
    /// Exact five-tuples (table long-flows). This priority, the next three above and the one below are used.
    pub flow: u16,
    /// The default route for all addresses (table defaults). The priority of a longer prefix is higher by its length
    /// in bits.
    pub default: u16,
}

impl Priorities {
    /// Priority of the rule of a flow at a switch after its source ToR.
    pub(crate) fn hop(&self, low: bool) -> u16 {
        self.flow.saturating_sub(u16::from(low))
    }
}

impl Default for Priorities {
    fn default() -> Priorities {
        Priorities { first: 200, last: 100, unknown: 10, flow: 1000, default: 100 }
    }
}

/// Where the limits of [`pathloom_scheme::Action::Pace`] are enforced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Enforcement {
    /// The host that sends the flow.
    #[default]
    Host,
    /// A meter at the flow's source ToR.
    Meter,
    /// The host, for a TCP flow of a host with an agent; else a meter.
    Any,
}

/// Limits of assignments. Every field has a default.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AssignmentLimits {
    /// Maximum number of assignments.
    pub most: u32,
    /// Maximum number of assignments of one owner.
    pub most_per_owner: u32,
    /// Maximum number of paths of one assignment.
    pub most_paths: u32,
    /// Maximum number of claims and connections of one assignment.
    pub most_claims: u32,
    /// How long a claim waits for the first packet of its connection.
    pub claim_timeout: Nanos,
    /// How long an assignment without claims and connections is kept, unless the request has another lifetime.
    pub lifetime: Nanos,
    /// The longest lifetime that can be requested.
    pub longest_lifetime: Nanos,
}

impl Default for AssignmentLimits {
    fn default() -> AssignmentLimits {
        AssignmentLimits {
            most: 16_384,
            most_per_owner: 4096,
            most_paths: 64,
            most_claims: 1024,
            claim_timeout: Nanos::from_secs(30),
            lifetime: Nanos::from_secs(3600),
            longest_lifetime: Nanos::from_secs(86_400),
        }
    }
}
