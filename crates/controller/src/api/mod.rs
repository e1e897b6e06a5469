//! The HTTP API, on its own thread: the controller's state and its reasons, and commands of operators.

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
