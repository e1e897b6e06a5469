//! A path through the switches of a fabric.

use crate::{Fabric, LinkId, LinkState, NodeId};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use triomphe::ThinArc;

/// Directed links from one ToR to another, in order; empty if both ends are the same ToR. The links between hosts and
/// their ToRs are not part of the path: all flows of a ToR pair share their paths. A path is cheap to clone and one
/// word long, because a controller keeps several paths for each of very many flows.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path(ThinArc<(), LinkId>);

/// Reason why links do not form a path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// A link does not start where the previous link ends.
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
    /// Creates a path of these links without a check; see [`Path::check`].
    pub fn new(links: impl AsRef<[LinkId]>) -> Path {
        Path(ThinArc::from_header_and_slice((), links.as_ref()))
    }

    /// Returns the path between two hosts of one ToR.
    pub fn empty() -> Path {
        Path::new([])
    }

    /// Returns the links in order.
    pub fn links(&self) -> &[LinkId] {
        &self.0.slice
    }

    /// Returns the number of switch-to-switch links.
    pub fn hops(&self) -> usize {
        self.links().len()
    }

    /// Whether both ends are the same ToR.
    pub fn is_empty(&self) -> bool {
        self.links().is_empty()
    }

    /// Whether all links of the path are up.
    pub fn is_up(&self, state: &LinkState) -> bool {
        self.links().iter().all(|&link| state.is_up(link))
    }

    /// Returns the same path in the opposite direction.
    pub fn reverse(&self) -> Path {
        Path::new(self.links().iter().rev().map(|link| link.reverse()).collect::<Vec<_>>())
    }

    /// Returns the switches that the path visits. `first` is the ToR where it starts, which an empty path does not
    /// contain.
    pub fn switches(&self, fabric: &Fabric, first: NodeId) -> Vec<NodeId> {
        std::iter::once(first).chain(self.links().iter().map(|&link| fabric.link(link).to)).collect()
    }

    /// Checks that the links connect, stay between switches and visit no switch twice.
    pub fn check(&self, fabric: &Fabric) -> Result<(), PathError> {
        let mut here = None;
        for (index, &link) in self.links().iter().enumerate() {
            let record = fabric.links().get(link.index()).ok_or(PathError::Unknown { link })?;
            if fabric.is_host(record.from) || fabric.is_host(record.to) {
                return Err(PathError::Host { link });
            }
            if here.is_some_and(|here| here != record.from) {
                return Err(PathError::Broken { link });
            }
            // Each earlier switch is the start of a link. Paths are short, so a separate list of switches would not
            // be faster.
            if self.links()[..=index].iter().any(|&earlier| fabric.link(earlier).from == record.to) {
                return Err(PathError::Loop { node: record.to });
            }
            here = Some(record.to);
        }
        Ok(())
    }
}

impl Serialize for Path {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.links().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Path {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Path, D::Error> {
        Vec::<LinkId>::deserialize(deserializer).map(Path::new)
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.links()).finish()
    }
}
