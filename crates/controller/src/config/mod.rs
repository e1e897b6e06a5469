//! The configuration file, the files that it names, and their validation.

mod addresses;
mod agent_tokens;
mod api;
mod api_tokens;
mod authority;
mod cluster;
mod control;
mod current;
pub(crate) mod duration;
mod hosts;
mod registry;
mod scheme;
#[cfg(test)]
mod tests;
mod tls;

pub use addresses::AddressesAt;
pub use api::{Api, Paths};
pub use cluster::{CheckedCluster, Cluster};
pub use control::ControlSettings;
pub use hosts::HostsConfig;
pub use scheme::Scheme;
pub use tls::Tls;

pub(crate) use addresses::{prefixes, HostPort};
pub(crate) use agent_tokens::Tokens as AgentTokens;
pub(crate) use api::{CheckedAddress, Limits as ClientLimits};
pub(crate) use api_tokens::{Role, Tokens as ApiTokens};
pub(crate) use authority::{Authority, Leader, May};
pub(crate) use cluster::Endpoint;
pub(crate) use current::Current;
pub(crate) use registry::registry;
pub(crate) use scheme::{is_of_process, CheckedProcess, Launch, ProcessCommand};
pub(crate) use tls::names;

use pathloom_control::Config as ControlConfig;
use pathloom_fabrics::fabric_file;
use pathloom_fabrics::{fabric_from_file_text, fabric_from_spec};
use pathloom_model::{Fabric, Nanos, NodeId, Prefix};
use pathloom_schemes::SchemeSpec;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A configuration that cannot be used. One line: the file, the place, what was expected, the way out.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{file}: {problem}")]
pub struct ConfigError {
    /// The file.
    pub file: String,
    /// What is wrong with it, and where.
    pub problem: String,
}

/// The configuration file.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The switches and cables.
    pub fabric: FabricConfig,
    /// Where switches connect.
    #[serde(default)]
    pub listen: Listen,
    /// Where host agents connect.
    #[serde(default)]
    pub hosts: HostsConfig,
    /// The HTTP API.
    #[serde(default)]
    pub api: Api,
    /// The address at which applications on hosts request paths.
    #[serde(default)]
    pub paths: Paths,
    /// The scheme.
    #[serde(default)]
    pub scheme: Scheme,
    /// How flows, rules and path assignments are treated.
    #[serde(default)]
    pub control: ControlSettings,
    /// How rules in switches are checked and repaired.
    #[serde(default)]
    pub reconcile: Reconcile,
    /// How flows are found.
    #[serde(default)]
    pub flows: Flows,
    /// Time-outs of sessions.
    #[serde(default)]
    pub sessions: Sessions,
    /// Limits for offenders.
    #[serde(default)]
    pub limits: Limits,
    /// Discovery of cables and hosts.
    #[serde(default)]
    pub discovery: Discovery,
    /// State that survives a restart.
    #[serde(default)]
    pub state: State,
    /// The etcd by which several controllers choose the one that leads. Without it, this is the only one.
    pub cluster: Option<Cluster>,
    /// Addresses at hosts' ports that the fabric does not lay out there.
    #[serde(default)]
    pub addresses: Vec<AddressesAt>,
    /// The log.
    #[serde(default)]
    pub log: Log,
}

/// The switches and cables.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FabricConfig {
    /// As on the command line: `fat-tree:k=4`, or a file, relative to the configuration file.
    pub spec: String,
    /// Datapath identifier by name of switch, in hexadecimal digits. The default is the node's number plus 1.
    #[serde(default)]
    pub datapaths: BTreeMap<String, String>,
}

/// Addresses at which switches connect.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Listen {
    /// Address and port. The port that IANA assigned to OpenFlow is 6653.
    pub address: Option<SocketAddr>,
    /// A socket in the file system.
    pub unix: Option<PathBuf>,
    /// Certificates. Switches that connect to the address must show one as well. The Unix socket is not encrypted.
    pub tls: Option<Tls>,
}

impl Default for Listen {
    fn default() -> Listen {
        Listen { address: Some(SocketAddr::from(([127, 0, 0, 1], 6653))), unix: None, tls: None }
    }
}

