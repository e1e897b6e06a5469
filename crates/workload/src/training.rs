//! Transfers of distributed training, as in traces: dependencies of ranks, and collectives between ranks.

use crate::error::{WorkloadError, MOST_FLOWS};
use crate::flow_spec::{FlowSpec, Start};
use crate::generate::Context;
use crate::job::{Computation, Job};
use pathloom_model::Nanos;

/// Maximum number of references to other flows in all starts together: about a gigabyte.
pub(crate) const MOST_WAITS: usize = 200_000_000;

/// When a rank can continue: `delay` after the last of `flows` has finished, or after the start of the run if there
/// are none.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Ready {
    pub flows: Vec<u32>,
    pub delay: Nanos,
}

impl Ready {
    /// When this flow has finished.
    pub fn after(flow: u32) -> Ready {
        Ready { flows: vec![flow], delay: Nanos::ZERO }
    }

    /// Changes this to the time when both conditions hold. The longer delay counts for all flows, so this is never too
    /// early.
    pub fn merge(&mut self, other: &Ready) {
        self.flows.extend(&other.flows);
        self.flows.sort_unstable();
        self.flows.dedup();
        self.delay = self.delay.max(other.delay);
    }

    /// Adds this delay.
    pub fn delayed_by(mut self, delay: Nanos) -> Ready {
        self.delay = self.delay.saturating_add(delay);
        self
    }
}

/// Kinds of collectives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Collective {
    /// Ring: reduce-scatter, then all-gather of the results of each rank.
    AllReduce,
    /// Ring: each rank begins with its own part, and all parts go around the ring.
    AllGather,
    /// Ring: each rank ends with its own part of the sum.
    ReduceScatter,
    /// Each rank sends a part to every other one, all at the same time.
    AllToAll,
}

/// The flows of a trace that are found so far.
pub(crate) struct Transfers<'a, 'b> {
    context: &'a Context<'b>,
    /// The host of each rank.
    hosts: Vec<u32>,
    pub flows: Vec<FlowSpec>,
    waits: usize,
    /// Transfers and collectives without data, and collectives of a single rank.
    empty: usize,
    alone: usize,
    /// Number of collectives and single transfers so far.
    steps: u32,
}

impl<'a, 'b> Transfers<'a, 'b> {
    pub fn new(context: &'a Context<'b>, hosts: Vec<u32>) -> Transfers<'a, 'b> {
        Transfers { context, hosts, flows: Vec::new(), waits: 0, empty: 0, alone: 0, steps: 0 }
    }

    /// The job of the trace.
    pub fn job(&self, iterations: u32, computation: Computation) -> Job {
        Job::of_trace(self.context, &self.hosts, (iterations, self.steps), computation.into_times())
    }

    /// Counts a transfer that carries nothing and is left out.
    pub fn leave_out(&mut self) {
        self.empty += 1;
    }

    /// What was left out.
    pub fn notes(&self) -> Vec<String> {
        let counts =
            [(self.empty, "transfers and collectives of 0 bytes"), (self.alone, "collectives of a single rank")];
        let note = |&(count, what): &(usize, &str)| (count > 0).then(|| format!("{what}, left out: {count}"));
        counts.iter().filter_map(note).collect()
    }

    /// The step number of a transfer that belongs to no collective.
    pub fn own_step(&mut self) -> u32 {
        self.steps += 1;
        self.steps - 1
    }

    /// Adds a transfer between two ranks. Returns its number.
    pub fn send(&mut self, ready: &Ready, pair: (u32, u32), bytes: u64, step: u32) -> Result<u32, WorkloadError> {
        self.waits += ready.flows.len();
        if self.flows.len() as u64 >= MOST_FLOWS || self.waits > MOST_WAITS {
            return Err(self.context.error("the trace makes more flows than a run may have, or than fit into memory"));
        }
        let start = match ready.flows.is_empty() {
            true => Start::At(ready.delay),
            false => Start::After { flows: ready.flows.as_slice().into(), delay: ready.delay },
        };
        let pair = (self.hosts[pair.0 as usize], self.hosts[pair.1 as usize]);
        self.flows.push(self.context.flow(start, pair, Some(bytes.max(1)), Some(step)));
        Ok(self.flows.len() as u32 - 1)
    }

    /// Adds a collective of `bytes` between `members`, which are ranks. Each begins when it is ready. Returns when each
    /// is done.
    ///
    /// As in ASTRA-sim, `bytes` is the size of the buffer that is reduced or scattered. For an all-gather, it is the
    /// contribution of each rank.
    pub fn collective(
        &mut self,
        what: Collective,
        members: &[u32],
        ready: &[Ready],
        bytes: u64,
    ) -> Result<Vec<Ready>, WorkloadError> {
        self.steps += 1;
        let ranks = members.len();
        if ranks < 2 || bytes == 0 {
            self.alone += usize::from(ranks < 2);
            self.empty += usize::from(ranks >= 2);
            return Ok(ready.to_vec());
        }
        let part = bytes.div_ceil(ranks as u64);
        match what {
            Collective::AllReduce => self.ring(members, ready, part, 2 * (ranks - 1)),
            Collective::ReduceScatter => self.ring(members, ready, part, ranks - 1),
            Collective::AllGather => self.ring(members, ready, bytes, ranks - 1),
            Collective::AllToAll => self.each_to_each(members, ready, part),
        }
    }

    /// In each step, every rank sends to the next one. It passes on what it received in the previous step.
    fn ring(&mut self, members: &[u32], ready: &[Ready], part: u64, steps: usize) -> Result<Vec<Ready>, WorkloadError> {
        let ranks = members.len();
        let (mut now, step) = (ready.to_vec(), self.steps - 1);
        for _ in 0..steps {
            let mut sent = Vec::with_capacity(ranks);
            for rank in 0..ranks {
                sent.push(self.send(&now[rank], (members[rank], members[(rank + 1) % ranks]), part, step)?);
            }
            let after = |rank: usize| {
                let mut after = Ready::after(sent[(rank + ranks - 1) % ranks]);
                after.merge(&Ready::after(sent[rank]));
                after
            };
            now = (0..ranks).map(after).collect();
        }
        Ok(now)
    }

    fn each_to_each(&mut self, members: &[u32], ready: &[Ready], part: u64) -> Result<Vec<Ready>, WorkloadError> {
        let ranks = members.len();
        let step = self.steps - 1;
        let mut done = vec![Ready::default(); ranks];
        for shift in 1..ranks {
            for rank in 0..ranks {
                let to = (rank + shift) % ranks;
                let flow = self.send(&ready[rank], (members[rank], members[to]), part, step)?;
                done[rank].flows.push(flow);
                done[to].flows.push(flow);
            }
        }
        for of_rank in &mut done {
            of_rank.flows.sort_unstable();
        }
        Ok(done)
    }
}
