//! Messages between agents and the controller. Each is a line of JSON: an object with one key, the verb.
//! docs/controller.md describes them.

use pathloom_model::FiveTuple;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// The version of this protocol. An agent with another version gets an error and is disconnected.
pub const VERSION: u32 = 1;
/// Longest line, in bytes.
pub const LINE_BYTES: usize = 64 << 10;

/// A message of an agent. `Search` is the kind of paths that applications can request; agents that request none need
/// no type for it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum AgentMessage<Search: Default = ()> {
    /// The first line: identifies the agent.
    Hello {
        /// Version of the protocol.
        version: u32,
        /// Addresses of the hosts that it represents.
        hosts: Vec<Ipv4Addr>,
        /// Token of an agent that connects by TCP, where tokens are configured.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token: Option<String>,
    },
    /// An application is about to send.
    Announce {
        /// The connection it will use.
        #[serde(deserialize_with = "crate::messages::either_family")]
        flow: FiveTuple,
        /// Payload bytes, if known.
        #[serde(default)]
        size_bytes: Option<u64>,
    },
    /// A transfer is over.
    Finish {
        /// Its connection.
        #[serde(deserialize_with = "crate::messages::either_family")]
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
        search: Search,
        /// Seconds for which unused paths are kept; without it, the controller's default.
        #[serde(default)]
        lifetime_s: Option<u32>,
    },
    /// An application is about to open a connection, and claims the next of its paths for it.
    Claim {
        /// Number of the request, repeated in the answer.
        request: u64,
        /// The assignment that the offer named.
        assignment: u32,
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
        assignment: u32,
        /// Address of the sending host.
        src: Ipv4Addr,
    },
    /// An order or a welcome was refused, because a newer leader has sent one. The agent says so once for each connection
    /// and welcome.
    Stale {
        /// Number of the newest election of which the agent knows.
        newest: u64,
    },
}

/// What the scheme in charge needs from agents.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Wants {
    /// Whether they must announce long transfers before they start, and their ends.
    pub announce: bool,
    /// Whether they must announce connections once they are found to be long, and their ends.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub report: bool,
}

/// A message of the controller. Orders and answers of one of several controllers have the number of its election
/// (`election`), which grows with each leader. A controller that is alone sends none.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControllerMessage<'a> {
    /// Answer to a hello.
    Welcome {
        /// Version of the protocol.
        version: u32,
        /// What the scheme in charge needs.
        #[serde(flatten)]
        wants: Wants,
        /// Number of the leader's election.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        election: Option<u64>,
    },
    /// Answer to a hello by a controller that follows another one. It sends no orders. When it leads, it sends a welcome.
    Standby {
        /// Name of the controller that led last, if it is known.
        #[serde(default, borrow)]
        leader: Option<Cow<'a, str>>,
    },
    /// Another scheme is in charge.
    Wants(Wants),
    /// A line was invalid, a request could not be granted, or others represent the agent's hosts now. The connection
    /// may be closed after this message.
    Refused {
        /// The reason.
        #[serde(borrow)]
        why: Cow<'a, str>,
        /// The request that it answers, unless the line itself was invalid.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request: Option<u64>,
    },
    /// Send nothing of this flow until it is released, or until the lease ends. So the loss of the controller blocks
    /// no flow for long.
    Hold {
        /// The flow.
        #[serde(deserialize_with = "crate::messages::either_family")]
        flow: FiveTuple,
        /// Duration of the lease in milliseconds.
        lease_ms: u64,
        /// Number of the leader's election.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        election: Option<u64>,
    },
    /// Send the flow again.
    Release {
        /// The flow.
        #[serde(deserialize_with = "crate::messages::either_family")]
        flow: FiveTuple,
        /// Number of the leader's election.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        election: Option<u64>,
    },
    /// Send the flow no faster than this on the access link.
    Pace {
        /// The flow.
        #[serde(deserialize_with = "crate::messages::either_family")]
        flow: FiveTuple,
        /// Bits per second, headers included; null removes the limit.
        rate_bps: Option<u64>,
        /// Number of the leader's election.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        election: Option<u64>,
    },
    /// Paths for the application that asked, in the order in which they will be claimed.
    Offer {
        /// The request.
        request: u64,
        /// The assignment, for claims.
        assignment: u32,
        /// Names of the switches of each path, from ToR to ToR; empty if both hosts are at one ToR.
        #[serde(borrow)]
        paths: Vec<Vec<Cow<'a, str>>>,
        /// Number of the leader's election.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        election: Option<u64>,
    },
    /// The connection will take this path.
    Claimed {
        /// The request.
        request: u64,
        /// Names of its switches, as in an offer.
        #[serde(borrow)]
        path: Vec<Cow<'a, str>>,
        /// Number of the leader's election.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        election: Option<u64>,
    },
    /// The assignment is released.
    PathsReleased {
        /// The request.
        request: u64,
        /// Number of the leader's election.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        election: Option<u64>,
    },
}

