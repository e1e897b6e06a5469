//! The configuration file (TOML). docs/switch.example.toml contains every setting with its default.

use crate::layout::KERNEL_FLOWS;
use pathloom_daemon_support::config::{self, from_toml};
use pathloom_model::{Mac, Nanos, PortNo, Tier};
use pathloom_switching::programs::{ArpPath, Elephants, Identity, LearningSwitch, PortRole, Selection, TcpPath};
use pathloom_switching::{programs, Program};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The content of the file.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Name of the switch, used for its pins and in the output of `show`.
    pub name: String,
    /// The protocol that the switch runs.
    pub protocol: Protocol,
    /// Ethernet address of the switch, unique among switches and hosts.
    pub mac: String,
    /// Tier of the switch. If it is not set, `descend_only` has no effect.
    pub tier: Option<TierName>,
    /// File of the network namespace that contains the interfaces. If it is not set: the namespace of the process.
    pub namespace: Option<PathBuf>,
    /// Directory of the control socket and of the state for the next start.
    pub directory: PathBuf,
    /// A mounted BPF file system.
    #[serde(default = "usual_bpf_fs")]
    pub bpf_fs: PathBuf,
    /// Ports of the switch.
    pub ports: Vec<Port>,
    /// Timers in milliseconds.
    #[serde(default)]
    pub timers: Timers,
    /// Limits.
    #[serde(default)]
    pub limits: Limits,
    /// Marks of elephants, for `tfe`.
    #[serde(default)]
    pub elephants: ElephantMarks,
}

/// The protocol that a switch runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// A learning switch: it learns addresses and floods frames to unknown addresses. Only for trees.
    Learning,
    /// ARP-Path.
    ArpPath,
    /// TCP-Path.
    TcpPath,
    /// TCP-Path for elephants only.
    Tfe,
}

/// A tier by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TierName {
    /// Switches with hosts.
    Tor,
    /// Switches between the other two tiers.
    Aggregation,
    /// Switches of the top tier.
    Core,
}

/// A port.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// Number of the port, at least 1.
    pub number: u32,
    /// Network interface of the port.
    pub interface: String,
    /// Whether the port leads to a host or to a switch.
    #[serde(default)]
    pub role: Role,
    /// Tier of the switch to which the port leads.
    pub tier: Option<TierName>,
}

/// Role of a port: whether it leads to a host or to a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The switch learns the role from Hello. Only for trusted hosts.
    #[default]
    Learn,
    /// The port leads to a host.
    Host,
    /// The port leads to a switch.
    Switch,
}

/// Timers in milliseconds. `pathloom_switching::programs::Settings` describes each of them.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Timers {
    pub hello_ms: u64,
    pub neighbour_age_ms: u64,
    pub settle_ms: u64,
    pub quiet_ms: u64,
    pub lock_ms: u64,
    pub connection_age_ms: u64,
    pub host_age_ms: u64,
    pub recovery_retry_ms: u64,
}

impl Default for Timers {
    fn default() -> Timers {
        let settings = programs::Settings::default();
        let ms = |time: Nanos| time.0 / 1_000_000;
        Timers {
            hello_ms: settings.hello.map_or(0, ms),
            neighbour_age_ms: ms(settings.neighbour_age),
            settle_ms: ms(settings.settle),
            quiet_ms: ms(settings.quiet),
            lock_ms: ms(settings.lock),
            connection_age_ms: ms(settings.connection_age),
            host_age_ms: ms(settings.host_age),
            recovery_retry_ms: ms(settings.recovery_retry),
        }
    }
}