/// How rules in switches are checked and repaired.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Reconcile {
    /// Every switch is read once in this time, 30 s at most. Changes that a switch reports are repaired at once.
    #[serde(deserialize_with = "crate::config::duration::read")]
    pub period: Duration,
    /// What to do with rules that are not the controller's.
    pub foreign: Foreign,
}

/// How connections are found.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Flows {
    /// How often the controller looks for connections whose start it did not see: those that began before their
    /// scheme was in charge, or whose rule timed out while they were silent. 0s for never.
    #[serde(deserialize_with = "crate::config::duration::read")]
    pub sweep: Duration,
    /// Whether the direction from the accepting side of a connection to the other is a flow as well.
    pub both_directions: bool,
}

impl Default for Flows {
    fn default() -> Flows {
        Flows { sweep: Duration::from_secs(5), both_directions: true }
    }
}

impl Default for Reconcile {
    fn default() -> Reconcile {
        Reconcile { period: Duration::from_secs(20), foreign: Foreign::Keep }
    }
}

/// How to treat rules that are not the controller's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Foreign {
    /// Log and count them.
    #[default]
    Keep,
    /// Log, count and delete them.
    Remove,
}

/// Maximum time between two readings of the port counters, if applications on hosts can request paths.
const PORTS_PERIOD: Nanos = Nanos::from_secs(2);
/// Maximum of the time in which every switch is read once.
const LONGEST_PERIOD: Duration = Duration::from_secs(30);
/// Maximum time between two probes of a cable. A cable that fails in one direction loses frames until the next probe.
const LONGEST_PROBES: Duration = Duration::from_secs(60);

/// Time-outs of sessions.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sessions {
    /// Time between two echo requests to a switch.
    #[serde(deserialize_with = "crate::config::duration::read")]
    pub echo_interval: Duration,
    /// A session without a message for this long is closed.
    #[serde(deserialize_with = "crate::config::duration::read")]
    pub echo_timeout: Duration,
    /// A peer that has not finished its handshake after this long is disconnected.
    #[serde(deserialize_with = "crate::config::duration::read")]
    pub handshake_timeout: Duration,
}

impl Default for Sessions {
    fn default() -> Sessions {
        let [echo_interval, echo_timeout, handshake_timeout] = [5, 15, 10].map(Duration::from_secs);
        Sessions { echo_interval, echo_timeout, handshake_timeout }
    }
}

/// Limits for offenders.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Packet-ins per second from one port; 0 for any number.
    pub packet_ins_per_port: u32,
    /// Maximum number of connections at a time. One address has at most half of them, unless it is a loopback
    /// address.
    pub connections: usize,
    /// Maximum number of bytes that wait for a switch that does not read.
    pub backlog_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { packet_ins_per_port: 2000, connections: 4096, backlog_bytes: 64 << 20 }
    }
}

/// Discovery of cables and hosts.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Discovery {
    /// Whether cables are verified.
    pub links: Links,
    /// How often a known cable is probed.
    #[serde(deserialize_with = "crate::config::duration::read")]
    pub probe_interval: Duration,
    /// Whether hosts are learnt. The default is to learn them if cables are probed.
    pub hosts: Option<Hosts>,
    /// Which addresses hosts may use.
    pub addresses: Addresses,
    /// Prefixes of the addresses that hosts may use besides those of the fabric.
    pub prefixes: Vec<String>,
    /// Maximum number of learnt addresses, besides those that the fabric lays out.
    pub most_addresses: usize,
    /// Whether DHCP is forwarded between hosts.
    pub dhcp: bool,
}

impl Default for Discovery {
    fn default() -> Discovery {
        let private = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"];
        Discovery {
            links: Links::default(),
            probe_interval: Duration::from_secs(5),
            hosts: None,
            addresses: Addresses::default(),
            prefixes: private.map(String::from).to_vec(),
            most_addresses: 4096,
            dhcp: true,
        }
    }
}

impl Discovery {
    /// How hosts are found: the setting, or its default.
    pub fn hosts(&self) -> Hosts {
        self.hosts.unwrap_or(if self.links == Links::Off { Hosts::Configured } else { Hosts::Learn })
    }
}

/// Which addresses hosts may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Addresses {
    /// The addresses that the fabric lays out, each only at its own port.
    Fabric,
    /// Any of `prefixes`, at any port, and they may move.
    #[default]
    Any,
}

