//! All-reduce, all-gather and reduce-scatter: every rank has a buffer, and all ranks take the same part.

use super::hierarchy::Groups;
use super::placed::Placed;
use super::schedule::{Buffer, Message, Schedule};
use super::trees::{self, CHUNKS};
use super::{costs, refuse_unused, Repeated, Work};
use crate::error::WorkloadError;
use crate::flow_spec::Draft;
use crate::generate::Context;
use crate::job::{Algorithm, Cost};
use crate::quantity;
use pathloom_model::spec::{Spec, SpecError};

/// What is done with the buffers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ReductionKind {
    /// Every rank gets the sum of all buffers.
    AllReduce,
    /// Every rank has a part of the buffer and gets the other parts.
    AllGather,
    /// Every rank gets its part of the sum of all buffers.
    ReduceScatter,
}

impl ReductionKind {
    fn name(self) -> &'static str {
        match self {
            ReductionKind::AllReduce => "all-reduce",
            ReductionKind::AllGather => "all-gather",
            ReductionKind::ReduceScatter => "reduce-scatter",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Way {
    /// Every rank sends to the next one only (Patarasuk and Yuan, JPDC 2009).
    Ring,
    /// Halving and doubling: ranks exchange with ranks at distances that are powers of two (Thakur, Rabenseifner and
    /// Gropp, IJHPCA 2005).
    Recursive,
    /// Two trees, each for one half of the buffer, in chunks.
    Tree { chunks: u32 },
    /// Rings inside groups, and rings across them.
    Hierarchical(Groups),
}

impl Way {
    fn name(&self) -> &'static str {
        match self {
            Way::Ring => "ring",
            Way::Recursive => "recursive",
            Way::Tree { .. } => "tree",
            Way::Hierarchical(_) => "hierarchical",
        }
    }
}

/// One of the three collectives, by one algorithm.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reduction {
    kind: ReductionKind,
    algorithm: Way,
    size_bytes: u64,
    repeated: Repeated,
}

impl Reduction {
    /// Reads the keys of a specification.
    pub fn take(spec: &Spec, kind: ReductionKind) -> Result<Reduction, SpecError> {
        let size_bytes = spec.size_bytes("size")?.unwrap_or(100_000_000);
        let repeated = Repeated::take(spec)?;
        let simple = [("ring", "ring"), ("recursive", "recursive")];
        if kind != ReductionKind::AllReduce {
            let name = spec.choice("algorithm", &simple)?.unwrap_or("ring");
            let algorithm = if name == "ring" { Way::Ring } else { Way::Recursive };
            return Ok(Reduction { kind, algorithm, size_bytes, repeated });
        }
        let all = [simple[0], simple[1], ("tree", "tree"), ("hierarchical", "hierarchical")];
        let name = spec.choice("algorithm", &all)?.unwrap_or("ring");
        let chunks = spec.count("chunks", 1, 1_000_000)?;
        let groups = Groups::take(spec)?;
        if name != "tree" {
            refuse_unused(spec, "chunks", chunks.as_ref(), name, "algorithm=tree")?;
        }
        if name != "hierarchical" {
            refuse_unused(spec, "groups", groups.as_ref(), name, "algorithm=hierarchical")?;
        }
        let algorithm = match name {
            "tree" => Way::Tree { chunks: chunks.map_or(CHUNKS, |chunks| chunks as u32) },
            "hierarchical" => Way::Hierarchical(groups.unwrap_or_default()),
            "recursive" => Way::Recursive,
            _ => Way::Ring,
        };
        Ok(Reduction { kind, algorithm, size_bytes, repeated })
    }

