//! Discovery over live sessions: passes messages of switches to [`Discovery`], sends its frames, and tells the
//! controller which cables carry no probes.

use crate::config::{self, Addresses, Hosts, Links};
use crate::hub::dhcp::{self, Destination, Dhcp};
use crate::hub::learnt::Learnt;
use crate::hub::punts::{Punt, TreePorts};
use crate::hub::trees::broadcast_trees;
use crate::hub::verify::Verifier;
use pathloom_control::Input;
use pathloom_discovery::arp::Arp;
use pathloom_discovery::cabling::{dpid_of, expected_hosts, place_of, switch_of};
use pathloom_discovery::wiring::PortMap;
use pathloom_discovery::{
    Discovery, Dpid, HostSettings, Input as DiscoveryInput, KnownHost, LinkLoss, Mac, Output as DiscoveryOutput, Place,
    PortState, ProbeSettings,
};
use pathloom_model::{Address, Fabric, LinkId, LinkState, Nanos, NodeId, PortNo};
use pathloom_openflow::flow_match::{ETH_ARP, ETH_LLDP};
use pathloom_openflow::{Port, PORT_MAX};
use rand::SeedableRng;
use rand_pcg::Pcg64;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Time without probes and number of missing probes after which a link is down, and time after which a missing probe
/// is repeated. Even on a link that drops nine of ten packets because its queue is full, one of these probes arrives.
const SILENCE: Nanos = Nanos::from_secs(4);
const MISSED: u32 = 4;
const RETRY: Nanos = Nanos::from_millis(100);
/// Maximum age of a probe. A busy machine may take long between sending a probe and reading it.
const MAX_AGE: Nanos = Nanos::from_secs(2);

/// An action for the hub.
#[derive(Debug)]
pub(crate) enum HubAction {
    /// A frame to send out of a port of a switch.
    Send { dpid: u64, port: u32, frame: Vec<u8> },
    /// A frame that arrived at a switch, for a host that may be at a switch without a session.
    Elsewhere { dpid: u64, frame: Vec<u8> },
    /// An input for the controller.
    Tell(Input),
    /// A host is known at its port from now on.
    Known(KnownHost),
    /// A host has left its port, or has another hardware address.
    Left(KnownHost),
    /// The fabric's numbers of a switch's ports have changed: see [`LiveDiscovery::port_map`].
    Rewired(NodeId),
}

/// Discovery over live sessions.
pub(crate) struct LiveDiscovery {
    discovery: Discovery,
    hosts: Hosts,
    /// Forwards DHCP.
    dhcp: Option<Dhcp>,
    /// The configured fabric, if there is one.
    expected: Option<ConfiguredFabric>,
    actions: VecDeque<HubAction>,
    /// The last frame for switches without a session.
    elsewhere: Option<(Nanos, Vec<u8>)>,
}

/// A configured fabric.
struct ConfiguredFabric {
    verifier: Verifier,
    fabric: Arc<Fabric>,
    nodes: BTreeMap<u64, NodeId>,
    /// Datapath identifier by node.
    dpids: BTreeMap<NodeId, u64>,
    /// The cables that carry broadcasts of hosts while no controller runs. They never change, so no two switches have
    /// parts of different trees, which might be a loop.
    trees: [LinkState; 2],
    /// Decides which addresses of hosts get routes.
    learnt: Learnt,
}

impl LiveDiscovery {
    /// Creates discovery for a configured fabric. `secret` must be new at each start. `None` if links are not probed.
    pub(crate) fn new(
        how: &config::Discovery,
        fabric: Arc<Fabric>,
        nodes: BTreeMap<u64, NodeId>,
        learnt: Learnt,
        secret: [u8; 32],
    ) -> Option<LiveDiscovery> {
        if how.links == Links::Off {
            return None;
        }
        let pinned = how.addresses == Addresses::Fabric;
        let hosts = HostSettings { pinned, ..HostSettings::default() };
        let interval = Nanos(u64::try_from(how.probe_interval.as_nanos()).unwrap_or(u64::MAX));
        let mut live = LiveDiscovery::with(how.hosts(), hosts, secret, interval);
        live.dhcp = (how.dhcp && how.hosts() == Hosts::Learn).then(Dhcp::new);
        let dpids = nodes.iter().map(|(&dpid, &node)| (node, dpid)).collect();
        let trees = broadcast_trees(&fabric, &LinkState::of(&fabric));
        let verifier = Verifier::new(fabric.clone());
        let expected = ConfiguredFabric { verifier, fabric, nodes, dpids, trees, learnt };
        for (address, place) in expected_hosts(&expected.fabric) {
            if let Some(place) = expected.real(place) {
                live.discovery.handle(Nanos::ZERO, DiscoveryInput::Expected { address, place });
            }
        }
        live.expected = Some(expected);
        Some(live)
    }