/// How cables are checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Links {
    /// No probes: the controller relies on the states that ports report.
    Off,
    /// Cables are probed and compared with the fabric. A cable that carries no probe is not used.
    #[default]
    Verify,
}

/// How hosts are found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hosts {
    /// Hosts are at their ports in the fabric, and know each other's hardware addresses.
    Configured,
    /// The controller answers ARP, and learns from it which hardware address is at which port.
    Learn,
}

/// State that survives a restart.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct State {
    /// Directory of the state. Without one, a restart only adopts the rules in the switches.
    pub directory: Option<PathBuf>,
}

/// Settings of the log.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// `error`, `warn`, `info`, `debug` or `trace`.
    pub level: String,
    /// Lines of JSON instead of text.
    pub json: bool,
    /// File that records all inputs and outputs of the controller, for a replay.
    pub events: Option<PathBuf>,
}

impl Default for Log {
    fn default() -> Log {
        Log { level: "info".into(), json: false, events: None }
    }
}

/// A valid configuration.
#[derive(Clone, Debug)]
pub struct CheckedConfig {
    /// The content of the file.
    pub config: Config,
    /// The fabric it names.
    pub fabric: Arc<Fabric>,
    /// The scheme it names.
    pub scheme: SchemeSpec,
    /// The process that runs it, if it is no part of the controller.
    pub(crate) process: Option<CheckedProcess>,
    /// Configuration of the controller's core; its epoch is set at each start.
    control: ControlConfig,
    /// Switch by datapath identifier.
    pub datapaths: BTreeMap<u64, NodeId>,
    /// Certificates of the address for switches.
    pub(crate) listen_tls: Option<Current<rustls::ServerConfig>>,
    /// Certificates of the address for host agents.
    pub(crate) hosts_tls: Option<Current<rustls::ServerConfig>>,
    /// Tokens of host agents.
    pub(crate) hosts_tokens: Option<Arc<AgentTokens>>,
    /// The API, if it is configured.
    pub(crate) api: Option<CheckedAddress>,
    /// The address for applications on hosts, if it is configured.
    pub(crate) paths: Option<CheckedAddress>,
    /// The cluster, if it is configured.
    pub(crate) cluster: Option<CheckedCluster>,
    /// The configured ports of addresses.
    pub(crate) places: Vec<(Prefix, HostPort)>,
    /// Prefixes of the addresses that hosts may use.
    pub(crate) allowed: Vec<Prefix>,
}

impl CheckedConfig {
    /// Configuration of the core in this epoch: the settings of `[control]`, and those that follow from other tables.
    pub fn control(&self, epoch: u16) -> ControlConfig {
        ControlConfig { epoch, ..self.control.clone() }
    }

    /// Warnings about valid but risky settings.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings: Vec<String> = self.process.iter().filter_map(CheckedProcess::warning).collect();
        let Listen { address, tls, .. } = &self.config.listen;
        if let Some(address) = address.filter(|address| tls.is_none() && !address.ip().is_loopback()) {
            let everywhere =
                if address.ip().is_unspecified() { ", which is every network of this machine" } else { "" };
            warnings.push(format!(
                "listen.address: anyone who reaches {address}{everywhere} can pose as a switch, without encryption; \
                 set [listen.tls], or listen only in the network of the switches"
            ));
        }
        let agents = &self.config.hosts;
        let open = agents.tokens.is_none() && agents.tls.as_ref().is_none_or(|tls| tls.client_ca.is_none());
        if let Some(address) = agents.address.filter(|address| open && !address.ip().is_loopback()) {
            warnings.push(format!(
                "hosts.address: any program on a host may represent it at {address}; set hosts.tokens, or hosts.tls with \
                 client_ca"
            ));
        }
        if self.config.discovery.hosts() == Hosts::Configured {
            warnings.push(
                "discovery.hosts: ARP is not answered; hosts need static entries for each other, or hosts = \"learn\""
                    .into(),
            );
        }
        let wide = |prefix: &Prefix| prefix.len == 0;
        if self.allowed.iter().any(wide) && self.places.iter().any(|(prefix, _)| wide(prefix)) {
            let words = "discovery.prefixes: hosts may take any address, also one behind the router of [[addresses]]";
            warnings.push(words.into());
        }
        warnings
    }
}

