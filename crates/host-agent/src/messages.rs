//! Lines between the agent, the controller and programs on the host. docs/controller.md describes them. Each line is a
//! JSON object with one key, the verb.

use pathloom_model::FiveTuple;
use serde::{Deserialize, Serialize};
use serde_json::{json, Value};
use std::net::Ipv4Addr;

/// The version of the protocol.
pub const VERSION: u32 = 1;
/// Longest line in bytes.
pub const LINE_BYTES: usize = 64 << 10;

/// A line of the controller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControllerMessage {
    /// Answer to the hello.
    Welcome(Wants),
    /// Another scheme is active, and wants these announcements.
    Wants(Wants),
    /// The flow must send nothing.
    Hold {
        /// The flow.
        flow: FiveTuple,
        /// Time after which the flow may send again.
        lease_ms: u64,
    },
    /// The flow may send again.
    Release {
        /// The flow.
        flow: FiveTuple,
    },
    /// The flow must send no faster than this rate on the wire.
    Pace {
        /// The flow.
        flow: FiveTuple,
        /// Bits per second, including headers. `None` removes the limit.
        rate_bps: Option<u64>,
    },
    /// The controller refused something.
    Refused {
        /// The reason.
        why: String,
    },
    /// A verb of a later version, or an answer to a request that this agent never sends.
    Other,
}

/// The announcements that the controller wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub struct Wants {
    /// Whether transfers must be announced before they start, with their sizes.
    pub announce: bool,
    /// Whether connections must be announced when they become long.
    #[serde(default)]
    pub report: bool,
}

/// Bodies of the verbs.
mod body {
    use super::{Deserialize, FiveTuple};

    #[derive(Deserialize)]
    pub(super) struct Hold {
        pub(super) flow: FiveTuple,
        pub(super) lease_ms: u64,
    }
    #[derive(Deserialize)]
    pub(super) struct Flow {
        pub(super) flow: FiveTuple,
    }
    #[derive(Deserialize)]
    pub(super) struct Pace {
        pub(super) flow: FiveTuple,
        pub(super) rate_bps: Option<u64>,
    }
    #[derive(Deserialize)]
    pub(super) struct Refused {
        pub(super) why: String,
    }
}

impl ControllerMessage {
    /// Reads a line. The error describes what is wrong with the line.
    pub fn read(line: &[u8]) -> Result<ControllerMessage, String> {
        let read = || -> Result<ControllerMessage, serde_json::Error> {
            let (verb, value) = verb(line)?;
            Ok(match verb.as_str() {
                "welcome" => ControllerMessage::Welcome(serde_json::from_value(value)?),
                "wants" => ControllerMessage::Wants(serde_json::from_value(value)?),
                "hold" => {
                    let body::Hold { flow, lease_ms } = serde_json::from_value(value)?;
                    ControllerMessage::Hold { flow, lease_ms }
                }
                "release" => ControllerMessage::Release { flow: serde_json::from_value::<body::Flow>(value)?.flow },
                "pace" => {
                    let body::Pace { flow, rate_bps } = serde_json::from_value(value)?;
                    ControllerMessage::Pace { flow, rate_bps }
                }
                "refused" => ControllerMessage::Refused { why: serde_json::from_value::<body::Refused>(value)?.why },
                _ => ControllerMessage::Other,
            })
        };
        read().map_err(|problem| format!("the line is not a message of the controller: {problem}"))
    }

    /// Returns the flow of the message, if it concerns one.
    pub fn flow(&self) -> Option<FiveTuple> {
        match *self {
            ControllerMessage::Hold { flow, .. }
            | ControllerMessage::Release { flow }
            | ControllerMessage::Pace { flow, .. } => Some(flow),
            _ => None,
        }
    }
}

fn verb(line: &[u8]) -> Result<(String, Value), serde_json::Error> {
    use serde::de::Error;
    let object: serde_json::Map<String, Value> = serde_json::from_slice(line)?;
    let mut entries = object.into_iter();
    match (entries.next(), entries.next()) {
        (Some(entry), None) => Ok(entry),
        _ => Err(Error::custom("expected an object with one key")),
    }
}

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

/// Returns the first line to the controller.
pub fn hello(hosts: &[Ipv4Addr], token: Option<&str>) -> String {
    match token {
        None => json!({"hello": {"version": VERSION, "hosts": hosts}}).to_string(),
        Some(token) => json!({"hello": {"version": VERSION, "hosts": hosts, "token": token}}).to_string(),
    }
}

/// Returns the line that announces a flow.
pub fn announce(flow: FiveTuple, size_bytes: Option<u64>) -> String {
    #[derive(Serialize)]
    struct Body {
        flow: FiveTuple,
        size_bytes: Option<u64>,
    }
    json!({"announce": Body { flow, size_bytes }}).to_string()
}

/// Returns the line that announces the end of a flow.
pub fn finish(flow: FiveTuple) -> String {
    json!({"finish": {"flow": flow}}).to_string()
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

#[cfg(test)]
mod tests {
    use super::*;

    const FLOW: &str = r#"{"src":"10.0.0.1","dst":"10.0.7.1","proto":6,"src_port":40000,"dst_port":5001}"#;

    #[test]
    fn lines_of_the_controller_are_read_and_unknown_verbs_are_ignored() {
        let read = |line: String| ControllerMessage::read(line.as_bytes());
        let flow = read(format!(r#"{{"release": {{"flow": {FLOW}}}}}"#)).unwrap().flow().unwrap();
        assert_eq!(flow.src_port, 40000);
        let hold = read(format!(r#"{{"hold": {{"flow": {FLOW}, "lease_ms": 15000}}}}"#));
        assert_eq!(hold, Ok(ControllerMessage::Hold { flow, lease_ms: 15000 }));
        let pace = read(format!(r#"{{"pace": {{"flow": {FLOW}, "rate_bps": null}}}}"#));
        assert_eq!(pace, Ok(ControllerMessage::Pace { flow, rate_bps: None }));
        assert_eq!(read(r#"{"offer": {"request": 1}}"#.into()), Ok(ControllerMessage::Other));
        assert!(read("{}".into()).unwrap_err().contains("one key"));
        assert!(read(r#"{"hold": {}}"#.into()).unwrap_err().contains("flow"));
        assert!(read("nonsense".into()).is_err());
    }
}
