//! Settings of a controller.

use crate::assignments::AssignmentLimits;
use crate::limits::Enforcement;
use pathloom_model::Nanos;
use pathloom_scheme::{Detection, Migration, Needs, RuleSharing};
use serde::{Deserialize, Serialize};

/// Period where flows are to be measured and nobody says how often (Hedera §IV.B, and the period OFPT polls with).
const MEASURED_PERIOD: Nanos = Nanos::from_secs(5);

/// Settings of a controller. Every field has a default.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Number of this start of the controller; two starts on one fabric must not share it, for it makes the names of
    /// flows unique. The driver counts it up.
    pub epoch: u16,
    /// How long flows are found, if not as the scheme asks.
    pub detection: Option<Detection>,
    /// How often the flow counters of the ToRs are read, if not as the scheme asks.
    pub poll_period: Option<Nanos>,
    /// How often the port counters of all switches are read, if the scheme does not ask for them more often.
    pub link_loads_every: Option<Nanos>,
    /// How flows are moved, if not as the scheme asks.
    pub migration: Option<Migration>,
    /// Whether flows share rules, if not as the scheme asks.
    pub rules: Option<RuleSharing>,
    /// How long a round of readings waits for a ToR that does not answer.
    pub poll_patience: Nanos,
    /// A flow that sent nothing for so many seconds is over.
    pub idle_timeout_s: u16,
    /// The rule that leads a flow onto its own path runs out after so many seconds without a packet, and is added again until
    /// the flow is over. Without a controller, a sender that waits longer from one try to the next, as TCP does when nothing
    /// gets through, is back on the default routes. `None`: the rule lasts as long as the flow.
    pub path_idle_timeout_s: Option<u16>,
    /// How long the rules of an abandoned path stay for packets still under way; `None` for what the path's buffers
    /// and delays can hold at worst.
    pub drain: Option<Nanos>,
    /// Rules a switch has room for (TCAM size), if it is known: a path that would not fit is not asked for. `None`: the
    /// switches say what they have no room for.
    pub rule_limit: Option<u32>,
    /// Who keeps the rates that a scheme gives its flows. `None`: the hosts.
    pub enforcement: Option<Enforcement>,
    /// Flows that one host may have at a time; what it opens beyond rides the default routes unseen.
    pub max_flows_per_host: u32,
    /// Rules at a ToR for flows that were not announced and have no label: each takes one, which counts it. What its hosts
    /// open beyond rides the default routes uncounted. A host gets as many as are left to all others, so that one alone
    /// takes half.
    pub max_counted_per_tor: u32,
    /// Time in which every switch is read again, and what somebody else changed there is put right ([`crate::review`]).
    /// `None` where nobody else can change rules.
    pub reconcile: Option<Nanos>,
    /// How often connections are looked for that began unseen ([`crate::sweep`]). `None` where every first packet is seen.
    pub sweep: Option<Nanos>,
    /// Whether what the accepting side of a TCP connection sends is a flow as well, found by its SYN+ACK. The hosts of a
    /// simulator send data one way.
    pub both_directions: bool,
    /// Whether hosts may leave long flows unlabelled: what [`Detection::Any`] stands for. Without, it is
    /// [`Detection::Label`].
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
    /// Whether switches are to tell when a rule without a time-out is gone.
    pub(crate) fn is_watched(&self) -> bool {
        self.reconcile.is_some()
    }

    /// What the scheme asks for, with the overrides of these settings.
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
    /// Copies of first packets (table control); those for path assignments are one above.
    pub first: u16,
    /// Copies of last packets (table control); those for path assignments are one above.
    pub last: u16,
    /// Copies of packets of unknown flows without a handshake (table long-flows).
    pub unknown: u16,
    /// Exact five-tuples (table long-flows); this, the next three and the one below are used.
    pub flow: u16,
    /// The default route of everything (table defaults); longer prefixes stand above it by their length in bits.
    pub default: u16,
}

impl Priorities {
    /// Of the rule of a flow at a switch after its source ToR.
    pub(crate) fn hop(&self, low: bool) -> u16 {
        self.flow.saturating_sub(u16::from(low))
    }
}

impl Default for Priorities {
    fn default() -> Priorities {
        Priorities { first: 200, last: 100, unknown: 10, flow: 1000, default: 100 }
    }
}
