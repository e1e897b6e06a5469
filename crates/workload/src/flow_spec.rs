//! The result: a list of transfers. Each starts at a time or after other transfers.

use crate::job::Job;
use pathloom_model::{Nanos, NodeId};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// When a transfer starts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Start {
    /// At this time of the run.
    At(Nanos),
    /// `delay` after the last of `flows` has finished. They are indices in [`Workload::flows`], at least one, all
    /// lower than the index of the waiting flow.
    After {
        /// The flows that must finish first.
        flows: Box<[u32]>,
        /// Time between the last end and the start.
        delay: Nanos,
    },
}

/// One transfer offered to the network.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FlowSpec {
    /// When it starts.
    pub start: Start,
    /// Host that sends.
    pub src: NodeId,
    /// Host that receives; it differs from `src`.
    pub dst: NodeId,
    /// Payload, at least 1; `None` for a long-lived flow, which runs to the end.
    pub size_bytes: Option<u64>,
    /// Step of a collective, number of an incast, or identifier of the coflow that the flow belongs to. Used in
    /// reports.
    pub coflow: Option<u32>,
    /// Whether it is a transfer of a job whose hosts keep their connections, such as a step of a collective: it needs
    /// no new connection. Requests of services connect.
    #[serde(default)]
    pub standing: bool,
    /// State of a transfer that began before the run; `None` if it begins in the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under_way: Option<Box<UnderWay>>,
}

impl FlowSpec {
    /// A transfer that begins in the run, over a new connection, and belongs to nothing.
    pub fn new(start: Start, src: NodeId, dst: NodeId, size_bytes: Option<u64>) -> FlowSpec {
        FlowSpec { start, src, dst, size_bytes, coflow: None, standing: false, under_way: None }
    }
}

/// State of the connection of a transfer that began before the run. The transfer has `size_bytes` left to send.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UnderWay {
    /// Its congestion window, at least 1.
    pub window_bytes: u64,
    /// Whether the sender is still in slow start.
    pub slow_start: bool,
    /// Payload that it sent per second, in bits, at least 1. With the window, it gives the round trip.
    pub rate_bps: u64,
    /// Switches that its data crossed, from the ToR of the sender on; empty if they are not known.
    pub path: Box<[NodeId]>,
}

/// The flows that a [`crate::TrafficSpec`] generates.
///
/// Flows that start at a time come first, in order of time. Flows that wait for others follow, each after all flows
/// that it waits for.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Workload {
    /// The transfers.
    pub flows: Vec<FlowSpec>,
    /// What exactly was generated: parameters, the source of tables, the achieved load.
    pub description: String,
    /// Notes for readers of results: what was left out, cut off or reinterpreted.
    pub notes: Vec<String>,
    /// The collectives among the flows.
    #[serde(default)]
    pub jobs: Vec<Job>,
}

/// Flows whose [`Start::After`] refers to positions in the draft, in any order.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub flows: Vec<FlowSpec>,
    pub description: String,
    pub notes: Vec<String>,
    pub jobs: Vec<Job>,
}

impl Draft {
    /// Adds the flows of another draft, which run beside these. Its coflows get the numbers after those of this draft.
    pub fn append(&mut self, mut other: Draft) {
        let first = self.flows.len() as u32;
        let last = self.flows.iter().filter_map(|flow| flow.coflow).max();
        let coflows = last.map_or(0, |last| last.saturating_add(1));
        for flow in &mut other.flows {
            if let Start::After { flows, .. } = &mut flow.start {
                flows.iter_mut().for_each(|index| *index += first);
            }
            flow.coflow = flow.coflow.map(|coflow| coflow.saturating_add(coflows));
        }
        other.jobs.iter_mut().for_each(|job| job.coflows.0 += coflows);
        self.flows.append(&mut other.flows);
        self.jobs.append(&mut other.jobs);
        let is_new = |note: &String| !self.notes.contains(note);
        other.notes.retain(is_new);
        self.notes.append(&mut other.notes);
        if !self.description.is_empty() {
            self.description.push_str("; beside it: ");
        }
        self.description.push_str(&other.description);
    }
}

/// Drafted flows that wait for each other in a cycle: the position of one of them in the draft.
#[derive(Debug, PartialEq)]
pub(crate) struct Cycle(pub usize);

