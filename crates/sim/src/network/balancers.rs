//! Switches with load balancers ([`pathloom_switching::balancing`]): for each packet, the balancer chooses one of the next hops
//! that the rules allow. Its notes are where other runs have the entropy of a packet. All packets of such a run take the slow path
//! at switches, so runs without balancers do nothing for them.

use super::own_ports::Around;
use crate::lanes::NO_CONNECTION;
use crate::packet::{Direction, Packet, TagBits};
use crate::time::{to_nanos, to_ps, Ps};
use pathloom_model::{Fabric, Headers, LinkId, Nanos, Node, NodeId, Tier};
use pathloom_scheme::Selection;
use pathloom_switching::balancing::{
    Balancer, Conga, CongaSettings, Flowcut, Hula, HulaSettings, Neighbour, Passing, Probe, Segment, NOTE_BITS,
};
use pathloom_switching::selection::PortView;
use rand::Rng;
use rand_pcg::Pcg32;

/// Constant that makes these draws differ from others with the same seed.
const STREAM: u64 = 0x6261_6c61_6e63_6572;
/// Bytes of a probe (Katta et al. 2016, §5).
const PROBE_BYTES: u16 = 64;
/// The lane of probes.
const NO_LANE: u32 = (NO_CONNECTION as u32) << 1;

/// A switch with a balancer.
struct Balanced {
    balancer: Box<dyn Balancer>,
    rng: Pcg32,
}

/// The balancers of all switches.
pub(super) struct Balancers {
    selection: Selection,
    seed: u64,
    /// By node; `None` for hosts, and for switches without a balancer.
    switches: Vec<Option<Balanced>>,
    /// By node: the number of a switch with hosts, whatever its tier.
    tor_numbers: Vec<Option<u32>>,
    /// Number of switches with hosts.
    tor_count: u32,
    /// By slot: the numbers of the ToRs of the sender and of the receiver of the data.
    tors: Vec<[u32; 2]>,
    /// By slot: the number of connections that have had it.
    connections: Vec<u32>,
    /// Number of probes that have arrived.
    pub(super) probes_received: u64,
}

impl Balancers {
    /// The balancers for this selection, if it has any. `chooses` says which nodes have one.
    pub(super) fn new(fabric: &Fabric, selection: Selection, chooses: &[bool], seed: u64) -> Option<Balancers> {
        if !selection.has_balancer() {
            return None;
        }
        let is_tor = |node: &Node| {
            let has_hosts = node.ports.iter().any(|&link| fabric.is_host(fabric.link(link).to));
            has_hosts && node.tier != Tier::Host
        };
        let mut tor_count = 0;
        let mut tor_numbers = vec![None; fabric.nodes().len()];
        for (_, number) in fabric.nodes().iter().zip(&mut tor_numbers).filter(|(node, _)| is_tor(node)) {
            *number = Some(tor_count);
            tor_count += 1;
        }
        let mut balancers = Balancers {
            selection,
            seed,
            switches: Vec::new(),
            tor_numbers,
            tor_count,
            tors: Vec::new(),
            connections: Vec::new(),
            probes_received: 0,
        };
        let nodes = (0..fabric.nodes().len() as u32).map(NodeId);
        balancers.switches =
            nodes.map(|node| balancers.make(fabric, node, Nanos::ZERO).filter(|_| chooses[node.index()])).collect();
        Some(balancers)
    }

    /// The balancer of a switch that starts now.
    fn make(&self, fabric: &Fabric, node: NodeId, now: Nanos) -> Option<Balanced> {
        let mut rng = Pcg32::new(self.seed ^ STREAM, u64::from(node.0));
        let tier = |node: NodeId| fabric.node(node).tier;
        let neighbour = |&link: &LinkId| {
            let tier = tier(fabric.link(link).to).cmp(&tier(node));
            // A link without capacity carries nothing.
            let carries = fabric.is_switch_link(link) && fabric.link(link).settings.rate_bps > 0;
            carries.then_some(Neighbour { port: link.0, tier })
        };
        let neighbours: Vec<Neighbour> = fabric.node(node).ports.iter().filter_map(neighbour).collect();
        let balancer: Box<dyn Balancer> = match self.selection {
            _ if fabric.is_host(node) => return None,
            Selection::Conga { gap, tau } => Box::new(Conga::new(CongaSettings { gap, tau }, &neighbours)),
            Selection::Hula { gap, probe } => {
                // Otherwise the probes of all ToRs would meet.
                let phase = Nanos(now.0 + ((u128::from(rng.next_u32()) * u128::from(probe.0)) >> 32) as u64);
                let (count, own) = (self.tor_count as usize, self.tor_numbers[node.index()]);
                let tor = own.map(|number| (number, phase));
                Box::new(Hula::new(HulaSettings { gap, probe }, &neighbours, count, tor))
            }
            Selection::Flowcut => Box::new(Flowcut::default()),
            _ => return None,
        };
        Some(Balanced { balancer, rng })
    }

