//! The subflows of transfers, before they start: their interfaces, source ports and parts of the payload.

use crate::planes::Planes;
use crate::settings::SimError;
use crate::splitting::Split;
use pathloom_model::{Attachment, Fabric, FiveTuple, LinkId, PROTO_TCP, PROTO_UDP};
use pathloom_transport::mptcp::{MptcpSettings, PathManager, MOST_SUBFLOWS};
use pathloom_transport::TransportSpec;
use pathloom_workload::{FlowSpec, Workload};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};

/// Ports from which sources draw: Linux's default ephemeral range.
pub(crate) const EPHEMERAL: RangeInclusive<u16> = 32_768..=60_999;

/// Properties of a planned subflow: its interfaces, its source port, and its part of the payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub(crate) src: Attachment,
    pub(crate) dst: Attachment,
    pub(crate) src_port: u16,
    /// `None` for data without end.
    pub(crate) size_bytes: Option<u64>,
    pub(crate) service: Service,
    /// Entropy of its data, if hosts choose a path for each part of a transfer.
    pub(crate) entropy: u32,
}

/// Protocol and port of a receiver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Service {
    proto: u8,
    port: u16,
}

impl Service {
    /// A server over TCP.
    pub(crate) const TCP: Service = Service { proto: PROTO_TCP, port: 5001 };
    /// Ultra Ethernet over UDP, with the port that IANA has assigned to it (`uec-udp`).
    const ULTRA_ETHERNET: Service = Service { proto: PROTO_UDP, port: 4793 };
    /// RoCE version 2 over UDP (`roce`).
    const ROCE: Service = Service { proto: PROTO_UDP, port: 4791 };
}

impl Ends {
    /// The five-tuple that the subflow gets if it is free when the subflow starts.
    pub(crate) fn five_tuple(&self) -> FiveTuple {
        FiveTuple::new(self.service.proto, (self.src.address, self.src_port), (self.dst.address, self.service.port))
    }
}

/// The subflows of all transfers, in the order of the workload. Those of one transfer are adjacent.
pub(crate) struct Plan {
    ends: Vec<Ends>,
    /// Index of the first subflow of each transfer, and at the end the number of all subflows.
    starts: Vec<u32>,
    /// Whether the subflows of a transfer share its bytes dynamically, in one connection.
    pub(crate) shared: bool,
}

impl Plan {
    /// A plan without transfers.
    pub(crate) fn empty(shared: bool) -> Plan {
        Plan { ends: Vec::new(), starts: vec![0], shared }
    }

    /// Plans all transfers of a workload.
    ///
    /// # Errors
    /// See [`Planner::plan`]; also a full mesh if no sending or receiving host has more than one address.
    pub(crate) fn of_workload(
        fabric: &Fabric,
        workload: &Workload,
        transport: &TransportSpec,
        seed: u64,
    ) -> Result<Plan, SimError> {
        let mut planner = Planner::new(fabric, transport, seed);
        let mut plan = Plan::empty(transport.mptcp().is_some());
        for flow in &workload.flows {
            plan.add(&mut planner, fabric, flow)?;
        }
        planner.is_meshed().then_some(plan).ok_or(SimError::SingleAddresses)
    }

    /// Adds the subflows of a further transfer.
    ///
    /// # Errors
    /// See [`Planner::plan`]. The plan then stays as it was.
    pub(crate) fn add(&mut self, planner: &mut Planner, fabric: &Fabric, flow: &FlowSpec) -> Result<(), SimError> {
        planner.plan(fabric, flow, &mut self.ends)?;
        self.starts.push(self.ends.len() as u32);
        Ok(())
    }

    /// The same transfers, each divided in this way. Each has one subflow.
    pub(crate) fn divided(self, splits: &[Split]) -> Plan {
        let mut plan = Plan::empty(self.shared);
        for (transfer, split) in (0..).zip(splits) {
            let whole = self.of(transfer)[0];
            let parts = (0..).zip(streams_of(whole, split.parts));
            plan.ends.extend(parts.map(|(part, ends)| Ends { entropy: split.entropy(part), ..ends }));
            plan.starts.push(plan.ends.len() as u32);
        }
        plan
    }

    fn subflows(&self, transfer: u32) -> Range<usize> {
        self.starts[transfer as usize] as usize..self.starts[transfer as usize + 1] as usize
    }

    /// Sets the source port of the first subflow of a transfer.
    pub(crate) fn set_port(&mut self, transfer: u32, src_port: u16) {
        let first = self.subflows(transfer).start;
        self.ends[first].src_port = src_port;
    }

