//! Fabrics, links, paths and their search, five-tuples, rules, faults and units: the types that all other crates use.
//! `pathloom-fabrics` builds fabrics from their names and from files.
//!
//! This crate has no clock, socket or thread. A [`Fabric`] is built once and never changes. A separate [`LinkState`]
//! says which links are up or down at a moment.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types))]

mod actions;
mod address;
mod fabric;
pub mod fault;
mod flow;
mod frame;
mod ids;
mod link_state;
mod mix;
mod path;
mod ports;
pub mod reasons;
pub mod rules;
pub mod search;
pub mod shrink;
pub mod spec;
pub mod units;

pub use address::{Address, Prefix};
pub use fabric::{
    Attachment, Fabric, FabricBuilder, FabricError, Link, LinkSettings, Node, SwitchPort, Tier, IPV6_HOSTS,
};
pub use fault::{FailureState, Fault, FaultKind, FaultTarget, Quality};
pub use flow::{
    entropy_hash, FiveTuple, Headers, MptcpOption, LONG_FLOW_DSCP, PROTO_TCP, PROTO_UDP, TCP_ACK, TCP_FIN, TCP_RST,
    TCP_SYN,
};
pub use frame::{Arp, Body, Carried, Conversation, Frame, Heard, Hello, Mac, PathKind, PathMessage};
pub use ids::{LinkId, NodeId, PortNo};
pub use link_state::LinkState;
pub use mix::{split_mix, GOLDEN};
pub use path::{Path, PathError};
pub use ports::{EcnSettings, PfcSettings, PortSettings, RedSettings, SharedBuffer, MOST_QUEUES};
pub use search::{PathSelection, PathSet};
pub use units::Nanos;