/// Sorts flows into the order that [`Workload`] promises, and renumbers their dependencies.
pub(crate) fn arrange(mut flows: Vec<FlowSpec>) -> Result<Vec<FlowSpec>, Cycle> {
    let begins = |flow: &FlowSpec| match flow.start {
        Start::At(time) => time,
        Start::After { .. } => Nanos::MAX,
    };
    let waits = |flow: &FlowSpec| matches!(flow.start, Start::After { .. });
    if !flows.iter().any(waits) {
        // The sort is stable: flows that start at the same time keep the order of the draft.
        flows.sort_by_key(begins);
        return Ok(flows);
    }
    let mut order: Vec<u32> = (0..flows.len() as u32).filter(|&index| !waits(&flows[index as usize])).collect();
    order.sort_by_key(|&index| begins(&flows[index as usize]));
    add_waiting(&flows, &mut order)?;
    let mut place = vec![0u32; flows.len()];
    for (position, &index) in order.iter().enumerate() {
        place[index as usize] = position as u32;
    }
    let mut slots: Vec<Option<FlowSpec>> = flows.into_iter().map(Some).collect();
    let arranged = order.iter().filter_map(|&index| slots[index as usize].take()).map(|mut flow| {
        if let Start::After { flows, .. } = &mut flow.start {
            flows.iter_mut().for_each(|index| *index = place[*index as usize]);
        }
        flow
    });
    Ok(arranged.collect())
}

/// Appends the waiting flows to `order`, which has all others. Each comes after the flows that it waits for;
/// otherwise the order of the draft is kept.
fn add_waiting(flows: &[FlowSpec], order: &mut Vec<u32>) -> Result<(), Cycle> {
    // The flows that wait for flow `f` are `waiters[first[f]..first[f + 1]]`.
    let needs = |index: usize| match &flows[index].start {
        Start::At(_) => &[][..],
        Start::After { flows, .. } => flows,
    };
    let mut first = vec![0usize; flows.len() + 1];
    for index in 0..flows.len() {
        needs(index).iter().for_each(|&needed| first[needed as usize + 1] += 1);
    }
    for index in 0..flows.len() {
        first[index + 1] += first[index];
    }
    let mut waiters = vec![0u32; first[flows.len()]];
    let mut fill = first.clone();
    for index in 0..flows.len() {
        for &needed in needs(index) {
            waiters[fill[needed as usize]] = index as u32;
            fill[needed as usize] += 1;
        }
    }
    let mut missing: Vec<u32> = (0..flows.len()).map(|index| needs(index).len() as u32).collect();
    let mut ready: BinaryHeap<Reverse<u32>> = BinaryHeap::new();
    let release = |done: u32, missing: &mut [u32], ready: &mut BinaryHeap<Reverse<u32>>| {
        for &waiter in &waiters[first[done as usize]..first[done as usize + 1]] {
            missing[waiter as usize] -= 1;
            if missing[waiter as usize] == 0 {
                ready.push(Reverse(waiter));
            }
        }
    };
    order.iter().for_each(|&done| release(done, &mut missing, &mut ready));
    while let Some(Reverse(next)) = ready.pop() {
        order.push(next);
        release(next, &mut missing, &mut ready);
    }
    match missing.iter().position(|&missing| missing > 0) {
        Some(index) if order.len() < flows.len() => Err(Cycle(index)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Start {
        Start::At(Nanos(ns))
    }

    fn after(flows: &[u32]) -> Start {
        Start::After { flows: flows.into(), delay: Nanos(7) }
    }

    /// One flow per start. The size of a flow is its index.
    fn draft(starts: Vec<Start>) -> Vec<FlowSpec> {
        let flow = |(index, start)| FlowSpec::new(start, NodeId(0), NodeId(1), Some(index as u64));
        starts.into_iter().enumerate().map(flow).collect()
    }

    #[test]
    fn puts_timed_flows_first_and_waiting_flows_after_their_dependencies() {
        let arranged = arrange(draft(vec![after(&[2, 1]), at(5), after(&[3]), at(3), at(5)])).unwrap();
        let sizes: Vec<u64> = arranged.iter().filter_map(|flow| flow.size_bytes).collect();
        assert_eq!(sizes, [3, 1, 4, 2, 0]);
        assert_eq!(arranged[3].start, after(&[0]));
        assert_eq!(arranged[4].start, after(&[3, 1]));
    }

    #[test]
    fn detects_cycles() {
        assert_eq!(arrange(draft(vec![at(0), after(&[2]), after(&[1])])), Err(Cycle(1)));
        assert_eq!(arrange(draft(vec![after(&[0])])), Err(Cycle(0)));
        assert_eq!(arrange(Vec::new()), Ok(Vec::new()));
    }

    #[test]
    fn a_flow_that_waits_twice_for_another_is_released_once() {
        let arranged = arrange(draft(vec![after(&[1, 1]), at(0)])).unwrap();
        assert_eq!(arranged[1].start, after(&[0, 0]));
    }
}