/// Reads and checks a file, and the files that it names.
///
/// # Errors
/// Names unknown keys, with the known ones, and invalid values.
pub fn read(path: &Path) -> Result<CheckedConfig, ConfigError> {
    let error = |problem: String| ConfigError { file: path.display().to_string(), problem };
    let text = std::fs::read_to_string(path).map_err(|problem| {
        error(format!("cannot be read: {problem}; a configuration as in docs/controller.md was expected"))
    })?;
    let base_dir = path.parent().unwrap_or(Path::new(""));
    check(&text, base_dir).map_err(error)
}

/// Checks the text of a configuration. Files that it names are relative to `base_dir`.
///
/// # Errors
/// As [`read`], without the name of the file.
pub fn check(text: &str, base_dir: &Path) -> Result<CheckedConfig, String> {
    let config: Config = toml::from_str(text).map_err(|problem| {
        let at = problem.span().map_or(0, |span| span.start);
        let line = text[..at.min(text.len())].matches('\n').count() + 1;
        format!("line {line}: {}", problem.message().lines().collect::<Vec<_>>().join(" "))
    })?;
    let fabric = build(&config.fabric.spec, base_dir).map_err(|problem| format!("fabric.spec: {problem}"))?;
    let (scheme, process) = scheme::scheme_of(&config.scheme, &fabric, base_dir)?;
    check_ranges(&config)?;
    let mut control = config.control.check()?;
    control.reconcile = Some(Nanos(config.reconcile.period.as_nanos() as u64));
    let sweep = Nanos(u64::try_from(config.flows.sweep.as_nanos()).unwrap_or(u64::MAX));
    control.sweep = Some(sweep).filter(|&sweep| sweep > Nanos::ZERO);
    control.both_directions = config.flows.both_directions;
    control.unlabelled = true;
    let datapaths = datapaths(&fabric, &config.fabric.datapaths)?;
    let listen_tls = config.listen.tls.as_ref().map(|tls| listen_tls(tls, &fabric, base_dir)).transpose()?;
    let hosts_tls = config.hosts.tls.as_ref().map(|tls| tls.load(base_dir).map(Current::new)).transpose();
    let hosts_tls = hosts_tls.map_err(|problem| format!("hosts.tls.{problem}"))?;
    let hosts_tokens = config.hosts.tokens.as_ref().map(|file| AgentTokens::load(&base_dir.join(file))).transpose();
    let hosts_tokens = hosts_tokens.map_err(|problem| format!("hosts.tokens: {problem}"))?;
    let api = config.api.load(base_dir, config.paths.search)?;
    let paths = config.paths.load(base_dir, api.as_ref())?;
    // The rates that an application sees of its paths are measured even if the scheme reads no port counters.
    control.link_loads_every = paths.as_ref().map(|_| PORTS_PERIOD);
    let cluster = config.cluster.as_ref().map(|cluster| cluster.check(base_dir)).transpose()?;
    let cluster = cluster.map(|cluster| cluster.with_addresses(api.as_ref(), paths.as_ref()));
    let places = addresses::places(&fabric, &config.addresses)?;
    let allowed = prefixes("discovery.prefixes", &config.discovery.prefixes)?;
    let fabric = Arc::new(fabric);
    Ok(CheckedConfig {
        config,
        control,
        fabric,
        scheme,
        process,
        datapaths,
        listen_tls,
        hosts_tls,
        hosts_tokens,
        api,
        paths,
        cluster,
        places,
        allowed,
    })
}

