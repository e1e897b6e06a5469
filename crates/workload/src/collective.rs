//! Collectives of distributed training: ring all-reduce and all-to-all, with the dependencies between their steps.

use crate::error::WorkloadError;
use crate::flow_spec::{Draft, Start};
use crate::generate::{Context, SYNCHRONISED_JITTER};
use crate::quantity;
use crate::ranks::Ranks;
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::Nanos;
use rand::seq::SliceRandom;

/// Ring all-reduce: reduce-scatter, then all-gather, 2(N-1) steps in which every rank sends one chunk of size/N to the
/// next rank (Patarasuk and Yuan, JPDC 2009).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AllReduce {
    size_bytes: u64,
    ranks: Ranks,
    iterations: u32,
    gap: Nanos,
    jitter: Nanos,
}

impl AllReduce {
    /// Reads the keys of a specification.
    pub fn take(spec: &Spec) -> Result<AllReduce, SpecError> {
        spec.choice("algorithm", &[("ring", ())])?;
        Ok(AllReduce {
            size_bytes: spec.size_bytes("size")?.unwrap_or(100_000_000),
            ranks: Ranks::take(spec)?,
            iterations: spec.count("iterations", 1, 1_000_000)?.unwrap_or(1) as u32,
            gap: spec.time("gap")?.unwrap_or(Nanos::ZERO),
            jitter: spec.time("jitter")?.unwrap_or(SYNCHRONISED_JITTER),
        })
    }

    /// The flows. The coflow of each is its step, counted over all iterations.
    pub fn draft(&self, context: &Context) -> Result<Draft, WorkloadError> {
        let hosts = self.ranks.hosts(context, None)?;
        let ranks = hosts.len() as u32;
        if self.size_bytes < u64::from(ranks) {
            let size = self.size_bytes;
            return Err(context.error(format!("size: {size} B is too small for {ranks} chunks; raise size=")));
        }
        let steps = 2 * (ranks - 1);
        let count = f64::from(steps) * f64::from(ranks) * f64::from(self.iterations);
        context.refuse_too_many(count, "lower iterations= or hosts=")?;
        let mut jitter = context.rng("jitter");
        let mut flows = Vec::with_capacity(count as usize);
        for step in 0..steps * self.iterations {
            for rank in 0..ranks {
                let start = if step == 0 {
                    context.jittered(Nanos::ZERO, self.jitter, &mut jitter)
                } else {
                    // It must have received the chunk that it passes on, and its last send must be done: one
                    // connection, in order.
                    let before = (step - 1) * ranks;
                    let delay = if step % steps == 0 { self.gap } else { Nanos::ZERO };
                    Start::After { flows: [before + (rank + ranks - 1) % ranks, before + rank].into(), delay }
                };
                let size = chunk_bytes(self.size_bytes, ranks, chunk_sent(step % steps, rank, ranks));
                let pair = (hosts[rank as usize], hosts[((rank + 1) % ranks) as usize]);
                flows.push(context.flow(start, pair, Some(size), Some(step)));
            }
        }
        let description = format!(
            "ring all-reduce of {} over {}, {} of {steps} steps each; a rank sends in a step once it has received \
             and sent in the step before; {}",
            quantity::bytes(self.size_bytes as f64),
            self.ranks.describe(hosts.len()),
            quantity::count(self.iterations as usize, "iteration"),
            quantity::count(flows.len(), "flow"),
        );
        Ok(Draft { flows, description, notes: Vec::new() })
    }
}

/// The chunk that `rank` sends in `step` of 2(N-1): first its own chunk, then always the chunk that it has just
/// received.
fn chunk_sent(step: u32, rank: u32, ranks: u32) -> u32 {
    (rank + 2 * ranks - step) % ranks
}

/// Bytes of a chunk. The first chunks get the remainder of the division.
fn chunk_bytes(size_bytes: u64, ranks: u32, chunk: u32) -> u64 {
    let ranks = u64::from(ranks);
    size_bytes / ranks + u64::from(u64::from(chunk) < size_bytes % ranks)
}

/// All-to-all: every rank sends to every other one, `parallel` transfers at a time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AllToAll {
    size_bytes: u64,
    ranks: Ranks,
    parallel: u32,
    shuffled: bool,
    iterations: u32,
    gap: Nanos,
    jitter: Nanos,
}

