//! Messages between agents and the controller. Each is a line of JSON: an object with one key, the verb.

use pathloom_control::{AssignmentId, PathSearch};
use pathloom_model::FiveTuple;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

/// The version of this protocol. An agent with another version gets an error and is disconnected.
pub const VERSION: u32 = 1;

/// A message of an agent.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum AgentMessage {
    /// The first line: identifies the agent.
    Hello {
        /// Version of the protocol.
        version: u32,
        /// Addresses of the hosts that it represents.
        hosts: Vec<Ipv4Addr>,
        /// Token of an agent that connects by TCP, where tokens are configured.
        #[serde(default)]
        token: Option<String>,
    },
    /// An application is about to send.
    Announce {
        /// The connection it will use.
        flow: FiveTuple,
        /// Payload bytes, if known.
        #[serde(default)]
        size_bytes: Option<u64>,
    },
    /// A transfer is over.
    Finish {
        /// Its connection.
        flow: FiveTuple,
    },
    /// An application requests paths.
    Paths {
        /// Number of the request, repeated in the offer.
        request: u64,
        /// Address of the sending host.
        src: Ipv4Addr,
        /// Address of the receiving host.
        dst: Ipv4Addr,
        /// Number of paths.
        count: u32,
        /// Kind of paths.
        #[serde(default)]
        search: PathSearch,
        /// Seconds for which unused paths are kept; without it, the controller's default.
        #[serde(default)]
        lifetime_s: Option<u32>,
    },
    /// An application is about to open a connection, and claims the next of its paths for it.
    Claim {
        /// Number of the request, repeated in the answer.
        request: u64,
        /// The assignment that the offer named.
        assignment: AssignmentId,
        /// Address of the sending host, which opens the connection.
        src: Ipv4Addr,
        /// Address of the receiving host.
        dst: Ipv4Addr,
        /// Source port of the connection.
        src_port: u16,
    },
    /// An application no longer needs its paths. Existing connections keep them.
    ReleasePaths {
        /// Number of the request, repeated in the answer.
        request: u64,
        /// The assignment that the offer named.
        assignment: AssignmentId,
        /// Address of the sending host.
        src: Ipv4Addr,
    },
}

/// What the scheme in charge needs from agents.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Wants {
    /// Whether they must announce long transfers before they start, and their ends.
    pub announce: bool,
    /// Whether they must announce connections once they are found to be long, and their ends.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub report: bool,
}

/// A message of the controller.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ControllerMessage<'a> {
    /// Answer to a hello.
    Welcome {
        /// Version of the protocol.
        version: u32,
        /// What the scheme in charge needs.
        #[serde(flatten)]
        wants: Wants,
    },
    /// Another scheme is in charge.
    Wants(Wants),
    /// A line was invalid, a request could not be granted, or others represent the agent's hosts now. The connection
    /// may be closed after this message.
    Refused {
        /// The reason.
        why: &'a str,
        /// The request that it answers, unless the line itself was invalid.
        #[serde(skip_serializing_if = "Option::is_none")]
        request: Option<u64>,
    },
    /// Send nothing of this flow until it is released, or until the lease ends. So the loss of the controller blocks
    /// no flow for long.
    Hold {
        /// The flow.
        flow: FiveTuple,
        /// Duration of the lease in milliseconds.
        lease_ms: u64,
    },
    /// Send the flow again.
    Release {
        /// The flow.
        flow: FiveTuple,
    },
    /// Send the flow no faster than this on the access link.
    Pace {
        /// The flow.
        flow: FiveTuple,
        /// Bits per second, headers included; null removes the limit.
        rate_bps: Option<u64>,
    },
    /// Paths for the application that asked, in the order in which they will be claimed.
    Offer {
        /// The request.
        request: u64,
        /// The assignment, for claims.
        assignment: AssignmentId,
        /// Names of the switches of each path, from ToR to ToR; empty if both hosts are at one ToR.
        paths: Vec<Vec<&'a str>>,
    },
    /// The connection will take this path.
    Claimed {
        /// The request.
        request: u64,
        /// Names of its switches, as in an offer.
        path: Vec<&'a str>,
    },
    /// The assignment is released.
    PathsReleased {
        /// The request.
        request: u64,
    },
}

impl ControllerMessage<'_> {
    /// Appends the message as a line.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        // The message has no maps, so JSON can represent it, and writing to a buffer does not fail.
        if serde_json::to_writer(&mut *out, self).is_ok() {
            out.push(b'\n');
        }
    }
}
