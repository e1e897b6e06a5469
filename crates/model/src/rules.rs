//! The vocabulary of a match/action switch. `control` requests it, `switching` executes it, and the OpenFlow driver
//! encodes it. The meaning is that of OpenFlow 1.3 §5, limited to the features in use.

pub use crate::actions::Actions;
use crate::{Headers, PortNo, Prefix, PROTO_TCP};
use serde::{Deserialize, Serialize};

/// The frames that a rule applies to. A field that is `None` matches everything.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Match {
    /// Port where the frame arrived.
    pub in_port: Option<PortNo>,
    /// Source prefix.
    pub src: Option<Prefix>,
    /// Destination prefix.
    pub dst: Option<Prefix>,
    /// IP protocol.
    pub proto: Option<u8>,
    /// Source port.
    pub src_port: Option<u16>,
    /// Destination port.
    pub dst_port: Option<u16>,
    /// Differentiated-services code point.
    pub dscp: Option<u8>,
    /// TCP flag bits: (value, mask). Needs the switch's tcp_flags extension.
    pub tcp_flags: Option<(u8, u8)>,
    /// VLAN tag.
    pub tag: Option<u16>,
}

impl Match {
    /// Returns the match for the frames of exactly this five-tuple.
    pub fn five_tuple(tuple: crate::FiveTuple) -> Match {
        Match {
            src: Some(Prefix::host(tuple.src())),
            dst: Some(Prefix::host(tuple.dst())),
            proto: Some(tuple.proto()),
            src_port: Some(tuple.src_port()),
            dst_port: Some(tuple.dst_port()),
            ..Match::default()
        }
    }

    /// Returns the five-tuple that all frames of this match share; `None` if they can have several.
    pub fn only_five_tuple(&self) -> Option<crate::FiveTuple> {
        let address = |prefix: Option<Prefix>| prefix.and_then(Prefix::only);
        Some(crate::FiveTuple::new(
            self.proto?,
            (address(self.src)?, self.src_port?),
            (address(self.dst)?, self.dst_port?),
        ))
    }

    /// Whether the match includes a frame with `headers` that arrived at `in_port`.
    pub fn matches(&self, in_port: PortNo, headers: &Headers) -> bool {
        let tuple = &headers.five_tuple;
        self.in_port.is_none_or(|port| port == in_port)
            && self.src.is_none_or(|prefix| prefix.contains(tuple.src()))
            && self.dst.is_none_or(|prefix| prefix.contains(tuple.dst()))
            && self.proto.is_none_or(|proto| proto == tuple.proto())
            && self.src_port.is_none_or(|port| port == tuple.src_port())
            && self.dst_port.is_none_or(|port| port == tuple.dst_port())
            && self.dscp.is_none_or(|dscp| dscp == headers.dscp)
            && self
                .tcp_flags
                .is_none_or(|(value, mask)| tuple.proto() == PROTO_TCP && headers.tcp_flags & mask == value & mask)
            && self.tag.is_none_or(|tag| headers.tag == Some(tag))
    }

    /// Whether the result can differ between segments of one flow that arrive at one port with one tag. If so, a
    /// decision must not be cached per flow.
    pub fn looks_at_flags(&self) -> bool {
        self.tcp_flags.is_some()
    }
}

/// Identifier of a group within one switch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GroupId(pub u32);

/// Identifier of a meter within one switch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MeterId(pub u32);

/// One action on a frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum RuleAction {
    /// Sends the frame out by this port.
    Output(PortNo),
    /// Hands the frame to this group.
    Group(GroupId),
    /// Sends a copy of the headers to the controller.
    Copy,
    /// Adds this VLAN tag.
    SetTag(u16),
    /// Removes the VLAN tag.
    PopTag,
}

