//! All-to-all: every rank has a block for every other rank.

use super::placed::Placed;
use super::schedule::{Message, Schedule};
use super::{costs, refuse_unused, Repeated, Work};
use crate::error::WorkloadError;
use crate::flow_spec::{Draft, Start};
use crate::generate::Context;
use crate::job::{Algorithm, Cost};
use crate::quantity;
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::Nanos;
use rand::seq::SliceRandom;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// Every rank sends to every other one, this many transfers at a time, in shifted or random order.
    Windowed { parallel: u32, shuffled: bool },
    /// All transfers at the same time.
    Direct,
    /// In round `k`, each rank sends to the `k`-th rank after it and receives from the `k`-th rank before it.
    Pairwise,
    /// In round `k`, each rank sends all blocks whose way has a step of 2^k, also those of others (Bruck et al., IEEE
    /// TPDS 1997).
    Bruck,
}

const NAMES: [(&str, &str); 4] =
    [("windowed", "windowed"), ("direct", "direct"), ("pairwise", "pairwise"), ("bruck", "bruck")];

/// All-to-all by one algorithm.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AllToAll {
    size_bytes: u64,
    algorithm: Way,
    repeated: Repeated,
}

impl AllToAll {
    /// Reads the keys of a specification.
    pub fn take(spec: &Spec) -> Result<AllToAll, SpecError> {
        let name = spec.choice("algorithm", &NAMES)?.unwrap_or("windowed");
        let parallel = spec.count("parallel", 1, u64::from(u32::MAX))?;
        let shuffled = spec.choice("order", &[("shift", false), ("random", true)])?;
        if name != "windowed" {
            refuse_unused(spec, "parallel", parallel.as_ref(), name, "algorithm=windowed")?;
            refuse_unused(spec, "order", shuffled.as_ref(), name, "algorithm=windowed")?;
        }
        let algorithm = match name {
            "direct" => Way::Direct,
            "pairwise" => Way::Pairwise,
            "bruck" => Way::Bruck,
            _ => Way::Windowed { parallel: parallel.unwrap_or(1) as u32, shuffled: shuffled.unwrap_or(false) },
        };
        let size_bytes = spec.size_bytes("size")?.unwrap_or(1_000_000);
        Ok(AllToAll { size_bytes, algorithm, repeated: Repeated::take(spec)? })
    }

    /// The flows. The coflow of each is its phase, counted over all iterations.
    pub fn draft(&self, context: &Context) -> Result<Draft, WorkloadError> {
        let hosts = self.repeated.ranks.hosts(context, None)?;
        let ranks = hosts.len() as u32;
        match self.algorithm {
            Way::Windowed { parallel, shuffled } => self.windowed(context, &hosts, parallel, shuffled),
            Way::Direct => self.windowed(context, &hosts, ranks - 1, false),
            Way::Pairwise => self.in_rounds(context, &hosts, "pairwise", || pairwise(self.size_bytes, ranks)),
            Way::Bruck => self.in_rounds(context, &hosts, "bruck", || bruck(self.size_bytes, ranks)),
        }
    }

    fn in_rounds(
        &self,
        context: &Context,
        hosts: &[u32],
        name: &str,
        schedule: impl FnOnce() -> Schedule,
    ) -> Result<Draft, WorkloadError> {
        let ranks = hosts.len() as f64;
        context.refuse_too_many(ranks * (ranks - 1.0), "lower hosts=")?;
        let what = format!("{name} all-to-all of {} between each two of", quantity::bytes(self.size_bytes as f64));
        self.repeated.in_rounds(context, hosts, &schedule(), (&what, self.work(context, hosts, name)))
    }

    fn windowed(
        &self,
        context: &Context,
        hosts: &[u32],
        parallel: u32,
        shuffled: bool,
    ) -> Result<Draft, WorkloadError> {
        let Repeated { ranks: placed, iterations, gap, jitter: spread } = &self.repeated;
        let ranks = hosts.len() as u32;
        let count = f64::from(ranks - 1) * f64::from(ranks) * f64::from(*iterations);
        context.refuse_too_many(count, "lower iterations= or hosts=")?;
        let orders = shuffled.then(|| orders(ranks, context));
        let parallel = parallel.min(ranks - 1);
        let phases = ranks - 1;
        let mut jitter = context.rng("jitter");
        let mut flows = Vec::with_capacity(count as usize);
        for phase in 0..phases * iterations {
            for rank in 0..ranks {
                let start = match phase.checked_sub(parallel) {
                    None => context.jittered(Nanos::ZERO, *spread, &mut jitter),
                    Some(before) => {
                        // The first sends of an iteration follow the last ones of the previous iteration.
                        let delay = if phase % phases < parallel { *gap } else { Nanos::ZERO };
                        Start::After { flows: [before * ranks + rank].into(), delay }
                    }
                };
                let place = (phase % phases) as usize;
                let by = orders.as_ref().map_or(place as u32 + 1, |orders| orders[rank as usize][place]);
                let pair = (hosts[rank as usize], hosts[((rank + by) % ranks) as usize]);
                flows.push(context.flow(start, pair, Some(self.size_bytes), Some(phase)));
            }
        }
        let description = format!(
            "all-to-all of {} between each two of {}, {}; each host has {parallel} at once, in {} order: a transfer \
             starts when the one {parallel} before it has finished; {}",
            quantity::bytes(self.size_bytes as f64),
            placed.describe(hosts.len()),
            quantity::count(*iterations as usize, "iteration"),
            if shuffled { "random" } else { "shifted" },
            quantity::count(flows.len(), "flow"),
        );
        let name = if self.algorithm == Way::Direct { "direct" } else { "windowed" };
        let job = self.repeated.job(context, hosts, phases, self.work(context, hosts, name));
        Ok(Draft { flows, description, jobs: vec![job], ..Draft::default() })
    }
}

