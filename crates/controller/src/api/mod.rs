//! The HTTP API, on its own thread: the controller's state and its reasons, and commands of operators.

mod ask;
#[cfg(test)]
mod assigning_tests;
mod assignments;
mod authorise;
mod caller;
mod document;
mod handlers;
mod live;
mod measured;
mod metrics;
mod page;
mod parameters;
mod predict;
mod problem;
mod queries;
mod routes;
mod rows;
mod rpc;
mod server;
mod slots;
#[cfg(test)]
mod tests;
mod xml_rpc;

pub(crate) use ask::answer;
pub(crate) use rows::path_names;
pub(crate) use server::{start, start_for_hosts};
