//! Tests of host learning at edge ports: which claims are accepted, which requests are answered, and that an attacker
//! achieves nothing.

use pathloom_discovery::arp::{Arp, ArpError, Operation};
use pathloom_discovery::{AlarmKind, HostInput, HostLearning, HostOutput, HostSettings, KnownHost, Mac, Place};
use pathloom_model::Nanos;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// A host of the test. While it is awake, it answers requests for its address.
#[derive(Clone, Copy)]
struct Station {
    known: KnownHost,
    awake: bool,
}

/// Edge ports with hosts, without delay.
struct Edge {
    learning: HostLearning,
    now: Nanos,
    stations: Vec<Station>,
    /// Outputs other than frames.
    outputs: Vec<HostOutput>,
    /// Frames sent, and their ports.
    frames: Vec<(Place, Arp)>,
    /// The hosts that result from the outputs.
    table: BTreeMap<Ipv4Addr, (Mac, Place)>,
}

fn ip(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, number)
}

fn mac(number: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, number])
}

fn port(number: u8) -> Place {
    Place::new(1 + u64::from(number / 4), 1 + u32::from(number % 4))
}

/// Host `number` at port `number`.
fn host(number: u8) -> KnownHost {
    KnownHost { address: ip(number), mac: mac(number), place: port(number) }
}

impl Edge {
    /// Creates eight ports, and a host at each of the first `hosts` ports.
    fn new(hosts: u8) -> Edge {
        Edge::with(hosts, HostSettings::default())
    }

    fn with(hosts: u8, settings: HostSettings) -> Edge {
        let mut edge = Edge {
            learning: HostLearning::new(settings),
            now: Nanos::from_secs(1),
            stations: Vec::new(),
            outputs: Vec::new(),
            frames: Vec::new(),
            table: BTreeMap::new(),
        };
        for number in 0..8 {
            edge.tell(HostInput::EdgeUp { place: port(number) });
        }
        for number in 0..hosts {
            edge.stations.push(Station { known: host(number + 1), awake: true });
            edge.stations.last_mut().unwrap().known.place = port(number);
        }
        edge
    }

    fn announced(hosts: u8) -> Edge {
        let mut edge = Edge::new(hosts);
        for station in edge.stations.clone() {
            edge.announce(station.known);
        }
        edge.outputs.clear();
        edge.frames.clear();
        edge
    }

    fn tell(&mut self, input: HostInput<'_>) {
        self.learning.handle(self.now, input);
        self.take();
    }

    fn take(&mut self) {
        while let Some(output) = self.learning.poll_output() {
            match output {
                HostOutput::Send { place, frame } => self.deliver(place, &frame),
                HostOutput::HostLearnt { address, mac, place } => {
                    assert_eq!(self.table.insert(address, (mac, place)), None, "learnt twice");
                    self.outputs.push(output);
                }
                HostOutput::HostMoved { address, mac, from, to } => {
                    let before = self.table.insert(address, (mac, to));
                    assert_eq!(before.map(|(_, place)| place), Some(from));
                    self.outputs.push(output);
                }
                HostOutput::HostGone { address, mac, place } => {
                    assert_eq!(self.table.remove(&address), Some((mac, place)));
                    self.outputs.push(output);
                }
                HostOutput::Elsewhere { .. } => {}
                HostOutput::Alarm(_) => self.outputs.push(output),
            }
        }
    }

    /// Delivers a frame to the stations at a port, which answer requests for their addresses.
    fn deliver(&mut self, place: Place, frame: &[u8]) {
        let arp = Arp::parse(frame).expect("sent frames are valid");
        self.frames.push((place, arp));
        let asked = |station: &&Station| {
            let known = station.known;
            let receives = known.place == place && (arp.to == Mac::BROADCAST || arp.to == known.mac);
            station.awake && receives && known.address == arp.target_ip && arp.sender_ip != known.address
        };
        let answers: Vec<Mac> = self.stations.iter().filter(asked).map(|station| station.known.mac).collect();
        if arp.operation == Operation::Request {
            for mac in answers {
                self.learning.handle(self.now, HostInput::Frame { place, frame: &arp.answer(mac).emit() });
            }
        }
    }

