//! What agents and the controller say to each other: a line of JSON each, an object with one key that names the verb.

use pathloom_control::{AssignmentId, PathSearch};
use pathloom_model::FiveTuple;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

/// The version of this protocol. An agent that speaks another is told so, and sent away.
pub const VERSION: u32 = 1;

/// What an agent says.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Said {
    /// The first line: who speaks.
    Hello {
        /// Version of the protocol.
        version: u32,
        /// Addresses of the hosts it speaks for.
        hosts: Vec<Ipv4Addr>,
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
    /// An application asks for paths.
    Paths {
        /// Names the request in the offer that answers it.
        request: u64,
        /// Address of the sending host.
        src: Ipv4Addr,
        /// Address of the receiving host.
        dst: Ipv4Addr,
        /// Paths wanted.
        count: u32,
        /// Which paths.
        #[serde(default)]
        search: PathSearch,
        /// Seconds for which they are kept while nobody uses them; the controller's own choice without.
        #[serde(default)]
        lifetime_s: Option<u32>,
    },
    /// An application is about to open a connection, and claims the next of its paths for it.
    Claim {
        /// Names the request in the answer.
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
    /// An application has no more use for its paths. Connections that stand keep them.
    ReleasePaths {
        /// Names the request in the answer.
        request: u64,
        /// The assignment that the offer named.
        assignment: AssignmentId,
        /// Address of the sending host.
        src: Ipv4Addr,
    },
}

/// What the controller says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Told<'a> {
    /// Answer to a hello.
    Welcome {
        /// Version of the protocol.
        version: u32,
        /// Whether long transfers are to be announced, and their ends told.
        announce: bool,
    },
    /// Another scheme is in charge.
    Wants {
        /// As in the welcome.
        announce: bool,
    },
    /// A line was of no use, a request could not be granted, or others speak for the agent's hosts now; the connection
    /// may be closed after it.
    Refused {
        /// Why.
        why: &'a str,
        /// The request that it answers, if it is no fault of the line.
        #[serde(skip_serializing_if = "Option::is_none")]
        request: Option<u64>,
    },
    /// Send nothing more of this flow until it is released, or until the lease is over: a lost controller holds nobody.
    Hold {
        /// The flow.
        flow: FiveTuple,
        /// Milliseconds from now.
        lease_ms: u64,
    },
    /// Send again.
    Release {
        /// The flow.
        flow: FiveTuple,
    },
    /// Put no more than this on the access link.
    Pace {
        /// The flow.
        flow: FiveTuple,
        /// Bits per second, headers included; null lifts the limit.
        rate_bps: Option<u64>,
    },
    /// Paths for the application that asked, in the order in which they will be claimed.
    Offer {
        /// The request.
        request: u64,
        /// What a claim names.
        assignment: AssignmentId,
        /// Names of the switches of each path, from ToR to ToR; none where both hosts are at one ToR.
        paths: Vec<Vec<&'a str>>,
    },
    /// The connection will take this path.
    Claimed {
        /// The request.
        request: u64,
        /// Names of its switches, as in an offer.
        path: Vec<&'a str>,
    },
    /// The paths are not the application's any more.
    PathsReleased {
        /// The request.
        request: u64,
    },
}

impl Told<'_> {
    /// Leaves it as a line.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        // There are no maps in it, so JSON has words for all of it, and a buffer takes all.
        if serde_json::to_writer(&mut *out, self).is_ok() {
            out.push(b'\n');
        }
    }
}
