//! All tests of the crate in one program.

mod hosts;
mod links;
mod support;
mod together;
mod tshark;