impl<Search: Default + Serialize> AgentMessage<Search> {
    /// The message as a line, without its end.
    pub fn line(&self) -> String {
        // The message has no maps, so JSON can represent it.
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl ControllerMessage<'_> {
    /// Verbs of messages for agents that send no requests of applications.
    const FOR_AGENTS: [&'static str; 7] = ["welcome", "standby", "wants", "refused", "hold", "release", "pace"];

    /// Appends the message as a line.
    pub fn write(&self, out: &mut Vec<u8>) {
        // The message has no maps, so JSON can represent it, and writing to a buffer does not fail.
        if serde_json::to_writer(&mut *out, self).is_ok() {
            out.push(b'\n');
        }
    }

    /// Reads a line as an agent that sends no requests of applications. `None` for an answer to such a request, and for a
    /// verb of a later version.
    ///
    /// # Errors
    /// The line is not an object with one key, or has not what its verb needs; as text.
    pub fn read(line: &[u8]) -> Result<Option<ControllerMessage<'_>>, String> {
        let wrong = |problem: String| format!("the line is not a message of the controller: {problem}");
        let verbs: BTreeMap<Cow<'_, str>, IgnoredAny> =
            serde_json::from_slice(line).map_err(|problem| wrong(problem.to_string()))?;
        let (Some(verb), 1) = (verbs.keys().next(), verbs.len()) else {
            return Err(wrong("an object with one key was expected".to_owned()));
        };
        if !Self::FOR_AGENTS.contains(&verb.as_ref()) {
            return Ok(None);
        }
        serde_json::from_slice(line).map(Some).map_err(|problem| wrong(problem.to_string()))
    }

    /// Returns the flow of the message, if it concerns one.
    pub fn flow(&self) -> Option<FiveTuple> {
        match *self {
            ControllerMessage::Hold { flow, .. }
            | ControllerMessage::Release { flow, .. }
            | ControllerMessage::Pace { flow, .. } => Some(flow),
            _ => None,
        }
    }

    /// Returns the number of the leader's election, if the message has one.
    pub fn election(&self) -> Option<u64> {
        match *self {
            ControllerMessage::Welcome { election, .. }
            | ControllerMessage::Hold { election, .. }
            | ControllerMessage::Release { election, .. }
            | ControllerMessage::Pace { election, .. }
            | ControllerMessage::Offer { election, .. }
            | ControllerMessage::Claimed { election, .. }
            | ControllerMessage::PathsReleased { election, .. } => election,
            ControllerMessage::Standby { .. } | ControllerMessage::Wants(_) | ControllerMessage::Refused { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOW: &str = r#"{"src":"10.0.0.1","dst":"10.0.7.1","proto":6,"src_port":40000,"dst_port":5001}"#;

    fn flow() -> FiveTuple {
        serde_json::from_str(FLOW).unwrap()
    }

    #[test]
    fn lines_of_the_controller_are_read_and_unknown_verbs_are_ignored() {
        let read = |line: &str| ControllerMessage::read(line.as_bytes()).map(|read| format!("{read:?}"));
        let is = |message| Ok(format!("{:?}", Some::<ControllerMessage<'_>>(message)));
        let hold = ControllerMessage::Hold { flow: flow(), lease_ms: 15000, election: None };
        assert_eq!(read(&format!(r#"{{"hold": {{"flow": {FLOW}, "lease_ms": 15000}}}}"#)), is(hold));
        let pace = ControllerMessage::Pace { flow: flow(), rate_bps: None, election: None };
        assert_eq!(read(&format!(r#"{{"pace": {{"flow": {FLOW}, "rate_bps": null, "later": 1}}}}"#)), is(pace));
        for line in [r#"{"offer": {"request": 1}}"#, r#"{"later": []}"#] {
            assert_eq!(read(line), Ok("None".to_owned()), "{line}");
        }
        for (line, why) in [("{}", "one key"), (r#"{"wants": {}, "hold": {}}"#, "one key"), (r#"{"hold": {}}"#, "flow")]
        {
            assert!(read(line).unwrap_err().contains(why), "{line}");
        }
        assert!(read("nonsense").is_err());
    }

    #[test]
    fn agents_read_what_the_controller_writes_for_them() {
        let wants = Wants { announce: true, report: true };
        let all = [
            ControllerMessage::Welcome { version: VERSION, wants, election: Some(7) },
            ControllerMessage::Standby { leader: Some("c1".into()) },
            ControllerMessage::Wants(Wants::default()),
            ControllerMessage::Refused { why: "a \"reason\"".into(), request: Some(3) },
            ControllerMessage::Hold { flow: flow(), lease_ms: 1, election: Some(7) },
            ControllerMessage::Release { flow: flow(), election: Some(u64::MAX) },
            ControllerMessage::Pace { flow: flow(), rate_bps: Some(1), election: None },
        ];
        for message in &all {
            let mut line = Vec::new();
            message.write(&mut line);
            assert_eq!(ControllerMessage::read(&line), Ok(Some(message.clone())));
        }
        assert_eq!(all.len(), ControllerMessage::FOR_AGENTS.len());
    }

    #[test]
    fn the_controller_reads_what_agents_write() {
        let hosts = vec![[10, 0, 0, 1].into()];
        let messages: [AgentMessage; 5] = [
            AgentMessage::Stale { newest: 9 },
            AgentMessage::Hello { version: VERSION, hosts: hosts.clone(), token: None },
            AgentMessage::Hello { version: VERSION, hosts, token: Some("secret".to_owned()) },
            AgentMessage::Announce { flow: flow(), size_bytes: None },
            AgentMessage::Finish { flow: flow() },
        ];
        for message in messages {
            assert_eq!(serde_json::from_str::<AgentMessage>(&message.line()).unwrap(), message);
        }
        let more = r#"{"finish": {"flow": 1, "more": 2}}"#;
        assert!(serde_json::from_str::<AgentMessage>(more).is_err());
    }
}
