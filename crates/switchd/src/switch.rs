//! The switch without input and output: a program, the bytes of its frames, and the flows that the kernel forwards.

use pathloom_model::{Body, FiveTuple, Frame, Mac, Nanos, PortNo};
use pathloom_openflow::packet::path::{emit, read};
use pathloom_switching::{Outgoing, Program, Saved, SavedConnection, Stale, Tables, Used, Verdict};
use rand::seq::SliceRandom;
use rand::SeedableRng;
use rand_pcg::Pcg64;
use std::collections::BTreeMap;

/// After this time without a frame, the kernel no longer forwards a flow of the default forwarding. The program decides
/// about its next frame.
const IDLE: Nanos = Nanos::from_secs(30);
const ETH_VLAN: [u8; 2] = [0x81, 0x00];
/// Maximum number of flows with one five-tuple that the kernel forwards: with each DSCP, a five-tuple is another flow.
const MOST_OF_ONE_TUPLE: usize = 4;

/// A flow in the form of the kernel's table: untagged frames of a five-tuple between two stations with one DSCP, at one
/// port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Flow {
    /// The first field, because flows are sorted and looked up by it.
    pub five_tuple: FiveTuple,
    /// Port at which the frames arrive.
    pub in_port: PortNo,
    /// Source and destination station.
    pub src: Mac,
    pub dst: Mac,
    pub dscp: u8,
}

/// Reason for which the kernel forwards a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ForwardingReason {
    /// The way to a host in the default forwarding.
    Default,
    /// The path that this exploration found for a connection. `forward`: the flow goes from the source of the
    /// exploration to its destination.
    Connection { exploration: u64, forward: bool },
}

/// How the kernel forwards a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// Port by which the frames leave.
    pub out_port: PortNo,
    pub reason: ForwardingReason,
}

/// Counters of a flow since it was remembered, and the time of its last frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Passed {
    pub last: Nanos,
    pub packets: u64,
    pub bytes: u64,
}

/// Operations of the system that the switch uses.
pub trait System {
    /// Sends a frame.
    fn send(&mut self, port: PortNo, bytes: &[u8]);
    /// Makes the kernel forward a flow. Returns whether the kernel accepts the flow.
    fn remember(&mut self, flow: &Flow, way: &Way) -> bool;
    /// Makes the kernel stop forwarding a flow.
    fn forget(&mut self, flow: &Flow);
    /// Returns the counters of a flow that the kernel forwards.
    fn passed(&self, flow: &Flow) -> Option<Passed>;
    /// Returns all flows that the kernel forwards. This is slow, because it reads the whole table of the kernel.
    fn flows(&self) -> Vec<(Flow, Way, Passed)>;
}

#[derive(Clone, Copy, Debug)]
struct Known {
    way: Way,
    /// Packets and bytes that were already credited.
    packets: u64,
    bytes: u64,
    /// Time of the last known frame.
    last: Nanos,
}

/// Number of flows of one port that the kernel forwards, and its limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    pub flows: usize,
    pub most: usize,
}

/// A switch.
pub struct Switch {
    program: Box<dyn Program>,
    known: BTreeMap<Flow, Known>,
    shares: BTreeMap<PortNo, Share>,
    buffer: Vec<u8>,
    /// Source of the random order in which copies of an exploration leave. With a fixed order, all explorations would
    /// choose the path by the first port.
    order: Pcg64,
}

impl Switch {
    /// Creates a switch whose ports are down. `shares` contains the maximum number of flows of each port that the
    /// kernel forwards. `seed` is the seed of the order in which copies of one frame leave.
    pub fn new(program: Box<dyn Program>, shares: impl Iterator<Item = (PortNo, usize)>, seed: u64) -> Switch {
        let shares = shares.map(|(port, most)| (port, Share { flows: 0, most })).collect();
        Switch {
            program,
            known: BTreeMap::new(),
            shares,
            buffer: Vec::with_capacity(2048),
            order: Pcg64::seed_from_u64(seed),
        }
    }

    /// Continues with the state that an earlier start has saved, and with the flows that the kernel still forwards.
    pub fn take_over(&mut self, now: Nanos, mut saved: Saved, system: &mut impl System) {
        let mut connections: BTreeMap<FiveTuple, SavedConnection> = BTreeMap::new();
        let host_ports: BTreeMap<Mac, PortNo> = saved.hosts.iter().map(|host| (host.mac, host.port)).collect();
        for (flow, way, passed) in system.flows() {
            match way.reason {
                ForwardingReason::Connection { exploration, forward } => {
                    let connection = connection_of(&flow, way.out_port, exploration, forward);
                    let known = connections.entry(connection.conversation.five_tuple).or_insert(connection);
                    if known.exploration < exploration {
                        *known = connection;
                    }
                }
                ForwardingReason::Default if host_ports.get(&flow.dst) == Some(&way.out_port) => {
                    saved.remembered.push((flow.five_tuple, flow.src, flow.dst));
                }
                ForwardingReason::Default => {
                    system.forget(&flow);
                    continue;
                }
            }
            self.known
                .insert(flow, Known { way, packets: passed.packets, bytes: passed.bytes, last: passed.last.max(now) });
            self.count(flow.in_port, true);
        }
        saved.connections = connections.into_values().collect();
        self.program.restore(now, &saved);
        self.settle(system);
        self.verify(system);
    }