    /// The flows. The coflow of each is its round, counted over all iterations.
    pub fn draft(&self, context: &Context) -> Result<Draft, WorkloadError> {
        let hosts = self.repeated.ranks.hosts(context, None)?;
        let ranks = hosts.len() as u32;
        let buffer = self.buffer(ranks);
        let parts = buffer.parts;
        if self.size_bytes < u64::from(parts) {
            let size = self.size_bytes;
            return Err(context.error(format!("size: {size} B is too small for {parts} chunks; raise size=")));
        }
        if let Way::Tree { chunks } = self.algorithm {
            let count = 2.0 * f64::from(chunks) * f64::from(ranks - 1) * f64::from(self.repeated.iterations);
            context.refuse_too_many(count, "lower chunks=, iterations= or hosts=")?;
        } else {
            let count = 2.0 * f64::from(ranks) * f64::from(ranks - 1) * f64::from(self.repeated.iterations);
            if self.algorithm == Way::Ring {
                let once = if self.kind == ReductionKind::AllReduce { 1.0 } else { 0.5 };
                context.refuse_too_many(count * once, "lower iterations= or hosts=")?;
            }
        }
        let schedule = self.schedule(context, &hosts, buffer)?;
        let what = format!("{} of {} over", self.what(), quantity::bytes(self.size_bytes as f64));
        self.repeated.in_rounds(context, &hosts, &schedule, (&what, self.work(context, &hosts, &schedule)))
    }

    fn schedule(&self, context: &Context, hosts: &[u32], buffer: Buffer) -> Result<Schedule, WorkloadError> {
        let ranks = hosts.len() as u32;
        let members: Vec<u32> = (0..ranks).collect();
        let block = |part: u32| (part, 1);
        match (&self.algorithm, self.kind) {
            (Way::Ring, ReductionKind::AllReduce) => Ok(ring_all_reduce(buffer, &members, block)),
            (Way::Ring, ReductionKind::AllGather) => Ok(ring_all_gather(buffer, &members, block)),
            (Way::Ring, ReductionKind::ReduceScatter) => Ok(ring_reduce_scatter(buffer, &members, block)),
            (Way::Recursive, ReductionKind::AllReduce) => Ok(recursive_all_reduce(buffer.size_bytes, ranks)),
            (Way::Recursive, kind) if !ranks.is_power_of_two() => Err(context.error(format!(
                "algorithm=recursive: {} by halving or doubling needs a power of two of ranks, and there are {ranks}; \
                 set hosts={}, or algorithm=ring",
                kind.name(),
                1 << ranks.ilog2(),
            ))),
            (Way::Recursive, ReductionKind::AllGather) => Ok(doubling(buffer, &members)),
            (Way::Recursive, ReductionKind::ReduceScatter) => Ok(halving(buffer, &members)),
            (Way::Tree { .. }, _) => Ok(trees::all_reduce(buffer, ranks)),
            (Way::Hierarchical(groups), _) => Ok(groups.of(context, hosts)?.all_reduce(buffer)),
        }
    }

    /// This algorithm and the others for the same work.
    fn work(&self, context: &Context, hosts: &[u32], schedule: &Schedule) -> Work {
        let (n, size) = (hosts.len() as u32, self.size_bytes as f64);
        let ring = costs::ring_half(n, size);
        let share = f64::from(n - 1) / f64::from(n);
        let twice = |cost: Cost| cost.then(cost);
        let mut others = Vec::new();
        if self.kind == ReductionKind::AllReduce {
            let grouped = |groups: Groups| {
                let found = groups.of(context, hosts).ok()?;
                Some(costs::hierarchical(n, found.size(), size, found.are_servers))
            };
            others.push(Algorithm::flat("ring", twice(ring)));
            others.push(Algorithm::flat("recursive", costs::recursive_all_reduce(n, size)));
            others.push(Algorithm::flat("tree", costs::tree_all_reduce(n, costs::usual_chunks(self.size_bytes))));
            others.extend(grouped(Groups::Auto));
            if let Way::Hierarchical(groups) = &self.algorithm {
                others.splice(0..0, grouped(*groups));
            }
        } else {
            others.push(Algorithm::flat("ring", ring));
            if n.is_power_of_two() {
                others.push(Algorithm::flat("recursive", costs::recursive_half(n, size)));
            }
        }
        if let Way::Tree { chunks } = self.algorithm {
            let chunk = size / f64::from(chunks);
            others.insert(0, Algorithm::flat("tree", Cost::each(f64::from(schedule.steps(n)), chunk)));
        }
        if let Some(placed) = Placed::of(context, hosts) {
            others.iter_mut().for_each(|known| self.place(context, hosts, &placed, known));
        }
        let name = self.algorithm.name();
        let algorithm = others.iter().find(|known| known.name == name).cloned().unwrap_or_default();
        let bus_factor = if self.kind == ReductionKind::AllReduce { 2.0 * share } else { share };
        Work { collective: self.kind.name(), size_bytes: size, bus_factor, algorithm, others }
    }

