//! Which of several controllers leads.
//!
//! Each controller has a [`Member`], a state machine without sockets and without a clock. Its driver passes it answers of
//! etcd and the time, and carries out its requests and decisions. [`etcd`] has the requests and answers: the part of etcd's
//! version 3 that members use. [`model`] has an etcd in memory and a world of members in virtual time, for tests.
//!
//! A member leads by a lease. It also gets a number that grows with each election, the [`Token`]. The lease keeps two
//! members from leading at a time while their clocks are nearly right. The token works without clocks: switches and etcd
//! refuse what has an older one. `docs/high-availability.md` has the reasoning.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types))]

pub mod etcd;
pub mod format;
mod member;
pub mod model;
mod position;
pub mod state;

pub use member::{Input, Member, Output, RequestId, Settings};
pub use position::{Leader, Position, Token};
