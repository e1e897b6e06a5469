//! The HTTP API, on a thread of its own: what the controller knows and why, and what an operator may tell it.

mod ask;
mod document;
mod door;
mod parameters;
mod predict;
mod problem;
mod queries;
mod routes;
mod rows;
mod seats;
mod server;
mod settings;
#[cfg(test)]
mod tests;
mod tokens;

pub use settings::Api;

pub(crate) use ask::answer;
pub(crate) use server::start;
pub(crate) use settings::ReadyApi;