    /// Creates discovery for an unknown fabric. It accepts all switches.
    pub(crate) fn without_fabric(hosts: Hosts, secret: [u8; 32]) -> LiveDiscovery {
        LiveDiscovery::with(hosts, HostSettings::default(), secret, ProbeSettings::default().interval)
    }

    fn with(hosts: Hosts, settings: HostSettings, secret: [u8; 32], interval: Nanos) -> LiveDiscovery {
        let probes = ProbeSettings {
            interval,
            silence: SILENCE,
            missed: MISSED,
            retry: RETRY,
            max_age: MAX_AGE,
            ..ProbeSettings::default()
        };
        let seed = secret.iter().fold(0u64, |seed, &byte| seed.rotate_left(8) ^ u64::from(byte));
        let discovery = Discovery::new(probes, settings, secret, Pcg64::seed_from_u64(seed));
        LiveDiscovery { discovery, hosts, dhcp: None, expected: None, actions: VecDeque::new(), elsewhere: None }
    }

    /// Whether switches must send this control traffic to the controller.
    pub(crate) fn wants(&self, punt: Punt) -> bool {
        match punt {
            Punt::Lldp => true,
            Punt::Arp => self.hosts == Hosts::Learn,
            Punt::DhcpRequest | Punt::DhcpReply => self.dhcp.is_some(),
        }
    }

    /// Whether the switches of the fabric forward ARP between known hosts.
    pub(crate) fn routes_arp(&self) -> bool {
        self.expected.is_some() && self.wants(Punt::Arp)
    }

