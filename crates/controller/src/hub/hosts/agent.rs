//! The connection of one agent.

use super::announced::Announced;
use super::ControllerMessage;
use pathloom_model::{Nanos, NodeId};
use std::collections::{BTreeSet, VecDeque};
use std::net::Ipv4Addr;

/// Maximum number of bytes that wait for an agent that does not read.
const BACKLOG_BYTES: usize = 4 << 20;

/// Identifier of an agent's connection within this run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct AgentId(pub(super) u64);

/// One connection of an agent.
pub(super) struct Agent {
    pub id: AgentId,
    /// Its name in logs.
    pub peer: String,
    /// Its address, if it may represent only this host.
    pub only: Option<Ipv4Addr>,
    pub since: Nanos,
    pub hosts: BTreeSet<NodeId>,
    pub greeted: bool,
    /// When it was disconnected, if it was.
    pub closed: Option<Nanos>,
    /// The reason for its disconnection, until that is logged.
    pub unlogged_reason: Option<String>,
    pub invalid_lines: u32,
    pub announced: Announced,
    /// The beginning of a line that is not complete.
    pub line: Vec<u8>,
    /// Time until which the allowance of an agent without an address of its own is used up.
    pub allowance_used_until: Nanos,
    pub out: Vec<u8>,
    /// Whether the driver will be told to write.
    pub dirty: bool,
}

impl Agent {
    /// Appends a message. An agent that does not read is disconnected.
    pub(super) fn send(&mut self, (writable, now): (&mut VecDeque<AgentId>, Nanos), message: &ControllerMessage<'_>) {
        if self.closed.is_some() {
            return;
        }
        message.write(&mut self.out);
        self.mark(writable);
        if self.out.len() > BACKLOG_BYTES {
            self.out.clear();
            self.close((writable, now), "it does not read its messages");
        }
    }

    /// Disconnects the agent, and keeps the reason for the log.
    pub(super) fn close(&mut self, (writable, now): (&mut VecDeque<AgentId>, Nanos), why: &str) {
        if self.closed.is_some() {
            return;
        }
        self.closed = Some(now);
        self.unlogged_reason = Some(why.to_owned());
        self.mark(writable);
    }

    /// Tells the driver to write.
    pub(super) fn mark(&mut self, writable: &mut VecDeque<AgentId>) {
        if !std::mem::replace(&mut self.dirty, true) {
            writable.push_back(self.id);
        }
    }
}
