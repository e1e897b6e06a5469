//! Offences of host agents, by name.

use pathloom_model::Nanos;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Maximum number of agents counted by name; further ones are counted together.
const MOST_NAMED: usize = 1024;
/// Name of the further agents.
const OTHERS: &str = "others";

/// Offences of one agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Offences {
    pub times: u64,
    pub last: Nanos,
}

/// All agents that were limited, refused or disconnected.
#[derive(Debug, Default)]
pub(super) struct Offenders(BTreeMap<String, Offences>);

impl Offenders {
    /// Counts an offence of the agent of a connection.
    pub(super) fn count(&mut self, now: Nanos, peer: &str) {
        let name = name_of(peer);
        let named = self.0.contains_key(&name) || self.0.len() < MOST_NAMED;
        let offences = self.0.entry(if named { name } else { OTHERS.to_owned() }).or_default();
        *offences = Offences { times: offences.times + 1, last: now };
    }

    /// The offences by name of the agent.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, Offences)> {
        self.0.iter().map(|(agent, &offences)| (agent.as_str(), offences))
    }
}

/// The name of an agent: its address without the port of its connection.
fn name_of(peer: &str) -> String {
    peer.parse::<SocketAddr>().map_or_else(|_| peer.to_owned(), |peer| peer.ip().to_string())
}
