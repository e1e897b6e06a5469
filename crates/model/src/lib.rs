//! Fabrics, links, paths, flows, rules and units: the nouns every other crate speaks.
//!
//! Nothing here has a clock, a socket or a thread. A [`Fabric`] is built once and never changes; what is up and what
//! is down at a moment is a [`LinkState`] beside it.

mod fabric;
mod flow;
mod ids;
mod link_state;
mod path;
pub mod rules;
pub mod spec;
pub mod units;

pub use fabric::{Attachment, Fabric, FabricBuilder, FabricError, Link, LinkSettings, Node, Prefix, Tier};
pub use flow::{
    FiveTuple, Headers, MptcpOption, LONG_FLOW_DSCP, PROTO_TCP, PROTO_UDP, TCP_ACK, TCP_FIN, TCP_RST, TCP_SYN,
};
pub use ids::{LinkId, NodeId, PortNo};
pub use link_state::LinkState;
pub use path::{Path, PathError};
pub use units::Nanos;