    /// Handles a frame that arrived at a port. `tci` is its VLAN tag, if the kernel took one out of `bytes`.
    pub fn frame(&mut self, now: Nanos, port: PortNo, tci: Option<u16>, bytes: &[u8], system: &mut impl System) {
        let tagged;
        let bytes = match (tci, bytes.split_at_checked(12)) {
            (Some(tci), Some((addresses, rest))) => {
                tagged = [addresses, &ETH_VLAN, &tci.to_be_bytes(), rest].concat();
                &tagged
            }
            _ => bytes,
        };
        let Ok(found) = read(bytes) else {
            self.program.note_unreadable(port);
            return;
        };
        let mut verdict = self.program.decide(now, port, &found.frame);
        self.send(&mut verdict.emissions, found.packet, system);
        // Decisions that have become wrong are removed before the new decision is added.
        self.settle(system);
        self.remember(now, port, &found.frame, &verdict, system);
    }

    fn remember(&mut self, now: Nanos, port: PortNo, frame: &Frame, verdict: &Verdict, system: &mut impl System) {
        let (Some(five_tuple), Body::Ip(headers), [out]) = (verdict.remember, frame.body, &verdict.emissions[..])
        else {
            return;
        };
        if headers.tag.is_some() || headers.five_tuple != five_tuple {
            return;
        }
        let flow = Flow { five_tuple, in_port: port, src: frame.src, dst: frame.dst, dscp: headers.dscp };
        let way = Way { out_port: out.port, reason: self.forwarding_reason(&flow, out.port) };
        self.forget(&flow, system);
        let few = self.known.range(flows_of(five_tuple)).count() < MOST_OF_ONE_TUPLE;
        let has_share = self.shares.get(&port).is_none_or(|share| share.flows < share.most);
        if few && has_share && system.remember(&flow, &way) {
            self.known.insert(flow, Known { way, packets: 0, bytes: 0, last: now });
            self.count(port, true);
        }
    }

    /// Returns the reason of the program's latest decision about a flow.
    fn forwarding_reason(&self, flow: &Flow, out_port: PortNo) -> ForwardingReason {
        match self.program.connection(flow.five_tuple) {
            Some(path) if ports_of(&path, flow) == Some((flow.in_port, out_port)) => ForwardingReason::Connection {
                exploration: path.exploration,
                forward: path.conversation.five_tuple == flow.five_tuple,
            },
            _ => ForwardingReason::Default,
        }
    }

    fn count(&mut self, port: PortNo, more: bool) {
        if let Some(share) = self.shares.get_mut(&port) {
            share.flows = if more { share.flows + 1 } else { share.flows.saturating_sub(1) };
        }
    }

    /// Handles a port that went up or down.
    pub fn port(&mut self, now: Nanos, port: PortNo, up: bool, system: &mut impl System) {
        self.program.set_port(now, port, up);
        self.settle(system);
    }

    /// Like [`Switch::port`], but for use before [`Switch::take_over`]: nothing is sent yet.
    pub fn prepare_port(&mut self, now: Nanos, port: PortNo, up: bool) {
        self.program.set_port(now, port, up);
    }

    /// Latest time at which [`Switch::timeout`] must be called next.
    pub fn next_timeout(&self) -> Option<Nanos> {
        self.program.poll_timeout()
    }

    /// Credits the frames that the kernel has forwarded, and performs the actions that are due.
    pub fn timeout(&mut self, now: Nanos, system: &mut impl System) {
        self.credit(now, system);
        self.program.handle_timeout(now);
        self.settle(system);
        let idle =
            |known: &Known| known.way.reason == ForwardingReason::Default && now.saturating_sub(known.last) > IDLE;
        let old: Vec<Flow> = self.known.iter().filter(|(_, known)| idle(known)).map(|(&flow, _)| flow).collect();
        old.iter().for_each(|flow| self.forget(flow, system));
    }

