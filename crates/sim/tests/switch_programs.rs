//! Runs over switches with programs, here with the simplest program: a learning switch on fabrics without loops.

use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{Body, Fault, FiveTuple, Frame, Headers, LinkId, Mac, Nanos, PortNo, TCP_SYN};
use pathloom_sim::{ControlSettings, Fate, Outcome, SeenPacket, SimError, SimSettings, Simulation, Tap};
use pathloom_switching::deployment::{Deployment, Mark, Marking};
use pathloom_switching::program::DropCause;
use pathloom_switching::programs::Identity;
use pathloom_switching::{Outgoing, Program, Stale, Tables, Used, Verdict};
use pathloom_transport::TransportSpec;
use pathloom_workload::TrafficSpec;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// What happened at all learning switches together.
#[derive(Default)]
struct Told {
    credited: u64,
    starts: Vec<Identity>,
    requests: u64,
}

/// Learns at which port a host is, and floods frames for unknown hosts.
struct Learner {
    up: BTreeSet<PortNo>,
    hosts: BTreeMap<Mac, PortNo>,
    stale: bool,
    told: Arc<Mutex<Told>>,
}

impl Program for Learner {
    fn decide(&mut self, _now: Nanos, in_port: PortNo, frame: &Frame) -> Verdict {
        if matches!(frame.body, Body::Arp(arp) if arp.request) {
            self.told.lock().unwrap().requests += 1;
        }
        self.stale |= self.hosts.insert(frame.src, in_port).is_some_and(|port| port != in_port);
        let frame = *frame;
        match self.hosts.get(&frame.dst) {
            Some(&port) if port == in_port => Verdict::drop(DropCause::WrongPort),
            Some(&port) => {
                let remember = match frame.body {
                    Body::Ip(headers) => Some(headers.five_tuple),
                    _ => None,
                };
                Verdict { remember, ..Verdict::one(port, frame) }
            }
            None => {
                let others = self.up.iter().filter(|&&port| port != in_port);
                Verdict::all(others.map(|&port| Outgoing { port, frame }).collect())
            }
        }
    }

    fn handle_timeout(&mut self, _now: Nanos) {}

    fn poll_timeout(&self) -> Option<Nanos> {
        None
    }

    fn poll_emission(&mut self) -> Option<Outgoing> {
        None
    }

    fn set_port(&mut self, _now: Nanos, port: PortNo, up: bool) {
        if up {
            self.up.insert(port);
        } else {
            self.up.remove(&port);
            self.hosts.retain(|_, at| *at != port);
            self.stale = true;
        }
    }

    fn take_stale(&mut self) -> Stale {
        match std::mem::take(&mut self.stale) {
            true => Stale::Everything,
            false => Stale::Nothing,
        }
    }

    fn credit(&mut self, _five_tuple: FiveTuple, used: Used) {
        self.told.lock().unwrap().credited += used.packets;
    }

    fn note_unreadable(&mut self, _in_port: PortNo) {}

    fn tables(&self) -> Tables {
        Tables { hosts: self.hosts.len(), ..Tables::default() }
    }
}

struct Case {
    fabric: &'static str,
    traffic: &'static str,
    faults: &'static [&'static str],
    elephants: Option<Marking>,
    arp_age: Nanos,
    arp_retry: Nanos,
}

const TREE: &str = "dumbbell:hosts=4,rate=1Gbps,buffer=50";
const CASE: Case = Case {
    fabric: TREE,
    traffic: "web-search:load=0.4,pattern=random",
    faults: &[],
    elephants: None,
    arp_age: Nanos::from_secs(60),
    arp_retry: Nanos::from_secs(1),
};

