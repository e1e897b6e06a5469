//! Exhaustive tests of every order of frames on two spines and two or three leaves. Each state of the fabric is visited
//! once.
//!
//! Links may reorder frames here, although real links do not. The time does not advance.

use super::net::{identity, mac_of, tuple};
use crate::program::{Outgoing, Program};
use crate::programs::{Selection, Settings, TcpPath};
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::{
    Arp, Body, Fabric, FiveTuple, Frame, Headers, LinkId, Mac, Nanos, NodeId, PortNo, TCP_ACK, TCP_SYN,
};
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{Hash, Hasher};
use std::rc::Rc;

const NOW: Nanos = Nanos::from_secs(100);

/// Number of frames that hosts send per connection.
const STEPS: u8 = 4;
const SYN: u8 = 0;
const SYN_ACK: u8 = 1;
// Data is 2.
const ACK: u8 = 3;
/// Identifier of all frames that switches create.
const NO_HOST: u8 = u8::MAX;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Flight {
    link: LinkId,
    frame: Frame,
    id: u8,
}

/// An event that may happen once, at any moment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Mishap {
    Nothing,
    Reboot(NodeId),
    Cut(LinkId),
}

#[derive(Clone)]
struct State {
    programs: BTreeMap<NodeId, (u64, Rc<TcpPath>)>,
    flights: Vec<Flight>,
    /// Bit mask of the frames that hosts have received.
    received: u64,
    /// Switches that have accepted an exploration, with the identifier of its frame.
    explored: BTreeSet<(u8, NodeId)>,
    mishap: Mishap,
    cut: Option<LinkId>,
}

fn fingerprint(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

struct Search<'a> {
    fabric: &'a Fabric,
    connections: Vec<FiveTuple>,
    settings: Settings,
    seen: HashSet<(u64, u64)>,
    ends: usize,
    steps: u64,
}

