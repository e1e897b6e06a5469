//! What the program does: it serves a fabric, surveys one, or reads the log of one that it served.

mod path_history;
mod reload;
mod replay;
mod restored;
mod serve;
mod start;
mod survey;

pub use path_history::{path_history, PathChange};
pub use replay::replay;
pub use restored::run as restored;
pub use serve::{run as serve, Ended, ServeError};
pub use survey::run as survey;

pub use crate::drivers::process::greet as greet_process;

#[cfg(test)]
pub(crate) use start::hub;
