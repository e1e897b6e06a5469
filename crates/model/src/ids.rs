//! Small, copyable identifiers of nodes, ports and directed links.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Index of a node in [`crate::Fabric::nodes`]; hosts and switches share one numbering.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub u32);

/// Port of a node, counted from 1 as OpenFlow does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PortNo(pub u32);

/// Index of a directed link in [`crate::Fabric::links`]. The two directions of a cable have neighbouring indices that
/// differ in the lowest bit: see [`LinkId::reverse`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LinkId(pub u32);

impl NodeId {
    /// Returns the identifier as a vector index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl LinkId {
    /// Returns the identifier as a vector index.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the other direction of the same cable.
    pub fn reverse(self) -> LinkId {
        LinkId(self.0 ^ 1)
    }

    /// Returns the cable that both directions belong to.
    pub fn cable(self) -> u32 {
        self.0 >> 1
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}

impl fmt::Debug for PortNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}", self.0)
    }
}

impl fmt::Debug for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "l{}", self.0)
    }
}
