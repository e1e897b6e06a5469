//! A walk through the switches of a fabric.

use crate::{Fabric, LinkId, LinkState, NodeId};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// Directed links from one ToR to another, in order; empty when both ends are the same ToR. The links between hosts
/// and their ToRs are not part of it: all flows of one ToR pair share their paths. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Path(Arc<[LinkId]>);

/// Why links do not make a path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// A link does not start where the one before it ended.
    #[error("link {link:?} does not start where the link before it ends")]
    Broken {
        /// The later link of the two.
        link: LinkId,
    },
    /// A node is visited twice.
    #[error("the path visits node {node:?} twice")]
    Loop {
        /// That node.
        node: NodeId,
    },
    /// A link starts or ends at a host.
    #[error("link {link:?} touches a host; a path runs between switches")]
    Host {
        /// That link.
        link: LinkId,
    },
    /// The fabric has no such link.
    #[error("the fabric has no link {link:?}")]
    Unknown {
        /// That link.
        link: LinkId,
    },
}

impl Path {
    /// A path of these links, unchecked; see [`Path::check`].
    pub fn new(links: impl Into<Arc<[LinkId]>>) -> Path {
        Path(links.into())
    }

    /// The path between two hosts of one ToR.
    pub fn empty() -> Path {
        Path(Arc::from([]))
    }

    /// Its links in order.
    pub fn links(&self) -> &[LinkId] {
        &self.0
    }

    /// Number of switch-to-switch links.
    pub fn hops(&self) -> usize {
        self.0.len()
    }

    /// Whether both ends are the same ToR.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether every link of it is up.
    pub fn is_up(&self, state: &LinkState) -> bool {
        self.0.iter().all(|&link| state.is_up(link))
    }

    /// The same walk in the other direction.
    pub fn reverse(&self) -> Path {
        Path(self.0.iter().rev().map(|link| link.reverse()).collect())
    }

    /// The switches it visits, from `first` (the ToR it starts at, needed for an empty path) on.
    pub fn switches(&self, fabric: &Fabric, first: NodeId) -> Vec<NodeId> {
        std::iter::once(first).chain(self.0.iter().map(|&link| fabric.link(link).to)).collect()
    }

    /// Proves that the links join up, stay between switches and visit none twice.
    pub fn check(&self, fabric: &Fabric) -> Result<(), PathError> {
        let mut here = None;
        for (index, &link) in self.0.iter().enumerate() {
            let record = fabric.links().get(link.index()).ok_or(PathError::Unknown { link })?;
            if fabric.is_host(record.from) || fabric.is_host(record.to) {
                return Err(PathError::Host { link });
            }
            if here.is_some_and(|here| here != record.from) {
                return Err(PathError::Broken { link });
            }
            // Every switch before this one is where a link began. Paths are short: no list of them is quicker.
            if self.0[..=index].iter().any(|&earlier| fabric.link(earlier).from == record.to) {
                return Err(PathError::Loop { node: record.to });
            }
            here = Some(record.to);
        }
        Ok(())
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter()).finish()
    }
}