    fn send(&mut self, place: Place, arp: Arp) {
        self.tell(HostInput::Frame { place, frame: &arp.emit() });
    }

    fn announce(&mut self, known: KnownHost) {
        let KnownHost { address, mac, place } = known;
        self.send(place, Arp::request(mac, address, address, Mac::BROADCAST));
    }

    fn ask(&mut self, from: KnownHost, target: Ipv4Addr) {
        self.send(from.place, Arp::request(from.mac, from.address, target, Mac::BROADCAST));
    }

    fn run_for(&mut self, span: Nanos) {
        let end = self.now + span;
        while let Some(at) = self.learning.poll_timeout().filter(|&at| at <= end) {
            self.now = self.now.max(at);
            self.tell(HostInput::Timeout);
        }
        self.now = end;
    }

    fn known(&self, number: usize) -> KnownHost {
        self.stations[number].known
    }

    fn alarms(&self) -> Vec<(Place, AlarmKind)> {
        let of = |output: &HostOutput| match output {
            HostOutput::Alarm(alarm) => Some((alarm.place, alarm.kind)),
            _ => None,
        };
        self.outputs.iter().filter_map(of).collect()
    }

    fn is_at(&self, known: KnownHost) -> bool {
        let told = self.table.get(&known.address) == Some(&(known.mac, known.place));
        assert_eq!(told, self.learning.host(known.address) == Some(known));
        told
    }
}

#[test]
fn hosts_are_learnt_from_announcements_and_requests() {
    let mut edge = Edge::new(3);
    let (a, b) = (edge.known(0), edge.known(1));
    edge.announce(a);
    edge.ask(b, a.address);
    assert!(edge.is_at(a) && edge.is_at(b));
    assert!(edge.learning.has_hosts(a.place) && !edge.learning.has_hosts(port(6)));
    let (place, reply) = edge.frames[0];
    assert_eq!((place, reply.operation, reply.to), (b.place, Operation::Reply, b.mac));
    assert_eq!((reply.sender_mac, reply.sender_ip, reply.target_ip), (a.mac, a.address, b.address));
    assert_eq!(edge.frames.len(), 1, "nothing is flooded");
}

#[test]
fn a_request_for_an_unknown_address_goes_to_all_other_edge_ports() {
    let mut edge = Edge::new(3);
    let (a, c) = (edge.known(0), edge.known(2));
    edge.ask(a, c.address);
    let asked = edge.frames.iter().filter(|(_, arp)| arp.operation == Operation::Request).count();
    assert_eq!(
        (asked, edge.frames.iter().any(|(place, arp)| *place == a.place && arp.operation == Operation::Request)),
        (7, false)
    );
    let last = edge.frames.last().unwrap();
    assert_eq!((last.0, last.1.operation, last.1.sender_mac), (a.place, Operation::Reply, c.mac));
    assert!(edge.is_at(a) && edge.is_at(c));
}

#[test]
fn a_request_for_a_host_not_heard_recently_is_forwarded_to_it() {
    let mut edge = Edge::announced(2);
    let (a, b) = (edge.known(0), edge.known(1));
    edge.run_for(Nanos::from_secs(90));
    edge.ask(a, b.address);
    assert_eq!(edge.frames[0].0, b.place, "the request goes to this host only");
    assert_eq!((edge.frames[1].0, edge.frames[1].1.sender_mac, edge.frames.len()), (a.place, b.mac, 2));
}

