//! The configuration file (TOML). docs/hostd.example.toml contains every setting with its default.

use crate::mptcp::manager::{Pairs, MOST_SUBFLOWS};
use pathloom_daemon_support::config::{self, from_toml};
use serde::Deserialize;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// Maximum number of controllers.
const MOST_CONTROLLERS: usize = 16;

/// The content of the file.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The connection to the controller.
    pub controller: Controller,
    /// The hosts that the agent represents. Usually this is one host, the machine itself.
    pub hosts: Vec<Host>,
    /// Detection and labels of long flows.
    #[serde(default)]
    pub flows: Flows,
    /// Use of BPF and of the socket list.
    #[serde(default)]
    pub kernel: Kernel,
    /// The socket for programs that announce their own transfers.
    #[serde(default)]
    pub programs: Programs,
    /// The subflows of MPTCP connections. If it is not set, the agent does not manage subflows.
    #[serde(default)]
    pub mptcp: Option<Mptcp>,
}

/// Address of the controller, and identification of the agent.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Controller {
    /// Unix socket of the controller.
    pub unix: Option<PathBuf>,
    /// Address and port of the controller.
    pub address: Option<SocketAddr>,
    /// Addresses and ports of all controllers, if several ones hold the fabric. The agent connects to all of them.
    pub addresses: Vec<SocketAddr>,
    /// Unix sockets of all controllers, if several ones are on this machine, as in a lab.
    pub sockets: Vec<PathBuf>,
    /// Source address of the connection, which the controller checks. If it is not set: the first address of the hosts.
    pub source: Option<IpAddr>,
    /// File with the token in its first line.
    pub token_file: Option<PathBuf>,
    /// File for the number of the newest election of a controller. If it is not set: `election` in the state directory that
    /// systemd gives, or none.
    pub election_file: Option<PathBuf>,
    /// TLS, for connections by `address` or `addresses`.
    pub tls: Option<Tls>,
}

/// Where a controller is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// A Unix socket.
    Unix(PathBuf),
    /// Address and port.
    Address(SocketAddr),
}

impl Controller {
    /// Where the controllers are.
    pub fn places(&self) -> Vec<Place> {
        let addresses = self.address.iter().chain(&self.addresses).copied().map(Place::Address);
        self.unix.iter().chain(&self.sockets).cloned().map(Place::Unix).chain(addresses).collect()
    }
}

/// TLS to the controller. All files are PEM.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// The authority that issued the controller's certificate.
    pub ca: PathBuf,
    /// Name or address in the controller's certificate. If it is not set: the address of the connection.
    pub name: Option<String>,
    /// Certificate of the agent.
    pub certificate: Option<PathBuf>,
    /// Private key of the agent.
    pub key: Option<PathBuf>,
}

/// A host.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Addresses of the host in the fabric.
    pub addresses: Vec<Ipv4Addr>,
    /// File of the network namespace of the host. If it is not set: the namespace of the agent.
    pub namespace: Option<PathBuf>,
}

/// Detection and labels of long flows.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Flows {
    /// A connection is long once its program has written this number of bytes, acknowledged or still in the socket.
    pub threshold_bytes: u64,
    /// DSCP that long connections get. 0: none.
    pub dscp: u8,
    /// Prefixes of the fabric. Connections to other addresses are ignored.
    pub prefixes: Vec<String>,
    /// Maximum number of long flows.
    pub max_flows: usize,
}

impl Default for Flows {
    fn default() -> Flows {
        Flows { threshold_bytes: 100_000, dscp: 8, prefixes: vec!["10.0.0.0/8".into()], max_flows: 65_536 }
    }
}

/// Use of BPF and of the socket list.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Kernel {
    /// Whether BPF programs are used.
    pub bpf: BpfUse,
    /// The cgroup (version 2) whose connections the BPF programs handle.
    pub cgroup: PathBuf,
    /// A mounted BPF file system.
    pub bpf_fs: PathBuf,
    /// Milliseconds between two readings of the socket list, without BPF.
    pub poll_ms: u64,
    /// Seconds between two looks at what others can remove: programs, pins, namespaces, addresses. The agent also looks
    /// after each event that the kernel reports.
    pub look_s: u32,
}

impl Default for Kernel {
    fn default() -> Kernel {
        let (cgroup, bpf_fs) = ("/sys/fs/cgroup".into(), "/sys/fs/bpf".into());
        Kernel { bpf: BpfUse::Auto, cgroup, bpf_fs, poll_ms: 500, look_s: 3 }
    }
}

/// Whether BPF programs are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BpfUse {
    /// BPF is used if the kernel permits it. Otherwise, the agent reads the socket list.
    #[default]
    Auto,
    /// BPF is not used.
    Off,
    /// BPF is used. The agent ends with an error if the kernel does not permit it.
    Required,
}

/// The socket for programs.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Programs {
    /// Path of the Unix socket. If it is not set, there is no socket.
    pub unix: Option<PathBuf>,
}

/// Subflows of MPTCP connections.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mptcp {
    /// Number of subflows per pair of addresses.
    pub subflows: u32,
    /// The pairs of addresses.
    pub manager: Pairs,
}

impl Default for Mptcp {
    fn default() -> Mptcp {
        Mptcp { subflows: 4, manager: Pairs::Ndiffports }
    }
}

/// Reads a file. The error contains the file, the place and the expected value.
pub fn read(file: &Path) -> Result<Config, String> {
    config::read(file, parse)
}

