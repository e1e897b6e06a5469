//! The vocabulary of a match/action switch: what control asks for, what `switching` carries out and what the OpenFlow
//! driver puts on the wire. The meaning is that of OpenFlow 1.3 §5, cut to what is used.

pub use crate::actions::Actions;
use crate::fabric::Prefix;
use crate::{Headers, PortNo, PROTO_TCP};
use serde::{Deserialize, Serialize};

/// Which frames a rule is for. A field that is `None` matches everything.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Match {
    /// Port the frame came in by.
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
    /// The frames of just this five-tuple.
    pub fn five_tuple(tuple: crate::FiveTuple) -> Match {
        Match {
            src: Some(Prefix::host(tuple.src)),
            dst: Some(Prefix::host(tuple.dst)),
            proto: Some(tuple.proto),
            src_port: Some(tuple.src_port),
            dst_port: Some(tuple.dst_port),
            ..Match::default()
        }
    }

    /// The five-tuple that all frames of this match have in common; `None` if they may have several.
    pub fn only_five_tuple(&self) -> Option<crate::FiveTuple> {
        let address = |prefix: Option<Prefix>| prefix.filter(|prefix| prefix.len == 32).map(|prefix| prefix.address);
        Some(crate::FiveTuple {
            src: address(self.src)?,
            dst: address(self.dst)?,
            proto: self.proto?,
            src_port: self.src_port?,
            dst_port: self.dst_port?,
        })
    }

    /// Whether a frame with `headers` that came in by `in_port` is one of them.
    pub fn matches(&self, in_port: PortNo, headers: &Headers) -> bool {
        let tuple = &headers.five_tuple;
        self.in_port.is_none_or(|port| port == in_port)
            && self.src.is_none_or(|prefix| prefix.contains(tuple.src))
            && self.dst.is_none_or(|prefix| prefix.contains(tuple.dst))
            && self.proto.is_none_or(|proto| proto == tuple.proto)
            && self.src_port.is_none_or(|port| port == tuple.src_port)
            && self.dst_port.is_none_or(|port| port == tuple.dst_port)
            && self.dscp.is_none_or(|dscp| dscp == headers.dscp)
            && self
                .tcp_flags
                .is_none_or(|(value, mask)| tuple.proto == PROTO_TCP && headers.tcp_flags & mask == value & mask)
            && self.tag.is_none_or(|tag| headers.tag == Some(tag))
    }

    /// Whether whether-it-matches can differ between the segments of one flow that came in by one port and carry one
    /// tag: then a decision must not be remembered per flow.
    pub fn looks_at_flags(&self) -> bool {
        self.tcp_flags.is_some()
    }
}

/// Identifier of a group in one switch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GroupId(pub u32);

/// Identifier of a meter in one switch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MeterId(pub u32);

/// One thing to do with a frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum RuleAction {
    /// Send it out by this port.
    Output(PortNo),
    /// Let this group decide.
    Group(GroupId),
    /// Send a copy of its headers to the controller.
    Copy,
    /// Put this VLAN tag on it.
    SetTag(u16),
    /// Take its VLAN tag off.
    PopTag,
}

/// A rule of one table. The frames of a rule without actions and without `goto` are dropped.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Rule {
    /// Table it stands in; a frame starts at table 0.
    pub table: u8,
    /// Of the rules that match, the one with the highest priority acts.
    pub priority: u16,
    /// The frames it is for. Table, priority and match together name a rule.
    pub matches: Match,
    /// What is done, in order.
    pub actions: Actions,
    /// The (higher) table that goes on with the frame.
    pub goto: Option<u8>,
    /// Meter that frames pass first.
    pub meter: Option<MeterId>,
    /// Removed after this many seconds without a frame; 0 for never.
    pub idle_timeout_s: u16,
    /// Removed this many seconds after it was added; 0 for never.
    pub hard_timeout_s: u16,
    /// The controller's own mark.
    pub cookie: u64,
    /// Whether the controller is told when it times out or is deleted.
    pub notify_removal: bool,
}

impl Rule {
    /// What names it.
    pub fn key(&self) -> RuleKey {
        RuleKey { table: self.table, priority: self.priority, matches: self.matches }
    }
}

/// What names a rule in a switch: a second rule with the same key replaces the first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct RuleKey {
    /// See [`Rule::table`].
    pub table: u8,
    /// See [`Rule::priority`].
    pub priority: u16,
    /// See [`Rule::matches`].
    pub matches: Match,
}

/// How a group chooses among its buckets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum GroupKind {
    /// By a hash of the five-tuple, in proportion to the weights, among the buckets whose watched port is up.
    Select,
    /// The first bucket whose watched port is up.
    FastFailover,
    /// Every bucket gets a copy.
    All,
}

/// One choice of a group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Bucket {
    /// Share of the flows, for [`GroupKind::Select`].
    pub weight: u16,
    /// The bucket is out while this port is down.
    pub watch_port: Option<PortNo>,
    /// What is done with the frame.
    pub actions: Vec<RuleAction>,
}

/// A set of buckets that rules may name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Group {
    /// Its name in the switch.
    pub id: GroupId,
    /// How it chooses.
    pub kind: GroupKind,
    /// Its choices.
    pub buckets: Vec<Bucket>,
}

/// A rate limit that rules may name: what exceeds it is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Meter {
    /// Its name in the switch.
    pub id: MeterId,
    /// Sustained rate.
    pub rate_bps: u64,
    /// Bytes that may exceed it at once.
    pub burst_bytes: u64,
}

/// What a rule has counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RuleCounters {
    /// Frames.
    pub packets: u64,
    /// Bytes, headers included.
    pub bytes: u64,
}

/// Why a switch refused a rule, group or meter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// The table is full.
    #[error("the rule table is full")]
    TableFull,
    /// It names a group the switch does not have.
    #[error("it names a group that does not exist")]
    UnknownGroup,
    /// It names a meter the switch does not have.
    #[error("it names a meter that does not exist")]
    UnknownMeter,
    /// It names a table that does not exist or does not come later.
    #[error("it goes to a table that does not exist or does not come later")]
    BadTable,
    /// It names a port the switch does not have.
    #[error("it names a port that does not exist")]
    BadPort,
    /// A rule still names the group or meter to be deleted.
    #[error("it is still in use")]
    InUse,
    /// It asks for something the switch does not do.
    #[error("it asks for something the switch does not do")]
    Unsupported,
}
