//! A fabric: hosts, switches and the cables between them, with addresses assigned by ToR.

use crate::spec::SpecError;
use crate::{Address, LinkId, NodeId, PortNo, PortSettings, Prefix};
use serde::{Deserialize, Serialize};

/// Tier of a node. Links of a Clos fabric connect neighbouring tiers. In fabrics without tiers, every switch is a
/// ToR.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// A server.
    Host,
    /// A switch with hosts, also called edge or leaf.
    Tor,
    /// A switch between ToR and core.
    Aggregation,
    /// A core or spine switch.
    Core,
}

impl Tier {
    /// Its name in specifications, files and answers.
    pub fn name(self) -> &'static str {
        match self {
            Tier::Host => "host",
            Tier::Tor => "tor",
            Tier::Aggregation => "aggregation",
            Tier::Core => "core",
        }
    }
}

/// A host or a switch.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Node {
    /// Unique, readable name: `h12`, `e0_1`, or the name in a file.
    pub name: String,
    /// Tier of the node.
    pub tier: Tier,
    /// Pod (or region) of the node, if the fabric has pods.
    pub pod: Option<u32>,
    /// Drawing position, if the fabric has one (longitude and latitude in Topology Zoo files).
    pub position: Option<(f64, f64)>,
    /// Outgoing link of each port, port 1 first.
    pub ports: Vec<LinkId>,
}

/// Rate, delay and buffer of one direction of a cable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LinkSettings {
    /// Bits per second.
    pub rate_bps: u64,
    /// Propagation delay.
    pub delay_ps: u64,
    /// Capacity of the queue in packets, without the packet that is being sent.
    pub buffer_packets: u32,
}

/// One direction of a cable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Link {
    /// Node that sends into the link.
    pub from: NodeId,
    /// Node that receives from the link.
    pub to: NodeId,
    /// Port of `from`.
    pub from_port: PortNo,
    /// Port of `to`.
    pub to_port: PortNo,
    /// Rate, delay and buffer.
    pub settings: LinkSettings,
}

/// Prefix of the addresses of hosts in fabrics with IPv6: `fd70:6c:0:a::/96`. They are unique local addresses (RFC 4193). Hosts in labs
/// of routers have the same ones.
pub const IPV6_HOSTS: Prefix = Prefix { address: Address::from_bits(0xfd70_006c_0000_000a << 64), len: 96 };

/// The place where an address is attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attachment {
    /// The address.
    pub address: Address,
    /// Host that owns the address.
    pub host: NodeId,
    /// Switch at the other end of the host's port.
    pub tor: NodeId,
    /// Link from the host to the ToR.
    pub uplink: LinkId,
}

/// A port of a switch that leads to another switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwitchPort {
    /// Outgoing link.
    pub link: LinkId,
    /// Switch at the other end of the link.
    pub to: NodeId,
}

/// Hosts, switches and cables. A fabric does not change once it is built; a [`crate::LinkState`] says which links are
/// up.
///
/// Every host port has its own address. The hosts of ToR number `t` (in order of creation) share the prefix
/// [`Fabric::tor_prefix`], so one rule per ToR is enough for default routes.
#[derive(Clone, PartialEq, Debug)]
pub struct Fabric {
    spec: String,
    nodes: Vec<Node>,
    links: Vec<Link>,
    hosts: Vec<NodeId>,
    switches: Vec<NodeId>,
    tors: Vec<NodeId>,
    /// Position in `tors` by node, `u32::MAX` for other nodes.
    tor_index: Vec<u32>,
    /// Ports between switches, grouped by node. The ports of node `n` begin at `switch_starts[n]`.
    switch_ports: Vec<SwitchPort>,
    switch_starts: Vec<u32>,
    /// Bits of an address that tell the host of a ToR.
    host_bits: u8,
    /// The first address of all: 10.0.0.0, or the same under [`IPV6_HOSTS`].
    base: Address,
    /// Sorted by address.
    attachments: Vec<Attachment>,
    failed: Vec<LinkId>,
    /// Links that lose packets, in ascending order, each with the number of packets lost out of 10^9.
    lossy: Vec<(LinkId, u32)>,
    ports: PortSettings,
}

