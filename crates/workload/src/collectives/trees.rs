//! Two binary trees over the same ranks, each for one half of a buffer, in chunks (Sanders, Speck and Träff, Parallel
//! Computing 2009). A rank has children in at most one of the trees, so that both together use its port fully.

use super::schedule::{Buffer, Message, Schedule};

/// Number of chunks unless a specification has another one.
pub(crate) const CHUNKS: u32 = 64;

/// A cable of a tree: chunks go from a parent to a child in a broadcast.
#[derive(Clone, Copy, Debug)]
struct Edge {
    from: u32,
    to: u32,
    /// Which of the trees: 0 or 1.
    tree: u32,
}

/// All-reduce: a reduction of all chunks to the roots of both trees, then their broadcast. The parts of the buffer are
/// the chunks; those with even numbers go over the first tree.
pub(super) fn all_reduce(buffer: Buffer, ranks: u32) -> Schedule {
    let broadcast = pipeline(buffer, ranks, &edges_of_all(ranks));
    broadcast.reversed().then(broadcast)
}

/// Broadcast from `root`. The trees have the other ranks, and the root sends to the roots of both.
pub(super) fn broadcast(buffer: Buffer, ranks: u32, root: u32) -> Schedule {
    let others: Vec<u32> = (0..ranks).filter(|&rank| rank != root).collect();
    let mut edges: Vec<Edge> = Vec::new();
    for tree in 0..2 {
        let (top, inner) = tree_of(others.len() as u32, tree);
        edges.push(Edge { from: root, to: others[top as usize], tree });
        let rename = |(from, to): &(u32, u32)| Edge { from: others[*from as usize], to: others[*to as usize], tree };
        edges.extend(inner.iter().map(rename));
    }
    pipeline(buffer, ranks, &edges)
}

fn edges_of_all(ranks: u32) -> Vec<Edge> {
    let of_tree = |tree| tree_of(ranks, tree).1.into_iter().map(move |(from, to)| Edge { from, to, tree });
    (0..2).flat_map(of_tree).collect()
}

/// The root and the edges of a tree over `count` places, parents before their children. In the first tree, places
/// with an odd number are leaves. The second one is its mirror image, or is shifted by one place if the count is odd.
fn tree_of(count: u32, tree: u32) -> (u32, Vec<(u32, u32)>) {
    let mirrored = |place: u32| match (tree, count.is_multiple_of(2)) {
        (0, _) => place,
        (_, true) => count - 1 - place,
        (_, false) => (place + 1) % count,
    };
    let mut edges = Vec::new();
    let mut level: Vec<u32> = vec![0];
    while !level.is_empty() {
        let below: Vec<(u32, u32)> = level
            .iter()
            .flat_map(|&parent| children(parent, count).into_iter().map(move |child| (parent, child)))
            .collect();
        level = below.iter().map(|edge| edge.1).collect();
        edges.extend(below);
    }
    (mirrored(0), edges.into_iter().map(|(from, to)| (mirrored(from), mirrored(to))).collect())
}

/// Children in the first tree: place 0 is above a tree of all others that is ordered from left to right.
fn children(place: u32, count: u32) -> Vec<u32> {
    if place == 0 {
        return (count > 1).then(|| 1 << (count - 1).ilog2()).into_iter().collect();
    }
    let lowest = place & place.wrapping_neg();
    let mut children = Vec::new();
    if lowest > 1 {
        children.push(place - lowest / 2);
        // Where the tree is cut off, the right child is the highest one that exists.
        let right = std::iter::successors(Some(lowest / 2), |step| (*step > 1).then_some(step / 2));
        children.extend(right.map(|step| place + step).find(|&right| right < count));
    }
    children
}

/// Sends the chunks down the trees. An edge carries one chunk in each period of rounds: one round if no rank sends or
/// receives over two edges, otherwise two.
fn pipeline(buffer: Buffer, ranks: u32, edges: &[Edge]) -> Schedule {
    let turns = turns(ranks, edges);
    let period = if turns.contains(&1) { 2 } else { 1 };
    // The round in which an edge carries the first chunk of its tree, and by tree and rank, the earliest round in which
    // the rank can pass it on.
    let mut first = vec![0u32; edges.len()];
    let mut earliest = [vec![0u32; ranks as usize], vec![0u32; ranks as usize]];
    for (index, edge) in edges.iter().enumerate() {
        let earliest = &mut earliest[edge.tree as usize];
        let from = earliest[edge.from as usize];
        first[index] = from + (turns[index] + period - from % period) % period;
        earliest[edge.to as usize] = first[index] + 1;
    }
    let mut rounds: Vec<Vec<Message>> = Vec::new();
    for chunk in 0..buffer.parts {
        for (edge, first) in edges.iter().zip(&first).filter(|(edge, _)| edge.tree == chunk % 2) {
            let round = (first + chunk / 2 * period) as usize;
            rounds.resize(rounds.len().max(round + 1), Vec::new());
            rounds[round].push(buffer.copy(edge.from, edge.to, (chunk, 1)));
        }
    }
    // With a single chunk, only one tree is used.
    rounds.retain(|round| !round.is_empty());
    Schedule { rounds }
}

