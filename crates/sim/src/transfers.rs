//! The transfers of a run: when they start, their subflows, and their results.

use crate::ideal::Ideals;
use crate::outcome::FlowOutcome;
use crate::settings::SimError;
use crate::subflow::Subflow;
use pathloom_model::{Attachment, Fabric, FiveTuple, Nanos, PROTO_TCP, PROTO_UDP};
use pathloom_transport::mptcp::{MptcpSettings, PathManager, MOST_SUBFLOWS};
use pathloom_transport::{Settings, TimeoutWait};
use pathloom_workload::{FlowSpec, Start, Workload};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

/// Ports from which sources draw: Linux's default ephemeral range.
pub(crate) const EPHEMERAL: RangeInclusive<u16> = 32_768..=60_999;

/// State of one transfer.
#[derive(Clone, Default)]
struct Record {
    /// Five-tuple of its first subflow.
    five_tuple: Option<FiveTuple>,
    start: Option<Nanos>,
    finish: Option<Nanos>,
    /// Number of subflows whose last byte has not arrived, and number of subflows that are not closed.
    undelivered: u32,
    unclosed: u32,
    /// Time lost in time-outs until the last byte arrived. Later waits of senders are not part of the FCT.
    waited: TimeoutWait,
    /// Results of the closed subflows.
    closed: Work,
    optimum_bps: f64,
    ideal_fct: Option<Nanos>,
    /// Propagation delay there and back.
    idle_round_trip: Nanos,
}

/// Results of subflows, summed, or of a transfer without subflows.
#[derive(Clone, Copy, Default)]
pub(crate) struct Work {
    pub(crate) delivered_bytes: u64,
    /// For subflows of one connection: bytes that they have buffered because earlier bytes are missing.
    pub(crate) arrived_bytes: u64,
    /// Of open subflows only.
    pub(crate) window_bytes: u64,
    /// The shortest wait of a connection's subflows. The connection itself has waited no longer than this.
    pub(crate) least_wait: Option<TimeoutWait>,
    pub(crate) retransmits: u32,
    pub(crate) timeouts: u32,
    pub(crate) timeout_wait: TimeoutWait,
    pub(crate) packets: u64,
    pub(crate) segments: u32,
    pub(crate) reordered: u32,
}

/// Properties of a planned subflow: its interfaces, its source port, and its part of the payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub(crate) src: Attachment,
    pub(crate) dst: Attachment,
    pub(crate) src_port: u16,
    /// `None` for data without end.
    pub(crate) size_bytes: Option<u64>,
    pub(crate) service: Service,
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
    fn five_tuple(&self) -> FiveTuple {
        FiveTuple {
            src: self.src.address,
            dst: self.dst.address,
            proto: self.service.proto,
            src_port: self.src_port,
            dst_port: self.service.port,
        }
    }
}

/// The subflows of all transfers, in the order of the workload. Those of one transfer are adjacent.
pub(crate) struct Plan {
    ends: Vec<Ends>,
    /// Index of the first subflow of each transfer, and at the end the number of all subflows.
    starts: Vec<u32>,
    /// Whether the subflows of a transfer share its bytes dynamically, in one connection.
    shared: bool,
}

impl Plan {
    /// Creates a plan with these subflows, at least one for each transfer.
    pub(crate) fn new(transfers: impl IntoIterator<Item = impl IntoIterator<Item = Ends>>) -> Plan {
        let mut plan = Plan { ends: Vec::new(), starts: vec![0], shared: false };
        for subflows in transfers {
            plan.ends.extend(subflows);
            plan.starts.push(plan.ends.len() as u32);
        }
        plan
    }