    /// The subflows of a transfer.
    pub(crate) fn of(&self, transfer: u32) -> &[Ends] {
        &self.ends[self.subflows(transfer)]
    }
}

#[cfg(test)]
impl Plan {
    /// Creates a plan with these subflows, at least one for each transfer.
    pub(crate) fn new(transfers: impl IntoIterator<Item = impl IntoIterator<Item = Ends>>) -> Plan {
        let mut plan = Plan::empty(false);
        for subflows in transfers {
            plan.ends.extend(subflows);
            plan.starts.push(plan.ends.len() as u32);
        }
        plan
    }
}

/// Plans transfers one after the other. The draws depend only on the seed and on the number of transfers before, so they
/// are the same for every scheme.
pub(crate) struct Planner {
    interfaces: Interfaces,
    rng: Pcg64,
    transport: Kind,
}

/// What a transport adds to the first subflow of a transfer.
enum Kind {
    /// Nothing; receivers have this service.
    Single(Service),
    /// RoCE. The transfers of a job use the queue pair of their hosts, so they have the same source port, as far as it is
    /// free. These are the ports, by uplinks.
    Roce(BTreeMap<(LinkId, LinkId), u16>),
    /// This number of streams for each transfer, but at most one per byte. Each stream has an equal part of the bytes and
    /// its own source port.
    Streams(u32),
    /// The further subflows of MPTCP. The settings give the number of subflows per pair of addresses. The path manager
    /// gives the pairs; the pair of the first subflow comes first.
    Multipath {
        settings: MptcpSettings,
        rng: Pcg64,
        /// Whether some transfer has several pairs of addresses, if that is required.
        meshed: bool,
    },
}

impl Planner {
    pub(crate) fn new(fabric: &Fabric, transport: &TransportSpec, seed: u64) -> Planner {
        let transport = match transport {
            TransportSpec::Tcp(_) => Kind::Single(Service::TCP),
            TransportSpec::Uec(_) => Kind::Single(Service::ULTRA_ETHERNET),
            TransportSpec::Roce(_) => Kind::Roce(BTreeMap::new()),
            TransportSpec::Streams(streams) => Kind::Streams(streams.streams),
            TransportSpec::Mptcp(mptcp) => Kind::Multipath {
                settings: mptcp.clone(),
                rng: Pcg64::seed_from_u64(seed ^ 0x6a6f_696e),
                meshed: mptcp.manager != PathManager::Fullmesh,
            },
        };
        Planner { interfaces: Interfaces::of(fabric), rng: Pcg64::seed_from_u64(seed ^ 0x705f_7274), transport }
    }

    /// Whether the path manager found several pairs of addresses for some transfer, or needs none.
    pub(crate) fn is_meshed(&self) -> bool {
        !matches!(self.transport, Kind::Multipath { meshed: false, .. })
    }

    /// Adds the subflows of the next transfer to `plan`. Hosts with a common switch inside their server use it. Otherwise
    /// the interface of a host with several is drawn.
    ///
    /// # Errors
    /// More subflows than a connection may have. Nothing is added then.
    fn plan(&mut self, fabric: &Fabric, flow: &FlowSpec, plan: &mut Vec<Ends>) -> Result<(), SimError> {
        let (src, dst) = self.interfaces.draw(flow, &mut self.rng);
        let src_port = draw_port(&mut self.rng);
        let mut first = Ends { src, dst, src_port, size_bytes: flow.size_bytes, service: Service::TCP, entropy: 0 };
        match &mut self.transport {
            Kind::Single(service) => plan.push(Ends { service: *service, ..first }),
            Kind::Roce(ports) => {
                first.service = Service::ROCE;
                if flow.standing {
                    first.src_port = *ports.entry((src.uplink, dst.uplink)).or_insert(src_port);
                }
                plan.push(first);
            }
            Kind::Streams(streams) => plan.extend(streams_of(first, *streams)),
            Kind::Multipath { settings, rng, meshed } => {
                let pairs = pairs_of(fabric, &self.interfaces.planes, &first, settings.manager);
                *meshed |= pairs.len() > 1;
                let count = pairs.len() * settings.subflows as usize;
                if count > MOST_SUBFLOWS as usize {
                    let [src, dst] = [flow.src, flow.dst].map(|host| fabric.node(host).name.clone());
                    return Err(SimError::ManySubflows { src, dst, pairs: pairs.len(), count });
                }
                for round in 0..settings.subflows {
                    for (place, &(src, dst)) in pairs.iter().enumerate() {
                        let drawn = draw_port(rng);
                        let src_port = if (round, place) == (0, 0) { first.src_port } else { drawn };
                        plan.push(Ends { src, dst, src_port, ..first });
                    }
                }
            }
        }
        Ok(())
    }
}

