//! The controller as a pure state machine.
mod io;
pub use io::*;