    /// Plans one subflow for each transfer. Hosts with a common switch inside their server use it. Otherwise the
    /// interface of a host with several is drawn. The draws depend only on
    /// the seed and the transfer's index, so they are the same for every scheme.
    pub(crate) fn single(fabric: &Fabric, workload: &Workload, seed: u64) -> Plan {
        let interfaces = Interfaces::of(fabric);
        let mut rng = Pcg64::seed_from_u64(seed ^ 0x705f_7274);
        let draw = |flow: &FlowSpec| {
            let (src, dst) = interfaces.draw(flow, &mut rng);
            let src_port = draw_port(&mut rng);
            [Ends { src, dst, src_port, size_bytes: flow.size_bytes, service: Service::TCP }]
        };
        Plan::new(workload.flows.iter().map(draw))
    }

    /// As [`Plan::single`], over Ultra Ethernet.
    pub(crate) fn ultra_ethernet(fabric: &Fabric, workload: &Workload, seed: u64) -> Plan {
        let mut plan = Plan::single(fabric, workload, seed);
        plan.ends.iter_mut().for_each(|ends| ends.service = Service::ULTRA_ETHERNET);
        plan
    }

    /// As [`Plan::single`], over RoCE. The transfers of a job use the queue pair of their hosts, so they have the same source
    /// port, as far as it is free.
    pub(crate) fn roce(fabric: &Fabric, workload: &Workload, seed: u64) -> Plan {
        let mut plan = Plan::single(fabric, workload, seed);
        let mut ports = BTreeMap::new();
        for (ends, flow) in plan.ends.iter_mut().zip(&workload.flows) {
            ends.service = Service::ROCE;
            if flow.standing {
                ends.src_port = *ports.entry((ends.src.uplink, ends.dst.uplink)).or_insert(ends.src_port);
            }
        }
        plan
    }

    /// As [`Plan::single`], with the further subflows of MPTCP. The settings give the number of subflows per pair of
    /// addresses. The path manager gives the pairs; the pair of the first subflow comes first.
    ///
    /// # Errors
    /// A full mesh, but no sending or receiving host has more than one address; more subflows than a connection may
    /// have.
    pub(crate) fn multipath(
        fabric: &Fabric,
        workload: &Workload,
        seed: u64,
        settings: &MptcpSettings,
    ) -> Result<Plan, SimError> {
        let single = Plan::single(fabric, workload, seed);
        let mut rng = Pcg64::seed_from_u64(seed ^ 0x6a6f_696e);
        let mut plan = Plan { shared: true, ..Plan::new([[]; 0]) };
        let mut meshed = settings.manager != PathManager::Fullmesh;
        for (transfer, spec) in (0..).zip(&workload.flows) {
            let first = single.of(transfer)[0];
            let pairs = pairs_of(fabric, &first, settings.manager);
            meshed |= pairs.len() > 1;
            let count = pairs.len() * settings.subflows as usize;
            if count > MOST_SUBFLOWS as usize {
                let [src, dst] = [spec.src, spec.dst].map(|host| fabric.node(host).name.clone());
                return Err(SimError::ManySubflows { src, dst, pairs: pairs.len(), count });
            }
            for round in 0..settings.subflows {
                for (place, &(src, dst)) in pairs.iter().enumerate() {
                    let drawn = draw_port(&mut rng);
                    let src_port = if (round, place) == (0, 0) { first.src_port } else { drawn };
                    plan.ends.push(Ends { src, dst, src_port, size_bytes: spec.size_bytes, service: Service::TCP });
                }
            }
            plan.starts.push(plan.ends.len() as u32);
        }
        meshed.then_some(plan).ok_or(SimError::SingleAddresses)
    }

    /// As [`Plan::single`], with this number of streams for each transfer, but at most one per byte. Each stream has
    /// an equal part of the bytes and its own source port.
    pub(crate) fn parallel(fabric: &Fabric, workload: &Workload, seed: u64, streams: u32) -> Plan {
        let single = Plan::single(fabric, workload, seed);
        let split = |transfer: u32| {
            let first = single.of(transfer)[0];
            let most = first.size_bytes.unwrap_or(u64::MAX).max(1);
            let count = u64::from(streams).min(most);
            (0..count).map(move |index| {
                let offset = u64::from(first.src_port - EPHEMERAL.start()) + index;
                let src_port = EPHEMERAL.start() + (offset % EPHEMERAL.len() as u64) as u16;
                let size_bytes = first.size_bytes.map(|size| size / count + u64::from(index < size % count));
                Ends { src_port, size_bytes, ..first }
            })
        };
        Plan::new((0..workload.flows.len() as u32).map(split))
    }