    /// Reports to the program the frames that the kernel has forwarded since the last call.
    pub fn credit(&mut self, now: Nanos, system: &mut impl System) {
        for (flow, known) in &mut self.known {
            let Some(passed) = system.passed(flow) else { continue };
            let (before, packets) = (known.packets, passed.packets);
            if packets > before {
                known.packets = packets;
                known.last = passed.last.min(now);
                let used = Used { last: known.last, packets: packets - before, bytes: passed.bytes - known.bytes };
                known.bytes = passed.bytes;
                self.program.credit(flow.five_tuple, used);
            }
        }
    }

    fn send(&mut self, emissions: &mut [Outgoing], packet: &[u8], system: &mut impl System) {
        emissions.shuffle(&mut self.order);
        for out in emissions {
            self.buffer.clear();
            emit(&out.frame, packet, &mut self.buffer);
            system.send(out.port, &self.buffer);
        }
    }

    /// Sends the frames of timers and repairs, and removes the flows from the kernel whose decisions have become wrong.
    fn settle(&mut self, system: &mut impl System) {
        let mut emissions: Vec<Outgoing> = std::iter::from_fn(|| self.program.poll_emission()).collect();
        self.send(&mut emissions, &[], system);
        match self.program.take_stale() {
            Stale::Nothing => {}
            Stale::Flows(tuples) => {
                for tuple in tuples {
                    let flows: Vec<Flow> = self.known.range(flows_of(tuple)).map(|(&flow, _)| flow).collect();
                    flows.iter().for_each(|flow| self.forget(flow, system));
                }
            }
            Stale::Everything => {
                let default =
                    |(flow, known): (&Flow, &Known)| (known.way.reason == ForwardingReason::Default).then_some(*flow);
                let flows: Vec<Flow> = self.known.iter().filter_map(default).collect();
                flows.iter().for_each(|flow| self.forget(flow, system));
                self.verify(system);
            }
        }
    }

    /// Removes flows of connections from the kernel if the connection no longer has this path.
    fn verify(&mut self, system: &mut impl System) {
        let wrong = |(flow, known): (&Flow, &Known)| {
            let ForwardingReason::Connection { exploration, .. } = known.way.reason else { return None };
            let path = self.program.connection(flow.five_tuple).filter(|path| path.exploration == exploration);
            let ports = path.and_then(|path| ports_of(&path, flow));
            (ports != Some((flow.in_port, known.way.out_port))).then_some(*flow)
        };
        let flows: Vec<Flow> = self.known.iter().filter_map(wrong).collect();
        flows.iter().for_each(|flow| self.forget(flow, system));
    }

    fn forget(&mut self, flow: &Flow, system: &mut impl System) {
        if self.known.remove(flow).is_some() {
            self.count(flow.in_port, false);
            system.forget(flow);
        }
    }

    /// Sizes of the program's tables, and its counters.
    pub fn tables(&self) -> Tables {
        self.program.tables()
    }

    /// Returns the state of the program that is saved.
    pub fn save(&self) -> Saved {
        self.program.save()
    }

    /// Like [`Switch::save`], but without connections, because the kernel contains them.
    pub fn save_tables(&self) -> Saved {
        self.program.save_tables()
    }

    /// Number of flows that the kernel forwards for each port, and its limit.
    pub fn shares(&self) -> &BTreeMap<PortNo, Share> {
        &self.shares
    }
}

/// Returns the input port and the output port of a flow on the path of its connection.
fn ports_of(path: &SavedConnection, flow: &Flow) -> Option<(PortNo, PortNo)> {
    let (src, dst) = (path.conversation.src, path.conversation.dst);
    match path.conversation.five_tuple == flow.five_tuple {
        true if (src, dst) == (flow.src, flow.dst) => Some((path.to_source, path.to_destination)),
        false if (dst, src) == (flow.src, flow.dst) => Some((path.to_destination, path.to_source)),
        _ => None,
    }
}

/// Returns the path of a connection, reconstructed from one of its flows.
fn connection_of(flow: &Flow, out_port: PortNo, exploration: u64, forward: bool) -> SavedConnection {
    let own = pathloom_model::Conversation::of(flow.src, flow.dst, flow.five_tuple);
    let (conversation, to_source, to_destination) =
        if forward { (own, flow.in_port, out_port) } else { (own.reverse(), out_port, flow.in_port) };
    SavedConnection { conversation, exploration, to_source, to_destination }
}

/// Returns the range of all flows with a five-tuple.
fn flows_of(five_tuple: FiveTuple) -> std::ops::RangeInclusive<Flow> {
    let end =
        |port, byte, dscp| Flow { five_tuple, in_port: PortNo(port), src: Mac([byte; 6]), dst: Mac([byte; 6]), dscp };
    end(0, 0, 0)..=end(u32::MAX, u8::MAX, u8::MAX)
}

#[cfg(test)]
#[path = "switch_tests.rs"]
mod tests;