/// The streams of a transfer whose first one would carry all of it.
fn streams_of(first: Ends, streams: u32) -> impl Iterator<Item = Ends> {
    let most = first.size_bytes.unwrap_or(u64::MAX).max(1);
    let count = u64::from(streams).min(most);
    (0..count).map(move |index| {
        let offset = u64::from(first.src_port - EPHEMERAL.start()) + index;
        let src_port = EPHEMERAL.start() + (offset % EPHEMERAL.len() as u64) as u16;
        let size_bytes = first.size_bytes.map(|size| size / count + u64::from(index < size % count));
        Ends { src_port, size_bytes, ..first }
    })
}

/// The interfaces of each host, by node.
struct Interfaces {
    all: Vec<Vec<Attachment>>,
    /// Those over which the host reaches hosts at other switches.
    outward: Vec<Vec<Attachment>>,
    planes: Planes,
}

impl Interfaces {
    fn of(fabric: &Fabric) -> Interfaces {
        let none = vec![Vec::new(); fabric.nodes().len()];
        let mut interfaces = Interfaces { all: none.clone(), outward: none, planes: Planes::of(fabric) };
        for &attachment in fabric.attachments() {
            interfaces.all[attachment.host.index()].push(attachment);
            if !fabric.is_inside_server(attachment.tor) {
                interfaces.outward[attachment.host.index()].push(attachment);
            }
        }
        interfaces
    }

    /// Draws the interfaces of a flow.
    fn draw(&self, flow: &FlowSpec, rng: &mut Pcg64) -> (Attachment, Attachment) {
        let [src, dst] = [flow.src.index(), flow.dst.index()];
        if self.all[src].len() == self.outward[src].len() && self.all[dst].len() == self.outward[dst].len() {
            return self.draw_outward(src, dst, rng);
        }
        // Over a switch inside a server, only hosts at this switch reach each other.
        let inward = self.all[src].iter().filter(|at| !self.outward[src].contains(at));
        let to = |from: &Attachment| self.all[dst].iter().copied().find(|to| to.tor == from.tor);
        let shared: Vec<(Attachment, Attachment)> = inward.filter_map(|from| Some((*from, to(from)?))).collect();
        match shared.len() {
            0 => self.draw_outward(src, dst, rng),
            count => shared[rng.random_range(0..count)],
        }
    }

    /// Draws interfaces of two hosts, by node, over which they reach each other outside their servers: in one plane.
    fn draw_outward(&self, src: usize, dst: usize, rng: &mut Pcg64) -> (Attachment, Attachment) {
        let (sources, destinations) = (&self.outward[src], &self.outward[dst]);
        if self.planes.are_several() {
            let pairs = sources.iter().flat_map(|one| destinations.iter().map(move |other| (*one, *other)));
            let joined: Vec<(Attachment, Attachment)> =
                pairs.filter(|(one, other)| self.planes.join(one, other)).collect();
            if !joined.is_empty() {
                return joined[rng.random_range(0..joined.len())];
            }
        }
        let mut pick = |host: &[Attachment]| host[rng.random_range(0..host.len())];
        (pick(sources), pick(destinations))
    }
}

fn draw_port(rng: &mut Pcg64) -> u16 {
    EPHEMERAL.start() + rng.random_range(0..EPHEMERAL.len() as u16)
}

/// Pairs of interfaces between which the subflows of one connection run. The pair of the first subflow comes first.
fn pairs_of(fabric: &Fabric, planes: &Planes, first: &Ends, manager: PathManager) -> Vec<(Attachment, Attachment)> {
    let own = (first.src, first.dst);
    if manager == PathManager::Ndiffports {
        return vec![own];
    }
    let [sources, destinations] = [own.0, own.1].map(|at| fabric.host_attachments(at.host));
    let all = sources.iter().flat_map(|&src| destinations.iter().map(move |&dst| (*src, *dst)));
    let outward = |at: &Attachment| !fabric.is_inside_server(at.tor);
    let all = all.filter(|(src, dst)| src.tor == dst.tor || outward(src) && outward(dst) && planes.join(src, dst));
    std::iter::once(own)
        .chain(all.filter(|pair| (pair.0.uplink, pair.1.uplink) != (own.0.uplink, own.1.uplink)))
        .collect()
}
