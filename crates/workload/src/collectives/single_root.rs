//! Broadcast and reduce: one rank sends a buffer to all others, or gets the sum of all buffers.

use super::placed::Placed;
use super::schedule::{Buffer, Schedule};
use super::trees::{self, CHUNKS};
use super::{costs, refuse_unused, Repeated, Work};
use crate::error::WorkloadError;
use crate::flow_spec::Draft;
use crate::generate::Context;
use crate::job::{Algorithm, Cost};
use crate::quantity;
use pathloom_model::spec::{Spec, SpecError};

/// Direction of the buffers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum SingleRootKind {
    /// From the root to all others.
    Broadcast,
    /// From all others to the root, which adds them.
    Reduce,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// Two trees, each for one half of the buffer, in chunks.
    Tree,
    /// A chain of all ranks, in chunks.
    Ring,
    /// In each round, every rank that has the buffer sends it to one that does not have it.
    Binomial,
}

const ALGORITHMS: [(&str, Way); 3] = [("tree", Way::Tree), ("ring", Way::Ring), ("binomial", Way::Binomial)];

/// A broadcast or a reduction to one rank.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SingleRoot {
    kind: SingleRootKind,
    algorithm: Way,
    size_bytes: u64,
    root: u32,
    chunks: u32,
    repeated: Repeated,
}

impl SingleRoot {
    /// Reads the keys of a specification.
    pub fn take(spec: &Spec, kind: SingleRootKind) -> Result<SingleRoot, SpecError> {
        let algorithm = spec.choice("algorithm", &ALGORITHMS)?.unwrap_or(Way::Tree);
        let chunks = spec.count("chunks", 1, 1_000_000)?;
        if algorithm == Way::Binomial {
            refuse_unused(spec, "chunks", chunks.as_ref(), "binomial", "algorithm=tree")?;
        }
        let usual = if algorithm == Way::Binomial { 1 } else { CHUNKS };
        Ok(SingleRoot {
            kind,
            algorithm,
            size_bytes: spec.size_bytes("size")?.unwrap_or(100_000_000),
            root: spec.count("root", 0, u64::from(u32::MAX))?.unwrap_or(0) as u32,
            chunks: chunks.map_or(usual, |chunks| chunks as u32),
            repeated: Repeated::take(spec)?,
        })
    }

    /// The flows. The coflow of each is its round, counted over all iterations.
    pub fn draft(&self, context: &Context) -> Result<Draft, WorkloadError> {
        let hosts = self.repeated.ranks.hosts(context, None)?;
        let ranks = hosts.len() as u32;
        let SingleRoot { size_bytes, root, chunks, .. } = *self;
        if root >= ranks {
            return Err(context.error(format!("root={root} is not a rank; the job has {ranks} ranks, counted from 0")));
        }
        if size_bytes < u64::from(chunks) {
            let problem = format!("size: {size_bytes} B is too small for {chunks} chunks; raise size=");
            return Err(context.error(problem));
        }
        let count = f64::from(chunks) * f64::from(ranks - 1) * f64::from(self.repeated.iterations);
        context.refuse_too_many(count, "lower chunks=, iterations= or hosts=")?;
        let schedule = self.schedule(ranks);
        let name = match self.kind {
            SingleRootKind::Broadcast => "broadcast from",
            SingleRootKind::Reduce => "reduce to",
        };
        let algorithm = match self.algorithm {
            Way::Tree => "double-tree",
            Way::Ring => "ring",
            Way::Binomial => "binomial",
        };
        let (size, chunks) = (quantity::bytes(size_bytes as f64), quantity::count(chunks as usize, "chunk"));
        let what = format!("{algorithm} {name} rank {root} of {size} in {chunks} over");
        self.repeated.in_rounds(context, &hosts, &schedule, (&what, self.work(context, &hosts, &schedule)))
    }
}

impl SingleRoot {
    fn schedule(&self, ranks: u32) -> Schedule {
        let SingleRoot { size_bytes, root, chunks, .. } = *self;
        let buffer = Buffer { size_bytes, parts: chunks };
        let broadcast = match self.algorithm {
            Way::Tree => trees::broadcast(buffer, ranks, root),
            Way::Ring => chain(buffer, ranks, root),
            Way::Binomial => binomial(buffer, ranks, root),
        };
        match self.kind {
            SingleRootKind::Broadcast => broadcast,
            SingleRootKind::Reduce => broadcast.reversed(),
        }
    }

