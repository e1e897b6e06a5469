//! Settings of the API and of the address for applications on hosts: where they listen, and their limits per client.

use super::api_tokens::Tokens;
use super::authority::Authority;
use super::current::Current;
use super::tls::Tls;
use pathloom_control::PathSearch;
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The HTTP API; there is none without an address.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Api {
    /// Address and port.
    pub address: Option<SocketAddr>,
    /// File of tokens: lines `ROLE NAME TOKEN`, with role `read` or `operate`. Nobody else may be able to read it.
    pub tokens: Option<PathBuf>,
    /// Certificates, for HTTPS.
    pub tls: Option<Tls>,
    /// Maximum number of connections at a time.
    pub connections: usize,
    /// Maximum size of the body of a request, in bytes.
    pub body_bytes: usize,
    /// How long a client may take for a request, and for reading a part of the answer.
    #[serde(deserialize_with = "crate::config::duration::read")]
    pub timeout: Duration,
    /// How long a connection may exist without a request that shows a valid token, TLS handshake and headers included.
    #[serde(deserialize_with = "crate::config::duration::read")]
    pub header_timeout: Duration,
    /// How often the port counters of all switches are read, for the loads of links; 0s for never.
    #[serde(deserialize_with = "crate::config::duration::read")]
    pub port_period: Duration,
}

impl Default for Api {
    fn default() -> Api {
        Api {
            address: None,
            tokens: None,
            tls: None,
            connections: 64,
            body_bytes: 64 << 10,
            timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(5),
            port_period: Duration::from_secs(5),
        }
    }
}

/// An address at which the API, or the requests of applications, can be served.
#[derive(Clone, Debug)]
pub(crate) struct CheckedAddress {
    pub address: SocketAddr,
    /// The tokens of the API; empty if there is no API.
    pub tokens: Current<Tokens>,
    pub tls: Option<Current<rustls::ServerConfig>>,
    /// Names under which requests without a token are answered, besides IP addresses and `localhost`.
    pub names: Arc<[String]>,
    pub limits: Limits,
    pub search: PathSearch,
    /// What this controller may do for clients.
    pub authority: Authority,
}

impl CheckedAddress {
    /// The URL by which clients reach this address; `None` if it is not one of an interface.
    pub(crate) fn url(&self) -> Option<String> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let is_known = !self.address.ip().is_unspecified() && self.address.port() != 0;
        is_known.then(|| format!("{scheme}://{}", self.address))
    }
}

/// The limits of an address; the settings with these names say what they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub connections: usize,
    pub body_bytes: usize,
    pub timeout: Duration,
    pub header_timeout: Duration,
}

impl Limits {
    /// Checks the limits of a table.
    fn check(self, table: &str) -> Result<Limits, String> {
        let Limits { connections, body_bytes, timeout, header_timeout } = self;
        if [connections, body_bytes].contains(&0) || [timeout, header_timeout].iter().any(Duration::is_zero) {
            return Err(format!("{table}: connections, body_bytes, timeout and header_timeout must be more than 0"));
        }
        Ok(self)
    }
}

/// Reads the certificates of a table.
fn load_tls(table: &str, tls: Option<&Tls>, base_dir: &Path) -> Result<Option<Current<rustls::ServerConfig>>, String> {
    let Some(tls) = tls else { return Ok(None) };
    if tls.bind_names || !tls.names.is_empty() {
        return Err(format!("{table}.tls: bind_names and names are for switches, under listen.tls"));
    }
    let loaded = tls.load(base_dir).map_err(|problem| format!("{table}.tls.{problem}"))?;
    Ok(Some(Current::new(loaded)))
}

impl Api {
    /// Reads the files that the settings name; `None` if no API is configured.
    pub(crate) fn load(&self, base_dir: &Path, search: PathSearch) -> Result<Option<CheckedAddress>, String> {
        let Some(address) = self.address else { return Ok(None) };
        let tokens = self.tokens.as_ref().ok_or("api.tokens: a file of tokens is needed for api.address")?;
        let tokens = Tokens::read(&base_dir.join(tokens)).map_err(|problem| format!("api.tokens: {problem}"))?;
        if !address.ip().is_loopback() && self.tls.is_none() {
            return Err(format!(
                "api.address: {address} can be reached from other machines, and tokens would be sent unencrypted; set api.tls, or use a loopback address"
            ));
        }
        let tls = load_tls("api", self.tls.as_ref(), base_dir)?;
        let Api { connections, body_bytes, timeout, header_timeout, .. } = *self;
        let limits = Limits { connections, body_bytes, timeout, header_timeout }.check("api")?;
        let (tokens, names) = (Current::new(Arc::new(tokens)), [].into());
        let authority = Authority::default();
        Ok(Some(CheckedAddress { address, tokens, tls, names, limits, search, authority }))
    }
}

/// The address at which applications on hosts request paths without a token. Without an address, it is not served.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Paths {
    /// Address and port. A client that connects here acts for the host whose address it has.
    pub address: Option<SocketAddr>,
    /// Certificates, for HTTPS. With them, or on a loopback address, the tokens of `api.tokens` are accepted too.
    pub tls: Option<Tls>,
    /// Names by which applications reach this address, besides IP addresses and `localhost`.
    pub names: Vec<String>,
    /// How paths are searched if a request does not say, here and in the API.
    pub search: PathSearch,
    /// Maximum number of connections at a time.
    pub connections: usize,
    /// Maximum size of the body of a request, in bytes.
    pub body_bytes: usize,
    /// How long a client may take for a request, and for reading a part of the answer.
    #[serde(deserialize_with = "crate::config::duration::read")]
    pub timeout: Duration,
    /// How long a connection may exist without a request, TLS handshake and headers included.
    #[serde(deserialize_with = "crate::config::duration::read")]
    pub header_timeout: Duration,
}

impl Default for Paths {
    fn default() -> Paths {
        Paths {
            address: None,
            tls: None,
            names: Vec::new(),
            search: PathSearch::default(),
            connections: 256,
            body_bytes: 16 << 10,
            timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(5),
        }
    }
}

impl Paths {
    /// Reads the files that the settings name; `None` without an address.
    pub(crate) fn load(&self, base_dir: &Path, api: Option<&CheckedAddress>) -> Result<Option<CheckedAddress>, String> {
        let Some(address) = self.address else { return Ok(None) };
        let tls = load_tls("paths", self.tls.as_ref(), base_dir)?;
        let Paths { search, connections, body_bytes, timeout, header_timeout, .. } = *self;
        let limits = Limits { connections, body_bytes, timeout, header_timeout }.check("paths")?;
        let tokens = api.map_or_else(|| Current::new(Arc::default()), |api| api.tokens.clone());
        let authority = api.map_or_else(Authority::default, |api| api.authority.clone());
        Ok(Some(CheckedAddress { address, tokens, tls, names: self.names.clone().into(), limits, search, authority }))
    }
}
