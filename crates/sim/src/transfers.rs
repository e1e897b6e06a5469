//! The transfers of a run: when they start, their subflows, and their results.

use crate::ideal::Ideals;
use crate::outcome::FlowOutcome;
use crate::plan::{Ends, Plan, Planner, EPHEMERAL};
use crate::settings::SimError;
use crate::subflow::Subflow;
use pathloom_model::{Fabric, FiveTuple, Nanos};
use pathloom_transport::{Settings, TimeoutWait};
use pathloom_workload::{FlowSpec, Start, Workload};
use std::ops::RangeInclusive;
use std::sync::Arc;

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

impl Record {
    /// The record of a transfer that has not started. Its subflows have these ends, and `shared` tells whether they share
    /// its bytes in one connection.
    fn of(flow: &FlowSpec, ends: &[Ends], shared: bool, ideals: &mut Ideals) -> Record {
        let parts = if shared { 1 } else { ends.len() as u32 };
        Record {
            undelivered: parts,
            unclosed: parts,
            optimum_bps: ideals.optimum_bps(ends),
            idle_round_trip: Nanos(2 * ideals.fct(ends, 0).0),
            ideal_fct: flow.size_bytes.map(|size| ideals.fct(ends, size)),
            ..Record::default()
        }
    }
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
    /// What it takes to add transfers; `None` if all transfers are known from the start.
    additions: Option<Box<Additions>>,
}

/// State of a run whose driver adds transfers.
struct Additions {
    planner: Planner,
    ideals: Ideals,
    /// Transfers that have finished since the driver was last informed.
    news: Vec<u32>,
}

impl Transfers {
    pub(crate) fn new(fabric: &Arc<Fabric>, workload: Arc<Workload>, plan: Plan, settings: &Settings) -> Transfers {
        let count = workload.flows.len();
        let mut ideals = Ideals::new(fabric, &workload, &plan, settings);
        let mut records = vec![Record::default(); count];
        let (mut waits_for, mut awaited_by) = (vec![0; count], Vec::new());
        for (index, (record, flow)) in records.iter_mut().zip(&workload.flows).enumerate() {
            *record = Record::of(flow, plan.of(index as u32), plan.shared, &mut ideals);
            if let Start::After { flows: awaited, .. } = &flow.start {
                awaited_by.resize(count, Vec::new());
                waits_for[index] = awaited.len() as u32;
                for &other in awaited {
                    awaited_by[other as usize].push(index as u32);
                }
            }
        }
        Transfers { plan, records, next: 0, waits_for, awaited_by, open: 0, workload, additions: None }
    }

    /// Lets a driver add transfers to these, of which there are none yet.
    pub(crate) fn accept(&mut self, fabric: &Arc<Fabric>, planner: Planner, settings: &Settings) {
        let ideals = Ideals::new(fabric, &self.workload, &self.plan, settings);
        self.additions = Some(Box::new(Additions { planner, ideals, news: Vec::new() }));
    }

    /// Adds a transfer, which counts as started. Returns its number; `None` if this run accepts no transfers.
    ///
    /// # Errors
    /// It would have more subflows than a connection may have.
    pub(crate) fn add(&mut self, fabric: &Fabric, flow: FlowSpec) -> Result<Option<u32>, SimError> {
        let Some(additions) = &mut self.additions else { return Ok(None) };
        self.plan.add(&mut additions.planner, fabric, &flow)?;
        let transfer = self.records.len() as u32;
        let ends = self.plan.of(transfer);
        self.records.push(Record::of(&flow, ends, self.plan.shared, &mut additions.ideals));
        self.waits_for.push(0);
        Arc::make_mut(&mut self.workload).flows.push(flow);
        self.next += 1;
        self.open += 1;
        Ok(Some(transfer))
    }

    /// Whether transfers have finished of which the driver does not know.
    pub(crate) fn has_news(&self) -> bool {
        self.additions.as_ref().is_some_and(|additions| !additions.news.is_empty())
    }