impl AllToAll {
    /// Reads the keys of a specification.
    pub fn take(spec: &Spec) -> Result<AllToAll, SpecError> {
        Ok(AllToAll {
            size_bytes: spec.size_bytes("size")?.unwrap_or(1_000_000),
            ranks: Ranks::take(spec)?,
            parallel: spec.count("parallel", 1, u64::from(u32::MAX))?.unwrap_or(1) as u32,
            shuffled: spec.choice("order", &[("shift", false), ("random", true)])?.unwrap_or(false),
            iterations: spec.count("iterations", 1, 1_000_000)?.unwrap_or(1) as u32,
            gap: spec.time("gap")?.unwrap_or(Nanos::ZERO),
            jitter: spec.time("jitter")?.unwrap_or(SYNCHRONISED_JITTER),
        })
    }

    /// The flows. The coflow of each is its phase, counted over all iterations.
    pub fn draft(&self, context: &Context) -> Result<Draft, WorkloadError> {
        let hosts = self.ranks.hosts(context, None)?;
        let ranks = hosts.len() as u32;
        let count = f64::from(ranks - 1) * f64::from(ranks) * f64::from(self.iterations);
        context.refuse_too_many(count, "lower iterations= or hosts=")?;
        let orders = self.orders(ranks, context);
        let parallel = self.parallel.min(ranks - 1);
        let phases = ranks - 1;
        let mut jitter = context.rng("jitter");
        let mut flows = Vec::with_capacity(count as usize);
        for phase in 0..phases * self.iterations {
            for rank in 0..ranks {
                let start = match phase.checked_sub(parallel) {
                    None => context.jittered(Nanos::ZERO, self.jitter, &mut jitter),
                    Some(before) => {
                        // The first sends of an iteration follow the last ones of the previous iteration.
                        let delay = if phase % phases < parallel { self.gap } else { Nanos::ZERO };
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
            self.ranks.describe(hosts.len()),
            quantity::count(self.iterations as usize, "iteration"),
            if self.shuffled { "random" } else { "shifted" },
            quantity::count(flows.len(), "flow"),
        );
        Ok(Draft { flows, description, notes: Vec::new() })
    }

    /// Distances to the receivers of each rank, in random order; `None` if the distance in phase p is p + 1.
    fn orders(&self, ranks: u32, context: &Context) -> Option<Vec<Vec<u32>>> {
        let mut rng = context.rng("order");
        let mut order = |_| {
            let mut order: Vec<u32> = (1..ranks).collect();
            order.shuffle(&mut rng);
            order
        };
        self.shuffled.then(|| (0..ranks).map(&mut order).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_gives_every_rank_the_whole_sum() {
        for ranks in 2..9u32 {
            // parts[rank][chunk]: the ranks whose share it contains, as bits.
            let mut parts: Vec<Vec<u32>> = (0..ranks).map(|rank| vec![1 << rank; ranks as usize]).collect();
            for step in 0..2 * (ranks - 1) {
                let before = parts.clone();
                for rank in 0..ranks {
                    let chunk = chunk_sent(step, rank, ranks) as usize;
                    let next = ((rank + 1) % ranks) as usize;
                    let sent = before[rank as usize][chunk];
                    if step < ranks - 1 {
                        assert_eq!(parts[next][chunk] & sent, 0, "added twice");
                        parts[next][chunk] |= sent;
                    } else {
                        parts[next][chunk] = sent;
                    }
                }
            }
            assert!(parts.iter().flatten().all(|&part| part == (1 << ranks) - 1), "{ranks}: {parts:?}");
        }
    }

    #[test]
    fn chunks_add_up_to_the_whole() {
        for (size, ranks) in [(100_000_000, 16), (17, 16), (16, 16), (1_000_003, 7)] {
            let chunks: Vec<u64> = (0..ranks).map(|chunk| chunk_bytes(size, ranks, chunk)).collect();
            assert_eq!(chunks.iter().sum::<u64>(), size);
            assert!(chunks.iter().all(|&bytes| bytes >= 1));
        }
    }
}