#[test]
fn a_configured_address_is_accepted_only_at_its_port() {
    let mut edge = Edge::new(2);
    let (a, b) = (edge.known(0), edge.known(1));
    edge.tell(HostInput::Expected { address: b.address, place: b.place });
    edge.announce(KnownHost { place: port(5), ..b });
    assert_eq!(edge.alarms(), [(port(5), AlarmKind::Spoofed { address: b.address, mac: b.mac, owner: b.place })]);
    edge.ask(a, b.address);
    assert_eq!(edge.frames.iter().map(|(place, _)| *place).collect::<Vec<_>>(), [b.place, a.place]);
    assert!(edge.is_at(b));
}

#[test]
fn a_configured_address_that_is_not_pinned_moves_only_if_its_port_is_silent() {
    let mut edge = Edge::with(2, HostSettings { pinned: false, ..HostSettings::default() });
    let b = edge.known(1);
    let (elsewhere, thief) = (KnownHost { place: port(5), ..b }, KnownHost { place: port(6), mac: mac(77), ..b });
    edge.tell(HostInput::Expected { address: b.address, place: b.place });
    // The owner was never heard, but it answers when another host claims its address.
    edge.announce(thief);
    assert!(edge.is_at(b) && !edge.is_at(thief));
    edge.announce(thief);
    edge.run_for(Nanos::from_secs(2));
    assert!(edge.is_at(b) && !edge.alarms().is_empty());
    // A host that has moved sends repeatedly, and nobody answers at its configured port.
    let mut edge = Edge::with(2, HostSettings { pinned: false, ..HostSettings::default() });
    edge.stations[1].awake = false;
    edge.tell(HostInput::Expected { address: b.address, place: b.place });
    edge.announce(elsewhere);
    assert!(!edge.is_at(elsewhere), "a host at the configured port has one second to answer");
    edge.run_for(Nanos::from_secs(1));
    edge.announce(elsewhere);
    assert!(edge.is_at(elsewhere) && edge.alarms().is_empty());
    // If its configured port is down, the claim is accepted at once.
    let mut edge = Edge::with(2, HostSettings { pinned: false, ..HostSettings::default() });
    edge.tell(HostInput::Expected { address: b.address, place: b.place });
    edge.tell(HostInput::EdgeDown { place: b.place });
    edge.announce(elsewhere);
    assert!(edge.is_at(elsewhere));
}

#[test]
fn a_live_host_keeps_its_address_and_its_hardware_address() {
    let mut edge = Edge::announced(2);
    let victim = edge.known(0);
    let evil = port(7);
    for claim in [
        KnownHost { mac: mac(66), place: evil, ..victim },
        KnownHost { place: evil, ..victim },
        KnownHost { address: ip(99), place: evil, ..victim },
        KnownHost { mac: mac(66), ..victim },
    ] {
        edge.run_for(Nanos::from_secs(20));
        edge.outputs.clear();
        edge.announce(claim);
        assert!(edge.is_at(victim), "{claim:?}");
        edge.run_for(Nanos::from_secs(3));
        assert!(edge.is_at(victim) && !edge.is_at(claim), "{claim:?}");
        let wanted = AlarmKind::Spoofed { address: claim.address, mac: claim.mac, owner: victim.place };
        assert_eq!(edge.alarms(), [(claim.place, wanted)]);
    }
    let before = edge.frames.len();
    for _ in 0..50 {
        edge.announce(KnownHost { mac: mac(66), ..victim });
        edge.run_for(Nanos::from_millis(20));
    }
    assert_eq!(edge.frames.len(), before, "a refuted claim is not examined again at once");
}

#[test]
fn a_host_moves_when_its_old_port_is_silent() {
    let mut edge = Edge::announced(2);
    let old = edge.known(0);
    let new = KnownHost { place: port(6), ..old };
    edge.stations[0].known = new;
    edge.announce(new);
    assert!(edge.is_at(old), "the host stays until the old port was asked");
    edge.run_for(Nanos::from_millis(1100));
    assert!(edge.is_at(new));
    assert_eq!(
        edge.outputs,
        [HostOutput::HostMoved { address: old.address, mac: old.mac, from: old.place, to: new.place }]
    );
    let asked = edge.frames.iter().filter(|(place, arp)| *place == old.place && arp.is_probe()).count();
    assert_eq!(asked, 5);
    assert!(!edge.learning.has_hosts(old.place));
}

