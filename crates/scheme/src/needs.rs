//! What a scheme needs from its controller.

use crate::ageing::Ageing;
use crate::rehash::Rehash;
use pathloom_model::{Nanos, Tier};
use serde::{Deserialize, Serialize};
use std::num::NonZeroU16;

/// How a controller detects the long flows that a scheme handles.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Detection {
    /// Not at all: all flows use the default routes.
    Nothing,
    /// Hosts mark long flows by DSCP ([`pathloom_model::LONG_FLOW_DSCP`]); the first packet is copied to the controller.
    Label,
    /// Applications announce five-tuple and size before they send.
    Announced,
    /// Edge switches count every flow. A flow is long if its rate over the last polling period was at least
    /// `nic_share` of its host's rate. Needs [`Needs::poll_period`].
    Measured {
        /// Share of the access rate, 0..1 (Hedera §III.A: 0.1).
        nic_share: f64,
    },
    /// By label, announcement or measured rate, whichever shows first that the flow is long. If every host labels its
    /// long flows, as in the simulator, this is the same as [`Detection::Label`].
    Any {
        /// As in [`Detection::Measured`].
        nic_share: f64,
    },
}

impl Detection {
    /// The share of the access rate at or above which a measured flow is long; `None` if flows are not measured.
    pub fn nic_share(self) -> Option<f64> {
        match self {
            Detection::Measured { nic_share } | Detection::Any { nic_share } => Some(nic_share),
            Detection::Nothing | Detection::Label | Detection::Announced => None,
        }
    }
}

/// How the controller moves a flow from one path to another. In either way, no packet is lost, duplicated or sent in
/// a loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Migration {
    /// Every version of a route has its own tag, which the source ToR sets. The flow changes to the new version
    /// there, at once (two-phase update: Reitblatt et al., SIGCOMM 2012, §5).
    #[default]
    Tagged,
    /// Seamless flow migration (OFPT §5.3, Alg. 4): the new path is installed with a lower priority. Then the old
    /// rules are deleted at the switches that are on both paths, first at the switch before the bottleneck. If that
    /// is not safe, or if rules are shared ([`RuleSharing::PerPath`]), the flow is moved by tags.
    Sfmm,
}

impl Migration {
    fn is_default(&self) -> bool {
        *self == Migration::default()
    }
}

/// Whether flows share rules at the switches after the source ToR.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleSharing {
    /// Each flow has rules of its own.
    #[default]
    PerFlow,
    /// Flows that share a path, or its last part, share the rules there (OFPT §5.2: flow aggregation). The source ToR
    /// adds a label, and the other switches match only the label.
    PerPath,
}

impl RuleSharing {
    fn is_default(&self) -> bool {
        *self == RuleSharing::default()
    }
}

/// Which packets of a flow have the same entropy: the value that hosts write into a header field, and that switches
/// hash with the five-tuple where a group spreads flows over several next hops. Real fabrics use the UDP source port of a
/// tunnel or the IPv6 flow label. Packets of a flow with different entropies may take different paths and arrive out of
/// order. Both directions of a connection count separately. Rules of OpenFlow switches hash only five-tuples, so only the
/// simulator knows other values than [`Entropy::Flow`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entropy {
    /// All packets of a flow: switches hash the five-tuple alone.
    #[default]
    Flow,
    /// All packets of a flow, until its sender changes the entropy. The receiver answers with the entropy of the last
    /// packet that has arrived.
    Rehashed(Rehash),
    /// Packets that follow the one before within less than `gap`. After a longer pause, the host draws a new value.
    Flowlet {
        /// The shortest pause between two flowlets. With a gap of 0, each packet is a flowlet.
        gap: Nanos,
    },
    /// None: each packet has its own value.
    Packet,
    /// Those of a cell, which ends when its frames have this many bytes. Successive cells have successive values.
    Cell {
        /// Size in bytes. With one byte, each packet is a cell.
        bytes: u64,
    },
    /// Those of a part of a transfer. Hosts divide transfers into the fewest parts with which all paths carry the same, and the
    /// entropy of a part is the number of its path plus one (Addanki et al. 2024, Ethereal).
    Part,
}

impl Entropy {
    fn is_default(&self) -> bool {
        *self == Entropy::default()
    }
}

