//! Common parts of all generators: the fabric's hosts, the duration, the seed, and the conversion of a draft to a
//! workload.

use crate::error::{WorkloadError, MOST_FLOWS};
use crate::flow_spec::{arrange, Cycle, Draft, FlowSpec, Start, Workload};
use crate::hosts::Hosts;
use crate::{quantity, random};
use pathloom_model::spec::SpecError;
use pathloom_model::Nanos;
use rand_pcg::Pcg64;

/// Interval over which the starts of long-lived flows are drawn. Without it, all windows of one drop-tail queue grow
/// and halve in step (phase locking). Then the order of the starts determines the shares, and not the routing.
pub(crate) const LONG_LIVED_JITTER: Nanos = Nanos::from_millis(1);

/// Interval over which the starts of synchronised flows (incast, collectives) are drawn. Servers answer one request
/// within some microseconds of one another, never in the same nanosecond.
pub(crate) const SYNCHRONISED_JITTER: Nanos = Nanos::from_micros(10);

/// The input of a generator.
pub(crate) struct Context<'a> {
    /// The specification as given.
    pub text: &'a str,
    pub hosts: Hosts<'a>,
    /// No flow starts at or after this time.
    pub duration: Nanos,
    pub seed: u64,
    /// The seed of the run, which is the same for all parts of a joined specification.
    pub shared_seed: u64,
    /// Text of the file that the specification names.
    pub file_text: Option<&'a str>,
    /// The content of each file, by rank, if the traffic is a trace of several files.
    pub traces: &'a [Vec<u8>],
}

impl Context<'_> {
    /// An error in the specification, on this fabric.
    pub fn error(&self, problem: impl Into<String>) -> WorkloadError {
        SpecError { what: "traffic", spec: self.text.to_owned(), problem: problem.into() }.into()
    }

    /// Refuses more flows than a run may have.
    pub fn refuse_too_many(&self, flows: f64, way_out: &'static str) -> Result<(), WorkloadError> {
        match flows <= MOST_FLOWS as f64 {
            true => Ok(()),
            false => Err(WorkloadError::TooManyFlows { spec: self.text.to_owned(), flows, most: MOST_FLOWS, way_out }),
        }
    }

    /// The text of `file`.
    pub fn text_of_file(&self, file: &str) -> Result<&str, WorkloadError> {
        let missing = || WorkloadError::NoFileText { spec: self.text.to_owned(), file: file.to_owned() };
        self.file_text.ok_or_else(missing)
    }

    /// The random stream for a purpose.
    pub fn rng(&self, purpose: &str) -> Pcg64 {
        random::seeded(self.seed, purpose, 0)
    }

    /// The random stream for a purpose and for one of several hosts, events or the like.
    pub fn rng_of(&self, purpose: &str, index: u64) -> Pcg64 {
        random::seeded(self.seed, purpose, index)
    }

    /// A start at `from` plus a random time below `jitter`, within the run.
    pub fn jittered(&self, from: Nanos, jitter: Nanos, rng: &mut Pcg64) -> Start {
        let room = jitter.min(self.duration.saturating_sub(from));
        Start::At(from.saturating_add(Nanos(random::nanos_below(rng, room.0))))
    }

    /// A flow between two host numbers.
    pub fn flow(&self, start: Start, (src, dst): (u32, u32), size_bytes: Option<u64>, coflow: Option<u32>) -> FlowSpec {
        FlowSpec { coflow, ..FlowSpec::new(start, self.hosts.node(src), self.hosts.node(dst), size_bytes) }
    }

    /// Duration of the run in seconds.
    pub fn duration_s(&self) -> f64 {
        self.duration.as_secs_f64()
    }

    /// Sorts the flows of a draft and completes its notes.
    pub fn finish(&self, draft: Draft) -> Result<Workload, WorkloadError> {
        let Draft { flows, description, mut notes, jobs } = draft;
        if flows.is_empty() {
            notes.push(format!("no flow starts within {}", quantity::time(self.duration)));
        }
        let flows = arrange(flows).map_err(|Cycle(flow)| {
            self.error(format!("flow {flow} (counted from 0) depends on itself, so it would never start"))
        })?;
        Ok(Workload { flows, description, notes, jobs })
    }
}

/// Payload of all finite flows, in bytes.
pub(crate) fn payload_bytes(flows: &[FlowSpec]) -> f64 {
    flows.iter().filter_map(|flow| flow.size_bytes).map(|size| size as f64).sum()
}