/// Why a fabric cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FabricError {
    /// The specification itself is wrong. The message names the key, the value, what was expected and the way out.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A host has no cable, or a cable to a node that is not a switch.
    #[error("host {0} is not connected to a switch")]
    UnconnectedHost(String),
    /// Two nodes have the same name.
    #[error("two nodes are called {0}; names must differ")]
    DuplicateName(String),
    /// The fabric has more hosts than 10.0.0.0/8 has addresses for.
    #[error("the fabric needs more addresses than 10.0.0.0/8 holds: {tors} ToRs with up to {hosts} hosts each")]
    TooManyHosts {
        /// Number of ToRs.
        tors: usize,
        /// Largest number of host ports on one ToR.
        hosts: usize,
    },
    /// The fabric has fewer than two hosts.
    #[error("the fabric has {0} host{s}; traffic needs at least 2", s = if *.0 == 1 { "" } else { "s" })]
    TooFewHosts(usize),
}

impl Fabric {
    /// Returns the specification that the fabric was built from.
    pub fn spec(&self) -> &str {
        &self.spec
    }

    /// Returns all nodes; a [`NodeId`] is an index into them.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns all directed links; a [`LinkId`] is an index into them.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// Returns one node.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// Returns one directed link.
    pub fn link(&self, id: LinkId) -> &Link {
        &self.links[id.index()]
    }

    /// Returns the hosts in order of creation.
    pub fn hosts(&self) -> &[NodeId] {
        &self.hosts
    }

    /// Returns the switches in order of creation.
    pub fn switches(&self) -> &[NodeId] {
        &self.switches
    }

    /// Returns the switches with at least one host, in order of creation.
    pub fn tors(&self) -> &[NodeId] {
        &self.tors
    }

    /// Returns the position of a switch in [`Fabric::tors`].
    pub fn tor_index(&self, node: NodeId) -> Option<usize> {
        Some(self.tor_index[node.index()]).filter(|&index| index != u32::MAX).map(|index| index as usize)
    }

    /// Whether a node is a host.
    pub fn is_host(&self, id: NodeId) -> bool {
        self.node(id).tier == Tier::Host
    }

    /// Whether both ends of a link are switches.
    pub fn is_switch_link(&self, id: LinkId) -> bool {
        let link = self.link(id);
        !self.is_host(link.from) && !self.is_host(link.to)
    }

    /// Returns the ports of a switch that lead to other switches, in port order; none for a host. Path searches use
    /// them.
    pub fn switch_ports(&self, node: NodeId) -> &[SwitchPort] {
        let range = self.switch_starts[node.index()] as usize..self.switch_starts[node.index() + 1] as usize;
        &self.switch_ports[range]
    }

    /// Returns whether a switch has no cables to other switches, and each of its hosts has another interface, at a switch with
    /// such cables. The switch inside a server of GPUs is one. Its hosts reach only each other over it.
    pub fn is_inside_server(&self, switch: NodeId) -> bool {
        let leads_out = |&link: &LinkId| !self.switch_ports(self.link(link).to).is_empty();
        let mut neighbours = self.node(switch).ports.iter().map(|&link| self.node(self.link(link).to));
        neighbours.all(|node| node.tier == Tier::Host && node.ports.iter().any(leads_out))
    }