    /// Replaces the cost of an algorithm by that of its messages where the ranks are.
    fn place(&self, context: &Context, hosts: &[u32], placed: &Placed, known: &mut Algorithm) {
        let way = match known.name.as_str() {
            name if name == self.algorithm.name() => self.algorithm.clone(),
            "ring" => Way::Ring,
            "recursive" => Way::Recursive,
            "tree" => Way::Tree { chunks: costs::usual_chunks(self.size_bytes).parts },
            _ => Way::Hierarchical(Groups::Auto),
        };
        let other = Reduction { algorithm: way, ..self.clone() };
        if let Ok(schedule) = other.schedule(context, hosts, other.buffer(hosts.len() as u32)) {
            *known = placed.algorithm(&known.name, &schedule);
        }
    }

    /// The buffer in the parts of the algorithm.
    fn buffer(&self, ranks: u32) -> Buffer {
        let parts = if let Way::Tree { chunks } = self.algorithm { chunks } else { ranks };
        Buffer { size_bytes: self.size_bytes, parts }
    }

    fn what(&self) -> String {
        match &self.algorithm {
            Way::Ring => format!("ring {}", self.kind.name()),
            Way::Recursive => format!("recursive {}", self.kind.name()),
            Way::Tree { chunks } => format!("double-tree {} in {chunks} chunks", self.kind.name()),
            Way::Hierarchical(groups) => format!("hierarchical {} ({})", self.kind.name(), groups.describe()),
        }
    }
}

/// Blocks of parts of a buffer: the parts of block `b`.
type BlockOf<'a> = dyn Fn(u32) -> (u32, u32) + 'a;

/// Reduce-scatter, then all-gather, 2(N-1) steps. A member first sends its own block, then always the block that it has
/// just received.
fn ring_all_reduce(buffer: Buffer, members: &[u32], block: impl Fn(u32) -> (u32, u32)) -> Schedule {
    let count = members.len() as u32;
    ring(buffer, members, 2 * (count - 1), 0, &block, |step| step < count - 1)
}

/// Member `m` ends with block `m` of the sum.
pub(super) fn ring_reduce_scatter(buffer: Buffer, members: &[u32], block: impl Fn(u32) -> (u32, u32)) -> Schedule {
    let count = members.len() as u32;
    ring(buffer, members, count - 1, count - 1, &block, |_| true)
}

/// Member `m` begins with block `m`.
pub(super) fn ring_all_gather(buffer: Buffer, members: &[u32], block: impl Fn(u32) -> (u32, u32)) -> Schedule {
    ring(buffer, members, members.len() as u32 - 1, 0, &block, |_| false)
}

/// Reduce-scatter and all-gather of blocks, so that member `m` reduces block `m`.
pub(super) fn ring_both(buffer: Buffer, members: &[u32], block: impl Fn(u32) -> (u32, u32)) -> Schedule {
    ring_reduce_scatter(buffer, members, &block).then(ring_all_gather(buffer, members, &block))
}

/// In step `s`, member `m` sends block `m + shift - s` to the next member.
fn ring(
    buffer: Buffer,
    members: &[u32],
    steps: u32,
    shift: u32,
    block: &BlockOf,
    adds: impl Fn(u32) -> bool,
) -> Schedule {
    let count = members.len() as u32;
    let message = |step: u32, member: u32| {
        let parts = block((member + shift + 2 * count - step) % count);
        let (from, to) = (members[member as usize], members[((member + 1) % count) as usize]);
        Message { adds: adds(step), ..buffer.add(from, to, parts) }
    };
    Schedule { rounds: (0..steps).map(|step| (0..count).map(|member| message(step, member)).collect()).collect() }
}

/// Recursive halving, then doubling. If the number of ranks is not a power of two, the first ranks are taken in pairs: one of
/// each pair gives its buffer to the other one before, and gets the result after (as in MPICH).
pub(super) fn recursive_all_reduce(size_bytes: u64, ranks: u32) -> Schedule {
    let most = 1 << ranks.ilog2();
    let extra = ranks - most;
    let members: Vec<u32> = (0..extra).map(|pair| 2 * pair + 1).chain(2 * extra..ranks).collect();
    let buffer = Buffer { size_bytes, parts: most };
    let whole = (0, most);
    let pairs = |message: &dyn Fn(u32) -> Message| match extra {
        0 => Schedule::default(),
        _ => Schedule { rounds: vec![(0..extra).map(message).collect()] },
    };
    let before = pairs(&|pair| buffer.add(2 * pair, 2 * pair + 1, whole));
    let after = pairs(&|pair| buffer.copy(2 * pair + 1, 2 * pair, whole));
    before.then(halving(buffer, &members)).then(doubling(buffer, &members)).then(after)
}

