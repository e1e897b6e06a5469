//! What agents and the controller say to each other: a line of JSON each, an object with one key that names the verb.

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
    /// A line was of no use, or others speak for the agent's hosts now; the connection may be closed after it.
    Refused {
        /// Why.
        why: &'a str,
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
    /// Paths for the application that asked, best first.
    Offer {
        /// The request.
        request: u64,
        /// Names of the switches of each path, from ToR to ToR; none where both hosts are at one ToR.
        paths: Vec<Vec<&'a str>>,
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
