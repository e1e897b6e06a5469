//! Lines between the agent and programs on the host. docs/controller.md describes them. Each line is a JSON object with
//! one key, the verb. Those of the controller that concern the flows of a program are passed on ([`crate::protocol`]).

pub use crate::protocol::{LINE_BYTES, VERSION};

use pathloom_model::FiveTuple;
use serde::Deserialize;
use serde_json::json;

/// A line of a program on the host.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgramMessage {
    /// The first line.
    Hello {
        /// Version of the protocol.
        version: u32,
    },
    /// A transfer is about to start.
    Announce {
        /// Connection of the transfer.
        flow: FiveTuple,
        /// Payload bytes, if known.
        #[serde(default)]
        size_bytes: Option<u64>,
    },
    /// A transfer has ended.
    Finish {
        /// Connection of the transfer.
        flow: FiveTuple,
    },
}

/// Returns the answer to the hello of a program. `enforced` tells whether the agent itself holds and paces flows.
pub fn welcome(announce: bool, enforced: bool) -> String {
    json!({"welcome": {"version": VERSION, "announce": announce, "enforced": enforced}}).to_string()
}

/// Returns the line that tells a program whether the scheme that is now active wants announcements.
pub fn wants(announce: bool) -> String {
    json!({"wants": {"announce": announce}}).to_string()
}

/// Returns the line that tells a program why its line was refused.
pub fn refused(why: &str) -> String {
    json!({"refused": {"why": why}}).to_string()
}