#[test]
fn a_changed_hardware_address_is_announced_to_other_hosts() {
    let mut edge = Edge::announced(2);
    let old = edge.known(0);
    let new = KnownHost { place: port(6), mac: mac(99), ..old };
    edge.stations[0].known = new;
    edge.announce(new);
    edge.run_for(Nanos::from_millis(1100));
    assert!(edge.is_at(new));
    let told: Vec<Place> =
        edge.frames.iter().filter(|(_, arp)| arp.is_announcement()).map(|(place, _)| *place).collect();
    assert_eq!(told.len(), 7);
    assert!(!told.contains(&new.place));
}

/// A host that sends nothing by itself gets another hardware address and does not announce it.
#[test]
fn a_silent_host_with_a_new_hardware_address_is_reached_again() {
    let mut edge = Edge::announced(3);
    let (a, b, c) = (edge.known(0), edge.known(1), edge.known(2));
    edge.stations[1].known.mac = mac(77);
    let renewed = edge.known(1);
    edge.run_for(Nanos::from_secs(61));
    edge.ask(a, b.address);
    let (place, reply) = *edge.frames.last().unwrap();
    assert_eq!((place, reply.operation), (b.place, Operation::Request), "asked by broadcast whether the claim is true");
    edge.run_for(Nanos::from_secs(2));
    assert!(edge.is_at(renewed) && edge.alarms().is_empty());
    edge.ask(c, b.address);
    let (place, reply) = *edge.frames.last().unwrap();
    assert_eq!((place, reply.operation, reply.sender_mac), (c.place, Operation::Reply, mac(77)));
}

/// Nobody asks for a host that changed its hardware address. The next regular request finds it.
#[test]
fn a_regular_request_finds_a_new_hardware_address() {
    let mut edge = Edge::announced(2);
    edge.stations[1].known.mac = mac(77);
    let renewed = edge.known(1);
    edge.run_for(Nanos::from_secs(302));
    assert!(edge.is_at(renewed), "{:?}", edge.table);
}

#[test]
fn a_host_leaves_with_its_port_and_may_return_or_move_at_once() {
    let mut edge = Edge::announced(2);
    let a = edge.known(0);
    edge.tell(HostInput::EdgeDown { place: a.place });
    assert!(!edge.is_at(a));
    edge.run_for(Nanos::from_secs(2));
    edge.tell(HostInput::EdgeUp { place: a.place });
    edge.run_for(Nanos::from_millis(10));
    assert!(edge.is_at(a), "asked, and it answered");
    edge.tell(HostInput::EdgeDown { place: a.place });
    let moved = KnownHost { place: port(5), ..a };
    edge.stations[0].known = moved;
    edge.announce(moved);
    assert!(edge.is_at(moved));
    assert_eq!(edge.alarms(), []);
}

#[test]
fn a_pending_claim_is_accepted_when_the_old_port_goes_down() {
    let mut edge = Edge::announced(1);
    let old = edge.known(0);
    let new = KnownHost { place: port(5), ..old };
    edge.stations.clear();
    edge.announce(new);
    assert!(edge.is_at(old));
    edge.tell(HostInput::EdgeDown { place: old.place });
    assert!(edge.is_at(new));
    assert!(matches!(edge.outputs[..], [HostOutput::HostMoved { .. }]), "{:?}", edge.outputs);
}

