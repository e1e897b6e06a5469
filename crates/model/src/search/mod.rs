//! Paths between ToRs under a [`LinkState`](crate::LinkState).
//!
//! All searches use switches only, because hosts never forward traffic. They count hops, and break ties by
//! [`LinkId`](crate::LinkId), which is port order. So the same query always has the same results in the same order.

mod disjoint;
mod distances;
mod k_shortest;
mod next_hops;
mod path_set;
mod shortest;
mod simple;
mod spanning_tree;

pub use disjoint::edge_disjoint;
pub use distances::{distances_to, rank, Distances, ReverseBfs};
pub use k_shortest::{k_shortest, KShortestPaths};
pub use next_hops::{next_hops, NextHops, RouteTable};
pub use path_set::{PathSelection, PathSet};
pub use shortest::{ShortestIter, ShortestPaths};
pub use simple::{simple_paths, SimplePaths};
pub use spanning_tree::spanning_tree;