/// Each member exchanges one half of what it has left with a member at half the distance, and ends with its own part of the
/// sum. The number of members is a power of two, and that of parts is the same.
fn halving(buffer: Buffer, members: &[u32]) -> Schedule {
    let distances = (0..buffer.parts.ilog2()).rev().map(|bit| 1 << bit);
    let round = |distance: u32| {
        let message = |member: u32| {
            let partner = member ^ distance;
            // The half of the partner begins where its part does, without the lower digits.
            let parts = (partner & !(distance - 1), distance);
            buffer.add(members[member as usize], members[partner as usize], parts)
        };
        (0..members.len() as u32).map(message).collect()
    };
    Schedule { rounds: distances.map(round).collect() }
}

/// Each member begins with its own part, and exchanges all that it has with a member at twice the distance.
fn doubling(buffer: Buffer, members: &[u32]) -> Schedule {
    let distances = (0..buffer.parts.ilog2()).map(|bit| 1 << bit);
    let round = |distance: u32| {
        let message = |member: u32| {
            let parts = (member & !(distance - 1), distance);
            buffer.copy(members[member as usize], members[(member ^ distance) as usize], parts)
        };
        (0..members.len() as u32).map(message).collect()
    };
    Schedule { rounds: distances.map(round).collect() }
}

#[cfg(test)]
mod tests {
    use super::super::schedule::tests::{carry_out, own_values};
    use super::*;

    fn buffer(parts: u32) -> Buffer {
        Buffer { size_bytes: 1000 * u64::from(parts) + 3, parts }
    }

    fn check_all_reduce(schedule: &Schedule, ranks: u32, parts: u32) {
        let mut held = own_values(ranks, parts);
        carry_out(schedule, &mut held);
        assert!(held.iter().flatten().all(|&part| part == (1 << ranks) - 1), "{ranks}: {held:?}");
    }

    #[test]
    fn every_rank_gets_the_whole_sum() {
        for ranks in 2..18 {
            let members: Vec<u32> = (0..ranks).collect();
            check_all_reduce(&ring_all_reduce(buffer(ranks), &members, |part| (part, 1)), ranks, ranks);
            check_all_reduce(&ring_both(buffer(ranks), &members, |part| (part, 1)), ranks, ranks);
            let recursive = recursive_all_reduce(1_000_003, ranks);
            check_all_reduce(&recursive, ranks, 1 << ranks.ilog2());
            let steps = 2 * ranks.ilog2() + if ranks.is_power_of_two() { 0 } else { 2 };
            assert_eq!(recursive.rounds.len() as u32, steps);
        }
    }

    #[test]
    fn a_scatter_leaves_each_rank_its_part_and_a_gather_begins_with_it() {
        for ranks in 2..18u32 {
            let members: Vec<u32> = (0..ranks).collect();
            let (ring, power) = (buffer(ranks), ranks.is_power_of_two());
            let block = |part: u32| (part, 1);
            let scatters = [Some(ring_reduce_scatter(ring, &members, block)), power.then(|| halving(ring, &members))];
            for schedule in scatters.iter().flatten() {
                let mut held = own_values(ranks, ranks);
                carry_out(schedule, &mut held);
                assert!((0..ranks as usize).all(|rank| held[rank][rank] == (1 << ranks) - 1), "{ranks}: {held:?}");
            }
            let gathers = [Some(ring_all_gather(ring, &members, block)), power.then(|| doubling(ring, &members))];
            for schedule in gathers.iter().flatten() {
                let own = |rank: u32| (0..ranks).map(|part| u32::from(part == rank) << part).collect();
                let mut held: Vec<Vec<u32>> = (0..ranks).map(own).collect();
                carry_out(schedule, &mut held);
                let expected: Vec<u32> = (0..ranks).map(|part| 1 << part).collect();
                assert!(held.iter().all(|held| *held == expected), "{ranks}: {held:?}");
            }
        }
    }
}