    fn subflows(&self, transfer: u32) -> Range<usize> {
        self.starts[transfer as usize] as usize..self.starts[transfer as usize + 1] as usize
    }

    /// The subflows of a transfer.
    pub(crate) fn of(&self, transfer: u32) -> &[Ends] {
        &self.ends[self.subflows(transfer)]
    }
}

/// The interfaces of each host, by node.
struct Interfaces {
    all: Vec<Vec<Attachment>>,
    /// Those over which the host reaches hosts at other switches.
    outward: Vec<Vec<Attachment>>,
}

impl Interfaces {
    fn of(fabric: &Fabric) -> Interfaces {
        let none = vec![Vec::new(); fabric.nodes().len()];
        let mut interfaces = Interfaces { all: none.clone(), outward: none };
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
        let mut pick = |host: &[Attachment]| host[rng.random_range(0..host.len())];
        if self.all[src].len() == self.outward[src].len() && self.all[dst].len() == self.outward[dst].len() {
            return (pick(&self.all[src]), pick(&self.all[dst]));
        }
        // Over a switch inside a server, only hosts at this switch reach each other.
        let inward = self.all[src].iter().filter(|at| !self.outward[src].contains(at));
        let to = |from: &Attachment| self.all[dst].iter().copied().find(|to| to.tor == from.tor);
        let shared: Vec<(Attachment, Attachment)> = inward.filter_map(|from| Some((*from, to(from)?))).collect();
        match shared.len() {
            0 => (pick(&self.outward[src]), pick(&self.outward[dst])),
            count => shared[rng.random_range(0..count)],
        }
    }
}

fn draw_port(rng: &mut Pcg64) -> u16 {
    EPHEMERAL.start() + rng.random_range(0..EPHEMERAL.len() as u16)
}

/// Pairs of interfaces between which the subflows of one connection run. The pair of the first subflow comes first.
fn pairs_of(fabric: &Fabric, first: &Ends, manager: PathManager) -> Vec<(Attachment, Attachment)> {
    let own = (first.src, first.dst);
    if manager == PathManager::Ndiffports {
        return vec![own];
    }
    let [sources, destinations] = [own.0, own.1].map(|at| fabric.host_attachments(at.host));
    let all = sources.iter().flat_map(|&src| destinations.iter().map(move |&dst| (*src, *dst)));
    let outward = |at: &Attachment| !fabric.is_inside_server(at.tor);
    let all = all.filter(|(src, dst)| src.tor == dst.tor || outward(src) && outward(dst));
    std::iter::once(own)
        .chain(all.filter(|pair| (pair.0.uplink, pair.1.uplink) != (own.0.uplink, own.1.uplink)))
        .collect()
}

pub(crate) struct Transfers {
    workload: Arc<Workload>,
    plan: Plan,
    records: Vec<Record>,
    /// Index of the next transfer that starts at a fixed time.
    next: usize,
    /// By transfer: number of transfers that it waits for.
    waits_for: Vec<u32>,
    /// By transfer: the transfers that wait for it.
    awaited_by: Vec<Vec<u32>>,
    /// Number of finite transfers that have not finished and have started, or wait for no other any more; and of
    /// long-lived transfers that have not been stopped.
    open: usize,
}

