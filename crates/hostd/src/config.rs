//! The configuration file (TOML). docs/hostd.example.toml has every setting with its default.

use crate::mptcp::manager::{Pairs, MOST_SUBFLOWS};
use pathloom_daemon::config::{self, from_toml};
use serde::Deserialize;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// The file as it is.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where the controller is.
    pub controller: Controller,
    /// The hosts that the agent represents: usually one, the machine itself.
    pub hosts: Vec<Host>,
    /// Which flows are long, and what happens to them.
    #[serde(default)]
    pub flows: Flows,
    /// How the kernel takes part.
    #[serde(default)]
    pub kernel: Kernel,
    /// The door for programs that announce their own transfers.
    #[serde(default)]
    pub programs: Programs,
    /// The subflows of MPTCP connections; not managed if it is not set.
    #[serde(default)]
    pub mptcp: Option<Mptcp>,
}

/// Where the controller is, and how the agent identifies itself.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Controller {
    /// A Unix socket.
    pub unix: Option<PathBuf>,
    /// Address and port.
    pub address: Option<SocketAddr>,
    /// Address that the connection comes from; the first of the hosts if it is not set. The controller checks it.
    pub source: Option<IpAddr>,
    /// File with the token; its first line counts.
    pub token_file: Option<PathBuf>,
    /// TLS, for a connection by `address`.
    pub tls: Option<Tls>,
}

/// TLS to the controller. All files are PEM.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// The authority that issued the controller's certificate.
    pub ca: PathBuf,
    /// Name or address in the controller's certificate; the address connected to if it is not set.
    pub name: Option<String>,
    /// The agent's own certificate.
    pub certificate: Option<PathBuf>,
    /// Its private key.
    pub key: Option<PathBuf>,
}

/// A host.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Its addresses in the fabric.
    pub addresses: Vec<Ipv4Addr>,
    /// File of its network namespace; the agent's own if it is not set.
    pub namespace: Option<PathBuf>,
}

/// Which flows are long.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Flows {
    /// Acknowledged bytes from which a connection is long.
    pub threshold_bytes: u64,
    /// DSCP that long connections get; 0 for none.
    pub dscp: u8,
    /// Prefixes of the fabric. Connections to other addresses are left alone.
    pub prefixes: Vec<String>,
    /// Maximum number of long flows.
    pub max_flows: usize,
}

impl Default for Flows {
    fn default() -> Flows {
        Flows { threshold_bytes: 100_000, dscp: 8, prefixes: vec!["10.0.0.0/8".into()], max_flows: 65_536 }
    }
}

/// How the kernel takes part.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Kernel {
    /// Whether BPF programs are used.
    pub bpf: BpfUse,
    /// The cgroup (version 2) whose processes' connections are seen.
    pub cgroup: PathBuf,
    /// A mounted BPF file system.
    pub bpf_fs: PathBuf,
    /// Milliseconds between two readings of the socket list, without BPF.
    pub poll_ms: u64,
}

impl Default for Kernel {
    fn default() -> Kernel {
        Kernel { bpf: BpfUse::Auto, cgroup: "/sys/fs/cgroup".into(), bpf_fs: "/sys/fs/bpf".into(), poll_ms: 500 }
    }
}

/// Whether BPF programs are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BpfUse {
    /// If the kernel permits it; else its socket list is read.
    #[default]
    Auto,
    /// Never.
    Off,
    /// The agent ends with an error if the kernel does not permit it.
    Required,
}

/// The door for programs.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Programs {
    /// A Unix socket; none if it is not set.
    pub unix: Option<PathBuf>,
}

/// Which subflows MPTCP connections have.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mptcp {
    /// Subflows per pair of addresses.
    pub subflows: u32,
    /// Over which pairs.
    pub manager: Pairs,
}

impl Default for Mptcp {
    fn default() -> Mptcp {
        Mptcp { subflows: 4, manager: Pairs::Ndiffports }
    }
}

/// Reads a file. The error names the file, the place and what was expected.
pub fn read(file: &Path) -> Result<Config, String> {
    config::read(file, parse)
}

