//! Tests of links and hosts together, in whole fabrics. The hosts send ARP requests until every request is answered.

use pathloom_discovery::arp::{Arp, Operation};
use pathloom_discovery::cabling::{compare, dpid_of, link_at, place_of};
use pathloom_discovery::{
    build_fabric, Alarm, AlarmKind, Discovery, HostSettings, Input, Mac, Output, Place, PortState, ProbeSettings,
};
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{Fabric, LinkSettings, Nanos, NodeId, PortNo};
use rand::SeedableRng;
use rand_pcg::Pcg64;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

const MS: u64 = 1_000_000;
const SETTINGS: LinkSettings = LinkSettings { rate_bps: 1_000_000_000, delay_ps: 1_000_000, buffer_packets: 100 };

/// Destination of a frame: a port of a switch, or a host.
type End = Result<Place, NodeId>;

/// A fabric whose hosts each request the address of another host, once a second, until they get an answer.
struct World {
    fabric: Fabric,
    discovery: Discovery,
    now: Nanos,
    /// Frames under way, by time of arrival.
    frames: BTreeMap<(Nanos, u64), (End, Vec<u8>)>,
    serial: u64,
    answered: BTreeSet<NodeId>,
    alarms: Vec<Alarm>,
    moved: usize,
    floods: usize,
}

fn mac(node: NodeId) -> Mac {
    Mac([2, 1, 0, 0, (node.0 >> 8) as u8, node.0 as u8])
}

impl World {
    fn new(spec: &str) -> World {
        let rng = Pcg64::seed_from_u64(4);
        World {
            fabric: fabric_from_spec(spec).unwrap(),
            discovery: Discovery::new(ProbeSettings::default(), HostSettings::default(), [3; 32], rng),
            now: Nanos::from_secs(1),
            frames: BTreeMap::new(),
            serial: 0,
            answered: BTreeSet::new(),
            alarms: Vec::new(),
            moved: 0,
            floods: 0,
        }
    }

    fn address(&self, host: NodeId) -> Ipv4Addr {
        self.fabric.host_attachments(host)[0].address.v4().unwrap()
    }

    fn connect_all(&mut self) {
        for node in self.fabric.switches().to_vec() {
            let of =
                |port| PortState { port: PortNo(port), mac: Mac([2, 0, 0, node.0 as u8, 0, port as u8]), up: true };
            let ports: Vec<PortState> = (1..=self.fabric.node(node).ports.len() as u32).map(of).collect();
            self.tell(Input::SwitchUp { dpid: dpid_of(node), ports: &ports });
        }
    }

    fn tell(&mut self, input: Input<'_>) {
        self.discovery.handle(self.now, input);
        while let Some(output) = self.discovery.poll_output() {
            match output {
                Output::Send { place, frame } => {
                    let link = link_at(&self.fabric, place).expect("a port of the fabric");
                    let to = self.fabric.link(link).to;
                    let host = self.fabric.is_host(to);
                    self.post(if host { Err(to) } else { Ok(place_of(&self.fabric, link.reverse())) }, frame);
                }
                Output::Alarm(alarm) => self.alarms.push(alarm),
                Output::HostMoved { .. } => self.moved += 1,
                _ => {}
            }
        }
    }

    fn post(&mut self, to: End, frame: Vec<u8>) {
        self.frames.insert((self.now + Nanos(MS), self.serial), (to, frame));
        self.serial += 1;
    }

    fn speak(&mut self, host: NodeId, arp: Arp) {
        let uplink = self.fabric.node(host).ports[0];
        self.post(Ok(place_of(&self.fabric, uplink.reverse())), arp.emit());
    }

    /// Handles a frame that arrives at a host.
    fn at_host(&mut self, host: NodeId, frame: &[u8]) {
        let Ok(arp) = Arp::parse(frame) else { return };
        let address = self.address(host);
        if arp.operation == Operation::Reply && arp.to == mac(host) {
            let owner = self.fabric.attachment(arp.sender_ip.into()).expect("an address of the fabric").host;
            assert_eq!(arp.sender_mac, mac(owner), "no wrong answer");
            self.answered.insert(host);
        } else if arp.operation == Operation::Request && arp.target_ip == address {
            self.speak(host, arp.answer(mac(host)));
        } else {
            self.floods += 1;
        }
    }

    fn run_for(&mut self, span: Nanos) {
        let end = self.now + span;
        loop {
            let arrival = self.frames.keys().next().map(|&(at, _)| at);
            let next = [arrival, self.discovery.poll_timeout()].into_iter().flatten().min();
            let Some(at) = next.filter(|&at| at <= end) else { break };
            self.now = self.now.max(at);
            if arrival != Some(at) {
                self.tell(Input::Timeout);
                continue;
            }
            let (_, (to, frame)) = self.frames.pop_first().expect("peeked at");
            match to {
                Ok(place) => self.tell(Input::PacketIn { place, frame: &frame }),
                Err(host) => self.at_host(host, &frame),
            }
        }
        self.now = end;
    }

