//! What reports know about a job: its collective, its ranks, and the time of its algorithm on an ideal fabric.

use crate::generate::Context;
use crate::hosts::Hosts;
use pathloom_model::{Nanos, NodeId};
use serde::{Deserialize, Serialize};

/// What an algorithm does one after the other. On an ideal fabric it takes `steps` times the delay of a link, and the time
/// that a host needs for `bytes` (the alpha-beta model).
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Cost {
    /// Messages that wait for each other.
    pub steps: f64,
    /// Payload bytes in these messages.
    pub bytes: f64,
}

impl Cost {
    /// Steps of the same number of bytes.
    pub(crate) fn each(steps: f64, bytes: f64) -> Cost {
        Cost { steps, bytes: steps * bytes }
    }

    /// Both, one after the other.
    pub(crate) fn then(self, other: Cost) -> Cost {
        Cost { steps: self.steps + other.steps, bytes: self.bytes + other.bytes }
    }
}

/// An algorithm with its cost, inside and outside servers.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Algorithm {
    /// Value of `algorithm=`.
    pub name: String,
    /// Messages over network cards.
    pub outside: Cost,
    /// Messages that need not leave a server, because the algorithm knows servers.
    pub inside: Cost,
}

impl Algorithm {
    /// An algorithm that knows no servers.
    pub(crate) fn flat(name: &str, cost: Cost) -> Algorithm {
        Algorithm { name: name.to_owned(), outside: cost, inside: Cost::default() }
    }
}

/// How the ranks are connected, on an ideal fabric: by one switch for all of them, and one inside each server.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Access {
    /// Lowest rate of the cards of a rank.
    pub rate_bps: u64,
    /// Highest propagation delay from a rank to another one, over the cables of both.
    pub delay_ps: u64,
}

/// A collective of a workload.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Job {
    /// The specification.
    pub spec: String,
    /// The collective, such as `all-reduce`.
    pub collective: String,
    /// The host of each rank.
    pub hosts: Vec<NodeId>,
    /// Number of times that it runs.
    pub iterations: u32,
    /// The coflow of its first step, and the number of its steps over all iterations.
    pub coflows: (u32, u32),
    /// Size that divided by the time is the algorithm bandwidth, as in nccl-tests: the whole buffer of a rank.
    pub size_bytes: f64,
    /// Bus bandwidth over algorithm bandwidth, as in nccl-tests.
    pub bus_factor: f64,
    /// The algorithm that it uses.
    pub algorithm: Algorithm,
    /// All algorithms for the same work, with the one that it uses.
    pub known: Vec<Algorithm>,
    /// Network cards of the ranks.
    pub outside: Access,
    /// Links to switches inside servers, if every rank has one.
    pub inside: Option<Access>,
    /// Whether all ranks are in one server, so that nothing needs a network card.
    pub in_one_server: bool,
    /// Of a trace of training: the time that each rank computes before its last transfer or collective. Otherwise
    /// empty.
    pub compute: Vec<Nanos>,
}

impl Job {
    /// The job of a trace, which has no algorithm as a whole. `hosts` are those of its ranks, and `coflows` is the number
    /// of its steps.
    pub(crate) fn of_trace(
        context: &Context,
        hosts: &[u32],
        (iterations, coflows): (u32, u32),
        compute: Vec<Nanos>,
    ) -> Job {
        let (outside, inside) = context.hosts.access_of(hosts);
        Job {
            spec: context.text.to_owned(),
            collective: "training".to_owned(),
            hosts: hosts.iter().map(|&host| context.hosts.node(host)).collect(),
            iterations,
            coflows: (0, coflows),
            size_bytes: 0.0,
            bus_factor: 0.0,
            algorithm: Algorithm::default(),
            known: Vec::new(),
            outside,
            inside,
            in_one_server: false,
            compute,
        }
    }
}

/// The computation of ranks before their last transfers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Computation {
    before: Vec<Nanos>,
    /// Since the last transfer of each rank.
    since: Vec<Nanos>,
}

impl Computation {
    pub fn of(ranks: usize) -> Computation {
        Computation { before: vec![Nanos::ZERO; ranks], since: vec![Nanos::ZERO; ranks] }
    }

    /// A rank computes for this time.
    pub fn compute(&mut self, rank: usize, takes: Nanos) {
        self.since[rank] = self.since[rank].saturating_add(takes);
    }

    /// A rank sends, receives or takes part in a collective.
    pub fn transfer(&mut self, rank: usize) {
        self.before[rank] = self.before[rank].saturating_add(std::mem::take(&mut self.since[rank]));
    }

    /// The time that each rank computes before its last transfer.
    pub fn into_times(self) -> Vec<Nanos> {
        self.before
    }
}

impl Hosts<'_> {
    /// How these hosts are connected: by their network cards, and inside servers.
    pub(crate) fn access_of(&self, hosts: &[u32]) -> (Access, Option<Access>) {
        let outside = hosts.iter().map(|&host| (self.rate_bps(host) as u64, self.access_delay_ps(host)));
        let inside: Option<Vec<(u64, u64)>> = hosts.iter().map(|&host| self.inside_link(host)).collect();
        (worst(outside), inside.map(|links| worst(links.into_iter())))
    }
}

/// The lowest rate, and twice the highest delay.
fn worst(links: impl Iterator<Item = (u64, u64)>) -> Access {
    links.fold(Access { rate_bps: u64::MAX, delay_ps: 0 }, |worst, (rate_bps, delay_ps)| Access {
        rate_bps: worst.rate_bps.min(rate_bps),
        delay_ps: worst.delay_ps.max(2 * delay_ps),
    })
}