impl Search<'_> {
    fn start(&self) -> State {
        let mut programs = BTreeMap::new();
        for &node in self.fabric.switches() {
            let mut program = self.boot(node, 0);
            // The switch has already heard the hosts of the leaf.
            for attachment in self.fabric.attachments().iter().filter(|one| one.tor == node) {
                let port = self.fabric.link(attachment.uplink).to_port;
                let (src, ip) = (mac_of(attachment.address), attachment.address);
                let arp = Arp { request: false, sender_mac: src, sender_ip: ip, target_mac: src, target_ip: ip };
                program.decide(NOW, port, &Frame { src, dst: Mac([2; 6]), body: Body::Arp(arp) });
                while program.poll_emission().is_some() {}
            }
            programs.insert(node, (fingerprint(&program), Rc::new(program)));
        }
        let (received, explored) = (0, BTreeSet::new());
        let mut state = State { programs, flights: Vec::new(), received, explored, mishap: Mishap::Nothing, cut: None };
        for connection in 0..self.connections.len() as u8 {
            self.host_sends(&mut state, connection, SYN);
        }
        state
    }

    fn boot(&self, node: NodeId, boot: u64) -> TcpPath {
        let settings =
            Settings { quiet: if boot == 0 { Nanos::ZERO } else { self.settings.quiet }, ..self.settings.clone() };
        let mut program = TcpPath::new(NOW, identity(self.fabric, node, boot, false), settings, Selection::AllTcp);
        for port in 1..=self.fabric.node(node).ports.len() as u32 {
            program.set_port(NOW, PortNo(port), true);
        }
        program
    }

    fn host_sends(&self, state: &mut State, connection: u8, step: u8) {
        let forward = self.connections[usize::from(connection)];
        let five_tuple = if step == SYN_ACK || step == ACK { forward.reverse() } else { forward };
        let tcp_flags = [TCP_SYN, TCP_SYN | TCP_ACK, TCP_ACK, TCP_ACK][usize::from(step)];
        let body = Body::Ip(Headers { tcp_flags, ..Headers::plain(five_tuple) });
        let frame = Frame { src: mac_of(five_tuple.src()), dst: mac_of(five_tuple.dst()), body };
        let Some(attachment) = self.fabric.attachment(five_tuple.src()) else { return };
        state.flights.push(Flight { link: attachment.uplink, frame, id: connection * STEPS + step });
    }

    fn key(state: &State) -> (u64, u64) {
        let programs: Vec<u64> = state.programs.values().map(|(print, _)| *print).collect();
        let rest = (state.received, &state.explored, state.mishap, state.cut);
        // Frames under way are a multiset: their order in the list does not matter.
        let flights = state.flights.iter().fold(0u64, |sum, flight| sum.wrapping_add(fingerprint(flight)));
        let squares = state.flights.iter().fold(0u64, |sum, flight| {
            let print = fingerprint(&(flight, 1u8));
            sum.wrapping_add(print.wrapping_mul(print | 1))
        });
        (fingerprint(&(&programs, flights, &rest)), fingerprint(&(squares, &programs, rest, 2u8)))
    }

    /// Delivers one frame.
    fn deliver(&self, state: &mut State, index: usize) -> Result<(), String> {
        let flight = state.flights.swap_remove(index);
        let (to, port) = (self.fabric.link(flight.link).to, self.fabric.link(flight.link).to_port);
        if self.fabric.is_host(to) {
            return self.at_host(state, flight);
        }
        let Some((_, program)) = state.programs.get(&to) else { return Ok(()) };
        let mut program = TcpPath::clone(program);
        let verdict = program.decide(NOW, port, &flight.frame);
        let explores =
            matches!(flight.frame.body, Body::Path(message) if message.kind == pathloom_model::PathKind::Request);
        if explores && !verdict.emissions.is_empty() && !state.explored.insert((flight.id, to)) {
            return Err(format!("{to:?} accepted exploration {} twice", flight.id));
        }
        for out in verdict.emissions {
            self.send(state, to, out, flight.id);
        }
        self.put(state, to, program);
        Ok(())
    }

    /// Sends the frames that a program has queued, and stores the program.
    fn put(&self, state: &mut State, node: NodeId, mut program: TcpPath) {
        program.take_stale();
        while let Some(out) = program.poll_emission() {
            self.send(state, node, out, NO_HOST);
        }
        state.programs.insert(node, (fingerprint(&program), Rc::new(program)));
    }

    fn send(&self, state: &mut State, node: NodeId, out: Outgoing, id: u8) {
        let Some(link) = self.fabric.out_link(node, out.port) else { return };
        if state.cut.is_none_or(|cut| cut.cable() != link.cable()) {
            state.flights.push(Flight { link, frame: out.frame, id });
        }
    }

    fn at_host(&self, state: &mut State, flight: Flight) -> Result<(), String> {
        let Body::Ip(headers) = flight.frame.body else { return Ok(()) };
        if self.fabric.attachment(headers.five_tuple.dst()).map(|one| one.host)
            != Some(self.fabric.link(flight.link).to)
        {
            return Ok(());
        }
        let bit = 1u64 << flight.id;
        if state.received & bit != 0 {
            return Err(format!("host received frame {} twice", flight.id));
        }
        state.received |= bit;
        let (connection, step) = (flight.id / STEPS, flight.id % STEPS);
        if step != ACK {
            self.host_sends(state, connection, step + 1);
        }
        Ok(())
    }

    /// Performs the mishap.
    fn strike(&self, state: &mut State) {
        match std::mem::replace(&mut state.mishap, Mishap::Nothing) {
            Mishap::Nothing => {}
            Mishap::Reboot(node) => {
                let program = self.boot(node, 1);
                self.put(state, node, program);
            }
            Mishap::Cut(cable) => {
                state.cut = Some(cable);
                state.flights.retain(|flight| flight.link.cable() != cable.cable());
                for link in [cable, cable.reverse()] {
                    let link = self.fabric.link(link);
                    let Some((_, program)) = state.programs.get(&link.from) else { continue };
                    let mut program = TcpPath::clone(program);
                    program.set_port(NOW, link.from_port, false);
                    self.put(state, link.from, program);
                }
            }
        }
    }

    /// Visits every state that can follow. With `works`, every connection must be complete when no frame is under way.
    fn visit(&mut self, first: State, works: bool) -> Result<(), String> {
        let mut open = vec![first];
        while let Some(state) = open.pop() {
            if !self.seen.insert(Search::key(&state)) {
                continue;
            }
            if state.flights.is_empty() && state.mishap == Mishap::Nothing {
                self.ends += 1;
                let all = (1u64 << (self.connections.len() as u8 * STEPS)) - 1;
                if works && state.received != all {
                    return Err(format!("a connection is stuck: {:b} of {all:b}", state.received));
                }
            }
            for index in 0..state.flights.len() {
                let mut next = state.clone();
                self.deliver(&mut next, index)?;
                self.steps += 1;
                open.push(next);
            }
            if state.mishap != Mishap::Nothing {
                let mut next = state.clone();
                self.strike(&mut next);
                open.push(next);
            }
        }
        Ok(())
    }
}