/// Checks single values, and values that exclude each other.
fn check_ranges(config: &Config) -> Result<(), String> {
    if config.listen.address.is_none() && config.listen.unix.is_none() {
        return Err("listen: neither address nor unix is given; switches could not connect".into());
    }
    if config.sessions.echo_interval.is_zero() || config.sessions.echo_timeout <= config.sessions.echo_interval {
        return Err("sessions: echo_timeout must be longer than echo_interval, and that longer than 0s".into());
    }
    if config.reconcile.period < Duration::from_secs(1) || config.reconcile.period > LONGEST_PERIOD {
        return Err("reconcile.period: 1s to 30s was expected".into());
    }
    if !config.flows.sweep.is_zero() && config.flows.sweep < Duration::from_secs(1) {
        return Err("flows.sweep: 1s or more was expected, or 0s for never".into());
    }
    if !(Duration::from_secs(1)..=LONGEST_PROBES).contains(&config.discovery.probe_interval) {
        return Err("discovery.probe_interval: 1s to 60s was expected".into());
    }
    if config.hosts.lines_per_host == 0 || config.hosts.flows_per_host == 0 || config.hosts.agents == 0 {
        return Err(
            "hosts: lines_per_host, flows_per_host and agents must be more than 0; leave unix and address out \
                    for no agents"
                .into(),
        );
    }
    if (config.discovery.links, config.discovery.hosts()) == (Links::Off, Hosts::Learn) {
        return Err(
            "discovery: hosts are learnt at ports that face no switch; links must be \"verify\" for that".into()
        );
    }
    if config.cluster.is_some() && config.state.directory.is_some() {
        let why = "the state is in etcd; remove it";
        return Err(format!("state.directory: it does not go with [cluster]: {why}"));
    }
    let levels = ["error", "warn", "info", "debug", "trace"];
    if !levels.contains(&config.log.level.as_str()) {
        return Err(format!("log.level: `{}` is none of {}", config.log.level, levels.join(", ")));
    }
    Ok(())
}

fn build(spec: &str, base_dir: &Path) -> Result<Fabric, String> {
    let fabric = match fabric_file(spec) {
        None => fabric_from_spec(spec).map_err(|problem| problem.to_string())?,
        Some(file) => {
            let text = std::fs::read_to_string(base_dir.join(file)).map_err(|problem| format!("{file}: {problem}"))?;
            fabric_from_file_text(spec, &text).map(|read| read.fabric).map_err(|problem| problem.to_string())?
        }
    };
    if fabric.is_ipv6() {
        return Err("addresses=ipv6 is for simulations, and the controller routes IPv4 only; leave it out".into());
    }
    Ok(fabric)
}

/// The certificates of the address for switches.
fn listen_tls(tls: &Tls, fabric: &Fabric, base_dir: &Path) -> Result<Current<rustls::ServerConfig>, String> {
    if tls.client_ca.is_none() {
        return Err("listen.tls.client_ca: missing; it names the authority of the switches' certificates".into());
    }
    let is_switch = |name: &String| fabric.find(name).is_some_and(|node| !fabric.is_host(node));
    if let Some(name) = tls.names.keys().find(|name| !is_switch(name)) {
        return Err(format!(
            "listen.tls.names.{name}: the fabric has no switch of this name; see pathloom fabric show"
        ));
    }
    tls.load(base_dir).map(Current::new).map_err(|problem| format!("listen.tls.{problem}"))
}

/// Datapath identifiers: those given, and the node's number plus 1 for all others.
fn datapaths(fabric: &Fabric, given: &BTreeMap<String, String>) -> Result<BTreeMap<u64, NodeId>, String> {
    let mut wanted: BTreeMap<NodeId, u64> =
        fabric.switches().iter().map(|&switch| (switch, u64::from(switch.0) + 1)).collect();
    for (name, digits) in given {
        let place = format!("fabric.datapaths.{name}");
        let node = fabric.find(name).filter(|&node| !fabric.is_host(node));
        let node = node.ok_or(format!("{place}: the fabric has no switch of this name; see pathloom fabric show"))?;
        let plain = digits.trim_start_matches("0x").replace(':', "");
        let dpid = u64::from_str_radix(&plain, 16).map_err(|_| {
            format!("{place}: `{digits}` is not a datapath identifier; up to 16 hexadecimal digits were expected")
        })?;
        wanted.insert(node, dpid);
    }
    let mut datapaths = BTreeMap::new();
    for (node, dpid) in wanted {
        if let Some(other) = datapaths.insert(dpid, node) {
            let (a, b) = (&fabric.node(other).name, &fabric.node(node).name);
            return Err(format!("fabric.datapaths: {a} and {b} would both be {dpid:016x}; give one of them another"));
        }
    }
    Ok(datapaths)
}
