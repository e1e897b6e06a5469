//! The transfers of a run: when they start, under which five-tuple, and what they came to.

use crate::connection::Connection;
use crate::ideal::Ideals;
use crate::outcome::FlowOutcome;
use pathloom_model::{Attachment, Fabric, FiveTuple, Nanos, PROTO_TCP};
use pathloom_transport::{Settings, TimeoutWait};
use pathloom_workload::{FlowSpec, Start, Workload};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::sync::Arc;

/// First port and number of ports that sources draw from: Linux's default ephemeral range.
const EPHEMERAL: (u16, u16) = (32_768, 28_232);
/// Port that receivers listen on.
const SERVICE_PORT: u16 = 5001;

/// What is known of one transfer.
#[derive(Clone, Default)]
struct Record {
    five_tuple: Option<FiveTuple>,
    start: Option<Nanos>,
    finish: Option<Nanos>,
    /// Time lost in time-outs until it finished; what its sender waits for later is no part of the FCT.
    waited: Option<TimeoutWait>,
    closed: Option<Closed>,
    optimum_bps: f64,
    ideal_fct: Option<Nanos>,
}

/// What a connection had come to when its sender was done.
#[derive(Clone, Copy, Default)]
struct Closed {
    delivered_bytes: u64,
    retransmits: u32,
    timeouts: u32,
    timeout_wait: TimeoutWait,
    packets: u64,
    reordered: u32,
}

pub(crate) struct Flows {
    workload: Arc<Workload>,
    records: Vec<Record>,
    /// Next of the flows that start at a time.
    next: usize,
    /// By flow: how many it waits for.
    waits_for: Vec<u32>,
    /// By flow: who waits for it.
    awaited_by: Vec<Vec<u32>>,
    /// Source address and port drawn for each flow.
    ends: Vec<(Attachment, Attachment, u16)>,
    /// Finite transfers that have started, or wait for no other any more, and have not finished; and long-lived ones
    /// that have not been stopped.
    open: usize,
}

impl Flows {
    pub(crate) fn new(fabric: &Fabric, workload: Arc<Workload>, settings: &Settings, seed: u64) -> Flows {
        let count = workload.flows.len();
        let mut flows = Flows {
            records: vec![Record::default(); count],
            next: 0,
            waits_for: vec![0; count],
            awaited_by: Vec::new(),
            ends: draw_ends(fabric, &workload, seed),
            open: 0,
            workload,
        };
        let workload = flows.workload.clone();
        let mut ideals = Ideals::new(fabric, &workload, settings);
        for (index, flow) in workload.flows.iter().enumerate() {
            let (src, dst, _) = &flows.ends[index];
            flows.records[index].optimum_bps = ideals.optimum_bps(src, dst);
            flows.records[index].ideal_fct = flow.size_bytes.map(|size| ideals.fct(src, dst, size));
            if let Start::After { flows: awaited, .. } = &flow.start {
                flows.awaited_by.resize(count, Vec::new());
                flows.waits_for[index] = awaited.len() as u32;
                for &other in awaited {
                    flows.awaited_by[other as usize].push(index as u32);
                }
            }
        }
        flows
    }

    pub(crate) fn spec(&self, flow: u32) -> &FlowSpec {
        &self.workload.flows[flow as usize]
    }

    /// Number of transfers.
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// Both ends of a flow, and the five-tuple it starts under if that is free by then.
    pub(crate) fn drawn(&self, flow: u32) -> (&Attachment, &Attachment, FiveTuple) {
        let (src, dst, src_port) = &self.ends[flow as usize];
        let tuple = FiveTuple {
            src: src.address,
            dst: dst.address,
            proto: PROTO_TCP,
            src_port: *src_port,
            dst_port: SERVICE_PORT,
        };
        (src, dst, tuple)
    }

    /// See [`FlowOutcome::optimum_bps`] and [`FlowOutcome::ideal_fct`].
    pub(crate) fn yardsticks(&self, flow: u32) -> (f64, Option<Nanos>) {
        let record = &self.records[flow as usize];
        (record.optimum_bps, record.ideal_fct)
    }

    /// Five-tuple of a flow that has started.
    pub(crate) fn five_tuple(&self, flow: u32) -> Option<FiveTuple> {
        self.records.get(flow as usize)?.five_tuple
    }

    /// When the next flow with a time of its own starts.
    pub(crate) fn next_start(&self) -> Option<Nanos> {
        match self.workload.flows.get(self.next)?.start {
            Start::At(at) => Some(at),
            Start::After { .. } => None,
        }
    }

    /// Takes the flow that [`Flows::next_start`] spoke of.
    pub(crate) fn take_next(&mut self) -> u32 {
        self.next += 1;
        self.open += 1;
        self.next as u32 - 1
    }