impl Case {
    fn settings(&self, told: &Arc<Mutex<Told>>) -> SimSettings {
        let fabric = Arc::new(fabric_from_spec(self.fabric).unwrap());
        let duration = Nanos::from_millis(500);
        let traffic = TrafficSpec::parse(self.traffic).unwrap();
        let told = told.clone();
        let make = move |_now: Nanos, start: Identity| {
            told.lock().unwrap().starts.push(start);
            let (up, hosts, told) = (BTreeSet::new(), BTreeMap::new(), told.clone());
            Box::new(Learner { up, hosts, stale: false, told }) as Box<dyn Program + Send>
        };
        let &Case { arp_age, arp_retry, .. } = self;
        let elephants = self.elephants.clone();
        SimSettings {
            workload: Arc::new(traffic.generate(&fabric, duration, 1, None).unwrap()),
            central: None,
            programs: Some(Deployment { make: Arc::new(make), arp_age, arp_retry, jitter: Nanos::ZERO, elephants }),
            successor: None,
            transport: TransportSpec::parse("newreno").unwrap(),
            control: ControlSettings::default(),
            duration,
            drain: 40,
            faults: self.faults.iter().map(|text| Fault::parse(&fabric, text).unwrap()).collect(),
            seed: 1,
            fabric,
        }
    }

    fn run(&self) -> (Outcome, Arc<Mutex<Told>>) {
        let told = Arc::default();
        let mut simulation = Simulation::new(self.settings(&told)).unwrap();
        simulation.advance(simulation.end());
        let outcome = simulation.outcome();
        assert!(outcome.conserves_packets(), "{:?}", outcome.packets);
        (outcome, told)
    }
}

fn unfinished(outcome: &Outcome) -> usize {
    outcome.flows.iter().filter(|flow| flow.start.is_some() && flow.finish.is_none()).count()
}

#[test]
fn transfers_finish_over_switches_without_rules() {
    let (outcome, told) = CASE.run();
    assert!(outcome.flows.len() > 20 && unfinished(&outcome) == 0);
    assert_eq!(outcome.control.messages, 0);
    let programs = outcome.programs.unwrap();
    assert!(programs.arp.frames > 0 && programs.arp.bytes == 60 * programs.arp.frames, "{programs:?}");
    assert_eq!((programs.hosts_max, programs.exploration.frames), (8, 0));
    assert!(told.lock().unwrap().credited * 2 > outcome.packets.hops / 2, "most frames are forwarded from the cache");
}

#[test]
fn cached_decisions_change_no_result() {
    let told = Arc::default();
    let mut forgetful = Simulation::new(CASE.settings(&told)).unwrap();
    forgetful.forget_decisions();
    forgetful.advance(forgetful.end());
    let (outcome, _) = CASE.run();
    assert_eq!((forgetful.outcome().flows, forgetful.outcome().packets), (outcome.flows, outcome.packets));
    assert_eq!(told.lock().unwrap().credited, 0);
}

/// Records the segments that every connection sends on the uplinks of hosts.
#[derive(Default)]
struct FirstSegments {
    uplinks: BTreeSet<LinkId>,
    seen: BTreeMap<FiveTuple, Vec<(u64, Headers)>>,
}

impl Tap for FirstSegments {
    const ON: bool = true;

    fn seen(&mut self, now_ps: u64, link: LinkId, packet: &SeenPacket, _fate: Fate) {
        if self.uplinks.contains(&link) && !packet.is_ack {
            self.seen.entry(packet.headers.five_tuple).or_default().push((now_ps, packet.headers));
        }
    }
}

#[test]
fn a_host_resolves_the_address_then_opens_the_connection_then_sends_data() {
    let case = Case { traffic: "incast:senders=1,size=10KB,jitter=0ns", ..CASE };
    let settings = case.settings(&Arc::default());
    let uplinks = settings.fabric.attachments().iter().map(|at| at.uplink).collect();
    let tap = FirstSegments { uplinks, ..FirstSegments::default() };
    let mut simulation = Simulation::with_tap(settings, tap, None).unwrap();
    simulation.advance(simulation.end());
    let outcome = simulation.outcome();
    let start_ps = outcome.flows[0].start.unwrap().0 * 1000;
    let sent = simulation.tap_mut().seen.values().next().unwrap().clone();
    // Request and reply have 60 bytes each, over three links of 1 Gb/s. SYN and SYN+ACK have 66.
    let round = |bytes: u64| 2 * 3 * bytes * 8 * 1_000;
    assert!(sent[0].0 >= start_ps + round(60), "the SYN waits for the ARP reply: {sent:?}");
    assert_eq!(sent[0].1.tcp_flags & TCP_SYN, TCP_SYN);
    assert!(sent[1].0 >= sent[0].0 + round(66), "data wait for the SYN+ACK");
    assert_eq!(sent[1].1.tcp_flags & TCP_SYN, 0);
}