/// For each edge 0 or 1, so that the edges over which a rank sends differ, and those over which it receives do too.
///
/// A rank has at most two of each, so an edge has at most two others to differ from, one at each end. A chain of such
/// edges that closes has an even length, because it changes between senders and receivers. So two values are enough.
fn turns(ranks: u32, edges: &[Edge]) -> Vec<u32> {
    let mut at_sender: Vec<Vec<usize>> = vec![Vec::new(); ranks as usize];
    let mut at_receiver = at_sender.clone();
    for (index, edge) in edges.iter().enumerate() {
        at_sender[edge.from as usize].push(index);
        at_receiver[edge.to as usize].push(index);
    }
    let mut turns: Vec<Option<u32>> = vec![None; edges.len()];
    for start in 0..edges.len() {
        let mut open = vec![(start, 0)];
        while let Some((index, turn)) = open.pop() {
            if turns[index].is_none() {
                turns[index] = Some(turn);
                let edge = edges[index];
                let others = at_sender[edge.from as usize].iter().chain(&at_receiver[edge.to as usize]);
                open.extend(others.filter(|&&other| other != index).map(|&other| (other, 1 - turn)));
            }
        }
    }
    turns.into_iter().map(Option::unwrap_or_default).collect()
}

#[cfg(test)]
mod tests {
    use super::super::schedule::tests::{carry_out, own_values};
    use super::*;

    #[test]
    fn every_rank_is_in_both_trees_and_has_children_in_one_of_them() {
        for ranks in 2..200u32 {
            let edges = edges_of_all(ranks);
            for tree in 0..2 {
                let mut parents = vec![0; ranks as usize];
                edges.iter().filter(|edge| edge.tree == tree).for_each(|edge| parents[edge.to as usize] += 1);
                parents[tree_of(ranks, tree).0 as usize] += 1;
                assert!(parents.iter().all(|&count| count == 1), "{ranks}, tree {tree}: {parents:?}");
            }
            let children = |rank: u32| edges.iter().filter(|edge| edge.from == rank).count();
            assert!((0..ranks).all(|rank| children(rank) <= 2), "{ranks}");
        }
    }

    #[test]
    fn every_rank_gets_the_whole_sum_in_few_rounds() {
        for ranks in 2..30u32 {
            for chunks in [1, 2, 3, 16, 64] {
                let schedule = all_reduce(Buffer { size_bytes: 100_003, parts: chunks }, ranks);
                let mut held = own_values(ranks, chunks);
                carry_out(&schedule, &mut held);
                assert!(held.iter().flatten().all(|&part| part == (1 << ranks) - 1), "{ranks}, {chunks}: {held:?}");
                // Each rank sends and receives the buffer twice. The rest is the way down both trees and up.
                let height = (ranks - 1).ilog2() + 1;
                let rounds = schedule.rounds.len() as u32;
                assert!(rounds <= 2 * (chunks + 2 * height), "{ranks}, {chunks}: {rounds} rounds");
            }
        }
    }

    #[test]
    fn a_broadcast_reaches_every_rank_in_few_rounds() {
        for ranks in 2..30u32 {
            for root in [0, ranks / 2, ranks - 1] {
                let schedule = broadcast(Buffer { size_bytes: 100_003, parts: 32 }, ranks, root);
                let mut held = vec![vec![0; 32]; ranks as usize];
                held[root as usize] = vec![1; 32];
                carry_out(&schedule, &mut held);
                assert!(held.iter().flatten().all(|&part| part == 1), "{ranks}, {root}: {held:?}");
                assert!(schedule.rounds.len() as u32 <= 32 + 2 * (ranks.ilog2() + 2), "{}", schedule.rounds.len());
                // A reduction is the same backwards.
                let mut held = own_values(ranks, 32);
                carry_out(&schedule.reversed(), &mut held);
                assert!(held[root as usize].iter().all(|&part| part == (1 << ranks) - 1), "{ranks}: {held:?}");
            }
        }
    }
}