    /// Moves the transfers that have finished since the last call to `into`, in the order of their ends.
    pub(crate) fn take_news(&mut self, into: &mut Vec<u32>) {
        if let Some(additions) = &mut self.additions {
            into.append(&mut additions.news);
        }
    }

    pub(crate) fn spec(&self, transfer: u32) -> &FlowSpec {
        &self.workload.flows[transfer as usize]
    }

    /// Whether some transfer began before the run.
    pub(crate) fn any_under_way(&self) -> bool {
        self.workload.flows.iter().any(|flow| flow.under_way.is_some())
    }

    /// Sets the source port that the only subflow of a transfer gets if it is free when the subflow starts.
    pub(crate) fn set_port(&mut self, transfer: u32, src_port: u16) {
        self.plan.set_port(transfer, src_port);
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

    /// Number of subflows of the next transfer, and of those that start before it could end.
    pub(crate) fn first_subflows(&self) -> usize {
        let Some(first) = self.next_start() else { return 0 };
        let end = self.yardsticks(self.next as u32).1.map(|ideal| first + ideal);
        let together = self.workload.flows[self.next..].iter().take_while(|flow| match flow.start {
            Start::At(at) => end.is_none_or(|end| at < end),
            Start::After { .. } => false,
        });
        together.zip(self.next as u32..).map(|(_, transfer)| self.subflows(transfer).len()).sum()
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
        five_tuple = five_tuple.with_src_port(within(u32::from(five_tuple.src_port() - EPHEMERAL.start())));
        let port = five_tuple.src_port();
        while in_use(&five_tuple) {
            five_tuple = five_tuple.with_src_port(within(u32::from(five_tuple.src_port() - ports.start()) + 1));
            // All ports of this pair are in use, so the next service port is tried.
            let dst_port = five_tuple.dst_port() + u16::from(five_tuple.src_port() == port);
            five_tuple = five_tuple.with_dst_port(dst_port);
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
        if let Some(additions) = &mut self.additions {
            additions.news.push(transfer);
        }
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

    /// Number of transfers that have started and have not finished.
    pub(crate) fn open(&self) -> usize {
        self.open
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
    /// What a subflow has done by `now`, on its own.
    pub(crate) fn of(subflow: &Subflow, now: Nanos) -> Work {
        let mut work = Work::default();
        work.add(subflow, now);
        work.timeout_wait = subflow.sender.ended_timeout_wait();
        work
    }

    /// Each count of this and of an earlier `other`, combined by `f`. Windows and least waits do not count.
    pub(crate) fn combine(&self, other: &Work, f: impl Fn(u64, u64) -> u64) -> Work {
        let small = |one: u32, other: u32| u32::try_from(f(one.into(), other.into())).unwrap_or(u32::MAX);
        let nanos = |one: Nanos, other: Nanos| Nanos(f(one.0, other.0));
        Work {
            delivered_bytes: f(self.delivered_bytes, other.delivered_bytes),
            arrived_bytes: f(self.arrived_bytes, other.arrived_bytes),
            window_bytes: 0,
            least_wait: None,
            retransmits: small(self.retransmits, other.retransmits),
            timeouts: small(self.timeouts, other.timeouts),
            timeout_wait: TimeoutWait {
                initial: nanos(self.timeout_wait.initial, other.timeout_wait.initial),
                sampled: nanos(self.timeout_wait.sampled, other.timeout_wait.sampled),
            },
            packets: f(self.packets, other.packets),
            segments: small(self.segments, other.segments),
            reordered: small(self.reordered, other.reordered),
        }
    }

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
            let skipped = subflow.sender.skipped_bytes();
            self.delivered_bytes += subflow.receiver.delivered_bytes() + skipped;
            self.arrived_bytes += subflow.receiver.arrived_bytes() + skipped;
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
