//! The transfers of a run: when they start, by which subflows, and what they came to.

use crate::ideal::Ideals;
use crate::outcome::FlowOutcome;
use crate::settings::SimError;
use crate::subflow::Subflow;
use pathloom_model::{Attachment, Fabric, FiveTuple, Nanos, PROTO_TCP};
use pathloom_transport::mptcp::{MptcpSettings, PathManager, MOST_SUBFLOWS};
use pathloom_transport::{Settings, TimeoutWait};
use pathloom_workload::{FlowSpec, Start, Workload};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

/// Ports that sources draw from: Linux's default ephemeral range.
pub(crate) const EPHEMERAL: RangeInclusive<u16> = 32_768..=60_999;
/// Port that receivers listen on.
const SERVICE_PORT: u16 = 5001;

/// What is known of one transfer.
#[derive(Clone, Default)]
struct Record {
    /// That of its first subflow.
    five_tuple: Option<FiveTuple>,
    start: Option<Nanos>,
    finish: Option<Nanos>,
    /// Subflows whose last byte has not arrived, and subflows that are not closed.
    undelivered: u32,
    unclosed: u32,
    /// Time lost in time-outs until the last byte arrived; what senders wait for later is no part of the FCT.
    waited: TimeoutWait,
    /// What the subflows that are closed came to.
    closed: Work,
    optimum_bps: f64,
    ideal_fct: Option<Nanos>,
}

/// What subflows have come to, summed.
#[derive(Clone, Copy, Default)]
struct Work {
    delivered_bytes: u64,
    /// Of a connection of several subflows, what its subflows hold back because something before it is missing.
    arrived_bytes: u64,
    /// Of subflows that are open.
    window_bytes: u64,
    /// The least of the waits of a connection's subflows: for so long at most did it wait itself.
    least_wait: Option<TimeoutWait>,
    retransmits: u32,
    timeouts: u32,
    timeout_wait: TimeoutWait,
    packets: u64,
    reordered: u32,
}

/// What a subflow is to be: its interfaces, its source port, and its part of the payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub(crate) src: Attachment,
    pub(crate) dst: Attachment,
    pub(crate) src_port: u16,
    /// `None` for data without end.
    pub(crate) size_bytes: Option<u64>,
}

impl Ends {
    /// The five-tuple that the subflow has if that is free when it starts.
    fn five_tuple(&self) -> FiveTuple {
        FiveTuple {
            src: self.src.address,
            dst: self.dst.address,
            proto: PROTO_TCP,
            src_port: self.src_port,
            dst_port: SERVICE_PORT,
        }
    }
}

/// The subflows of all transfers, those of one together, in the order of the workload.
pub(crate) struct Plan {
    ends: Vec<Ends>,
    /// Where the subflows of each transfer begin, and where the last ones end.
    starts: Vec<u32>,
    /// Whether the subflows of a transfer share its bytes as they go, in one connection.
    shared: bool,
}

impl Plan {
    /// A plan with these subflows, at least one, for each transfer.
    pub(crate) fn new(transfers: impl IntoIterator<Item = impl IntoIterator<Item = Ends>>) -> Plan {
        let mut plan = Plan { ends: Vec::new(), starts: vec![0], shared: false };
        for subflows in transfers {
            plan.ends.extend(subflows);
            plan.starts.push(plan.ends.len() as u32);
        }
        plan
    }

    /// One subflow for each transfer, between interfaces that are drawn where a host has several. The draws depend on the
    /// seed and the transfer's index alone, so they are the same for every scheme.
    pub(crate) fn single(fabric: &Fabric, workload: &Workload, seed: u64) -> Plan {
        let mut by_host: Vec<Vec<Attachment>> = vec![Vec::new(); fabric.nodes().len()];
        for &attachment in fabric.attachments() {
            by_host[attachment.host.index()].push(attachment);
        }
        let mut rng = Pcg64::seed_from_u64(seed ^ 0x705f_7274);
        let draw = |flow: &FlowSpec| {
            let mut pick = |host: &[Attachment]| host[rng.random_range(0..host.len())];
            let (src, dst) = (pick(&by_host[flow.src.index()]), pick(&by_host[flow.dst.index()]));
            let src_port = draw_port(&mut rng);
            [Ends { src, dst, src_port, size_bytes: flow.size_bytes }]
        };
        Plan::new(workload.flows.iter().map(draw))
    }

    /// As [`Plan::single`], and the further subflows of MPTCP: as many per pair of addresses as the settings say, over the
    /// pairs that its path manager takes, the first one's first.
    ///
    /// # Errors
    /// A full mesh where no host that sends or receives has more than one address; more subflows than a connection may have.
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
                    plan.ends.push(Ends { src, dst, src_port, size_bytes: spec.size_bytes });
                }
            }
            plan.starts.push(plan.ends.len() as u32);
        }
        meshed.then_some(plan).ok_or(SimError::NoMesh)
    }

    /// As [`Plan::single`], with so many streams for each transfer, each with an equal part of its bytes and a source port of
    /// its own; fewer where there are fewer bytes.
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

fn draw_port(rng: &mut Pcg64) -> u16 {
    EPHEMERAL.start() + rng.random_range(0..EPHEMERAL.len() as u16)
}

/// Pairs of interfaces that subflows of one connection run between, that of the first one first.
fn pairs_of(fabric: &Fabric, first: &Ends, manager: PathManager) -> Vec<(Attachment, Attachment)> {
    let own = (first.src, first.dst);
    if manager == PathManager::Ndiffports {
        return vec![own];
    }
    let [sources, destinations] = [own.0, own.1].map(|at| fabric.host_attachments(at.host));
    let all = sources.iter().flat_map(|&src| destinations.iter().map(move |&dst| (*src, *dst)));
    std::iter::once(own)
        .chain(all.filter(|pair| (pair.0.uplink, pair.1.uplink) != (own.0.uplink, own.1.uplink)))
        .collect()
}