impl Transfers {
    pub(crate) fn new(fabric: &Fabric, workload: Arc<Workload>, plan: Plan, settings: &Settings) -> Transfers {
        let count = workload.flows.len();
        let mut ideals = Ideals::new(fabric, &workload, &plan, settings);
        let mut records = vec![Record::default(); count];
        let (mut waits_for, mut awaited_by) = (vec![0; count], Vec::new());
        for (index, (record, flow)) in records.iter_mut().zip(&workload.flows).enumerate() {
            let ends = plan.of(index as u32);
            let parts = if plan.shared { 1 } else { ends.len() as u32 };
            (record.undelivered, record.unclosed) = (parts, parts);
            record.optimum_bps = ideals.optimum_bps(ends);
            record.idle_round_trip = Nanos(2 * ideals.fct(ends, 0).0);
            record.ideal_fct = flow.size_bytes.map(|size| ideals.fct(ends, size));
            if let Start::After { flows: awaited, .. } = &flow.start {
                awaited_by.resize(count, Vec::new());
                waits_for[index] = awaited.len() as u32;
                for &other in awaited {
                    awaited_by[other as usize].push(index as u32);
                }
            }
        }
        Transfers { plan, records, next: 0, waits_for, awaited_by, open: 0, workload }
    }

    pub(crate) fn spec(&self, transfer: u32) -> &FlowSpec {
        &self.workload.flows[transfer as usize]
    }

    /// Number of transfers.
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// The subflows of a transfer.
    pub(crate) fn subflows(&self, transfer: u32) -> &[Ends] {
        self.plan.of(transfer)
    }

    /// The five-tuple that the first subflow of a transfer gets if it is free when the subflow starts.
    pub(crate) fn drawn(&self, transfer: u32) -> FiveTuple {
        self.plan.of(transfer)[0].five_tuple()
    }

    /// See [`FlowOutcome::optimum_bps`] and [`FlowOutcome::ideal_fct`].
    pub(crate) fn yardsticks(&self, transfer: u32) -> (f64, Option<Nanos>) {
        let record = &self.records[transfer as usize];
        (record.optimum_bps, record.ideal_fct)
    }

    /// Time that a SYN exchange of a transfer takes in an idle network, without the time to send its small packets.
    pub(crate) fn idle_round_trip(&self, transfer: u32) -> Nanos {
        self.records[transfer as usize].idle_round_trip
    }

    /// Five-tuple of the first subflow of a transfer that has started.
    pub(crate) fn five_tuple(&self, transfer: u32) -> Option<FiveTuple> {
        self.records.get(transfer as usize)?.five_tuple
    }

    /// Start of the next transfer that starts at a fixed time.
    pub(crate) fn next_start(&self) -> Option<Nanos> {
        match self.workload.flows.get(self.next)?.start {
            Start::At(at) => Some(at),
            Start::After { .. } => None,
        }
    }

    /// Number of transfers with a fixed start time that have started.
    pub(crate) fn started(&self) -> usize {
        self.next
    }

    /// The next different times at which transfers with a fixed start time start.
    pub(crate) fn next_starts<const N: usize>(&self) -> [Option<Nanos>; N] {
        let mut later = self.workload.flows[self.next..].iter().map_while(|flow| match flow.start {
            Start::At(at) => Some(at),
            Start::After { .. } => None,
        });
        let mut next = self.next_start();
        std::array::from_fn(|_| {
            let last = next?;
            next = later.find(|&at| at > last);
            Some(last)
        })
    }

    /// Whether some transfer waits for others.
    pub(crate) fn has_chains(&self) -> bool {
        !self.awaited_by.is_empty()
    }

    /// Takes the transfer whose start [`Transfers::next_start`] returned.
    pub(crate) fn take_next(&mut self) -> u32 {
        self.next += 1;
        self.open += 1;
        self.next as u32 - 1
    }

    /// Records the start of a transfer before any of its subflows starts.
    pub(crate) fn begin(&mut self, transfer: u32, now: Nanos) {
        self.records[transfer as usize].start.get_or_insert(now);
    }