    /// A switch has lost power, and its balancer with it.
    pub(super) fn restart(&mut self, fabric: &Fabric, node: NodeId, now: Ps) {
        if self.switches[node.index()].is_some() {
            self.switches[node.index()] = self.make(fabric, node, to_nanos(now));
        }
    }

    /// Notes the ToRs of a subflow whose data have these headers.
    pub(super) fn open(&mut self, fabric: &Fabric, slot: usize, data: &Headers) {
        let number = |address| fabric.attachment(address).and_then(|of| self.tor_numbers[of.tor.index()]).unwrap_or(0);
        self.tors.resize(self.tors.len().max(slot + 1), [0; 2]);
        self.connections.resize(self.tors.len(), 0);
        self.connections[slot] += 1;
        self.tors[slot] = [number(data.five_tuple.src()), number(data.five_tuple.dst())];
    }

    /// A packet that has arrived by this link.
    fn passing(&self, around: Around<'_>, in_link: u32, packet: &Packet) -> Passing {
        let [from, to] = self.tors.get(packet.slot()).copied().unwrap_or_default();
        let (src_tor, dst_tor) = match packet.direction() {
            Direction::Data => (from, to),
            Direction::Ack => (to, from),
        };
        let (now, flow) = (to_nanos(around.now), packet.lane());
        let from_host = around.fabric.is_host(around.fabric.link(LinkId(in_link)).from);
        let connection = self.connections.get(packet.slot()).copied().unwrap_or_default();
        let segment = match packet.direction() {
            Direction::Data => Segment::Data { end: packet.seq + u64::from(packet.payload()) },
            Direction::Ack => Segment::Ack { of: flow ^ 1, next: packet.seq },
        };
        Passing { now, flow, connection, src_tor, dst_tor, from_host, note: packet.entropy(), segment }
    }

    /// Place of the next hop that a switch chooses among these links; `None` for the one that the hash of the five-tuple gives.
    pub(super) fn choose(
        &mut self,
        around: Around<'_>,
        in_link: u32,
        switch: NodeId,
        of: &[u32],
        packet: &Packet,
    ) -> Option<usize> {
        let passing = self.passing(around, in_link, packet);
        let Balanced { balancer, rng } = self.switches[switch.index()].as_mut()?;
        balancer.choose(&passing, of, &around.ports(of), &mut || rng.next_u32())
    }

    /// The packet with the note of the switch at which it has arrived by `in_link` and that it leaves by `out`.
    pub(super) fn with_note(&mut self, around: Around<'_>, in_link: u32, out: u32, packet: Packet) -> Packet {
        let passing = self.passing(around, in_link, &packet);
        let switch = around.fabric.link(LinkId(in_link)).to;
        let Some(Balanced { balancer, .. }) = &mut self.switches[switch.index()] else { return packet };
        let note = match (around.links[out as usize].to_host(), passing.from_host) {
            (true, true) => 0,
            (true, false) => {
                balancer.deliver(&passing);
                0
            }
            (false, _) => balancer.forward(&passing, out, around.ports(&[out]).state(0)),
        };
        debug_assert!(note < 1 << NOTE_BITS);
        packet.with_entropy(note)
    }

    /// The switch at the end of `link` handles a probe. Returns what it sends, and by which links.
    pub(super) fn handle_probe(&mut self, around: Around<'_>, link: u32, packet: &Packet) -> Vec<(u32, Packet)> {
        self.probes_received += 1;
        let (switch, back) = (around.fabric.link(LinkId(link)).to, LinkId(link).reverse().0);
        let mut probes = Vec::new();
        if let Some(Balanced { balancer, .. }) = &mut self.switches[switch.index()] {
            let probe = Probe { tor: packet.seq as u32, note: packet.entropy() };
            let state = around.ports(&[back]).state(0);
            balancer.handle_probe(to_nanos(around.now), back, state, probe, &mut probes);
        }
        packets(probes, packet.hop() + 1)
    }

    /// The probes of a switch that are due, and by which links they leave.
    pub(super) fn due_probes(&mut self, now: Ps, switch: NodeId) -> Vec<(u32, Packet)> {
        let mut probes = Vec::new();
        if let Some(Balanced { balancer, .. }) = &mut self.switches[switch.index()] {
            balancer.handle_timeout(to_nanos(now), &mut probes);
        }
        packets(probes, 0)
    }

    /// When a switch sends its next probes; `None` if it sends none.
    pub(super) fn next_probe(&self, switch: NodeId) -> Option<Ps> {
        self.switches[switch.index()].as_ref()?.balancer.poll_timeout().map(to_ps)
    }
}

/// Probes as packets that have passed this many switches.
fn packets(probes: Vec<(u32, Probe)>, hops: u8) -> Vec<(u32, Packet)> {
    let packet = |probe: Probe| Packet::new(NO_LANE, u64::from(probe.tor), 0, PROBE_BYTES, 0).with_entropy(probe.note);
    probes.into_iter().map(|(link, probe)| (link, packet(probe).after(hops, TagBits::of(None)))).collect()
}