/// Limits of tables and ports.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Maximum number of connections of the whole switch, and of the hosts at one port.
    pub connections: usize,
    pub connections_per_port: usize,
    /// Maximum number of hosts in the table of the switch, and at one port.
    pub hosts: usize,
    pub hosts_per_port: usize,
    /// Maximum number of explorations of connections that a host port may begin per second.
    pub explorations_per_s: u32,
    /// The same for connections that the hosts at the port do not use after that. Each exploration costs processor time in
    /// all switches.
    pub unused_explorations_per_s: u32,
    /// Maximum number of broadcasts and recoveries of ways to hosts that a host port may begin per second. Each of them
    /// costs processor time in all switches.
    pub broadcasts_per_s: u32,
    /// Maximum number of frames of a host port per second that user space handles. The kernel drops further frames.
    pub host_frames_per_s: u32,
    /// Maximum number of flows of a host port that the kernel forwards. Further flows are forwarded in user space.
    pub kernel_flows_per_port: usize,
    /// All host ports together may have as much of each of the five limits above as this many of them alone.
    pub busy_ports: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        let settings = programs::Settings::default();
        Limits {
            connections: settings.most_connections,
            connections_per_port: settings.most_connections_per_port,
            hosts: settings.most_hosts,
            hosts_per_port: settings.most_hosts_per_port,
            explorations_per_s: settings.explorations_per_s,
            unused_explorations_per_s: 100,
            broadcasts_per_s: 100,
            host_frames_per_s: 10_000,
            kernel_flows_per_port: 16_384,
            busy_ports: settings.busy_ports,
        }
    }
}

/// Marks of elephants.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ElephantMarks {
    /// First and last source port of elephants. If empty, source ports do not mark elephants.
    pub source_ports: Vec<u16>,
    /// DSCP of elephants. If 0, the DSCP does not mark elephants.
    pub dscp: u8,
    /// Whether a flood that came from a higher tier is sent to lower tiers only.
    pub descend_only: bool,
}

impl Default for ElephantMarks {
    fn default() -> ElephantMarks {
        let usual = Elephants::default();
        let ports = usual.source_ports.map_or(Vec::new(), |ports| vec![*ports.start(), *ports.end()]);
        ElephantMarks { source_ports: ports, dscp: usual.dscp.unwrap_or(0), descend_only: true }
    }
}

fn usual_bpf_fs() -> PathBuf {
    "/sys/fs/bpf".into()
}

/// Reads a file. The error contains the file, the place and the expected value.
pub fn read(file: &Path) -> Result<Config, String> {
    config::read(file, parse)
}

/// Parses and checks the text of a configuration.
pub fn parse(text: &str) -> Result<Config, String> {
    let config: Config = from_toml(text)?;
    config.check()?;
    Ok(config)
}

impl Config {
    fn check(&self) -> Result<(), String> {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "_-+".contains(letter);
        // A BPF file system does not allow dots in names.
        if self.name.is_empty() || self.name.len() > 64 || !self.name.chars().all(plain) {
            return Err(format!("name: `{}`: expected up to 64 letters, digits, _, - or +", self.name));
        }
        if !self.mac()?.is_station() {
            return Err(format!("mac: `{}` is a group address or 0; expected a station address", self.mac));
        }
        if self.ports.is_empty() {
            return Err("ports: expected at least one, for example [[ports]] number = 1, interface = \"eth1\"".into());
        }
        let (mut numbers, mut interfaces) = (BTreeSet::new(), BTreeSet::new());
        for port in &self.ports {
            if port.number == 0 || !numbers.insert(port.number) {
                return Err(format!("ports: number {} is 0 or occurs twice", port.number));
            }
            if port.interface.is_empty() || port.interface.len() > 15 || !interfaces.insert(&port.interface) {
                return Err(format!("ports: interface `{}` occurs twice or is not a valid name", port.interface));
            }
            if port.tier.is_some() && port.role != Role::Switch {
                return Err(format!("ports: number {}: tier requires role = \"switch\"", port.number));
            }
        }
        let Timers { neighbour_age_ms, settle_ms, lock_ms, connection_age_ms, host_age_ms, .. } = self.timers;
        let times = [neighbour_age_ms, settle_ms, lock_ms, connection_age_ms, host_age_ms];
        if times.contains(&0) || times.iter().any(|&time| time > 86_400_000) {
            return Err("timers: ages, settle_ms and lock_ms must be from 1 to 86400000 ms (one day)".into());
        }
        match self.elephants.source_ports.as_slice() {
            [] => {}
            [first, last] if first <= last => {}
            _ => return Err("elephants.source_ports: expected [FIRST, LAST] or []".into()),
        }
        if self.limits.busy_ports == 0 {
            return Err("limits.busy_ports: expected at least 1".into());
        }
        if self.elephants.dscp > 63 {
            return Err(format!("elephants.dscp: {} is not between 0 and 63", self.elephants.dscp));
        }
        Ok(())
    }

