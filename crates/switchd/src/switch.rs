//! The switch without its surroundings: a program, the bytes of its frames, and what the kernel forwards on its behalf.

use pathloom_model::{Body, FiveTuple, Frame, Mac, Nanos, PortNo};
use pathloom_openflow::packet::path::{emit, read};
use pathloom_switching::{Outgoing, Program, Saved, SavedConnection, Stale, Tables, Used, Verdict};
use rand::seq::SliceRandom;
use rand::SeedableRng;
use rand_pcg::Pcg64;
use std::collections::BTreeMap;

/// A flow of the default forwarding that the kernel has not seen for so long is decided anew.
const IDLE: Nanos = Nanos::from_secs(30);
const ETH_VLAN: [u8; 2] = [0x81, 0x00];

/// A flow as the kernel knows it: untagged frames of a five-tuple between two stations with one DSCP, at one port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Flow {
    /// First, because flows are looked up by it.
    pub five_tuple: FiveTuple,
    /// Port that its frames come in by.
    pub in_port: PortNo,
    /// Stations.
    pub src: Mac,
    pub dst: Mac,
    pub dscp: u8,
}

/// On which grounds the kernel forwards a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ground {
    /// The way to a host.
    Default,
    /// The path of a connection by this exploration; `forward`: the flow goes from its source to its destination.
    Connection { exploration: u64, forward: bool },
}

/// What the kernel does with a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// Port that its frames leave by.
    pub out_port: PortNo,
    pub ground: Ground,
}

/// What has passed of a flow since it was remembered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Passed {
    pub last: Nanos,
    pub packets: u64,
    pub bytes: u64,
}

/// What the switch has the system do.
pub trait System {
    /// Sends a frame.
    fn send(&mut self, port: PortNo, bytes: &[u8]);
    /// Has the kernel forward a flow. Says whether it will.
    fn remember(&mut self, flow: &Flow, way: &Way) -> bool;
    /// Ends that.
    fn forget(&mut self, flow: &Flow);
    /// What has passed of a flow that the kernel forwards.
    fn passed(&self, flow: &Flow) -> Option<Passed>;
    /// All flows that the kernel forwards. It takes long: the kernel's whole table is searched.
    fn flows(&self) -> Vec<(Flow, Way, Passed)>;
}

#[derive(Clone, Copy, Debug)]
struct Known {
    way: Way,
    /// Packets and bytes that have been credited.
    packets: u64,
    bytes: u64,
    /// When it was last seen to be used.
    last: Nanos,
}

/// Flows of one port that the kernel may forward.
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
    /// In which order copies of an exploration leave. One after another, they would all choose the path by the first port.
    order: Pcg64,
}

impl Switch {
    /// A switch whose ports are down. `shares`: how many flows of a port the kernel may forward. `seed`: of the order in which
    /// copies of one frame leave.
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