    /// A flow starts; returns its five-tuple, the first that is not in use.
    pub(crate) fn start(&mut self, flow: u32, now: Nanos, in_use: impl Fn(&FiveTuple) -> bool) -> FiveTuple {
        let mut five_tuple = self.drawn(flow).2;
        let port = five_tuple.src_port;
        while in_use(&five_tuple) {
            let next = (five_tuple.src_port - EPHEMERAL.0 + 1) % EPHEMERAL.1;
            five_tuple.src_port = EPHEMERAL.0 + next;
            // All ports of this pair are taken: go on with the next service port.
            five_tuple.dst_port += u16::from(five_tuple.src_port == port);
        }
        let record = &mut self.records[flow as usize];
        (record.five_tuple, record.start) = (Some(five_tuple), Some(now));
        five_tuple
    }

    /// The last byte of a flow has arrived; returns the flows that may start now, and after which delay.
    pub(crate) fn finish(&mut self, connection: &Connection, now: Nanos) -> Vec<(u32, Nanos)> {
        let flow = connection.flow;
        let record = &mut self.records[flow as usize];
        (record.finish, record.waited) = (Some(now), Some(connection.sender.timeout_wait(now)));
        self.open -= 1;
        let Some(waiting) = self.awaited_by.get(flow as usize).cloned() else { return Vec::new() };
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

    /// The sender of a flow is done, or has been stopped.
    pub(crate) fn close(&mut self, connection: &Connection, now: Nanos) {
        let record = &mut self.records[connection.flow as usize];
        self.open -= usize::from(record.finish.is_none());
        record.closed = Some(Closed::of(connection, now));
    }

    /// Whether nothing that has started is still to finish.
    pub(crate) fn all_finished(&self) -> bool {
        self.open == 0
    }

    /// What every flow has come to by `now`. Long-lived flows are measured up to `until`.
    pub(crate) fn outcomes<'a>(
        &self,
        now: Nanos,
        until: Nanos,
        live: impl Iterator<Item = (usize, &'a Connection)>,
    ) -> Vec<FlowOutcome> {
        let mut closed: Vec<Option<Closed>> = self.records.iter().map(|record| record.closed).collect();
        for (_, connection) in live {
            closed[connection.flow as usize].get_or_insert_with(|| Closed::of(connection, now));
        }
        let rows = self.workload.flows.iter().zip(&self.records).zip(closed).enumerate();
        rows.map(|(index, ((spec, record), closed))| outcome(index as u32, spec, record, closed, until)).collect()
    }
}

impl Closed {
    fn of(connection: &Connection, now: Nanos) -> Closed {
        Closed {
            delivered_bytes: connection.receiver.delivered_bytes(),
            retransmits: connection.sender.retransmits(),
            timeouts: connection.sender.timeouts(),
            timeout_wait: connection.sender.timeout_wait(now),
            packets: connection.packets_sent,
            reordered: connection.receiver.reordered(),
        }
    }
}

fn outcome(index: u32, spec: &FlowSpec, record: &Record, closed: Option<Closed>, until: Nanos) -> FlowOutcome {
    let closed = closed.unwrap_or_default();
    let throughput = match (record.start, record.finish, record.ideal_fct) {
        (Some(start), Some(finish), Some(ideal)) => Some(ideal.0 as f64 / (finish.0 - start.0).max(1) as f64),
        (Some(start), _, None) if until > start => {
            let goodput_bps = closed.delivered_bytes as f64 * 8.0 / (until - start).as_secs_f64();
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
        delivered_bytes: closed.delivered_bytes,
        optimum_bps: record.optimum_bps,
        ideal_fct: record.ideal_fct,
        throughput,
        retransmits: closed.retransmits,
        timeouts: closed.timeouts,
        timeout_wait: record.waited.unwrap_or(closed.timeout_wait),
        packets: closed.packets,
        reordered: closed.reordered,
        coflow: spec.coflow,
    }
}

/// Source and destination attachment (a host with several ports has one drawn) and source port of every flow. They
/// depend on the seed and the flow's index alone, so they are the same for every scheme.
fn draw_ends(fabric: &Fabric, workload: &Workload, seed: u64) -> Vec<(Attachment, Attachment, u16)> {
    let mut by_host: Vec<Vec<Attachment>> = vec![Vec::new(); fabric.nodes().len()];
    for &attachment in fabric.attachments() {
        by_host[attachment.host.index()].push(attachment);
    }
    let mut rng = Pcg64::seed_from_u64(seed ^ 0x705f_7274);
    let draw = |flow: &FlowSpec| {
        let mut pick = |host: &[Attachment]| host[rng.random_range(0..host.len())];
        let (src, dst) = (pick(&by_host[flow.src.index()]), pick(&by_host[flow.dst.index()]));
        (src, dst, EPHEMERAL.0 + rng.random_range(0..EPHEMERAL.1))
    };
    workload.flows.iter().map(draw).collect()
}
