//! Edge colouring of bipartite multigraphs. The greatest number of edges at a vertex is a sufficient number of
//! colours (König 1916).
//!
//! Edges are coloured one by one. If no colour is free at both ends, let α be free at one end and β at the other.
//! Take the path of edges coloured β and α in turn that begins at the first end. Its colours are swapped, which frees
//! β there. The path cannot lead to the other end (Kempe chains). So few of the existing colours change.

use std::ops::Range;

/// No edge.
const NONE: u32 = u32::MAX;

/// Edges between left and right vertices, each with a colour. No two edges at a vertex have the same colour.
#[derive(Clone, Debug)]
pub(super) struct Colouring {
    colours: usize,
    /// Edge by vertex and colour, on the left and on the right side.
    at: [Vec<u32>; 2],
    /// Vertices of each edge.
    ends: Vec<[u32; 2]>,
    colour: Vec<u32>,
    /// Number of entries examined.
    pub operations: u64,
}

impl Colouring {
    /// Creates a colouring in which no edge of `ends` (left and right vertex) has a colour yet.
    pub(super) fn new(vertices: [usize; 2], colours: usize, ends: Vec<[u32; 2]>) -> Colouring {
        let at = vertices.map(|count| vec![NONE; count * colours]);
        Colouring { colours, at, colour: vec![NONE; ends.len()], ends, operations: 0 }
    }

    /// The colour of an edge, if it has one.
    pub(super) fn colour(&self, edge: usize) -> Option<u32> {
        Some(self.colour[edge]).filter(|&colour| colour != NONE)
    }

    /// Gives an edge a colour of this range without changing any other edge. Returns whether one was free at both
    /// ends.
    pub(super) fn put(&mut self, edge: usize, mut among: Range<usize>) -> bool {
        let [left, right] = self.ends[edge];
        self.operations += 2 * among.len() as u64;
        let free = among.find(|&colour| self.is_free(0, left, colour) && self.is_free(1, right, colour));
        if let Some(colour) = free {
            self.set(edge, colour);
        }
        free.is_some()
    }

    /// Gives an edge a colour, and changes others if necessary. Returns whether that was possible. It fails only if
    /// one of the ends already has as many coloured edges as there are colours.
    pub(super) fn insert(&mut self, edge: usize) -> bool {
        if self.put(edge, 0..self.colours) {
            return true;
        }
        let [left, right] = self.ends[edge];
        let free = |side: usize, vertex: u32| (0..self.colours).find(|&colour| self.is_free(side, vertex, colour));
        let Some((free_left, free_right)) = free(0, left).zip(free(1, right)) else { return false };
        // Begins at the right end, where another edge has the colour that is free at the left end.
        let mut chain = Vec::new();
        let (mut side, mut vertex, mut pair) = (1, right, [free_left, free_right]);
        loop {
            let next = self.at[side][vertex as usize * self.colours + pair[0]];
            if next == NONE {
                break;
            }
            chain.push(next);
            vertex = self.ends[next as usize][1 - side];
            (side, pair) = (1 - side, [pair[1], pair[0]]);
        }
        self.operations += 4 * chain.len() as u64;
        let swapped = |colour: u32| if colour as usize == free_left { free_right } else { free_left };
        let colours: Vec<usize> = chain.iter().map(|&edge| swapped(self.colour[edge as usize])).collect();
        chain.iter().for_each(|&edge| self.clear(edge as usize));
        chain.iter().zip(colours).for_each(|(&edge, colour)| self.set(edge as usize, colour));
        self.set(edge, free_left);
        true
    }

    fn is_free(&self, side: usize, vertex: u32, colour: usize) -> bool {
        self.at[side][vertex as usize * self.colours + colour] == NONE
    }

    fn set(&mut self, edge: usize, colour: usize) {
        for (at, vertex) in self.at.iter_mut().zip(self.ends[edge]) {
            at[vertex as usize * self.colours + colour] = edge as u32;
        }
        self.colour[edge] = colour as u32;
    }

    fn clear(&mut self, edge: usize) {
        let colour = self.colour[edge] as usize;
        for (at, vertex) in self.at.iter_mut().zip(self.ends[edge]) {
            at[vertex as usize * self.colours + colour] = NONE;
        }
        self.colour[edge] = NONE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Asserts that edges with a common vertex differ in colour.
    fn check(colouring: &Colouring) {
        for (edge, ends) in colouring.ends.iter().enumerate() {
            for (other, others) in colouring.ends.iter().enumerate().take(edge) {
                let meet = ends[0] == others[0] || ends[1] == others[1];
                let alike = colouring.colour[edge] == colouring.colour[other] && colouring.colour(edge).is_some();
                assert!(!(meet && alike), "edges {edge} and {other} at {ends:?} and {others:?}");
            }
        }
    }

    proptest! {
        /// The greatest degree is a sufficient number of colours for any multigraph, from any start. With one colour
        /// less, every refused edge has an end whose colours are all used.
        #[test]
        fn the_greatest_degree_is_a_sufficient_number_of_colours(
            edges in prop::collection::vec(((0..6u32, 0..6u32), 0..4usize), 1..40),
        ) {
            let ends: Vec<[u32; 2]> = edges.iter().map(|&((left, right), _)| [left, right]).collect();
            let degree = |side: usize, vertex: u32| ends.iter().filter(|ends| ends[side] == vertex).count();
            let most = (0..6).flat_map(|vertex| [degree(0, vertex), degree(1, vertex)]).max().unwrap_or(0);
            for colours in [most, most - 1] {
                let mut colouring = Colouring::new([6, 6], colours, ends.clone());
                for (edge, &(_, wish)) in edges.iter().enumerate() {
                    colouring.put(edge, wish.min(colours)..(wish + 1).min(colours));
                }
                for edge in 0..edges.len() {
                    let done = colouring.colour(edge).is_some() || colouring.insert(edge);
                    check(&colouring);
                    let full = (0..2).any(|side| {
                        let own = ends.iter().enumerate().filter(|(_, other)| other[side] == ends[edge][side]);
                        own.filter(|&(other, _)| colouring.colour(other).is_some()).count() == colours
                    });
                    prop_assert!(done || (full && colours < most), "edge {edge} with {colours} colours");
                }
            }
        }
    }
}
