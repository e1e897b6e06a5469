//! What a scheme needs from its controller.

use pathloom_model::Nanos;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU16;

/// How a controller finds the long flows a scheme wants to hear of.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Detection {
    /// Not at all: default routes carry everything.
    Nothing,
    /// Hosts mark long flows by DSCP ([`pathloom_model::LONG_FLOW_DSCP`]); the first packet is copied to the controller.
    Label,
    /// Applications announce five-tuple and size before they send.
    Announced,
    /// Edge switches count every flow; one that ran at `nic_share` of its host's rate or more over the last polling
    /// period is long. Needs [`Needs::poll_period`].
    Measured {
        /// Share of the access rate, 0..1 (Hedera §III.A: 0.1).
        nic_share: f64,
    },
    /// By whichever comes first: its label, its announcement, or what the edge switches count of it. Where every host labels
    /// its long flows, as in a simulator, this is the same as [`Detection::Label`].
    Any {
        /// As in [`Detection::Measured`].
        nic_share: f64,
    },
}

impl Detection {
    /// The share of the access rate from which on a flow that is measured is long; `None` where flows are not measured.
    pub fn nic_share(self) -> Option<f64> {
        match self {
            Detection::Measured { nic_share } | Detection::Any { nic_share } => Some(nic_share),
            Detection::Nothing | Detection::Label | Detection::Announced => None,
        }
    }
}

/// How the controller moves a flow from one path to another. Either way no packet is lost, doubled or sent round.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Migration {
    /// Every version of a route has a tag of its own, set at the source ToR: the flow changes over there, at once
    /// (two-phase update: Reitblatt et al., SIGCOMM 2012, §5).
    #[default]
    Tagged,
    /// Seamless flow migration (OFPT §5.3, Alg. 4): the new path is installed with a lower priority, and the old rules are
    /// deleted where both paths pass, first at the switch before the bottleneck. Where that is not safe, or where rules
    /// are shared ([`RuleSharing::PerPath`]), the flow is moved by tags.
    Sfmm,
}

impl Migration {
    fn is_default(&self) -> bool {
        *self == Migration::default()
    }
}

/// What the rules at the switches after the source ToR are for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleSharing {
    /// Each flow has rules of its own.
    #[default]
    PerFlow,
    /// Flows that share a path, or its last part, share the rules there (OFPT §5.2: flow aggregation): the source ToR
    /// puts a label on, the others match nothing but the label.
    PerPath,
}

impl RuleSharing {
    fn is_default(&self) -> bool {
        *self == RuleSharing::default()
    }
}

/// What a scheme needs from its controller. Schemes start from [`Needs::NOTHING`] and set what they need.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Needs {
    /// How long flows are found.
    pub detection: Detection,
    /// Whether the SYN of each MPTCP subflow is copied to the controller.
    pub subflows: bool,
    /// How often the flow counters of the ToRs are read; `None` for never. A scheme that adapts its period uses
    /// [`crate::Action::Measure`] as well.
    pub poll_period: Option<Nanos>,
    /// How flows are moved from one path to another.
    #[serde(default, skip_serializing_if = "Migration::is_default")]
    pub migration: Migration,
    /// Whether flows share rules.
    #[serde(default, skip_serializing_if = "RuleSharing::is_default")]
    pub rules: RuleSharing,
    /// Whether long flows are told how fast to send ([`crate::Action::Pace`]). Until they are, their hosts may pace them to
    /// the rate of their network card, so that they fill no queue before the controller has heard of them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paces: bool,
    /// Whether the other direction of a TCP connection takes the path of its flow, reversed, as long as the scheme was not told of
    /// that direction as a flow of its own. It costs as many rules again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub both_directions: bool,
    /// Seconds after which the rules of a path that nothing uses go by themselves; `None` for the controller's setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout_s: Option<NonZeroU16>,
    /// How often the port counters of all switches are read ([`crate::View::link_load_bps`]); `None` for never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_loads_every: Option<Nanos>,
}

impl Needs {
    /// A scheme that only sets default routes.
    pub const NOTHING: Needs = Needs {
        detection: Detection::Nothing,
        subflows: false,
        poll_period: None,
        migration: Migration::Tagged,
        rules: RuleSharing::PerFlow,
        paces: false,
        both_directions: false,
        idle_timeout_s: None,
        link_loads_every: None,
    };
}