#[test]
fn remembered_hosts_are_asked_when_their_ports_are_up() {
    let mut edge = Edge::new(3);
    let (a, b) = (edge.known(0), edge.known(1));
    let late = Place::new(9, 1);
    edge.stations[1].known.place = late;
    edge.tell(HostInput::Remembered { host: a });
    edge.tell(HostInput::Remembered { host: KnownHost { place: late, ..b } });
    assert!(edge.is_at(a) && !edge.is_at(edge.known(1)), "one port is up, the other is not");
    edge.tell(HostInput::EdgeUp { place: late });
    assert!(edge.is_at(edge.known(1)));
    // A remembered host that does not answer at once is asked before a claim is accepted. Then it is forgotten.
    edge.stations[2].awake = false;
    let c = edge.known(2);
    edge.tell(HostInput::Remembered { host: c });
    let heir = KnownHost { mac: mac(66), place: port(7), ..c };
    edge.announce(heir);
    assert!(!edge.is_at(c) && !edge.is_at(heir));
    edge.run_for(Nanos::from_secs(2));
    assert!(edge.is_at(heir));
    assert_eq!(edge.alarms(), []);
}

#[test]
fn only_hosts_that_do_not_answer_age() {
    let mut edge = Edge::announced(2);
    edge.stations[1].awake = false;
    edge.run_for(Nanos::from_secs(302));
    assert!(edge.is_at(edge.known(0)) && !edge.is_at(edge.known(1)));
    edge.run_for(Nanos::from_secs(3600));
    assert!(edge.is_at(edge.known(0)));
    assert_eq!(edge.outputs.len(), 1);
}

#[test]
fn nothing_is_learnt_from_address_probes() {
    let mut edge = Edge::announced(2);
    let owner = edge.known(0);
    let probe = |mac, target| Arp::request(mac, Ipv4Addr::UNSPECIFIED, target, Mac::BROADCAST);
    edge.send(port(6), probe(mac(77), owner.address));
    let (place, reply) = edge.frames[0];
    assert_eq!((place, reply.sender_ip, reply.sender_mac, reply.to), (port(6), owner.address, owner.mac, mac(77)));
    edge.frames.clear();
    edge.send(owner.place, probe(owner.mac, owner.address));
    assert_eq!(edge.frames, [], "no answer to the owner itself");
    edge.send(port(6), probe(owner.mac, owner.address));
    assert!(edge.frames.iter().all(|(place, _)| *place != port(6)), "an owner that moved gets no answer");
    edge.frames.clear();
    edge.send(port(6), probe(mac(77), ip(200)));
    assert_eq!(edge.frames.len(), 7, "a request for an unknown address is forwarded");
    assert_eq!((edge.table.len(), edge.alarms()), (2, vec![]));
}

#[test]
fn frames_that_no_host_may_send_are_reported_and_dropped() {
    let mut edge = Edge::announced(1);
    let a = edge.known(0);
    let place = port(5);
    edge.announce(KnownHost { address: ip(50), mac: Mac::BROADCAST, place });
    edge.announce(KnownHost { address: ip(50), mac: HostSettings::default().own_mac, place });
    edge.announce(KnownHost { address: Ipv4Addr::new(224, 0, 0, 5), mac: mac(50), place: port(6) });
    edge.tell(HostInput::Frame { place: port(7), frame: &[0; 20] });
    let bad = |place, error| (place, AlarmKind::BadArp(error));
    let wanted = [bad(place, ArpError::SenderMac), bad(port(6), ArpError::SenderIp), bad(port(7), ArpError::NoArp)];
    assert_eq!(edge.alarms(), wanted, "one alarm per port");
    edge.announce(KnownHost { place: Place::new(77, 1), ..a });
    assert_eq!((edge.learning.off_edge(), edge.table.len()), (1, 1));
}