pub(crate) struct Transfers {
    workload: Arc<Workload>,
    plan: Plan,
    records: Vec<Record>,
    /// Next of those that start at a time.
    next: usize,
    /// By transfer: how many it waits for.
    waits_for: Vec<u32>,
    /// By transfer: who waits for it.
    awaited_by: Vec<Vec<u32>>,
    /// Finite transfers that have started, or wait for no other any more, and have not finished; and long-lived ones
    /// that have not been stopped.
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

    /// The five-tuple that the first subflow of a transfer has if that is free when it starts.
    pub(crate) fn drawn(&self, transfer: u32) -> FiveTuple {
        self.plan.of(transfer)[0].five_tuple()
    }

    /// See [`FlowOutcome::optimum_bps`] and [`FlowOutcome::ideal_fct`].
    pub(crate) fn yardsticks(&self, transfer: u32) -> (f64, Option<Nanos>) {
        let record = &self.records[transfer as usize];
        (record.optimum_bps, record.ideal_fct)
    }

    /// Five-tuple of the first subflow of a transfer that has started.
    pub(crate) fn five_tuple(&self, transfer: u32) -> Option<FiveTuple> {
        self.records.get(transfer as usize)?.five_tuple
    }

    /// When the next transfer with a time of its own starts.
    pub(crate) fn next_start(&self) -> Option<Nanos> {
        match self.workload.flows.get(self.next)?.start {
            Start::At(at) => Some(at),
            Start::After { .. } => None,
        }
    }

    /// Transfers with a time of their own that have started.
    pub(crate) fn started(&self) -> usize {
        self.next
    }

    /// The next instants at which transfers with a time of their own start.
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

    /// Takes the transfer that [`Transfers::next_start`] spoke of.
    pub(crate) fn take_next(&mut self) -> u32 {
        self.next += 1;
        self.open += 1;
        self.next as u32 - 1
    }

    /// A transfer starts, although none of its subflows does yet.
    pub(crate) fn begin(&mut self, transfer: u32, now: Nanos) {
        self.records[transfer as usize].start.get_or_insert(now);
    }

    /// A subflow of a transfer starts; returns its five-tuple, the first that is not in use. Its source port is one of
    /// `ports`: the one drawn for it, where these are the ports that it was drawn from.
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
            // All ports of this pair are taken: go on with the next service port.
            five_tuple.dst_port += u16::from(five_tuple.src_port == port);
        }
        let record = &mut self.records[transfer as usize];
        record.five_tuple.get_or_insert(five_tuple);
        record.start.get_or_insert(now);
        five_tuple
    }

    /// So many subflows of a transfer never start: others have carried its bytes.
    pub(crate) fn skip(&mut self, transfer: u32, subflows: u32) {
        let record = &mut self.records[transfer as usize];
        record.undelivered -= subflows;
        record.unclosed -= subflows;
    }

    /// The last byte of a subflow has arrived. Returns the transfers that may start now, if it was the last of its transfer,
    /// and after which delay.
    pub(crate) fn deliver(&mut self, subflow: &Subflow, now: Nanos) -> Vec<(u32, Nanos)> {
        let record = &mut self.records[subflow.transfer as usize];
        add_wait(&mut record.waited, subflow.sender.ended_timeout_wait());
        record.undelivered -= 1;
        if record.undelivered > 0 {
            return Vec::new();
        }
        self.finish(subflow.transfer, now)
    }

    /// The last byte of a connection has arrived, which lost this time in time-outs. Returns the transfers that may start
    /// now, and after which delay.
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

    /// The sender of a subflow is done, or has been stopped.
    pub(crate) fn close(&mut self, subflow: &Subflow, now: Nanos) {
        let record = &mut self.records[subflow.transfer as usize];
        record.closed.add(subflow, now);
        // A connection ends as a whole.
        if !subflow.is_member() {
            record.unclosed -= 1;
            self.open -= usize::from(record.unclosed == 0 && record.finish.is_none());
        }
    }

    /// A connection is done, or has been stopped, having delivered so many bytes.
    pub(crate) fn end_connection(&mut self, transfer: u32, delivered_bytes: u64) {
        let record = &mut self.records[transfer as usize];
        record.closed.delivered_bytes = delivered_bytes;
        record.closed.arrived_bytes = delivered_bytes;
        record.unclosed = 0;
        self.open -= usize::from(record.finish.is_none());
    }

    /// Whether nothing that has started is still to finish.
    pub(crate) fn all_finished(&self) -> bool {
        self.open == 0
    }

    /// What every transfer has come to by `now`. Long-lived ones are measured up to `until`. `connections` are the transfers
    /// that are connections of several subflows, and under way, with the bytes that they have delivered.
    pub(crate) fn outcomes<'a>(
        &self,
        now: Nanos,
        until: Nanos,
        live: impl Iterator<Item = (usize, &'a Subflow)>,
        connections: impl Iterator<Item = (u32, [u64; 2])>,
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
            // What it has carried in order is known to its connection.
            self.arrived_bytes += subflow.receiver.arrived_bytes() - subflow.receiver.delivered_bytes();
            let whole = |wait: &TimeoutWait| wait.initial.0 + wait.sampled.0;
            self.least_wait = self.least_wait.into_iter().chain([wait]).min_by_key(whole);
        } else {
            self.delivered_bytes += subflow.receiver.delivered_bytes();
            self.arrived_bytes += subflow.receiver.arrived_bytes();
            add_wait(&mut self.timeout_wait, wait);
        }
        self.packets += subflow.packets_sent;
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
        reordered: work.reordered,
        coflow: spec.coflow,
    }
}