/// Reads the text of a configuration.
pub fn parse(text: &str) -> Result<Config, String> {
    let config: Config = from_toml(text)?;
    let Controller { unix, address, tls, .. } = &config.controller;
    if unix.is_some() == address.is_some() {
        return Err("controller: either unix or address was expected".into());
    }
    if tls.as_ref().is_some_and(|tls| tls.certificate.is_some() != tls.key.is_some()) {
        return Err("controller.tls: certificate and key belong together".into());
    }
    if tls.is_some() && unix.is_some() {
        return Err("controller.tls: is for a connection by address".into());
    }
    if config.hosts.iter().all(|host| host.addresses.is_empty()) {
        return Err(
            "hosts: at least one address of the fabric was expected, as [[hosts]] addresses = [\"10.0.0.1\"]".into()
        );
    }
    if config.flows.dscp > 63 {
        return Err(format!("flows.dscp: {} is not in 0 to 63", config.flows.dscp));
    }
    if !(1..=65_536).contains(&config.flows.max_flows) {
        return Err(format!("flows.max_flows: {} is not in 1 to 65536", config.flows.max_flows));
    }
    if !(10..=60_000).contains(&config.kernel.poll_ms) {
        return Err(format!("kernel.poll_ms: {} is not in 10 to 60000", config.kernel.poll_ms));
    }
    if let Some(mptcp) = config.mptcp.as_ref().filter(|mptcp| !(1..=MOST_SUBFLOWS).contains(&mptcp.subflows)) {
        return Err(format!("mptcp.subflows: {} is not in 1 to {MOST_SUBFLOWS}", mptcp.subflows));
    }
    config.prefixes()?;
    Ok(config)
}

impl Config {
    /// All addresses of the hosts.
    pub fn addresses(&self) -> Vec<Ipv4Addr> {
        self.hosts.iter().flat_map(|host| host.addresses.iter().copied()).collect()
    }

    /// Prefixes of the fabric as address and length.
    pub fn prefixes(&self) -> Result<Vec<(u32, u8)>, String> {
        let most = crate::layout::MAX_PREFIXES;
        if self.flows.prefixes.len() > most {
            return Err(format!("flows.prefixes: there are more than {most}"));
        }
        let one = |text: &String| {
            let (address, length) = text.split_once('/')?;
            let length = length.parse().ok().filter(|&length: &u8| length <= 32)?;
            Some((u32::from(address.parse::<Ipv4Addr>().ok()?), length))
        };
        let read = |text| one(text).ok_or(format!("flows.prefixes: `{text}` is no prefix such as 10.0.0.0/8"));
        self.flows.prefixes.iter().map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = "[controller]\nunix = '/run/hosts.sock'\n[[hosts]]\naddresses = ['10.0.0.1']\n";

    #[test]
    fn the_example_has_every_setting_with_its_default() {
        let example = parse(include_str!("../../../docs/hostd.example.toml")).unwrap();
        let least = parse(LEAST).unwrap();
        assert_eq!((example.flows, example.kernel), (least.flows, least.kernel));
        let mptcp = |more: &str| parse(&format!("{LEAST}{more}")).unwrap().mptcp;
        assert_eq!((&example.mptcp, &least.mptcp), (&None, &None));
        let (_, section) = include_str!("../../../docs/hostd.example.toml").split_once("\n# [mptcp]\n").unwrap();
        assert_eq!(mptcp(&format!("[mptcp]\n{}", section.replace("# ", ""))), mptcp("[mptcp]"));
    }

    #[test]
    fn bad_settings_are_named_with_what_was_expected() {
        let error = |text: &str| parse(text).unwrap_err();
        assert!(error("[controller]\n[[hosts]]\naddresses = ['10.0.0.1']").contains("either unix or address"));
        assert!(error("[controller]\nunix = 'a'\n[[hosts]]\naddresses = []").contains("at least one address"));
        assert!(
            error("[controller]\nunix = 'a'\nunx = 1").contains("line 3"),
            "{}",
            error("[controller]\nunix = 'a'\nunx = 1")
        );
        let with = |more: &str| error(&format!("{LEAST}{more}"));
        assert!(with("[flows]\ndscp = 64").contains("flows.dscp"));
        assert!(with("[flows]\nmax_flows = 0").contains("flows.max_flows"));
        assert!(with("[flows]\nprefixes = ['10.0.0.0']").contains("`10.0.0.0`"));
        assert!(with("[kernel]\nbpf = 'maybe'").contains("auto"));
        assert!(with("[mptcp]\nsubflows = 0").contains("mptcp.subflows: 0 is not in 1 to 64"));
        assert!(with("[mptcp]\nsubflows = 65").contains("mptcp.subflows: 65"));
        assert!(with("[mptcp]\nmanager = 'mesh'").contains("fullmesh"));
    }
}