#[test]
fn resolved_addresses_are_kept_until_they_expire() {
    let requests = |arp_age| Case { arp_age, ..CASE }.run().1.lock().unwrap().requests;
    let (kept, not_kept) = (requests(Nanos::from_secs(60)), requests(Nanos::ZERO));
    assert!(kept < not_kept / 2, "{kept} {not_kept}");
}

#[test]
fn a_lost_request_is_repeated_after_the_time_that_hosts_wait() {
    // The only path is down when the first requests are sent.
    let faults = &["0s:down:e0-e1", "300ms:up:e0-e1"];
    let traffic = "incast:senders=7,size=10KB,jitter=0ns";
    for (arp_retry, most) in [(Nanos::from_secs(1), 1_100), (Nanos::from_millis(400), 500)] {
        let (outcome, _) = Case { traffic, faults, arp_retry, ..CASE }.run();
        let fct = outcome.flows.iter().map(|flow| flow.finish.unwrap() - flow.start.unwrap()).max().unwrap();
        assert!(arp_retry < fct && fct < Nanos::from_millis(most), "{fct:?}");
    }
}

#[test]
fn packets_are_conserved_when_cables_and_switches_fail() {
    let faults = &["100ms:down:e0-e1", "150ms:up:e0-e1", "200ms:down:e1", "260ms:up:e1", "300ms:reboot:e0"];
    let (outcome, told) = Case { faults, ..CASE }.run();
    assert_eq!(unfinished(&outcome), 0);
    let starts = told.lock().unwrap().starts.clone();
    let boots: BTreeMap<Mac, BTreeSet<u64>> = starts.iter().fold(BTreeMap::new(), |mut boots, start| {
        boots.entry(start.mac).or_insert_with(BTreeSet::new).insert(start.boot);
        boots
    });
    let starts_of = |mac: &Mac| starts.iter().filter(|start| start.mac == *mac).count();
    assert!(boots.iter().all(|(mac, of)| of.len() == starts_of(mac)), "no two starts have the same number: {starts:?}");
}

#[test]
fn hosts_mark_only_elephants() {
    let ports = 20_000..=20_999;
    let elephants = |mark| Some(Marking { above_bytes: 1_000_000, mark });
    let (plain, _) = CASE.run();
    let (by_port, _) = Case { elephants: elephants(Mark::SourcePorts(ports.clone())), ..CASE }.run();
    let mut marked = 0;
    for (flow, same) in by_port.flows.iter().zip(&plain.flows).filter(|(flow, _)| flow.start.is_some()) {
        let port = flow.five_tuple.unwrap().src_port();
        let is_elephant = flow.size_bytes.unwrap() > 1_000_000;
        assert_eq!(ports.contains(&port), is_elephant, "{flow:?}");
        assert!(is_elephant || flow.five_tuple == same.five_tuple, "other flows keep the ports that were drawn");
        marked += usize::from(is_elephant);
    }
    assert!(0 < marked && marked < by_port.flows.len());
    let case = Case { elephants: elephants(Mark::Dscp(46)), ..CASE };
    for flow in Simulation::new(case.settings(&Arc::default())).unwrap().offered() {
        let expected = if flow.spec.size_bytes.unwrap() > 1_000_000 { 46 } else { 0 };
        assert_eq!(flow.dscp, expected, "{flow:?}");
    }
}

#[test]
fn connections_without_a_syn_are_refused() {
    let transport = TransportSpec::parse("newreno:handshake=off").unwrap();
    let refused = Simulation::new(SimSettings { transport, ..CASE.settings(&Arc::default()) });
    assert_eq!(refused.err(), Some(SimError::NoHandshake));
}