    /// Returns the address of the switch.
    pub fn mac(&self) -> Result<Mac, String> {
        let parts: Vec<u8> = self.mac.split(':').filter_map(|part| u8::from_str_radix(part, 16).ok()).collect();
        let bytes: Option<[u8; 6]> = parts.try_into().ok().filter(|_| self.mac.split(':').count() == 6);
        bytes.map(Mac).ok_or_else(|| format!("mac: `{}` is not an address such as 02:00:00:00:01:00", self.mac))
    }

    /// Number of ports at which hosts may be, at least 1.
    fn host_ports(&self) -> usize {
        self.ports.iter().filter(|port| port.role != Role::Switch).count().max(1)
    }

    /// What each host port may have of a limit, so that all together have no more than `busy_ports` of them alone.
    fn each(&self, limit: usize) -> usize {
        limit.min(limit.saturating_mul(self.limits.busy_ports as usize) / self.host_ports())
    }

    /// Maximum number of frames of a port per second that the kernel passes to user space; 0: no limit.
    pub fn frames_per_s(&self, role: Role) -> u32 {
        match role {
            Role::Switch => 0,
            Role::Host | Role::Learn if self.limits.host_frames_per_s == 0 => 0,
            Role::Host | Role::Learn => (self.each(self.limits.host_frames_per_s as usize) as u32).max(1),
        }
    }

    /// Maximum number of flows of a port that the kernel forwards. Those of hosts fill at most half of the kernel's table.
    pub fn kernel_flows(&self, role: Role) -> usize {
        match role {
            Role::Switch => usize::MAX,
            Role::Host | Role::Learn => {
                self.each(self.limits.kernel_flows_per_port).min(KERNEL_FLOWS / 2 / self.host_ports())
            }
        }
    }

    /// Returns the settings of the program.
    pub fn settings(&self) -> programs::Settings {
        let (timers, limits) = (&self.timers, &self.limits);
        programs::Settings {
            hello: (timers.hello_ms > 0).then(|| Nanos::from_millis(timers.hello_ms)),
            neighbour_age: Nanos::from_millis(timers.neighbour_age_ms),
            settle: Nanos::from_millis(timers.settle_ms),
            quiet: Nanos::from_millis(timers.quiet_ms),
            lock: Nanos::from_millis(timers.lock_ms),
            connection_age: Nanos::from_millis(timers.connection_age_ms),
            host_age: Nanos::from_millis(timers.host_age_ms),
            recovery_retry: Nanos::from_millis(timers.recovery_retry_ms),
            most_connections: limits.connections,
            most_connections_per_port: limits.connections_per_port,
            most_hosts: limits.hosts,
            most_hosts_per_port: limits.hosts_per_port,
            explorations_per_s: limits.explorations_per_s,
            unused_explorations_per_s: limits.unused_explorations_per_s,
            broadcasts_per_s: limits.broadcasts_per_s,
            busy_ports: limits.busy_ports,
            descend_only: self.protocol == Protocol::Tfe && self.elephants.descend_only,
            ..programs::Settings::default()
        }
    }

    /// Creates the program, with all ports down.
    pub fn program(&self, now: Nanos, boot: u64) -> Result<Box<dyn Program>, String> {
        let role = |port: &Port| match port.role {
            Role::Learn => PortRole::Learn,
            Role::Host => PortRole::Host,
            Role::Switch => PortRole::Switch { tier: port.tier.map(TierName::tier) },
        };
        let roles = self.ports.iter().map(|port| (PortNo(port.number), role(port))).collect();
        let identity = Identity { mac: self.mac()?, tier: self.tier.map(TierName::tier), boot, roles };
        let settings = self.settings();
        Ok(match self.protocol {
            Protocol::Learning => Box::new(LearningSwitch::new(&settings)),
            Protocol::ArpPath => Box::new(ArpPath::new(now, identity, settings)),
            Protocol::TcpPath => Box::new(TcpPath::new(now, identity, settings, Selection::AllTcp)),
            Protocol::Tfe => {
                let source_ports = match *self.elephants.source_ports.as_slice() {
                    [first, last] => Some(first..=last),
                    _ => None,
                };
                let dscp = Some(self.elephants.dscp).filter(|&dscp| dscp > 0);
                Box::new(TcpPath::elephants(now, identity, settings, Elephants { source_ports, dscp }))
            }
        })
    }
}