    /// Goes on with what an earlier start has saved and what the kernel has been forwarding since.
    pub fn take_over(&mut self, now: Nanos, mut saved: Saved, system: &mut impl System) {
        let mut connections: BTreeMap<FiveTuple, SavedConnection> = BTreeMap::new();
        let ways: BTreeMap<Mac, PortNo> = saved.hosts.iter().map(|host| (host.mac, host.port)).collect();
        for (flow, way, passed) in system.flows() {
            match way.ground {
                Ground::Connection { exploration, forward } => {
                    let connection = connection_of(&flow, way.out_port, exploration, forward);
                    let known = connections.entry(connection.conversation.five_tuple).or_insert(connection);
                    if known.exploration < exploration {
                        *known = connection;
                    }
                }
                Ground::Default if ways.get(&flow.dst) == Some(&way.out_port) => {
                    saved.remembered.push((flow.five_tuple, flow.src, flow.dst));
                }
                Ground::Default => {
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

    /// A frame has come in.
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
        // What has become wrong goes before what is right now comes.
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
        let way = Way { out_port: out.port, ground: self.ground(&flow, out.port) };
        self.forget(&flow, system);
        if self.shares.get(&port).is_none_or(|share| share.flows < share.most) && system.remember(&flow, &way) {
            self.known.insert(flow, Known { way, packets: 0, bytes: 0, last: now });
            self.count(port, true);
        }
    }

    /// On which grounds the program has just decided about a flow.
    fn ground(&self, flow: &Flow, out_port: PortNo) -> Ground {
        match self.program.connection(flow.five_tuple) {
            Some(path) if ports_of(&path, flow) == Some((flow.in_port, out_port)) => Ground::Connection {
                exploration: path.exploration,
                forward: path.conversation.five_tuple == flow.five_tuple,
            },
            _ => Ground::Default,
        }
    }

    fn count(&mut self, port: PortNo, more: bool) {
        if let Some(share) = self.shares.get_mut(&port) {
            share.flows = if more { share.flows + 1 } else { share.flows.saturating_sub(1) };
        }
    }

    /// A port has gone up or down.
    pub fn port(&mut self, now: Nanos, port: PortNo, up: bool, system: &mut impl System) {
        self.program.set_port(now, port, up);
        self.settle(system);
    }

    /// As [`Switch::port`], before [`Switch::take_over`]: nothing is sent yet.
    pub fn prepare_port(&mut self, now: Nanos, port: PortNo, up: bool) {
        self.program.set_port(now, port, up);
    }

    /// When [`Switch::timeout`] is to be called next, at the latest.
    pub fn next_timeout(&self) -> Option<Nanos> {
        self.program.poll_timeout()
    }

    /// Credits what the kernel has forwarded, and does what is due.
    pub fn timeout(&mut self, now: Nanos, system: &mut impl System) {
        self.credit(now, system);
        self.program.handle_timeout(now);
        self.settle(system);
        let idle = |known: &Known| known.way.ground == Ground::Default && now.saturating_sub(known.last) > IDLE;
        let old: Vec<Flow> = self.known.iter().filter(|(_, known)| idle(known)).map(|(&flow, _)| flow).collect();
        old.iter().for_each(|flow| self.forget(flow, system));
    }

    /// Tells the program what the kernel has forwarded since this was last done.
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

    /// Sends what timers and repairs bring, and has the kernel forget what has become wrong.
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
                let default = |(flow, known): (&Flow, &Known)| (known.way.ground == Ground::Default).then_some(*flow);
                let flows: Vec<Flow> = self.known.iter().filter_map(default).collect();
                flows.iter().for_each(|flow| self.forget(flow, system));
                self.verify(system);
            }
        }
    }

    /// Has the kernel forget connections that have no such path any more.
    fn verify(&mut self, system: &mut impl System) {
        let wrong = |(flow, known): (&Flow, &Known)| {
            let Ground::Connection { exploration, .. } = known.way.ground else { return None };
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

    /// Sizes of the program's tables, and its counts.
    pub fn tables(&self) -> Tables {
        self.program.tables()
    }

    /// The lasting tables.
    pub fn save(&self) -> Saved {
        self.program.save()
    }

    /// What the next start can go on with, without connections: those are in the kernel.
    pub fn save_tables(&self) -> Saved {
        self.program.save_tables()
    }

    /// Flows that the kernel forwards for each port.
    pub fn shares(&self) -> &BTreeMap<PortNo, Share> {
        &self.shares
    }
}

/// Ports by which frames of a flow come in and leave by the path of its connection.
fn ports_of(path: &SavedConnection, flow: &Flow) -> Option<(PortNo, PortNo)> {
    let (src, dst) = (path.conversation.src, path.conversation.dst);
    match path.conversation.five_tuple == flow.five_tuple {
        true if (src, dst) == (flow.src, flow.dst) => Some((path.to_source, path.to_destination)),
        false if (dst, src) == (flow.src, flow.dst) => Some((path.to_destination, path.to_source)),
        _ => None,
    }
}

/// The path of a connection by one of its flows.
fn connection_of(flow: &Flow, out_port: PortNo, exploration: u64, forward: bool) -> SavedConnection {
    let own = pathloom_model::Conversation::of(flow.src, flow.dst, flow.five_tuple);
    let (conversation, to_source, to_destination) =
        if forward { (own, flow.in_port, out_port) } else { (own.reverse(), out_port, flow.in_port) };
    SavedConnection { conversation, exploration, to_source, to_destination }
}

/// All flows with a five-tuple.
fn flows_of(five_tuple: FiveTuple) -> std::ops::RangeInclusive<Flow> {
    let end =
        |port, byte, dscp| Flow { five_tuple, in_port: PortNo(port), src: Mac([byte; 6]), dst: Mac([byte; 6]), dscp };
    end(0, 0, 0)..=end(u32::MAX, u8::MAX, u8::MAX)
}

#[cfg(test)]
#[path = "switch_tests.rs"]
mod tests;