    /// Returns one direction of every cable (the one in which the cable was added), in ascending order.
    pub fn cables(&self) -> impl Iterator<Item = LinkId> + '_ {
        (0..self.links.len() as u32).step_by(2).map(LinkId)
    }

    /// Returns one direction of every cable between two switches, in ascending order.
    pub fn switch_cables(&self) -> impl Iterator<Item = LinkId> + '_ {
        self.cables().filter(|&link| self.is_switch_link(link))
    }

    /// Returns the node with this name.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        self.nodes.iter().position(|node| node.name == name).map(|index| NodeId(index as u32))
    }

    /// Returns the outgoing link of a port, if the node has such a port.
    pub fn out_link(&self, node: NodeId, port: PortNo) -> Option<LinkId> {
        self.node(node).ports.get((port.0 as usize).checked_sub(1)?).copied()
    }

    /// Returns the first outgoing link from `from` to `to`, if they are neighbours.
    pub fn link_between(&self, from: NodeId, to: NodeId) -> Option<LinkId> {
        self.node(from).ports.iter().copied().find(|&link| self.link(link).to == to)
    }

    /// Returns the prefix of all host addresses of a ToR.
    pub fn tor_prefix(&self, tor: NodeId) -> Option<Prefix> {
        let index = self.tor_index(tor)? as u32;
        let address = self.base.with_low(self.base.low() | index << self.host_bits);
        Some(Prefix { address, len: address.bits() - self.host_bits })
    }

    /// Returns the prefix that contains every address of the fabric.
    pub fn whole_prefix(&self) -> Prefix {
        Prefix { address: self.base, len: self.base.bits() - 24 }
    }

    /// Returns the fabric with IPv6 addresses: those under [`IPV6_HOSTS`] that end with the IPv4 addresses of before.
    pub fn with_ipv6(mut self) -> Fabric {
        let ipv6 = |address: Address| IPV6_HOSTS.address.with_low(address.low());
        self.base = ipv6(self.base);
        self.attachments.iter_mut().for_each(|at| at.address = ipv6(at.address));
        self
    }

    /// Whether hosts have IPv6 addresses.
    pub fn is_ipv6(&self) -> bool {
        !self.base.is_v4()
    }

    /// Returns every address and where it is attached, in ascending order of address.
    pub fn attachments(&self) -> &[Attachment] {
        &self.attachments
    }

    /// Returns where an address is attached.
    pub fn attachment(&self, address: Address) -> Option<&Attachment> {
        self.attachments.binary_search_by_key(&address, |a| a.address).ok().map(|index| &self.attachments[index])
    }

    /// Returns the attachments of a host, one per port, in port order.
    pub fn host_attachments(&self, host: NodeId) -> Vec<&Attachment> {
        // Attachments are sorted by ToR, then by the ToR's port.
        let place = |a: &Attachment| (self.tor_index[a.tor.index()], self.link(a.uplink).to_port);
        let find = |uplink: &LinkId| {
            let link = self.link(*uplink);
            let wanted = (self.tor_index[link.to.index()], link.to_port);
            self.attachments.binary_search_by_key(&wanted, place).ok().map(|index| &self.attachments[index])
        };
        self.node(host).ports.iter().filter_map(find).collect()
    }

    /// Returns the cables that are down from the start (`fail=` in the specification), one direction of each.
    pub fn failed_links(&self) -> &[LinkId] {
        &self.failed
    }

    /// Returns the links that lose packets from the start (`loss=` in the specification), in ascending order, each
    /// with the number of packets that it loses out of 10^9.
    pub fn lossy_links(&self) -> &[(LinkId, u32)] {
        &self.lossy
    }

    /// Returns how switch ports queue packets (`queues=`, `red=`, `trim=` and others in the specification).
    pub fn ports(&self) -> PortSettings {
        self.ports
    }

    /// Returns the rate of the fastest switch port, by which the queues of others are scaled ([`PortSettings::at_rate`]).
    pub fn fastest_port_bps(&self) -> u64 {
        let of_switches = self.links.iter().filter(|link| !self.is_host(link.from));
        of_switches.map(|link| link.settings.rate_bps).max().unwrap_or(0)
    }

    /// Returns the keys in the fabric's specification that only a simulated network supports.
    pub fn simulated_keys(&self) -> Vec<&'static str> {
        let ports = &self.ports;
        let keys = [
            ("loss", !self.lossy.is_empty()),
            ("queues", ports.queues > 1 && ports.weights.is_none()),
            ("red", ports.red.is_some()),
            ("queue_bytes", ports.queue_bytes.is_some()),
            ("ecn", ports.ecn.is_some()),
            ("control_queue", ports.control_queue && ports.trim_bytes.is_none() && ports.pfc.is_none()),
            ("trim", ports.trim_bytes.is_some()),
            ("pfc", ports.pfc.is_some()),
            ("queue_weights", ports.weights.is_some()),
            ("shared_buffer", ports.shared.is_some()),
            ("addresses", self.is_ipv6()),
        ];
        keys.into_iter().filter(|(_, given)| *given).map(|(key, _)| key).collect()
    }

    /// Returns the same fabric with another rate for one link. The opposite direction keeps its rate.
    #[must_use]
    pub fn with_rate(mut self, link: LinkId, rate_bps: u64) -> Fabric {
        self.links[link.index()].settings.rate_bps = rate_bps;
        self
    }

    /// Returns the same fabric with these cables down from the start.
    pub fn with_failed(mut self, failed: Vec<LinkId>) -> Fabric {
        self.failed = failed;
        self
    }

    /// Returns the same fabric with these lossy links; see [`Fabric::lossy_links`]. Links with a loss of 0 are
    /// omitted.
    #[must_use]
    pub fn with_losses(mut self, mut lossy: Vec<(LinkId, u32)>) -> Fabric {
        lossy.retain(|&(_, per_billion)| per_billion > 0);
        lossy.sort_unstable();
        self.lossy = lossy;
        self
    }

    /// Returns the same fabric with other settings for the ports of switches.
    #[must_use]
    pub fn with_ports(mut self, ports: PortSettings) -> Fabric {
        self.ports = ports;
        self
    }
}