#[test]
fn a_flooding_host_is_limited_and_other_hosts_are_served() {
    let mut edge = Edge::announced(3);
    let (evil, a, b) = (edge.known(0), edge.known(1), edge.known(2));
    let mut answers = 0;
    for round in 0..200_000u32 {
        let [_, _, x, y] = round.to_be_bytes();
        let target = Ipv4Addr::new(10, 9, x, y);
        edge.send(evil.place, Arp::request(evil.mac, evil.address, target, Mac::BROADCAST));
        if round % 10_000 == 0 {
            edge.ask(a, b.address);
            let answered = |(place, arp): &&(Place, Arp)| *place == a.place && arp.operation == Operation::Reply;
            answers += edge.frames.iter().filter(answered).count();
            edge.frames.retain(|(_, arp)| arp.operation == Operation::Request);
        }
        edge.now += Nanos(10_000);
    }
    assert_eq!(answers, 20);
    assert_eq!(edge.alarms(), [(evil.place, AlarmKind::UnknownTargets), (evil.place, AlarmKind::ArpFlood)]);
    assert!(edge.frames.len() <= 7 * 40, "{} frames passed on", edge.frames.len());
}

#[test]
fn one_port_cannot_fill_the_table() {
    let mut edge = Edge::announced(1);
    let place = port(7);
    for number in 0..1000u32 {
        let [_, _, x, y] = number.to_be_bytes();
        edge.announce(KnownHost { address: Ipv4Addr::new(10, 7, x, y), mac: Mac([2, 7, 0, 0, x, y]), place });
        edge.run_for(Nanos::from_millis(20));
    }
    assert_eq!(edge.table.len(), 65);
    assert_eq!(edge.alarms(), [(place, AlarmKind::TooManyHosts), (place, AlarmKind::TooManyHosts)]);
    let other = KnownHost { address: ip(90), mac: mac(90), place: port(5) };
    edge.announce(other);
    assert!(edge.is_at(other));
}

/// An event at the edge in a random run.
#[derive(Clone, Debug)]
enum Step {
    /// A host announces its address.
    Speak(usize),
    /// A sender at a port claims an address with a hardware address.
    Claim {
        port: u8,
        address: u8,
        mac: u8,
    },
    /// Random bytes, and a valid frame with changed bytes.
    Junk {
        port: u8,
        bytes: Vec<u8>,
        edits: Vec<(usize, u8)>,
    },
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..4usize).prop_map(Step::Speak),
        (0..8u8, 1..12u8, 1..12u8).prop_map(|(port, address, mac)| Step::Claim { port, address, mac }),
        (0..8u8, prop::collection::vec(any::<u8>(), 0..70), prop::collection::vec((0..42usize, any::<u8>()), 0..5))
            .prop_map(|(port, bytes, edits)| Step::Junk { port, bytes, edits }),
        (0..3_000u64).prop_map(Step::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever arrives at the ports, no host that is awake ever moves, and no other host gets its address.
    #[test]
    fn no_host_moves_while_it_is_alive(all in prop::collection::vec(steps(), 1..120)) {
        let mut edge = Edge::announced(4);
        for step in all {
            match step {
                Step::Speak(number) => edge.announce(edge.known(number)),
                Step::Claim { port: at, address, mac: with } => {
                    edge.announce(KnownHost { address: ip(address), mac: mac(with), place: port(at) });
                }
                Step::Junk { port: at, bytes, edits } => {
                    edge.tell(HostInput::Frame { place: port(at), frame: &bytes });
                    let mut frame = Arp::request(mac(9), ip(9), ip(1), Mac::BROADCAST).emit();
                    edits.into_iter().for_each(|(byte, value)| frame[byte] = value);
                    edge.tell(HostInput::Frame { place: port(at), frame: &frame });
                }
                Step::Wait(ms) => edge.run_for(Nanos::from_millis(ms)),
            }
            for number in 0..4 {
                prop_assert!(edge.is_at(edge.known(number)), "host {number}");
            }
            // One hardware address is never at two ports.
            let mut places = BTreeMap::new();
            for (mac, place) in edge.table.values() {
                prop_assert_eq!(places.insert(*mac, *place).unwrap_or(*place), *place, "{}", mac);
            }
        }
    }
}