/// A rule of one table. Frames of a rule without actions and without `goto` are dropped.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Rule {
    /// Table of the rule; a frame starts at table 0.
    pub table: u8,
    /// Priority. Of the rules that match, the one with the highest priority applies.
    pub priority: u16,
    /// The frames that the rule applies to. Table, priority and match together identify a rule.
    pub matches: Match,
    /// Actions, in order.
    pub actions: Actions,
    /// The (higher) table that processes the frame next.
    pub goto: Option<u8>,
    /// Meter that frames pass first.
    pub meter: Option<MeterId>,
    /// Removed after this many seconds without a frame; 0 for never.
    pub idle_timeout_s: u16,
    /// Removed this many seconds after it was added; 0 for never.
    pub hard_timeout_s: u16,
    /// Value that the controller chooses to mark the rule.
    pub cookie: u64,
    /// Whether the switch tells the controller when the rule times out or is deleted.
    pub notify_removal: bool,
}

impl Rule {
    /// Returns the key that identifies the rule.
    pub fn key(&self) -> RuleKey {
        RuleKey { table: self.table, priority: self.priority, matches: self.matches }
    }
}

/// The key of a rule in a switch. A second rule with the same key replaces the first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct RuleKey {
    /// See [`Rule::table`].
    pub table: u8,
    /// See [`Rule::priority`].
    pub priority: u16,
    /// See [`Rule::matches`].
    pub matches: Match,
}

/// How a group selects among its buckets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum GroupKind {
    /// Selects by a hash of the five-tuple, in proportion to the weights, among the buckets whose watched port is up.
    Select,
    /// Selects the first bucket whose watched port is up.
    FastFailover,
    /// Sends a copy to every bucket.
    All,
}

/// One choice of a group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Bucket {
    /// Share of the flows, for [`GroupKind::Select`].
    pub weight: u16,
    /// The bucket is not used while this port is down.
    pub watch_port: Option<PortNo>,
    /// Actions on the frame.
    pub actions: Vec<RuleAction>,
}

/// A set of buckets that rules can refer to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Group {
    /// Identifier of the group in the switch.
    pub id: GroupId,
    /// How the group selects a bucket.
    pub kind: GroupKind,
    /// The buckets.
    pub buckets: Vec<Bucket>,
}

/// A rate limit that rules can refer to. Frames that exceed the rate are dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Meter {
    /// Identifier of the meter in the switch.
    pub id: MeterId,
    /// Sustained rate.
    pub rate_bps: u64,
    /// Bytes by which a burst can exceed the rate.
    pub burst_bytes: u64,
}

/// Counters of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RuleCounters {
    /// Number of frames.
    pub packets: u64,
    /// Number of bytes, with headers.
    pub bytes: u64,
}

/// Reason why a switch refused a rule, group or meter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// The table is full.
    #[error("the rule table is full")]
    TableFull,
    /// The group table is full.
    #[error("the group table is full; until its next session, the switch gets rules to single ports instead")]
    GroupsFull,
    /// The switch does not support groups, or not the identifier, the kind, the weights or the buckets of this one.
    #[error("it does not support such a group; until its next session, it gets rules to single ports instead")]
    GroupUnsupported,
    /// The meter table is full.
    #[error("the meter table is full; hosts with an agent pace their flows instead")]
    MetersFull,
    /// The switch does not support meters, or not the rate, the burst or the bands of this one.
    #[error("it does not support such a meter; hosts with an agent pace their flows instead")]
    MeterUnsupported,
    /// A group or meter with this identifier exists.
    #[error("it has a group or meter with this identifier already; its tables are read again")]
    Exists,
    /// The controller may not change the switch.
    #[error("it does not permit the change; check that no other controller is its master")]
    NotPermitted,
    /// The rule refers to a group that the switch does not have.
    #[error("it refers to a group that does not exist")]
    UnknownGroup,
    /// The rule refers to a meter that the switch does not have.
    #[error("it refers to a meter that does not exist")]
    UnknownMeter,
    /// The rule refers to a table that does not exist or does not come later.
    #[error("it refers to a table that does not exist or does not come later")]
    BadTable,
    /// The rule refers to a port that the switch does not have.
    #[error("it refers to a port that does not exist")]
    BadPort,
    /// A rule still refers to the group or meter that is to be deleted.
    #[error("it is still in use")]
    InUse,
    /// The request needs a feature that the switch does not have.
    #[error("the switch does not support it")]
    Unsupported,
}