    /// A subflow of a transfer starts. Returns its five-tuple, the first that is not in use. Its source port is one
    /// of `ports`: the drawn one, if these are the ports from which it was drawn and it is free.
    pub(crate) fn start(
        &mut self,
        transfer: u32,
        ends: &Ends,
        now: Nanos,
        ports: RangeInclusive<u16>,
        in_use: impl Fn(&FiveTuple) -> bool,
    ) -> FiveTuple {
        let count = u32::from(*ports.end()) - u32::from(*ports.start()) + 1;
        let within = |steps: u32| *ports.start() + (steps % count) as u16;
        let mut five_tuple = ends.five_tuple();
        five_tuple.src_port = within(u32::from(five_tuple.src_port - EPHEMERAL.start()));
        let port = five_tuple.src_port;
        while in_use(&five_tuple) {
            five_tuple.src_port = within(u32::from(five_tuple.src_port - ports.start()) + 1);
            // All ports of this pair are in use, so the next service port is tried.
            five_tuple.dst_port += u16::from(five_tuple.src_port == port);
        }
        let record = &mut self.records[transfer as usize];
        record.five_tuple.get_or_insert(five_tuple);
        record.start.get_or_insert(now);
        five_tuple
    }

    /// This many subflows of a transfer never start, because others have carried its bytes.
    pub(crate) fn skip(&mut self, transfer: u32, subflows: u32) {
        let record = &mut self.records[transfer as usize];
        record.undelivered -= subflows;
        record.unclosed -= subflows;
    }

    /// The last byte of a subflow has arrived. If it was the last subflow of its transfer, returns the transfers that
    /// may start now, each with its delay.
    pub(crate) fn deliver(&mut self, subflow: &Subflow, now: Nanos) -> Vec<(u32, Nanos)> {
        let record = &mut self.records[subflow.transfer as usize];
        add_wait(&mut record.waited, subflow.sender.ended_timeout_wait());
        record.undelivered -= 1;
        if record.undelivered > 0 {
            return Vec::new();
        }
        self.finish(subflow.transfer, now)
    }

    /// The last byte of a connection has arrived; `waited` is the time that it lost in time-outs. Returns the
    /// transfers that may start now, each with its delay.
    pub(crate) fn deliver_connection(&mut self, transfer: u32, waited: TimeoutWait, now: Nanos) -> Vec<(u32, Nanos)> {
        self.records[transfer as usize].waited = waited;
        self.finish(transfer, now)
    }

    fn finish(&mut self, transfer: u32, now: Nanos) -> Vec<(u32, Nanos)> {
        self.records[transfer as usize].finish = Some(now);
        self.open -= 1;
        let Some(waiting) = self.awaited_by.get(transfer as usize).cloned() else { return Vec::new() };
        let mut ready = Vec::new();
        for other in waiting {
            self.waits_for[other as usize] -= 1;
            if let (0, Start::After { delay, .. }) = (self.waits_for[other as usize], &self.spec(other).start) {
                ready.push((other, *delay));
            }
        }
        self.open += ready.len();
        ready
    }

    /// The sender of a subflow has finished, or has been stopped.
    pub(crate) fn close(&mut self, subflow: &Subflow, now: Nanos) {
        let record = &mut self.records[subflow.transfer as usize];
        record.closed.add(subflow, now);
        // A connection ends as a whole.
        if !subflow.is_member() {
            record.unclosed -= 1;
            self.open -= usize::from(record.unclosed == 0 && record.finish.is_none());
        }
    }

    /// A connection has finished, or has been stopped, after it has delivered this many bytes.
    pub(crate) fn end_connection(&mut self, transfer: u32, delivered_bytes: u64) {
        let record = &mut self.records[transfer as usize];
        record.closed.delivered_bytes = delivered_bytes;
        record.closed.arrived_bytes = delivered_bytes;
        record.unclosed = 0;
        self.open -= usize::from(record.finish.is_none());
    }

    /// The sender of a transfer without subflows has finished, or has been stopped.
    pub(crate) fn end_packets(&mut self, transfer: u32, work: Work) {
        let record = &mut self.records[transfer as usize];
        record.closed = Work { window_bytes: 0, ..work };
        record.unclosed = 0;
        self.open -= usize::from(record.finish.is_none());
    }

    /// Whether all transfers that have started have finished.
    pub(crate) fn all_finished(&self) -> bool {
        self.open == 0
    }

