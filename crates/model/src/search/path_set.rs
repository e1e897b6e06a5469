//! P_sd: the paths between two ToRs that a scheme may use.

use super::{edge_disjoint, k_shortest, simple_paths, ShortestPaths};
use crate::{Fabric, LinkState, NodeId, Path};
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;

/// Which of all paths between two ToRs are meant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathSelection {
    /// All of least hops.
    Shortest,
    /// So many loopless ones of fewest hops ([`k_shortest`]).
    KShortest(usize),
    /// Up to so many that share no cable ([`edge_disjoint`]).
    EdgeDisjoint(usize),
    /// All that visit no switch twice, up to so many hops ([`simple_paths`]).
    SimpleUpTo(usize),
}

/// The paths of a selection between two ToRs. Nothing is searched before it is asked for; what is bounded in size is
/// then kept.
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
    /// The paths of `selection` from `from` to `to` over links that are up.
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

    /// ToR that the paths start at.
    pub fn from(&self) -> NodeId {
        self.from
    }

    /// ToR that they end at.
    pub fn to(&self) -> NodeId {
        self.to
    }

    /// Which paths they are.
    pub fn selection(&self) -> PathSelection {
        self.selection
    }

    /// All of them in order, worked out as far as they are taken.
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

    /// How many there are, counted no further than `limit`. All shortest paths are counted without listing them; the
    /// simple ones, which may be beyond number, are gone through one by one.
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

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count_up_to(1) == 0
    }

    /// Path number `index`, counted from 0.
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

    /// The paths of a selection that has at most `k` of them.
    fn listed(&self) -> &[Path] {
        self.listed.get_or_init(|| match self.selection {
            PathSelection::EdgeDisjoint(k) => edge_disjoint(self.fabric, self.state, self.from, self.to, k),
            PathSelection::KShortest(k) => k_shortest(self.fabric, self.state, self.from, self.to).take(k).collect(),
            PathSelection::Shortest | PathSelection::SimpleUpTo(_) => self.iter().collect(),
        })
    }
}