    /// Lets each host without an answer request the address of another host, once per round.
    fn converse(&mut self, rounds: usize) {
        let hosts = self.fabric.hosts().to_vec();
        for _ in 0..rounds {
            for (index, &host) in hosts.iter().enumerate() {
                if !self.answered.contains(&host) {
                    let target = self.address(hosts[(index + hosts.len() / 2) % hosts.len()]);
                    self.speak(host, Arp::request(mac(host), self.address(host), target, Mac::BROADCAST));
                }
            }
            self.run_for(Nanos::from_secs(1));
        }
    }
}

#[test]
fn a_fabric_and_its_hosts_are_found_correctly_within_seconds() {
    for (spec, then_s) in [("fat-tree:k=4", 700), ("fat-tree:k=8", 30)] {
        let mut world = World::new(spec);
        world.connect_all();
        world.converse(3);
        let hosts = world.fabric.hosts().len();
        assert_eq!((world.answered.len(), world.discovery.hosts().hosts().count()), (hosts, hosts), "{spec}");
        assert!(compare(&world.fabric, world.discovery.links().links()).is_right());
        for host in world.discovery.hosts().hosts() {
            let at = world.fabric.attachment(host.address.into()).unwrap();
            assert_eq!((host.mac, host.place), (mac(at.host), place_of(&world.fabric, at.uplink.reverse())));
        }
        let links = world.discovery.links();
        let found = build_fabric(links.known_switches(), links.links(), world.discovery.hosts().hosts(), |_| SETTINGS);
        let found = found.unwrap();
        assert!(found.is_laid_out());
        assert_eq!(found.fabric.tors().len(), world.fabric.tors().len());
        // The small fabric runs for two rounds of ageing.
        world.run_for(Nanos::from_secs(then_s));
        assert_eq!(
            (world.discovery.hosts().hosts().count(), world.moved),
            (hosts, 0),
            "{spec}: after two rounds of ageing"
        );
        assert_eq!(world.alarms, [], "{spec}");
    }
}

#[test]
fn nothing_is_flooded_if_addresses_are_configured() {
    let mut world = World::new("fat-tree:k=4");
    let expected: Vec<_> = pathloom_discovery::cabling::expected_hosts(&world.fabric).collect();
    for (address, place) in expected {
        world.tell(Input::Expected { address, place });
    }
    world.connect_all();
    world.converse(3);
    assert_eq!((world.answered.len(), world.floods), (16, 0));
}

/// A port with a known host gets no probes. If a host relays a probe, the port does not become the end of a link.
#[test]
fn a_port_with_a_known_host_is_not_probed_and_forms_no_link() {
    let mut world = World::new("fat-tree:k=4");
    world.connect_all();
    world.converse(2);
    let (evil, other) = (world.fabric.hosts()[0], world.fabric.hosts()[9]);
    let port = |host: NodeId| place_of(&world.fabric, world.fabric.node(host).ports[0].reverse());
    let (at, via) = (port(evil), port(other));
    world.run_for(Nanos::from_secs(20));
    let mut probes = 0;
    let end = world.now + Nanos::from_secs(20);
    while world.now < end {
        probes += world.frames.values().filter(|(to, frame)| to.is_err() && frame[12..14] == [0x88, 0xcc]).count();
        world.run_for(Nanos(MS));
    }
    assert_eq!(probes, 0, "no probe is sent to a host");
    // Even with a valid probe of a switch port, which no host should ever get, a host cannot create a link.
    let probe = loop {
        let found = world.frames.values().find(|(to, frame)| to.is_ok() && frame[12..14] == [0x88, 0xcc]);
        if let Some((_, frame)) = found {
            break frame.clone();
        }
        world.run_for(Nanos(MS / 4));
    };
    let before: Vec<_> = world.discovery.links().links().collect();
    world.tell(Input::PacketIn { place: at, frame: &probe });
    world.tell(Input::PacketIn { place: via, frame: &probe });
    assert!(world
        .alarms
        .iter()
        .any(|alarm| matches!(alarm.kind, AlarmKind::ProbeOnHostPort { .. } | AlarmKind::TwoPlaces { .. })));
    let fake = |(a, b): (Place, Place)| [a, b].iter().any(|end| *end == at || *end == via);
    assert!(!world.discovery.links().links().any(fake));
    world.run_for(Nanos::from_secs(30));
    assert_eq!(world.discovery.links().links().collect::<Vec<_>>(), before);
}
