//! Costs of the algorithms in closed form, for `n` ranks and a buffer of `S` bytes.

use super::schedule::Buffer;
use super::trees::{self, CHUNKS};
use crate::job::{Algorithm, Cost};

/// n-1 steps in which each rank sends its n-th part.
pub(super) fn ring_half(n: u32, size_bytes: f64) -> Cost {
    Cost::each(f64::from(n - 1), size_bytes / f64::from(n))
}

/// Halving or doubling among a power of two of ranks.
pub(super) fn recursive_half(n: u32, size_bytes: f64) -> Cost {
    Cost { steps: f64::from(n.ilog2()), bytes: size_bytes * f64::from(n - 1) / f64::from(n) }
}

/// Halving and doubling. Ranks beyond a power of two give their buffers away before and get the result after.
pub(super) fn recursive_all_reduce(n: u32, size_bytes: f64) -> Cost {
    let half = recursive_half(1 << n.ilog2(), size_bytes);
    let extra = if n.is_power_of_two() { 0.0 } else { 2.0 };
    half.then(half).then(Cost::each(extra, size_bytes))
}

/// Two trees; a chunk in each step.
pub(super) fn tree_all_reduce(n: u32, buffer: Buffer) -> Cost {
    in_chunks(trees::all_reduce(buffer, n).steps(n), buffer)
}

/// Two trees below a root.
pub(super) fn tree_broadcast(n: u32, buffer: Buffer) -> Cost {
    in_chunks(trees::broadcast(buffer, n, 0).steps(n), buffer)
}

/// A chain of all ranks.
pub(super) fn chain(n: u32, buffer: Buffer) -> Cost {
    in_chunks(buffer.parts + n - 2, buffer)
}

fn in_chunks(steps: u32, buffer: Buffer) -> Cost {
    Cost::each(f64::from(steps), buffer.size_bytes as f64 / f64::from(buffer.parts))
}

/// The whole buffer in each step.
pub(super) fn binomial(n: u32, size_bytes: f64) -> Cost {
    Cost::each(f64::from((n - 1).ilog2() + 1), size_bytes)
}

/// Rings in groups of `g` ranks, and across the groups. Those inside groups need not leave a server if `servers`.
pub(super) fn hierarchical(n: u32, g: u32, size_bytes: f64, servers: bool) -> Algorithm {
    let inside = ring_half(g, size_bytes);
    let inside = inside.then(inside);
    let across = ring_half(n / g, size_bytes / f64::from(g));
    let across = across.then(across);
    let name = "hierarchical".to_owned();
    match servers {
        true => Algorithm { name, outside: across, inside },
        false => Algorithm { name, outside: across.then(inside), inside: Cost::default() },
    }
}

/// All blocks of a rank in n-1 steps.
pub(super) fn pairwise(n: u32, block_bytes: f64) -> Cost {
    Cost::each(f64::from(n - 1), block_bytes)
}

/// All blocks of a rank at the same time.
pub(super) fn direct(n: u32, block_bytes: f64) -> Cost {
    Cost { steps: 1.0, bytes: f64::from(n - 1) * block_bytes }
}

/// A block crosses as many steps as its distance has binary ones.
pub(super) fn bruck(n: u32, block_bytes: f64) -> Cost {
    let crossings: u32 = (1..n).map(u32::count_ones).sum();
    Cost { steps: f64::from((n - 1).ilog2() + 1), bytes: f64::from(crossings) * block_bytes }
}

/// The buffer in the usual number of chunks, or fewer if it is small.
pub(super) fn usual_chunks(size_bytes: u64) -> Buffer {
    Buffer { size_bytes, parts: u64::from(CHUNKS).min(size_bytes.max(1)) as u32 }
}

#[cfg(test)]
mod tests {
    use super::super::schedule::Schedule;
    use super::*;

    /// The longest chain of a schedule, and the bytes of its rounds.
    fn counted(schedule: &Schedule, n: u32) -> (f64, f64) {
        let most = |round: &Vec<super::super::schedule::Message>| round.iter().map(|it| it.bytes).max().unwrap();
        (f64::from(schedule.steps(n)), schedule.rounds.iter().map(most).sum::<u64>() as f64)
    }

    /// Closed forms against the schedules themselves.
    #[test]
    fn closed_forms_count_what_the_schedules_have() {
        for n in 2..40u32 {
            let size_bytes = 1_441_440 * 64;
            let members: Vec<u32> = (0..n).collect();
            let ring = Buffer { size_bytes, parts: n };
            let size = size_bytes as f64;
            let half = ring_half(n, size);
            let all_gather = super::super::reduction::ring_all_gather(ring, &members, |part| (part, 1));
            let near = |(steps, bytes): (f64, f64), cost: Cost| {
                assert_eq!(steps, cost.steps, "{n}");
                // Parts differ by one byte if the size is not a multiple of their number.
                assert!((bytes - cost.bytes).abs() <= 2.0 * f64::from(n), "{n}: {bytes} {cost:?}");
            };
            near(counted(&all_gather, n), half);
            near(
                counted(&super::super::reduction::recursive_all_reduce(size_bytes, n), n),
                recursive_all_reduce(n, size),
            );
            near(counted(&super::super::exchange::pairwise(1000, n), n), pairwise(n, 1000.0));
            near(counted(&super::super::exchange::bruck(1000, n), n), bruck(n, 1000.0));
        }
    }
}
