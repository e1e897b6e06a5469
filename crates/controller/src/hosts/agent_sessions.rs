//! Sessions of host agents, as a driver sees them.

use super::AgentId;
use crate::hub::{Hub, Transmit};
use pathloom_model::Nanos;
use std::net::IpAddr;

impl Hub {
    /// Accepts the connection of an agent. It may represent only the host with the address `only`, or any host without
    /// one. `None` if there are too many agents, and all of them have named their hosts.
    pub fn agent_connect(&mut self, now: Nanos, peer: String, only: Option<IpAddr>) -> Option<AgentId> {
        let now = self.advance(now);
        self.hosts.connect(now, peer, only)
    }

    /// Handles bytes of an agent. Returns the time until which nothing more is to be read from it, if it sends more
    /// lines than it may: it is read more slowly, and no line is lost.
    pub fn agent_received(&mut self, now: Nanos, id: AgentId, bytes: &[u8]) -> Option<Nanos> {
        let now = self.advance(now);
        let mut buffer = self.hosts.take_partial_line(id)?;
        buffer.extend_from_slice(bytes);
        let (mut from, mut lines) = (0, 0);
        while let Some(length) = buffer[from..].iter().position(|&byte| byte == b'\n') {
            let line = &buffer[from..from + length];
            from += length + 1;
            if !line.trim_ascii().is_empty() {
                lines += 1;
                if let Some(input) = self.hosts.line(id, line) {
                    self.handle(now, input);
                }
            }
        }
        buffer.drain(..from);
        self.hosts.set_partial_line(id, buffer);
        self.hosts.slow_down(id, lines)
    }

    /// Counts an agent whose TLS handshake failed.
    pub fn agent_handshake_failed(&mut self, now: Nanos, peer: &str, why: &str) {
        self.advance(now);
        self.hosts.not_encrypted(peer, why);
    }

    /// Removes the agent of a closed connection.
    pub fn agent_disconnect(&mut self, now: Nanos, id: AgentId, why: &str) {
        self.advance(now);
        self.hosts.disconnect(id, why);
    }

    /// An agent that has bytes to be written, or whose connection is to be shut down, see [`Hub::agent_transmit`].
    pub fn poll_agent_writable(&mut self) -> Option<AgentId> {
        self.hosts.poll_writable()
    }

    /// Swaps the bytes to be written to an agent with `buffer`, which must be empty. They then count as written.
    pub fn agent_transmit(&mut self, id: AgentId, buffer: &mut Vec<u8>) -> Transmit {
        self.hosts.transmit(id, buffer)
    }

    /// An agent whose connection is over. The driver must not use it any more, and drops its socket.
    pub fn poll_agent_ended(&mut self) -> Option<AgentId> {
        self.hosts.poll_ended()
    }
}
