//! Central schemes over fabrics of routers. The controller and its schemes are those of OpenFlow fabrics, unchanged.
//!
//! Routers take no rules. So the controller's rules go to switches that exist only here. Before a
//! connection opens, its first packet crosses these switches, the scheme decides, and the path by the rules is the path
//! of the connection ([`Binder`]). What hosts need is a source port whose hash leads there.
//!
//! The controller knows a connection by the five-tuple under which it was announced, not by the source port that it gets
//! in the end. So a decision does not depend on the routers' hash.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types))]

mod binder;
mod ports;
mod switches;

pub use binder::{Binder, Bound, Counts, OpenError, Opening};
pub use ports::{Pair, Ports};