/// Collects nodes and cables. [`FabricBuilder::build`] numbers ports in the order of the cables and assigns
/// addresses.
#[derive(Clone, Debug, Default)]
pub struct FabricBuilder {
    spec: String,
    nodes: Vec<Node>,
    links: Vec<Link>,
}

impl FabricBuilder {
    /// Creates an empty fabric whose specification is `spec`.
    pub fn new(spec: impl Into<String>) -> FabricBuilder {
        FabricBuilder { spec: spec.into(), ..FabricBuilder::default() }
    }

    /// Adds a switch. Its tier must not be [`Tier::Host`].
    pub fn switch(&mut self, name: impl Into<String>, tier: Tier, pod: Option<u32>) -> NodeId {
        debug_assert_ne!(tier, Tier::Host);
        self.add(name.into(), tier, pod)
    }

    /// Adds a host.
    pub fn host(&mut self, name: impl Into<String>, pod: Option<u32>) -> NodeId {
        self.add(name.into(), Tier::Host, pod)
    }

    /// Sets the drawing position of a node.
    pub fn place(&mut self, node: NodeId, position: (f64, f64)) {
        self.nodes[node.index()].position = Some(position);
    }

    /// Connects two nodes by a cable with the same settings in both directions. Returns the direction from `a` to
    /// `b`.
    pub fn cable(&mut self, a: NodeId, b: NodeId, settings: LinkSettings) -> LinkId {
        let id = LinkId(self.links.len() as u32);
        let port_a = self.next_port(a, id);
        let port_b = self.next_port(b, id.reverse());
        self.links.push(Link { from: a, to: b, from_port: port_a, to_port: port_b, settings });
        self.links.push(Link { from: b, to: a, from_port: port_b, to_port: port_a, settings });
        id
    }

    /// Replaces the settings of one direction of a cable.
    pub fn set(&mut self, link: LinkId, settings: LinkSettings) {
        self.links[link.index()].settings = settings;
    }

    /// Checks names and hosts, and assigns addresses.
    pub fn build(self) -> Result<Fabric, FabricError> {
        let FabricBuilder { spec, nodes, links } = self;
        let mut names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(FabricError::DuplicateName(pair[0].to_owned()));
        }
        let ids = || (0..nodes.len() as u32).map(NodeId);
        let is_host = |id: NodeId| nodes[id.index()].tier == Tier::Host;
        let hosts: Vec<NodeId> = ids().filter(|&id| is_host(id)).collect();
        let switches: Vec<NodeId> = ids().filter(|&id| !is_host(id)).collect();
        if hosts.len() < 2 {
            return Err(FabricError::TooFewHosts(hosts.len()));
        }
        for &host in &hosts {
            let ports = &nodes[host.index()].ports;
            if ports.is_empty() || ports.iter().any(|link| is_host(links[link.index()].to)) {
                return Err(FabricError::UnconnectedHost(nodes[host.index()].name.clone()));
            }
        }
        let host_ports =
            |id: NodeId| nodes[id.index()].ports.iter().filter(|link| is_host(links[link.index()].to)).count();
        let tors: Vec<NodeId> = switches.iter().copied().filter(|&id| host_ports(id) > 0).collect();
        let most = tors.iter().map(|&id| host_ports(id)).max().unwrap_or(0);
        let mut tor_index = vec![u32::MAX; nodes.len()];
        for (index, tor) in tors.iter().enumerate() {
            tor_index[tor.index()] = index as u32;
        }
        // Host part: room for the hosts, the network address and the broadcast address. At least a /24 if they all
        // fit.
        let mut host_bits = (most + 2).next_power_of_two().trailing_zeros();
        if (tors.len() << 8) <= 1 << 24 {
            host_bits = host_bits.max(8);
        }
        if (tors.len() << host_bits) > 1 << 24 {
            return Err(FabricError::TooManyHosts { tors: tors.len(), hosts: most });
        }
        let attachments = attach(&nodes, &links, &tors, host_bits);
        let (switch_ports, switch_starts) = switch_adjacency(&nodes, &links);
        let failed = Vec::new();
        Ok(Fabric {
            spec,
            nodes,
            links,
            hosts,
            switches,
            tors,
            tor_index,
            switch_ports,
            switch_starts,
            host_bits: host_bits as u8,
            base: Address::new(10, 0, 0, 0),
            attachments,
            failed,
            lossy: Vec::new(),
            ports: PortSettings::DROP_TAIL,
        })
    }

    fn add(&mut self, name: String, tier: Tier, pod: Option<u32>) -> NodeId {
        let id = NodeId(self.nodes.len() as u32);
        self.nodes.push(Node { name, tier, pod, position: None, ports: Vec::new() });
        id
    }

    fn next_port(&mut self, node: NodeId, link: LinkId) -> PortNo {
        let ports = &mut self.nodes[node.index()].ports;
        ports.push(link);
        PortNo(ports.len() as u32)
    }
}