    /// The hosts that are known at a switch.
    pub(crate) fn hosts_at(&self, dpid: u64) -> impl Iterator<Item = KnownHost> + '_ {
        self.discovery.hosts().hosts().filter(move |host| host.place.dpid == Dpid(dpid))
    }

    /// The ports of a switch over which broadcasts of hosts go while no controller runs.
    pub(crate) fn tree_ports(&self, fabric: &Fabric, switch: NodeId) -> TreePorts {
        let mut found = TreePorts::default();
        let Some(expected) = &self.expected else { return found };
        for (port, &link) in (1..).map(PortNo).zip(&fabric.node(switch).ports) {
            let list = if fabric.is_host(fabric.link(link).to) {
                &mut found.hosts
            } else {
                match expected.trees.iter().position(|tree| tree.is_up(link)) {
                    Some(tree) => &mut found.trees[tree],
                    None => &mut found.others,
                }
            };
            list.push(self.port_map(switch).map_or(port, |map| map.own(port)).0);
        }
        found
    }

    /// Whether the controller passes a frame on for hosts. Questions of the controller itself are not such frames.
    pub(crate) fn is_of_hosts(frame: &[u8]) -> bool {
        let own = HostSettings::default().own_mac;
        let is_arp = frame.get(12..14) == Some(&ETH_ARP.to_be_bytes());
        (is_arp && frame.get(6..12) != Some(&own.0)) || dhcp::message(frame).is_some()
    }

    /// Whether only discovery handles a frame.
    #[inline]
    pub(crate) fn is_discovery_frame(frame: &[u8]) -> bool {
        matches!(frame.get(12..14), Some(&[a, b]) if matches!(u16::from_be_bytes([a, b]), ETH_LLDP | ETH_ARP))
            || dhcp::message(frame).is_some()
    }

    /// Notes a frame for switches without a session. Returns false if it was sent at the same time before, because several
    /// ports were to get it.
    pub(crate) fn note_elsewhere(&mut self, now: Nanos, frame: &[u8]) -> bool {
        let is_new = self.elsewhere.as_ref().is_none_or(|(at, last)| (*at, &last[..]) != (now, frame));
        if is_new {
            self.elsewhere = Some((now, frame.to_vec()));
        }
        is_new
    }

    /// Restores a host that was known when the controller last ran.
    pub(crate) fn remember(&mut self, now: Nanos, host: KnownHost) {
        self.discovery.handle(now, DiscoveryInput::Remembered { host });
    }

    /// The state of links and hosts.
    pub(crate) fn state(&self) -> &Discovery {
        &self.discovery
    }

    /// Number of problems with ports and hosts, by kind.
    pub(crate) fn trouble(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let addresses = self
            .expected
            .iter()
            .flat_map(|expected| expected.learnt.refused().iter().map(|(&why, &count)| (why, count)));
        let dhcp = self.dhcp.iter().map(|dhcp| ("dhcp_not_passed_on", dhcp.refused()));
        self.discovery.alarm_counts().into_iter().chain(addresses).chain(dhcp)
    }

    /// Unused cabling that differs from the configuration, as text.
    pub(crate) fn differences(&self) -> impl Iterator<Item = &str> {
        self.expected.iter().flat_map(|expected| expected.verifier.differences())
    }

    /// Cables that are used at other ports than configured, as text.
    pub(crate) fn adopted(&self) -> impl Iterator<Item = &str> {
        self.expected.iter().flat_map(|expected| expected.verifier.adopted())
    }

    /// The fabric's port numbers for a switch; `None` if the switch has the same numbers.
    #[inline]
    pub(crate) fn port_map(&self, switch: NodeId) -> Option<&PortMap> {
        self.expected.as_ref()?.verifier.wiring().at(switch)
    }

    /// Ports whose numbers differ: datapath identifier, the switch's number and the fabric's.
    pub(crate) fn renumbered(&self) -> Vec<(u64, u32, u32)> {
        let Some(expected) = &self.expected else { return Vec::new() };
        let maps = expected.verifier.wiring().maps();
        let rows = |(switch, map): (NodeId, &PortMap)| {
            let dpid = expected.dpids.get(&switch).copied().unwrap_or_default();
            map.pairs().map(move |(own, fabric)| (dpid, own.0, fabric.0)).collect::<Vec<_>>()
        };
        maps.flat_map(rows).collect()
    }

    /// Restores the port numbers that an earlier start found.
    pub(crate) fn renumber(&mut self, rows: &[(u64, u32, u32)]) {
        let Some(expected) = &mut self.expected else { return };
        let mut by_switch: BTreeMap<u64, Vec<(PortNo, PortNo)>> = BTreeMap::new();
        for &(dpid, own, fabric) in rows {
            by_switch.entry(dpid).or_default().push((PortNo(own), PortNo(fabric)));
        }
        for (dpid, pairs) in by_switch {
            let known = expected.nodes.get(&dpid).copied();
            let fabric = expected.fabric.clone();
            if !known.is_some_and(|switch| expected.verifier.wiring_mut().remember(&fabric, switch, &pairs)) {
                let switch = Dpid(dpid);
                tracing::warn!(%switch, "the stored port numbers of a switch are invalid; discovery finds them again");
            }
        }
    }

    /// Whether these ports belong to another switch than the one that has a session with this datapath identifier.
    pub(crate) fn is_duplicate(&self, dpid: u64, ports: &[Port]) -> bool {
        self.discovery.links().is_duplicate(Dpid(dpid), &states(ports))
    }

    /// Handles a new session.
    pub(crate) fn switch_up(&mut self, now: Nanos, dpid: u64, ports: &[Port]) {
        let states = states(ports);
        for state in &states {
            self.port_known(now, dpid, *state);
        }
        self.handle_input(now, DiscoveryInput::SwitchUp { dpid: Dpid(dpid), ports: &states });
    }

    /// Handles the end of a session.
    pub(crate) fn switch_down(&mut self, now: Nanos, dpid: u64) {
        if let Some(expected) = &mut self.expected {
            expected.nodes.get(&dpid).iter().for_each(|&&node| expected.verifier.switch_gone(dpid_of(node)));
        }
        self.handle_input(now, DiscoveryInput::SwitchDown { dpid: Dpid(dpid) });
    }

    /// Handles a port that has changed or was removed.
    pub(crate) fn port_status(&mut self, now: Nanos, dpid: u64, port: &Port, gone: bool) {
        let mut state = state(port);
        state.up &= !gone;
        self.port_known(now, dpid, state);
        let dpid = Dpid(dpid);
        match gone {
            true => self.handle_input(now, DiscoveryInput::PortRemoved { place: Place { dpid, port: state.port } }),
            false => self.handle_input(now, DiscoveryInput::PortStatus { dpid, state }),
        }
    }

    fn port_known(&mut self, now: Nanos, dpid: u64, state: PortState) {
        let Some(expected) = &mut self.expected else { return };
        let Some(place) = expected.configured(Place { dpid: Dpid(dpid), port: state.port }) else { return };
        let other = expected.verifier.port(now, place, state.up);
        self.actions.extend(other.and_then(|place| expected.port_input(place, true)));
    }

    /// Handles a frame for which [`LiveDiscovery::is_discovery_frame`] is true.
    pub(crate) fn frame(&mut self, now: Nanos, place: Place, frame: &[u8]) {
        if dhcp::message(frame).is_some() {
            return self.pass_on_dhcp(now, place, frame);
        }
        let arp = frame.get(12..14) == Some(&ETH_ARP.to_be_bytes());
        if !arp || self.hosts == Hosts::Learn {
            self.handle_input(now, DiscoveryInput::PacketIn { place, frame });
        }
    }

    /// Forwards a DHCP message to the ports that it is for, never to ports between switches.
    fn pass_on_dhcp(&mut self, now: Nanos, place: Place, frame: &[u8]) {
        let Some(dhcp) = &mut self.dhcp else { return };
        let edges: BTreeSet<Place> = self.discovery.links().edges().collect();
        let destination = if edges.contains(&place) { dhcp.route(now, place, frame) } else { Destination::Drop };
        if matches!(destination, Destination::AllOthers(_) | Destination::Elsewhere) {
            self.actions.push_back(HubAction::Elsewhere { dpid: place.dpid.0, frame: frame.to_vec() });
        }
        let to = match destination {
            Destination::AllOthers(from) => edges.into_iter().filter(|&edge| edge != from).collect(),
            Destination::Port(place) => vec![place],
            Destination::Elsewhere | Destination::Drop => Vec::new(),
        };
        let send = |to: Place| HubAction::Send { dpid: to.dpid.0, port: to.port.0, frame: frame.to_vec() };
        self.actions.extend(to.into_iter().map(send));
    }

    /// Sends ARP requests for addresses that were learnt by an earlier start and for which no host has sent ARP
    /// since. Addresses without an answer are forgotten. An address whose host is elsewhere gets the place of its host: a
    /// switch may have had a route of an earlier start. Call this every few seconds.
    pub(crate) fn look_after_places(&mut self, now: Nanos, placed: &[(Address, NodeId, PortNo)]) {
        // Hosts of IPv6 send no ARP.
        let placed = placed.iter().filter_map(|&(address, switch, port)| Some((address.v4()?, switch, port)));
        for (address, switch, port) in placed {
            if let Some(host) = self.discovery.hosts().host(address) {
                let routed = Place { dpid: dpid_of(switch), port };
                if self.expected.as_ref().is_some_and(|expected| expected.real(routed) != Some(host.place)) {
                    self.shown(now, address, host.place);
                }
                continue;
            }
            let Some(expected) = &mut self.expected else { return };
            match expected.learnt.ask_again(address) {
                Ok(false) => {}
                Ok(true) => {
                    let Some(to) = expected.real(Place { dpid: dpid_of(switch), port }) else { continue };
                    // Without a sender address, so that it changes no host's table (RFC 5227 §2.1.1).
                    let question =
                        Arp::request(HostSettings::default().own_mac, Ipv4Addr::UNSPECIFIED, address, Mac::BROADCAST);
                    self.actions.push_back(HubAction::Send {
                        dpid: to.dpid.0,
                        port: to.port.0,
                        frame: question.emit(),
                    });
                }
                Err(input) => self.actions.push_back(HubAction::Tell(input)),
            }
        }
    }

    /// Handles a host that uses an address at a port.
    fn shown(&mut self, now: Nanos, address: Ipv4Addr, place: Place) {
        let Some(expected) = &mut self.expected else { return };
        let (name, Some(&switch)) = (expected.name(place), expected.nodes.get(&place.dpid.0)) else { return };
        self.actions.extend(expected.learnt.learnt(now, address, (switch, place.port), &name).map(HubAction::Tell));
    }

    /// Whether a port of a switch of the fabric must not be used, although it is up.
    pub(crate) fn is_dead(&self, switch: NodeId, port: PortNo) -> bool {
        self.expected.as_ref().is_some_and(|expected| expected.verifier.is_dead(Place { dpid: dpid_of(switch), port }))
    }

    /// Time of a probe over a link: from the controller to the first switch, over the link, and back to the
    /// controller. `None` if no probe was timed, or if the cabling of the link differs from the configuration.
    pub(crate) fn probe_time(&self, link: LinkId) -> Option<Nanos> {
        let expected = self.expected.as_ref()?;
        let link = expected.fabric.link(link);
        let from = Place { dpid: Dpid(*expected.dpids.get(&link.from)?), port: link.from_port };
        let links = self.discovery.links();
        let to = links.peer(from)?;
        (expected.nodes.get(&to.dpid.0) == Some(&link.to)).then(|| links.probe_time(from)).flatten()
    }

    /// When to call [`LiveDiscovery::timeout`].
    pub(crate) fn poll_timeout(&self) -> Option<Nanos> {
        self.discovery.poll_timeout()
    }

    /// Handles time-outs that are due.
    pub(crate) fn timeout(&mut self, now: Nanos) {
        if self.discovery.poll_timeout().is_some_and(|at| at <= now) {
            self.handle_input(now, DiscoveryInput::Timeout);
        }
    }

    /// Compares the cabling when it is due. Call this a few times a second.
    pub(crate) fn review(&mut self, now: Nanos) {
        let Some(expected) = self.expected.as_mut().filter(|expected| expected.verifier.is_due(now)) else { return };
        let found = self.discovery.links().links();
        let found: Vec<_> =
            found.filter_map(|(a, b)| Some((expected.configured(a)?, expected.configured(b)?))).collect();
        let changes = expected.verifier.review(now, &found);
        let standing: BTreeSet<Dpid> = self.discovery.links().switches().collect();
        for switch in changes.rewired {
            // The controller reads the rules of the switch again with the new numbers, and changes those that differ.
            if expected.dpids.get(&switch).is_some_and(|&dpid| standing.contains(&Dpid(dpid))) {
                let ports_down = expected.ports_down(switch);
                self.actions.push_back(HubAction::Tell(Input::SwitchDown { switch }));
                self.actions.push_back(HubAction::Rewired(switch));
                self.actions.push_back(HubAction::Tell(Input::SwitchUp { switch, ports_down }));
            }
        }
        for (link, up) in changes.cables {
            self.actions.extend(expected.use_cable(link, up));
        }
    }

    /// The next action for the hub.
    pub(crate) fn poll_action(&mut self) -> Option<HubAction> {
        self.actions.pop_front()
    }

    fn handle_input(&mut self, now: Nanos, input: DiscoveryInput<'_>) {
        self.discovery.handle(now, input);
        while let Some(found) = self.discovery.poll_output() {
            self.handle_output(now, found);
        }
    }

    fn handle_output(&mut self, now: Nanos, found: DiscoveryOutput) {
        match found {
            DiscoveryOutput::Send { place, frame } => {
                self.actions.push_back(HubAction::Send { dpid: place.dpid.0, port: place.port.0, frame });
            }
            DiscoveryOutput::Elsewhere { place, frame } => {
                self.actions.push_back(HubAction::Elsewhere { dpid: place.dpid.0, frame });
            }
            DiscoveryOutput::LinkUp { a, b } => {
                tracing::debug!(a = self.name(a), b = self.name(b), "a link was found");
                self.expected.iter_mut().for_each(|expected| expected.verifier.review_soon());
            }
            DiscoveryOutput::LinkDown { a, b, why } => {
                tracing::debug!(a = self.name(a), b = self.name(b), ?why, "a link was lost");
                // Only silence takes a cable out of use at once. After other losses, the comparison with the
                // configuration decides, and switches without a session still forward.
                let Some(expected) = self.expected.as_mut().filter(|_| why == LinkLoss::Silent) else { return };
                let ends = expected.configured(a).zip(expected.configured(b));
                let dead = ends.and_then(|(a, b)| expected.verifier.silent(a, b));
                self.actions.extend(dead.into_iter().flat_map(|link| expected.use_cable(link, false)));
            }
            DiscoveryOutput::EdgeUp { place } => tracing::debug!(port = self.name(place), "a port faces hosts"),
            DiscoveryOutput::EdgeDown { place } => {
                tracing::debug!(port = self.name(place), "a port no longer faces hosts")
            }
            DiscoveryOutput::HostLearnt { address, mac, place } => {
                tracing::debug!(%address, %mac, port = self.name(place), "a host was found");
                self.actions.push_back(HubAction::Known(KnownHost { address, mac, place }));
                self.shown(now, address, place);
            }
            DiscoveryOutput::HostMoved { address, mac, from, to } => {
                tracing::info!(%address, %mac, from = self.name(from), to = self.name(to), "a host moved");
                self.actions.push_back(HubAction::Left(KnownHost { address, mac, place: from }));
                self.actions.push_back(HubAction::Known(KnownHost { address, mac, place: to }));
                self.shown(now, address, to);
            }
            DiscoveryOutput::HostGone { address, mac, place } => {
                tracing::debug!(%address, %mac, port = self.name(place), "a host is gone");
                self.actions.push_back(HubAction::Left(KnownHost { address, mac, place }));
                self.actions.extend(
                    self.expected.as_mut().and_then(|expected| expected.learnt.gone(address)).map(HubAction::Tell),
                );
            }
            DiscoveryOutput::Alarm(alarm) => tracing::warn!(port = self.name(alarm.place), "{alarm}"),
        }
    }

    fn name(&self, place: Place) -> String {
        self.expected.as_ref().map_or_else(|| place.to_string(), |expected| expected.name(place))
    }
}

