//! The settings of host agents in the configuration.

use super::tls::Tls;
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Where host agents connect.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostsConfig {
    /// A Unix socket. A process that may open it may represent any host.
    pub unix: Option<PathBuf>,
    /// Address and port. An agent that connects here represents only the host whose address it has.
    pub address: Option<SocketAddr>,
    /// File with the tokens of agents that connect by TCP. Without it they need none.
    pub tokens: Option<PathBuf>,
    /// TLS for agents that connect by TCP. With `client_ca` they must show a certificate.
    pub tls: Option<Tls>,
    /// Lines per second from one agent, for each host that it represents. Further lines are read later.
    pub lines_per_host: u32,
    /// Maximum number of flows that an agent may have announced and not finished, for each host. Further ones are refused.
    pub flows_per_host: usize,
    /// Maximum number of agents at a time.
    pub agents: usize,
}

impl Default for HostsConfig {
    fn default() -> HostsConfig {
        HostsConfig {
            unix: None,
            address: None,
            tokens: None,
            tls: None,
            lines_per_host: 1000,
            flows_per_host: 4096,
            agents: 1024,
        }
    }
}
