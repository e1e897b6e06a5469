//! Discovery with made-up switches.

use super::*;
use pathloom_fabrics::fabric_from_spec;

const MS: u64 = 1_000_000;
/// First datapath identifier of the switches, different from the identifiers of the convention.
const FIRST: u64 = 0xab00;

/// A fabric whose cables carry all frames, except silently cut ones.
struct World {
    fabric: Arc<Fabric>,
    discovery: LiveDiscovery,
    now: Nanos,
    mute: BTreeSet<LinkId>,
    /// Two ports with swapped cables, by the fabric's numbers.
    swapped: Option<(Place, Place)>,
    told: Vec<(NodeId, PortNo, bool)>,
    /// Switches to read again, with their ports that are down.
    reread: Vec<(NodeId, Vec<PortNo>)>,
    to_hosts: Vec<(u64, u32, Vec<u8>)>,
}

impl World {
    fn new(spec: &str) -> World {
        World::with(spec, &config::Discovery::default())
    }

    fn with(spec: &str, how: &config::Discovery) -> World {
        let fabric = Arc::new(fabric_from_spec(spec).unwrap());
        let nodes = fabric.switches().iter().map(|&node| (FIRST + u64::from(node.0), node)).collect();
        let learnt = Learnt::new(fabric.clone(), (true, Vec::new(), 9), &[]);
        let discovery = LiveDiscovery::new(how, fabric.clone(), nodes, learnt, [7; 32]).unwrap();
        let (now, mute) = (Nanos::from_secs(1), BTreeSet::new());
        let (told, reread, to_hosts) = (Vec::new(), Vec::new(), Vec::new());
        let mut world = World { fabric, discovery, now, mute, swapped: None, told, reread, to_hosts };
        for node in world.fabric.switches().to_vec() {
            let count = world.fabric.node(node).ports.len() as u32;
            let ports: Vec<Port> = (1..=count).map(|number| port(node, number, true)).collect();
            world.discovery.switch_up(world.now, FIRST + u64::from(node.0), &ports);
        }
        world
    }

    fn run_for(&mut self, seconds: u64) {
        let end = self.now + Nanos::from_secs(seconds);
        while self.now < end {
            while let Some(action) = self.discovery.poll_action() {
                self.carry_out(action);
            }
            self.now += Nanos(MS);
            self.discovery.timeout(self.now);
            if self.now.0.is_multiple_of(250 * MS) {
                self.discovery.review(self.now);
            }
        }
    }

    fn carry_out(&mut self, action: HubAction) {
        match action {
            HubAction::Tell(Input::PortStatus { switch, port, up }) => self.told.push((switch, port, up)),
            HubAction::Tell(Input::SwitchDown { .. }) | HubAction::Rewired(_) | HubAction::Elsewhere { .. } => {}
            HubAction::Known(_) | HubAction::Left(_) | HubAction::Tell(Input::Place { at: None, .. }) => {}
            HubAction::Tell(Input::SwitchUp { switch, ports_down }) => self.reread.push((switch, ports_down)),
            HubAction::Tell(other) => panic!("{other:?}"),
            HubAction::Send { dpid, port, frame } => {
                let from = self.other(Place { dpid: Dpid(dpid - FIRST + 1), port: PortNo(port) });
                let link = pathloom_discovery::cabling::link_at(&self.fabric, from).unwrap();
                let far = *self.fabric.link(link);
                if self.fabric.is_host(far.to) {
                    return self.to_hosts.push((dpid, port, frame));
                }
                if !self.mute.contains(&link) {
                    let to = self.other(Place { dpid: dpid_of(far.to), port: far.to_port });
                    let place = Place { dpid: Dpid(FIRST + to.dpid.0 - 1), port: to.port };
                    assert!(LiveDiscovery::is_discovery_frame(&frame));
                    self.discovery.frame(self.now, place, &frame);
                }
            }
        }
    }
}

impl World {
    /// The port to which the cable of a port is connected, after a swap.
    fn other(&self, place: Place) -> Place {
        match self.swapped {
            Some((one, two)) if place == one => two,
            Some((one, two)) if place == two => one,
            _ => place,
        }
    }

    /// Unplugs the cables of two ports of a switch and plugs them in again, swapped if `swapped` is set.
    fn recable(&mut self, switch: NodeId, ports: [u32; 2], swapped: bool) {
        for up in [false, true] {
            for number in ports {
                let dpid = FIRST + u64::from(switch.0);
                self.discovery.port_status(self.now, dpid, &port(switch, number, up), false);
            }
            let [one, two] = ports.map(|number| Place { dpid: dpid_of(switch), port: PortNo(number) });
            self.swapped = swapped.then_some((one, two));
        }
    }
}

fn port(node: NodeId, number: u32, up: bool) -> Port {
    let mut port = Port { number, mac: [2, 9, 0, 0, node.0 as u8, number as u8], ..Port::default() };
    port.set_up(up);
    port
}