/// Returns the ports that connect two switches, grouped by node, and the index where the ports of each node begin.
fn switch_adjacency(nodes: &[Node], links: &[Link]) -> (Vec<SwitchPort>, Vec<u32>) {
    let mut ports = Vec::new();
    let mut starts = vec![0];
    for node in nodes {
        if node.tier != Tier::Host {
            let all = node.ports.iter().map(|&link| SwitchPort { link, to: links[link.index()].to });
            ports.extend(all.filter(|port| nodes[port.to.index()].tier != Tier::Host));
        }
        starts.push(ports.len() as u32);
    }
    (ports, starts)
}

/// Returns one address per host port: the ToR's prefix plus 1, 2, … in the order of the ToR's ports.
fn attach(nodes: &[Node], links: &[Link], tors: &[NodeId], host_bits: u32) -> Vec<Attachment> {
    let mut attachments = Vec::new();
    for (index, &tor) in tors.iter().enumerate() {
        let base = (10u32 << 24) | ((index as u32) << host_bits);
        let down =
            nodes[tor.index()].ports.iter().filter(|link| nodes[links[link.index()].to.index()].tier == Tier::Host);
        for (number, &link) in down.enumerate() {
            let address = Address::from(base + number as u32 + 1);
            attachments.push(Attachment { address, host: links[link.index()].to, tor, uplink: link.reverse() });
        }
    }
    attachments
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: LinkSettings = LinkSettings { rate_bps: 1_000_000_000, delay_ps: 1_000_000, buffer_packets: 100 };

    #[test]
    fn ports_are_numbered_and_addresses_assigned_by_tor() {
        let mut builder = FabricBuilder::new("two");
        let (a, b) = (builder.switch("s1", Tier::Tor, None), builder.switch("s2", Tier::Tor, None));
        let (h1, h2) = (builder.host("h1", None), builder.host("h2", None));
        let trunk = builder.cable(a, b, SETTINGS);
        builder.cable(h1, a, SETTINGS);
        builder.cable(h2, b, SETTINGS);
        let fabric = builder.build().unwrap();
        assert_eq!(fabric.link(trunk).from_port, PortNo(1));
        assert_eq!(fabric.out_link(a, PortNo(2)).map(|l| fabric.link(l).to), Some(h1));
        assert_eq!(fabric.out_link(a, PortNo(3)), None);
        assert_eq!(fabric.out_link(a, PortNo(0)), None);
        let at = fabric.host_attachments(h2)[0];
        assert_eq!((at.address, at.tor), (Address::new(10, 0, 1, 1), b));
        assert!(fabric.tor_prefix(b).unwrap().contains(at.address));
        assert!(!fabric.tor_prefix(a).unwrap().contains(at.address));
        assert_eq!(fabric.attachment(at.address), Some(at));
    }

    #[test]
    fn unconnected_hosts_and_duplicate_names_are_refused() {
        let mut builder = FabricBuilder::new("lonely");
        builder.switch("s", Tier::Tor, None);
        builder.host("h1", None);
        builder.host("h2", None);
        assert_eq!(builder.clone().build().unwrap_err(), FabricError::UnconnectedHost("h1".into()));
        builder.host("h2", None);
        assert_eq!(builder.build().unwrap_err(), FabricError::DuplicateName("h2".into()));
        assert_eq!(FabricBuilder::new("none").build().unwrap_err(), FabricError::TooFewHosts(0));
    }
}
