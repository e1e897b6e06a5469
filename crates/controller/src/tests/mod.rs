//! Tests of a whole controller at its sockets, and what they share.

pub(crate) mod loopback;
mod offenders;
mod scheme_process;
mod tls;