/// Parses and checks the text of a configuration.
pub fn parse(text: &str) -> Result<Config, String> {
    let config: Config = from_toml(text)?;
    let Controller { unix, address, addresses, sockets, tls, .. } = &config.controller;
    let given = [unix.is_some(), address.is_some(), !addresses.is_empty(), !sockets.is_empty()];
    if given.into_iter().filter(|&is_given| is_given).count() != 1 {
        return Err("controller: expected one of unix, address, addresses and sockets".into());
    }
    if config.controller.places().len() > MOST_CONTROLLERS {
        return Err(format!("controller: there are more than {MOST_CONTROLLERS} addresses or sockets"));
    }
    if let Some(twice) = addresses.iter().enumerate().find(|(at, one)| addresses[..*at].contains(one)) {
        return Err(format!("controller.addresses: {} is named twice", twice.1));
    }
    if tls.as_ref().is_some_and(|tls| tls.certificate.is_some() != tls.key.is_some()) {
        return Err("controller.tls: certificate and key must be set together".into());
    }
    if tls.is_some() && (unix.is_some() || !sockets.is_empty()) {
        return Err("controller.tls: TLS requires a connection by address, not by a Unix socket".into());
    }
    if config.hosts.iter().all(|host| host.addresses.is_empty()) {
        return Err(
            "hosts: expected at least one address of the fabric, such as [[hosts]] addresses = [\"10.0.0.1\"]".into()
        );
    }
    if config.flows.dscp > 63 {
        return Err(format!("flows.dscp: {} is not between 0 and 63", config.flows.dscp));
    }
    if !(1..=65_536).contains(&config.flows.max_flows) {
        return Err(format!("flows.max_flows: {} is not between 1 and 65536", config.flows.max_flows));
    }
    if !(10..=60_000).contains(&config.kernel.poll_ms) {
        return Err(format!("kernel.poll_ms: {} is not between 10 and 60000", config.kernel.poll_ms));
    }
    if !(1..=3600).contains(&config.kernel.look_s) {
        return Err(format!("kernel.look_s: {} is not between 1 and 3600", config.kernel.look_s));
    }
    if let Some(mptcp) = config.mptcp.as_ref().filter(|mptcp| !(1..=MOST_SUBFLOWS).contains(&mptcp.subflows)) {
        return Err(format!("mptcp.subflows: {} is not between 1 and {MOST_SUBFLOWS}", mptcp.subflows));
    }
    config.prefixes()?;
    Ok(config)
}

impl Config {
    /// Returns all addresses of the hosts.
    pub fn addresses(&self) -> Vec<Ipv4Addr> {
        self.hosts.iter().flat_map(|host| host.addresses.iter().copied()).collect()
    }

    /// Returns the prefixes of the fabric as address and length.
    pub fn prefixes(&self) -> Result<Vec<(u32, u8)>, String> {
        let most = crate::layout::MAX_PREFIXES;
        if self.flows.prefixes.len() > most {
            return Err(format!("flows.prefixes: there are more than {most} prefixes"));
        }
        let one = |text: &String| {
            let (address, length) = text.split_once('/')?;
            let length = length.parse().ok().filter(|&length: &u8| length <= 32)?;
            Some((u32::from(address.parse::<Ipv4Addr>().ok()?), length))
        };
        let read = |text| one(text).ok_or(format!("flows.prefixes: `{text}` is not a prefix such as 10.0.0.0/8"));
        self.flows.prefixes.iter().map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = "[controller]\nunix = '/run/hosts.sock'\n[[hosts]]\naddresses = ['10.0.0.1']\n";

    #[test]
    fn the_example_contains_the_defaults() {
        let example = parse(include_str!("../../../docs/hostd.example.toml")).unwrap();
        let least = parse(LEAST).unwrap();
        assert_eq!((example.flows, example.kernel), (least.flows, least.kernel));
        let mptcp = |more: &str| parse(&format!("{LEAST}{more}")).unwrap().mptcp;
        assert_eq!((&example.mptcp, &least.mptcp), (&None, &None));
        let (_, section) = include_str!("../../../docs/hostd.example.toml").split_once("\n# [mptcp]\n").unwrap();
        assert_eq!(mptcp(&format!("[mptcp]\n{}", section.replace("# ", ""))), mptcp("[mptcp]"));
    }

    #[test]
    fn all_controllers_of_the_list_have_a_place() {
        let text = LEAST.replace("unix = '/run/hosts.sock'", "addresses = ['10.0.0.2:6654', '10.0.0.3:6654']");
        let expected = ["10.0.0.2:6654", "10.0.0.3:6654"].map(|one| Place::Address(one.parse().unwrap()));
        assert_eq!(parse(&text).unwrap().controller.places(), expected);
        assert_eq!(parse(LEAST).unwrap().controller.places(), [Place::Unix("/run/hosts.sock".into())]);
    }

    #[test]
    fn bad_settings_are_refused_with_a_message() {
        let error = |text: &str| parse(text).unwrap_err();
        assert!(error("[controller]\n[[hosts]]\naddresses = ['10.0.0.1']")
            .contains("one of unix, address, addresses and sockets"));
        let listed =
            |list: &str| error(&format!("[controller]\naddresses = {list}\n[[hosts]]\naddresses = ['10.0.0.1']"));
        assert!(listed("['10.0.0.2:1', '10.0.0.2:1']").contains("10.0.0.2:1 is named twice"));
        assert!(listed("['10.0.0.2']").contains("line 2"));
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
        assert!(with("[kernel]\nlook_s = 0").contains("kernel.look_s: 0 is not between 1 and 3600"));
        assert!(with("[mptcp]\nsubflows = 0").contains("mptcp.subflows: 0 is not between 1 and 64"));
        assert!(with("[mptcp]\nsubflows = 65").contains("mptcp.subflows: 65"));
        assert!(with("[mptcp]\nmanager = 'mesh'").contains("fullmesh"));
    }
}
