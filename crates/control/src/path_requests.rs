//! Requests of applications for paths of their own, and the answers. [`crate::assignments`] handles them.

use pathloom_model::{Address, FiveTuple, Nanos, Path, PROTO_TCP};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Identifier of an assignment, 1 to 2³¹ − 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AssignmentId(pub u32);

impl fmt::Display for AssignmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Owner of an assignment, who may claim its paths and release it. The driver derives it from what it knows of the
/// caller.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Owner(pub String);

/// Which paths an assignment gets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathSearch {
    /// The loop-free paths with the fewest hops, by breadth-first search (parallel TCP: AssignMultipath).
    #[default]
    BreadthFirst,
    /// Paths that share no cable.
    EdgeDisjoint,
}

/// A request for paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PathRequest {
    /// Address of the sender.
    pub src: Address,
    /// Address of the receiver.
    pub dst: Address,
    /// Number of paths. Fewer are assigned if there are no more.
    pub count: u32,
    /// Kind of paths.
    #[serde(default)]
    pub search: PathSearch,
    /// How long the assignment is kept while nobody uses it; `None` for [`crate::config::AssignmentLimits::lifetime`].
    #[serde(default)]
    pub lifetime: Option<Nanos>,
}

/// A connection as an application identifies it. If it will be opened, the receiver's port does not matter, because
/// the first packet contains it. An open connection is identified by both ports, from either end, because a server
/// has many connections at one port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ClaimKey {
    /// Address of the sender. If the connection will be opened, the sender opens it.
    pub src: Address,
    /// Address of the receiver.
    pub dst: Address,
    /// Source port.
    pub src_port: u16,
    /// Destination port of an open connection; `None` if it will be opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dst_port: Option<u16>,
}

impl ClaimKey {
    /// The key of a connection that will be opened.
    pub const fn to_come(src: Address, dst: Address, src_port: u16) -> ClaimKey {
        ClaimKey { src, dst, src_port, dst_port: None }
    }

    /// The key of the connection to which a first packet belongs.
    pub(crate) fn of(five_tuple: &FiveTuple) -> ClaimKey {
        ClaimKey::to_come(five_tuple.src(), five_tuple.dst(), five_tuple.src_port())
    }

    /// The key of an open connection.
    pub(crate) fn standing(five_tuple: &FiveTuple) -> ClaimKey {
        ClaimKey { dst_port: Some(five_tuple.dst_port()), ..ClaimKey::of(five_tuple) }
    }

    /// The five-tuple of an open connection.
    pub(crate) fn five_tuple(&self) -> Option<FiveTuple> {
        let ClaimKey { src, dst, src_port, dst_port } = *self;
        Some(FiveTuple::new(PROTO_TCP, (src, src_port), (dst, dst_port?)))
    }
}

/// Answer to a request or a claim.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Assigned {
    /// Identifier of the assignment.
    pub assignment: AssignmentId,
    /// The paths in the order in which they will be claimed.
    pub paths: Vec<Path>,
}