impl ConfiguredFabric {
    /// Ports of a switch of the fabric that must not be used.
    fn ports_down(&self, switch: NodeId) -> Vec<PortNo> {
        let all = (1..=self.fabric.node(switch).ports.len() as u32).map(PortNo);
        let place = |port: PortNo| Place { dpid: dpid_of(switch), port };
        all.filter(|&port| !self.verifier.is_up(place(port)) || self.verifier.is_dead(place(port))).collect()
    }

    /// Reports both ends of a cable to the controller, as up or down.
    fn use_cable(&self, link: LinkId, up: bool) -> Vec<HubAction> {
        let ends = [link, link.reverse()].map(|link| place_of(&self.fabric, link));
        let own = ends.map(|place| self.verifier.wiring().at_switch(&self.fabric, place));
        let [a, b] = own.map(|place| self.real(place).map_or(String::new(), |place| self.name(place)));
        if up {
            tracing::info!(a, b, "probes get through a cable again; the cable is used");
        } else {
            tracing::warn!(a, b, "no probe gets through a cable, although its ports are up; it is not used");
        }
        ends.into_iter().filter_map(|place| self.port_input(place, up)).collect()
    }

    fn port_input(&self, place: Place, up: bool) -> Option<HubAction> {
        let switch = switch_of(&self.fabric, place.dpid)?;
        Some(HubAction::Tell(Input::PortStatus { switch, port: place.port, up }))
    }

    /// Translates a place to the convention of [`pathloom_discovery::cabling`]; `None` if the fabric has no such
    /// switch.
    fn configured(&self, place: Place) -> Option<Place> {
        let &node = self.nodes.get(&place.dpid.0)?;
        Some(Place { dpid: dpid_of(node), port: place.port })
    }

    /// Translates a place back to the datapath identifier of its switch.
    fn real(&self, place: Place) -> Option<Place> {
        let dpid = self.dpids.get(&switch_of(&self.fabric, place.dpid)?)?;
        Some(Place { dpid: Dpid(*dpid), port: place.port })
    }

    fn name(&self, place: Place) -> String {
        match self.nodes.get(&place.dpid.0) {
            Some(&node) => format!("{} port {}", self.fabric.node(node).name, place.port.0),
            None => place.to_string(),
        }
    }
}

fn states(ports: &[Port]) -> Vec<PortState> {
    ports.iter().filter(|port| (1..PORT_MAX).contains(&port.number)).map(state).collect()
}

fn state(port: &Port) -> PortState {
    PortState { port: PortNo(port.number), mac: Mac(port.mac), up: port.is_up() }
}

#[cfg(test)]
mod tests;