/// How switches choose for each packet where a group spreads flows over several next hops. Rules of OpenFlow switches
/// choose by a hash of the five-tuple, so only the simulator knows other values than [`Selection::Hash`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Selection {
    /// By a hash of the five-tuple and the entropy.
    #[default]
    Hash,
    /// The entropy is the number of a path: with successive entropies, the packets of a flow take all paths in turn.
    /// Packets with an entropy of 0 take the path that the hash of the five-tuple gives.
    Numbered,
    /// The entropy is the number of a path plus one, which has the same meaning for all flows. Packets with an entropy of 0 take the
    /// path that the hash of the five-tuple gives.
    Path,
    /// One after another: each packet leaves by the next hop after that of the packet before it, whatever its flow.
    RoundRobin,
    /// The next hop with the shortest queue in bytes among some of them (Ghorbani et al. 2017, DRILL).
    ShortestQueue {
        /// Number of next hops to draw at random for each packet, at least 1.
        drawn: u8,
        /// Number of next hops to consider as well, because their queues were the shortest the last time.
        remembered: u8,
    },
    /// Leaf switches choose a next hop for each flowlet, by how busy the paths are (Alizadeh et al. 2014, CONGA).
    Conga {
        /// The shortest pause between two flowlets.
        gap: Nanos,
        /// Time constant of the rate of a link.
        tau: Nanos,
    },
    /// Switches choose the next hop for each flowlet that probes have found the best (Katta et al. 2016, HULA).
    Hula {
        /// The shortest pause between two flowlets.
        gap: Nanos,
        /// Time between two probes of a ToR.
        probe: Nanos,
    },
    /// A flow takes the next hop with the shortest queue whenever nothing of it is under way, and keeps it otherwise (Bonato et al.
    /// 2025, flowcut switching).
    Flowcut,
}

impl Selection {
    fn is_default(&self) -> bool {
        *self == Selection::default()
    }

    /// Whether switches run a load balancer: a program that remembers, measures, or tells other switches something. Its notes
    /// take the place of the entropy of packets.
    pub fn has_balancer(self) -> bool {
        matches!(self, Selection::Conga { .. } | Selection::Hula { .. } | Selection::Flowcut)
    }
}

/// What a scheme needs from its controller. Schemes start from [`Needs::NOTHING`] and set what they need.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Needs {
    /// How the controller detects long flows.
    pub detection: Detection,
    /// Whether the SYN of each MPTCP subflow is copied to the controller.
    pub subflows: bool,
    /// Time between two readings of the flow counters of the ToRs; `None` for never. A scheme that adapts this period
    /// requests readings by [`crate::Action::Measure`].
    pub poll_period: Option<Nanos>,
    /// How flows are moved from one path to another.
    #[serde(default, skip_serializing_if = "Migration::is_default")]
    pub migration: Migration,
    /// Whether flows share rules.
    #[serde(default, skip_serializing_if = "RuleSharing::is_default")]
    pub rules: RuleSharing,
    /// Whether the scheme limits the rates of long flows ([`crate::Action::Pace`]). Until then, hosts may pace such
    /// flows to the rate of their network card, so that they fill no queue before the controller knows of them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paces: bool,
    /// Whether the reverse direction of a TCP connection takes the path of its flow, reversed, unless that direction
    /// was reported to the scheme as a flow of its own. This doubles the number of rules.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub both_directions: bool,
    /// Seconds after which the rules of an unused path expire; `None` for the controller's setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout_s: Option<NonZeroU16>,
    /// Time between two readings of the port counters of all switches ([`crate::View::link_load_bps`]); `None` for
    /// never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_loads_every: Option<Nanos>,
    /// Which packets of a flow take the same path where default routes spread flows.
    #[serde(default, skip_serializing_if = "Entropy::is_default")]
    pub entropy: Entropy,
    /// How switches choose where default routes spread flows.
    #[serde(default, skip_serializing_if = "Selection::is_default")]
    pub selection: Selection,
    /// The tier whose switches choose so, if not all do. The others choose by a hash of the five-tuple.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selection_tier: Option<Tier>,
    /// How hosts mark packets by the age of their message; `None` if they do not. Ports of switches then have at least as
    /// many queues as there are levels. Only the simulator has such hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ageing: Option<Ageing>,
}

impl Needs {
    /// The needs of a scheme that only sets default routes.
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
        entropy: Entropy::Flow,
        selection: Selection::Hash,
        selection_tier: None,
        ageing: None,
    };

    /// Whether packets of one flow may take different paths.
    pub fn takes_several_paths(&self) -> bool {
        self.entropy != Entropy::Flow || !matches!(self.selection, Selection::Hash | Selection::Numbered)
    }
}
