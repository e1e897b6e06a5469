//! All tests of the crate in one program.

mod common;
mod golden;
mod mptcp;
mod round_trip;
mod samples;