/// Creates a fabric with two spines, and one host at each leaf.
fn fabric(leaves: usize) -> Fabric {
    fabric_from_spec(&format!("leaf-spine:spines=2,leaves={leaves},hosts=1")).unwrap()
}

/// Creates a search over connections between leaves.
fn search<'a>(fabric: &'a Fabric, ends: &[(usize, usize)], settings: Settings) -> Search<'a> {
    let address = |index: usize| fabric.attachments()[index].address;
    let connection =
        |(number, &(src, dst)): (usize, &(usize, usize))| tuple(address(src), address(dst), 1000 + number as u16);
    let connections = ends.iter().enumerate().map(connection).collect();
    let settings = Settings { hello: None, ..settings };
    Search { fabric, connections, settings, seen: HashSet::new(), ends: 0, steps: 0 }
}

/// Visits all states and returns their number. `mishap` may happen once, at any moment.
fn visit(fabric: &Fabric, ends: &[(usize, usize)], settings: Settings, mishap: Mishap) -> Result<usize, String> {
    let mut search = search(fabric, ends, settings);
    let first = State { mishap, ..search.start() };
    let result = search.visit(first, mishap == Mishap::Nothing);
    let (leaves, states) = (fabric.tors().len(), search.seen.len());
    println!(
        "2 spines, {leaves} leaves, {} connections, {mishap:?}: {states} states, {} steps, {} ends",
        ends.len(),
        search.steps,
        search.ends
    );
    result.map(|()| states)
}

fn mishaps(fabric: &Fabric) -> Vec<Mishap> {
    let reboots = fabric.switches().iter().map(|&node| Mishap::Reboot(node));
    reboots.chain(fabric.switch_cables().map(Mishap::Cut)).collect()
}

#[test]
fn connections_work_in_every_order() {
    let settings = Settings::default();
    assert_eq!(visit(&fabric(3), &[(0, 2)], settings.clone(), Mishap::Nothing), Ok(1127));
    let two = visit(&fabric(2), &[(0, 1), (1, 0)], settings, Mishap::Nothing);
    assert!(two.as_ref().is_ok_and(|&states| states > 1000), "{two:?}");
}

#[test]
#[ignore = "1.3 million states; make test-long runs it"]
fn two_connections_over_three_leaves_work_in_every_order() {
    // Connections share no entry, so the states are all pairs of states of one connection.
    let states = visit(&fabric(3), &[(0, 2), (1, 2)], Settings::default(), Mishap::Nothing);
    assert_eq!(states, Ok(1127 * 1127));
}

#[test]
fn some_order_is_wrong_if_late_copies_are_accepted() {
    let settings = Settings { late_copies_pass: true, ..Settings::default() };
    let error = visit(&fabric(3), &[(0, 2)], settings, Mishap::Nothing).unwrap_err();
    assert!(error.contains("twice"), "{error}");
}

#[test]
fn a_restart_or_a_cut_at_any_moment_causes_no_duplicate() {
    let fabric = fabric(2);
    for mishap in mishaps(&fabric) {
        let states = visit(&fabric, &[(0, 1)], Settings::default(), mishap);
        assert!(states.is_ok(), "{mishap:?}: {states:?}");
    }
}

#[test]
#[ignore = "millions of states; make test-long runs it"]
fn a_restart_at_any_moment_over_three_leaves_causes_no_duplicate() {
    let fabric = fabric(3);
    for &node in fabric.switches() {
        let states = visit(&fabric, &[(0, 2)], Settings::default(), Mishap::Reboot(node));
        assert!(states.is_ok(), "{node:?}: {states:?}");
    }
}

#[test]
fn a_restart_without_quiet_time_causes_duplicates() {
    let fabric = fabric(2);
    let settings = Settings { quiet: Nanos::ZERO, ..Settings::default() };
    let wrong = fabric
        .switches()
        .iter()
        .find_map(|&node| visit(&fabric, &[(0, 1)], settings.clone(), Mishap::Reboot(node)).err());
    assert!(wrong.is_some_and(|why| why.contains("twice")));
}
