//! P_sd: the paths between two ToRs that a scheme can use.

use super::{edge_disjoint, k_shortest, simple_paths, ShortestPaths};
use crate::{Fabric, LinkState, NodeId, Path};
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;

/// Which of the paths between two ToRs belong to a set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathSelection {
    /// All paths with the fewest hops.
    Shortest,
    /// This number of loopless paths with the fewest hops ([`k_shortest`]).
    KShortest(usize),
    /// Up to this number of paths that share no cable ([`edge_disjoint`]).
    EdgeDisjoint(usize),
    /// All paths that visit no switch twice, with up to this number of hops ([`simple_paths`]).
    SimpleUpTo(usize),
}

/// The paths of a selection between two ToRs. A search starts only when its result is needed. Results of limited size
/// are then kept.
#[derive(Clone, Debug)]
pub struct PathSet<'a> {
    fabric: &'a Fabric,
    state: &'a LinkState,
    from: NodeId,
    to: NodeId,
    selection: PathSelection,
    shortest: OnceLock<ShortestPaths>,
    listed: OnceLock<Vec<Path>>,
}

impl<'a> PathSet<'a> {
    /// Creates the set of paths of `selection` from `from` to `to` over links that are up.
    pub fn new(
        fabric: &'a Fabric,
        state: &'a LinkState,
        from: NodeId,
        to: NodeId,
        selection: PathSelection,
    ) -> PathSet<'a> {
        let (shortest, listed) = (OnceLock::new(), OnceLock::new());
        PathSet { fabric, state, from, to, selection, shortest, listed }
    }

    /// Returns the ToR where the paths start.
    pub fn from(&self) -> NodeId {
        self.from
    }

    /// Returns the ToR where the paths end.
    pub fn to(&self) -> NodeId {
        self.to
    }

    /// Returns the selection.
    pub fn selection(&self) -> PathSelection {
        self.selection
    }

    /// Iterates over all paths in order. Paths are computed as they are taken.
    pub fn iter(&self) -> Box<dyn Iterator<Item = Path> + '_> {
        match self.selection {
            PathSelection::Shortest => Box::new(self.shortest().iter()),
            PathSelection::KShortest(k) if self.listed.get().is_none() => {
                Box::new(k_shortest(self.fabric, self.state, self.from, self.to).take(k))
            }
            PathSelection::SimpleUpTo(most_hops) => {
                Box::new(simple_paths(self.fabric, self.state, self.from, self.to, most_hops))
            }
            PathSelection::KShortest(_) | PathSelection::EdgeDisjoint(_) => Box::new(self.listed().iter().cloned()),
        }
    }

    /// Returns the number of paths, counted no further than `limit`. Shortest paths are counted without listing them.
    /// Simple paths, of which there can be very many, are enumerated one by one.
    pub fn count_up_to(&self, limit: u128) -> u128 {
        match self.selection {
            PathSelection::Shortest => self.shortest().count().min(limit),
            PathSelection::KShortest(_) | PathSelection::EdgeDisjoint(_) => (self.listed().len() as u128).min(limit),
            PathSelection::SimpleUpTo(_) => {
                let limit = usize::try_from(limit).unwrap_or(usize::MAX);
                self.iter().take(limit).count() as u128
            }
        }
    }

    /// Whether there is no path.
    pub fn is_empty(&self) -> bool {
        self.count_up_to(1) == 0
    }

    /// Returns path number `index`, counted from 0.
    pub fn nth(&self, index: u128) -> Option<Path> {
        match self.selection {
            PathSelection::Shortest => self.shortest().nth(index),
            PathSelection::SimpleUpTo(_) => self.iter().nth(usize::try_from(index).ok()?),
            _ => self.listed().get(usize::try_from(index).ok()?).cloned(),
        }
    }

    fn shortest(&self) -> &ShortestPaths {
        self.shortest.get_or_init(|| ShortestPaths::between(self.fabric, self.state, self.from, self.to))
    }

    /// Returns the paths of a selection that is limited to `k` paths.
    fn listed(&self) -> &[Path] {
        self.listed.get_or_init(|| match self.selection {
            PathSelection::EdgeDisjoint(k) => edge_disjoint(self.fabric, self.state, self.from, self.to, k),
            PathSelection::KShortest(k) => k_shortest(self.fabric, self.state, self.from, self.to).take(k).collect(),
            PathSelection::Shortest | PathSelection::SimpleUpTo(_) => self.iter().collect(),
        })
    }
}