    /// Returns the results of every transfer by `now`. Long-lived transfers are measured up to `until`. `connections`
    /// are the transfers under way that are connections of several subflows, with the bytes that have been delivered
    /// in order and in total. `packets` are the results of transfers under way that have no subflows.
    pub(crate) fn outcomes<'a>(
        &self,
        now: Nanos,
        until: Nanos,
        live: impl Iterator<Item = (usize, &'a Subflow)>,
        connections: impl Iterator<Item = (u32, [u64; 2])>,
        packets: impl Iterator<Item = (u32, Work)>,
    ) -> Vec<FlowOutcome> {
        let mut work: Vec<Work> = self.records.iter().map(|record| record.closed).collect();
        for (_, subflow) in live.filter(|(_, subflow)| !subflow.closed) {
            let work = &mut work[subflow.transfer as usize];
            work.add(subflow, now);
            work.window_bytes += subflow.sender.cwnd_bytes();
        }
        for (transfer, [delivered_bytes, arrived_bytes]) in connections {
            let work = &mut work[transfer as usize];
            work.delivered_bytes = delivered_bytes;
            work.arrived_bytes += arrived_bytes;
        }
        for (transfer, of) in packets {
            work[transfer as usize] = of;
        }
        let rows = self.workload.flows.iter().zip(&self.records).zip(work).enumerate();
        rows.map(|(index, ((spec, record), work))| outcome(index as u32, spec, record, work, until)).collect()
    }
}

impl Work {
    fn add(&mut self, subflow: &Subflow, now: Nanos) {
        self.retransmits += subflow.sender.retransmits();
        self.timeouts += subflow.sender.timeouts();
        let wait = subflow.sender.timeout_wait(now);
        if subflow.is_member() {
            // Its connection knows the bytes that it has carried in order.
            self.arrived_bytes += subflow.receiver.arrived_bytes() - subflow.receiver.delivered_bytes();
            let whole = |wait: &TimeoutWait| wait.initial.0 + wait.sampled.0;
            self.least_wait = self.least_wait.into_iter().chain([wait]).min_by_key(whole);
        } else {
            self.delivered_bytes += subflow.receiver.delivered_bytes();
            self.arrived_bytes += subflow.receiver.arrived_bytes();
            add_wait(&mut self.timeout_wait, wait);
        }
        self.packets += subflow.packets_sent;
        self.segments += subflow.receiver.segments();
        self.reordered += subflow.receiver.reordered();
    }
}

fn add_wait(sum: &mut TimeoutWait, wait: TimeoutWait) {
    sum.initial += wait.initial;
    sum.sampled += wait.sampled;
}

fn outcome(index: u32, spec: &FlowSpec, record: &Record, work: Work, until: Nanos) -> FlowOutcome {
    let throughput = match (record.start, record.finish, record.ideal_fct) {
        (Some(start), Some(finish), Some(ideal)) => Some(ideal.0 as f64 / (finish.0 - start.0).max(1) as f64),
        (Some(start), _, None) if until > start => {
            let goodput_bps = work.delivered_bytes as f64 * 8.0 / (until - start).as_secs_f64();
            Some(goodput_bps / record.optimum_bps)
        }
        _ => None,
    };
    FlowOutcome {
        index,
        src: spec.src,
        dst: spec.dst,
        five_tuple: record.five_tuple,
        size_bytes: spec.size_bytes,
        start: record.start,
        finish: record.finish,
        delivered_bytes: work.delivered_bytes,
        arrived_bytes: work.arrived_bytes,
        optimum_bps: record.optimum_bps,
        ideal_fct: record.ideal_fct,
        throughput,
        window_bytes: if record.finish.is_some() { 0 } else { work.window_bytes },
        retransmits: work.retransmits,
        timeouts: work.timeouts,
        timeout_wait: match record.finish {
            Some(_) => record.waited,
            None => work.least_wait.unwrap_or(work.timeout_wait),
        },
        packets: work.packets,
        segments: work.segments,
        reordered: work.reordered,
        coflow: spec.coflow,
    }
}