#[test]
fn silent_cables_are_reported_down_and_up_when_probes_arrive_again() {
    let mut world = World::new("fat-tree:k=4");
    world.run_for(15);
    assert_eq!((world.told.len(), world.discovery.differences().count()), (0, 0));
    assert!(world.discovery.expected.as_ref().unwrap().verifier.is_right());
    let link = world.fabric.switch_cables().next().unwrap();
    let far = *world.fabric.link(link);
    world.mute.insert(link);
    world.run_for(10);
    assert_eq!(world.told, [(far.from, far.from_port, false), (far.to, far.to_port, false)]);
    assert!(world.discovery.is_dead(far.to, far.to_port) && world.discovery.differences().count() == 1);
    world.mute.clear();
    world.told.clear();
    world.run_for(10);
    assert_eq!(world.told, [(far.from, far.from_port, true), (far.to, far.to_port, true)]);
    // When a dead cable loses carrier, its port reports that, and the cable is no longer marked as dead.
    world.mute.insert(link);
    world.run_for(10);
    world.told.clear();
    world.discovery.port_status(
        world.now,
        FIRST + u64::from(far.from.0),
        &port(far.from, far.from_port.0, false),
        false,
    );
    world.run_for(1);
    assert_eq!(world.told, [(far.to, far.to_port, true)]);
    assert!(!world.discovery.is_dead(far.to, far.to_port));
}

#[test]
fn a_cable_that_fails_in_one_direction_is_down_within_the_interval_plus_4_s() {
    for interval in [1, 5, 20] {
        let probe_interval = std::time::Duration::from_secs(interval);
        let how = config::Discovery { probe_interval, ..config::Discovery::default() };
        let mut world = World::with("fat-tree:k=4", &how);
        world.run_for(30);
        let link = world.fabric.switch_cables().next().unwrap();
        world.mute.insert(link.reverse());
        world.run_for(3);
        assert_eq!(world.told, [], "a few lost probes do not make a cable dead");
        world.run_for(interval + 2);
        assert_eq!(world.told.len(), 2, "both ends, with probes every {interval} s");
    }
}

#[test]
fn swapped_uplinks_are_used_within_a_second_also_after_swapping_back() {
    let mut world = World::new("fat-tree:k=4");
    world.run_for(2);
    let tor = world.fabric.find("e0_0").unwrap();
    for (swapped, adopted) in [(true, 2), (false, 0)] {
        world.recable(tor, [3, 4], swapped);
        world.run_for(1);
        assert_eq!((world.told.len(), world.discovery.differences().count()), (0, 0), "no cable was out of use");
        assert_eq!(world.reread, [(tor, vec![])], "all of its ports are up");
        world.reread.clear();
        assert_eq!(world.discovery.adopted().count(), adopted);
        assert_eq!(world.discovery.port_map(tor).is_some(), swapped);
    }
    // The numbers of an earlier start apply before discovery finds anything.
    world.recable(tor, [3, 4], true);
    world.run_for(1);
    let rows = world.discovery.renumbered();
    assert_eq!(rows, [(FIRST + u64::from(tor.0), 3, 4), (FIRST + u64::from(tor.0), 4, 3)]);
    let mut next = World::new("fat-tree:k=4");
    next.discovery.renumber(&[rows, vec![(1, 3, 4)]].concat());
    assert_eq!(next.discovery.port_map(tor), world.discovery.port_map(tor));
    next.swapped = world.swapped;
    next.run_for(2);
    assert_eq!((next.reread.len(), next.told.len(), next.discovery.adopted().count()), (0, 0, 2));
}

#[test]
fn hosts_get_arp_answers_and_stay_at_their_configured_ports() {
    let pinned = config::Discovery { addresses: Addresses::Fabric, ..config::Discovery::default() };
    let mut world = World::with("dumbbell:hosts=2", &pinned);
    world.run_for(2);
    let [a, b, c] = [0, 1, 2].map(|index| world.fabric.attachments()[index]);
    let place = |world: &World, at: &pathloom_model::Attachment| {
        let place = place_of(&world.fabric, at.uplink.reverse());
        Place::new(place.dpid.0 - 1 + FIRST, place.port.0)
    };
    let mac = |number| Mac([2, 0, 0, 0, 0, number]);
    let ask = |from: &pathloom_model::Attachment, number, target: Address| {
        Arp::request(mac(number), from.address.v4().unwrap(), target.v4().unwrap(), Mac::BROADCAST).emit()
    };
    let (at_a, at_b, at_c) = (place(&world, &a), place(&world, &b), place(&world, &c));
    world.to_hosts.clear();
    world.discovery.frame(world.now, at_c, &ask(&c, 3, a.address));
    world.run_for(1);
    let passed_on = world.to_hosts.iter().filter(|(_, _, frame)| frame[12..14] == [8, 6]);
    assert_eq!(
        passed_on.map(|&(dpid, port, _)| Place::new(dpid, port)).collect::<Vec<_>>(),
        [at_a],
        "and nowhere else"
    );
    world.discovery.frame(world.now, at_a, &ask(&a, 1, c.address));
    // Another host claims c.
    world.discovery.frame(world.now, at_b, &ask(&c, 2, a.address));
    world.run_for(1);
    let hosts: Vec<KnownHost> = world.discovery.state().hosts().hosts().collect();
    let known = |at: &pathloom_model::Attachment, number, place| KnownHost {
        address: at.address.v4().unwrap(),
        mac: mac(number),
        place,
    };
    assert_eq!(hosts, [known(&a, 1, at_a), known(&c, 3, at_c)]);
    let answer = world.to_hosts.iter().rev().find(|(_, _, frame)| frame[12..14] == [8, 6]).unwrap();
    assert_eq!((answer.0, answer.1), (at_a.dpid.0, at_a.port.0));
    assert_eq!(Arp::parse(&answer.2).unwrap().sender_mac, mac(3), "answered for");
}
