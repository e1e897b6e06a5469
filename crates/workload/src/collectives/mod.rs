//! Collectives of distributed training, with the dependencies between their steps.
//!
//! Most algorithms are a [`Schedule`](schedule::Schedule): rounds in which every rank sends at most one message and
//! receives at most one. A file has the algorithms of one family: `reduction` (all-reduce, all-gather, reduce-scatter),
//! `trees` (broadcast and reduce, double trees), `hierarchy` (groups of ranks), `exchange` (all-to-all), `moe`.

mod costs;
mod exchange;
mod hierarchy;
mod moe;
mod placed;
mod reduction;
mod schedule;
mod single_root;
mod trees;

pub(crate) use exchange::AllToAll;
pub(crate) use moe::Moe;
pub(crate) use reduction::{Reduction, ReductionKind};
pub(crate) use single_root::{SingleRoot, SingleRootKind};

use crate::flow_spec::Draft;
use crate::generate::{Context, SYNCHRONISED_JITTER};
use crate::job::{Algorithm, Job};
use crate::quantity;
use crate::ranks::Ranks;
use crate::WorkloadError;
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::Nanos;
use schedule::Schedule;

/// What all collectives have in common: their ranks, and how often they run.
#[derive(Clone, Debug, PartialEq)]
struct Repeated {
    ranks: Ranks,
    iterations: u32,
    gap: Nanos,
    jitter: Nanos,
}

impl Repeated {
    fn take(spec: &Spec) -> Result<Repeated, SpecError> {
        Ok(Repeated {
            ranks: Ranks::take(spec)?,
            iterations: spec.count("iterations", 1, 1_000_000)?.unwrap_or(1) as u32,
            gap: spec.time("gap")?.unwrap_or(Nanos::ZERO),
            jitter: spec.time("jitter")?.unwrap_or(SYNCHRONISED_JITTER),
        })
    }
}

/// What makes a [`Job`] out of a draft: the collective and its algorithms.
struct Work {
    collective: &'static str,
    size_bytes: f64,
    bus_factor: f64,
    algorithm: Algorithm,
    /// The other algorithms for the same work.
    others: Vec<Algorithm>,
}

impl Repeated {
    /// The flows and the job of a collective in rounds. `what` says what it does, up to its ranks.
    fn in_rounds(
        &self,
        context: &Context,
        hosts: &[u32],
        schedule: &Schedule,
        (what, work): (&str, Work),
    ) -> Result<Draft, WorkloadError> {
        let flows = schedule.flows(context, hosts, self)?;
        let steps = schedule.rounds.len() as u32;
        let description = format!(
            "{what} {}, {} of {steps} steps each; a rank sends in a step once it has received and sent in the steps \
             before; {}",
            self.ranks.describe(hosts.len()),
            quantity::count(self.iterations as usize, "iteration"),
            quantity::count(flows.len(), "flow"),
        );
        Ok(Draft { flows, description, jobs: vec![self.job(context, hosts, steps, work)], ..Draft::default() })
    }

    /// The job of ranks on these hosts. `steps` is the number of coflows of one iteration.
    fn job(&self, context: &Context, hosts: &[u32], steps: u32, work: Work) -> Job {
        let (outside, inside) = context.hosts.access_of(hosts);
        let servers = context.hosts.servers();
        let mut known = vec![work.algorithm.clone()];
        known.extend(work.others.into_iter().filter(|other| other.name != work.algorithm.name));
        Job {
            spec: context.text.to_owned(),
            collective: work.collective.to_owned(),
            hosts: hosts.iter().map(|&host| context.hosts.node(host)).collect(),
            iterations: self.iterations,
            coflows: (0, steps * self.iterations),
            size_bytes: work.size_bytes,
            bus_factor: work.bus_factor,
            algorithm: work.algorithm,
            known,
            outside,
            inside,
            compute: Vec::new(),
            in_one_server: servers.iter().any(|server| hosts.iter().all(|host| server.contains(host))),
        }
    }
}

/// Refuses a key that the chosen algorithm does not have.
fn refuse_unused<T>(
    spec: &Spec,
    key: &str,
    value: Option<&T>,
    algorithm: &str,
    for_which: &str,
) -> Result<(), SpecError> {
    match value {
        None => Ok(()),
        Some(_) => {
            Err(spec.error(format!("{key}: algorithm={algorithm} has no {key}; leave it out, or set {for_which}")))
        }
    }
}
