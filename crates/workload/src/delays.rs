//! Which transfers a job waited for.

use crate::flow_spec::{Start, Workload};
use crate::job::Job;
use pathloom_model::Nanos;

impl Workload {
    /// The transfers that a job waited for, from its end back to its start: its last one, the last one of those that this one
    /// waited for, and so on. Empty if the job has an unfinished transfer or none at all.
    ///
    /// `finish` is the time when a transfer finished, by its index in [`Workload::flows`].
    pub fn waited_for(&self, job: &Job, finish: impl Fn(u32) -> Option<Nanos>) -> Vec<u32> {
        let (first, count) = job.coflows;
        let is_own = |index: &u32| {
            self.flows[*index as usize].coflow.is_some_and(|coflow| (first..first + count).contains(&coflow))
        };
        let mut last: Option<(Nanos, u32)> = None;
        for index in (0..self.flows.len() as u32).filter(is_own) {
            let Some(at) = finish(index) else { return Vec::new() };
            last = last.max(Some((at, index)));
        }
        let before = |index: &u32| match &self.flows[*index as usize].start {
            Start::At(_) => None,
            Start::After { flows, .. } => flows.iter().copied().max_by_key(|&needed| (finish(needed), needed)),
        };
        std::iter::successors(last.map(|(_, index)| index), before).collect()
    }
}