impl Protocol {
    /// Returns the name of the protocol in the file.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Learning => "learning",
            Protocol::ArpPath => "arp-path",
            Protocol::TcpPath => "tcp-path",
            Protocol::Tfe => "tfe",
        }
    }
}

impl TierName {
    fn tier(self) -> Tier {
        match self {
            TierName::Tor => Tier::Tor,
            TierName::Aggregation => Tier::Aggregation,
            TierName::Core => Tier::Core,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = "name = 's1'\nprotocol = 'tcp-path'\nmac = '02:00:00:00:01:00'\ndirectory = '/run/s1'\n";
    const PORT: &str = "[[ports]]\nnumber = 1\ninterface = 'eth1'\n";

    #[test]
    fn the_example_contains_the_defaults() {
        let example = parse(include_str!("../../../docs/switch.example.toml")).unwrap();
        let least = parse(&format!("{LEAST}{PORT}")).unwrap();
        assert_eq!((example.timers, example.limits), (least.timers, least.limits));
        assert_eq!((example.elephants, example.bpf_fs), (least.elephants, least.bpf_fs));
    }

    /// Floods at all host ports fill neither the ring of frames nor the kernel's table of flows.
    #[test]
    fn the_limits_of_host_ports_are_smaller_if_there_are_many() {
        let with = |hosts: u32| {
            let port =
                |number: u32, role| format!("[[ports]]\nnumber = {number}\ninterface = 'e{number}'\nrole = '{role}'\n");
            let ports = (1..=hosts).map(|number| port(number, "host")).chain([port(99, "switch")]);
            let config = parse(&format!("{LEAST}{}", ports.collect::<String>())).unwrap();
            assert_eq!((config.frames_per_s(Role::Switch), config.kernel_flows(Role::Switch)), (0, usize::MAX));
            (config.frames_per_s(Role::Host), config.kernel_flows(Role::Learn))
        };
        assert_eq!(with(4), (10_000, 16_384));
        assert_eq!(with(8), (10_000, 8_192));
        assert_eq!(with(40), (2_000, 1_638));
        let text = |limits: &str| format!("{LEAST}{PORT}role = 'host'\n[limits]\n{limits}\n");
        let unlimited = parse(&text("host_frames_per_s = 0")).unwrap();
        assert_eq!(unlimited.frames_per_s(Role::Host), 0, "0 means no limit");
        assert!(parse(&text("busy_ports = 0")).unwrap_err().contains("busy_ports"));
    }

    #[test]
    fn bad_settings_are_refused_with_a_message() {
        let error = |text: &str| parse(text).unwrap_err();
        assert!(error(LEAST).contains("ports"));
        assert!(error(&format!("ports = []\n{LEAST}")).contains("expected at least one"));
        assert!(error(&format!("{LEAST}{PORT}{PORT}")).contains("number 1 is 0 or occurs twice"));
        assert!(error(&format!("{LEAST}{PORT}tier = 'core'\n")).contains("role = \"switch\""));
        assert!(error(&format!("{LEAST}{PORT}[timers]\nlock_ms = 0\n")).contains("timers"));
        assert!(error(&format!("{LEAST}{PORT}[timers]\nlok_ms = 1\n")).contains("line 9"));
        assert!(error(&format!("{LEAST}{PORT}[elephants]\nsource_ports = [5]\n")).contains("[FIRST, LAST]"));
        let with_mac = |mac: &str| error(&format!("{}{PORT}", LEAST.replace("02:00:00:00:01:00", mac)));
        assert!(with_mac("03:00:00:00:01:00").contains("group address"));
        assert!(with_mac("02:00:00:00:01").contains("not an address such as"));
        assert!(error(&format!("{}{PORT}", LEAST.replace("tcp-path", "stp"))).contains("line 2"));
        assert!(error(&format!("{}{PORT}", LEAST.replace("'s1'", "'../s1'"))).contains("name"));
    }
}