    /// This algorithm and the others for the same work.
    fn work(&self, context: &Context, hosts: &[u32], schedule: &Schedule) -> Work {
        let (n, size) = (hosts.len() as u32, self.size_bytes as f64);
        let usual = costs::usual_chunks(self.size_bytes);
        let name = ALGORITHMS.iter().find(|known| known.1 == self.algorithm).map_or("", |known| known.0);
        let chunk = size / f64::from(self.chunks);
        let mut algorithm = Algorithm::flat(name, Cost::each(f64::from(schedule.steps(n)), chunk));
        let mut others = vec![
            Algorithm::flat("tree", costs::tree_broadcast(n, usual)),
            Algorithm::flat("ring", costs::chain(n, usual)),
            Algorithm::flat("binomial", costs::binomial(n, size)),
        ];
        if let Some(placed) = Placed::of(context, hosts) {
            algorithm = placed.algorithm(name, schedule);
            for (known, way) in others.iter_mut().zip([Way::Tree, Way::Ring, Way::Binomial]) {
                let chunks = if way == Way::Binomial { 1 } else { usual.parts };
                let other = SingleRoot { algorithm: way, chunks, ..self.clone() };
                *known = placed.algorithm(&known.name, &other.schedule(n));
            }
        }
        let collective = if self.kind == SingleRootKind::Broadcast { "broadcast" } else { "reduce" };
        Work { collective, size_bytes: size, bus_factor: 1.0, algorithm, others }
    }
}

/// Chunks go from each rank to the next, so that all ranks except the last one send at the same time.
fn chain(buffer: Buffer, ranks: u32, root: u32) -> Schedule {
    let round = |round: u32| {
        // The rank at distance d from the root passes on chunk c in round c + d.
        let distances = round.saturating_sub(buffer.parts - 1)..(round + 1).min(ranks - 1);
        let message = |distance: u32| {
            let at = |distance: u32| (root + distance) % ranks;
            buffer.copy(at(distance), at(distance + 1), (round - distance, 1))
        };
        distances.map(message).collect()
    };
    Schedule { rounds: (0..buffer.parts + ranks - 2).map(round).collect() }
}

/// The number of ranks with the buffer doubles in each round.
fn binomial(buffer: Buffer, ranks: u32, root: u32) -> Schedule {
    let whole = (0, buffer.parts);
    let at = |distance: u32| (root + distance) % ranks;
    let distances = std::iter::successors(Some(1u32), |distance| distance.checked_mul(2)).take_while(|&it| it < ranks);
    let round = |known: u32| {
        let receivers = known..(2 * known).min(ranks);
        receivers.map(|receiver| buffer.copy(at(receiver - known), at(receiver), whole)).collect()
    };
    Schedule { rounds: distances.map(round).collect() }
}

#[cfg(test)]
mod tests {
    use super::super::schedule::tests::{carry_out, own_values};
    use super::*;

    #[test]
    fn chains_and_binomial_trees_reach_every_rank() {
        for ranks in 2..20u32 {
            let chunked = Buffer { size_bytes: 1_003, parts: 5 };
            for (schedule, rounds) in [
                (chain(chunked, ranks, ranks / 2), 5 + ranks - 2),
                (binomial(chunked, ranks, ranks / 2), (ranks - 1).ilog2() + 1),
            ] {
                assert_eq!(schedule.rounds.len() as u32, rounds);
                let mut held = vec![vec![0; 5]; ranks as usize];
                held[ranks as usize / 2] = vec![1; 5];
                carry_out(&schedule, &mut held);
                assert!(held.iter().flatten().all(|&part| part == 1), "{ranks}: {held:?}");
                let mut held = own_values(ranks, 5);
                carry_out(&schedule.reversed(), &mut held);
                assert!(held[ranks as usize / 2].iter().all(|&part| part == (1 << ranks) - 1), "{ranks}: {held:?}");
            }
        }
    }
}