impl AllToAll {
    /// This algorithm and the others for the same work.
    fn work(&self, context: &Context, hosts: &[u32], name: &str) -> Work {
        let (n, block) = (hosts.len() as u32, self.size_bytes as f64);
        let parallel = if let Way::Windowed { parallel, .. } = self.algorithm { parallel.min(n - 1) } else { 1 };
        // Transfers of one rank that run at the same time share its port.
        let steps = f64::from((n - 1).div_ceil(parallel));
        let windowed = Cost { steps, ..costs::pairwise(n, block) };
        let mut all = vec![
            Algorithm::flat("windowed", windowed),
            Algorithm::flat("direct", costs::direct(n, block)),
            Algorithm::flat("pairwise", costs::pairwise(n, block)),
            Algorithm::flat("bruck", costs::bruck(n, block)),
        ];
        if let Some(placed) = Placed::of(context, hosts) {
            let outside = placed.outside_ranks();
            let inside = n - 1 - outside;
            let cost = |steps: f64, blocks: u32| Cost { steps, bytes: f64::from(blocks) * block };
            let share = f64::from(outside) / f64::from(n - 1);
            // Transfers to the own server and to others take different links. Those of a window of several, and of all
            // at once, may run at the same time.
            let within = if parallel == 1 { cost(f64::from(inside), inside) } else { Cost::default() };
            let windowed = if parallel == 1 { f64::from(outside) } else { (steps * share).floor() };
            all[0] = Algorithm { name: "windowed".to_owned(), outside: cost(windowed, outside), inside: within };
            all[1] = Algorithm::flat("direct", cost(1.0, outside));
            all[2] = placed.algorithm("pairwise", &pairwise(self.size_bytes, n));
            all[3] = placed.algorithm("bruck", &bruck(self.size_bytes, n));
        }
        let algorithm = all.iter().find(|known| known.name == name).cloned().unwrap_or_default();
        // nccl-tests states the whole buffer of a rank, with the block that it keeps.
        let size_bytes = f64::from(n) * block;
        let bus_factor = f64::from(n - 1) / f64::from(n);
        Work { collective: "all-to-all", size_bytes, bus_factor, algorithm, others: all }
    }
}

/// Distances to the receivers of each rank, in random order.
fn orders(ranks: u32, context: &Context) -> Vec<Vec<u32>> {
    let mut rng = context.rng("order");
    let mut order = |_| {
        let mut order: Vec<u32> = (1..ranks).collect();
        order.shuffle(&mut rng);
        order
    };
    (0..ranks).map(&mut order).collect()
}

/// Blocks that a rank sends to the rank `distance` after it: all in one message.
fn shift(block_bytes: u64, blocks: u32, ranks: u32, distance: u32) -> Vec<Message> {
    let bytes = block_bytes.saturating_mul(u64::from(blocks));
    let message = |from| Message { from, to: (from + distance) % ranks, bytes, parts: (0, blocks), adds: false };
    (0..ranks).map(message).collect()
}

pub(super) fn pairwise(block_bytes: u64, ranks: u32) -> Schedule {
    Schedule { rounds: (1..ranks).map(|distance| shift(block_bytes, 1, ranks, distance)).collect() }
}

/// A block for the `d`-th rank after its sender takes the steps 2^k of the binary digits of `d`.
pub(super) fn bruck(block_bytes: u64, ranks: u32) -> Schedule {
    let steps = (0..=(ranks - 1).ilog2()).map(|bit| 1u32 << bit);
    let blocks = |step: u32| (1..ranks).filter(|distance| distance & step != 0).count() as u32;
    Schedule { rounds: steps.map(|step| shift(block_bytes, blocks(step), ranks, step)).collect() }
}

#[cfg(test)]
mod tests {
    use super::super::schedule::tests::check_one_ported;
    use super::*;

    #[test]
    fn pairwise_phases_send_one_block_to_every_other_rank() {
        for ranks in 2..18 {
            let schedule = pairwise(7, ranks);
            check_one_ported(&schedule, ranks);
            let mut pairs: Vec<(u32, u32)> = schedule.rounds.iter().flatten().map(|it| (it.from, it.to)).collect();
            pairs.sort_unstable();
            pairs.dedup();
            assert_eq!((pairs.len() as u32, schedule.len() as u32), (ranks * (ranks - 1), ranks * (ranks - 1)));
        }
    }

    /// Follows every block: in each round, a rank passes on the blocks whose remaining way has the step of the round.
    #[test]
    fn blocks_of_bruck_reach_their_ranks() {
        for ranks in 2..35u32 {
            let schedule = bruck(1, ranks);
            check_one_ported(&schedule, ranks);
            assert_eq!(schedule.rounds.len() as u32, (ranks - 1).ilog2() + 1);
            // (where a block is, how far it still has to go), for the blocks of rank 0; all ranks are alike.
            let mut blocks: Vec<(u32, u32)> = (1..ranks).map(|distance| (0, distance)).collect();
            for (bit, round) in schedule.rounds.iter().enumerate() {
                let step = 1 << bit;
                let moving = blocks.iter_mut().filter(|block| block.1 & step != 0);
                let moved = moving.map(|block| *block = (block.0 + step, block.1 - step)).count();
                assert!(round.iter().all(|message| message.bytes == moved as u64));
                assert!(round.iter().all(|message| message.to == (message.from + step) % ranks));
            }
            assert!(blocks.iter().all(|block| block.1 == 0), "{ranks}: {blocks:?}");
        }
    }
}
