//! The links that are up at a moment.

use crate::{Fabric, LinkId};
use serde::{Deserialize, Serialize};

/// One bit per directed link. A cable that is cut is down in both directions.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LinkState {
    words: Vec<u64>,
    links: u32,
    /// Number of changes. Data derived from a state uses it to detect that it is outdated.
    version: u64,
}

impl LinkState {
    /// Returns the initial state of `fabric`. All links are up, except those that the specification failed and those
    /// without capacity.
    pub fn of(fabric: &Fabric) -> LinkState {
        let links = fabric.links().len();
        let mut state = LinkState { words: vec![u64::MAX; links.div_ceil(64)], links: links as u32, version: 0 };
        for &link in fabric.failed_links() {
            state.set_cable(link, false);
        }
        for (index, _) in fabric.links().iter().enumerate().filter(|(_, link)| link.settings.rate_bps == 0) {
            state.set_cable(LinkId(index as u32), false);
        }
        state
    }

    /// Whether packets can cross `link`.
    pub fn is_up(&self, link: LinkId) -> bool {
        self.words[link.index() / 64] >> (link.index() % 64) & 1 == 1
    }

    /// Sets both directions of the cable of `link` up or down. Returns whether that changed the state.
    pub fn set_cable(&mut self, link: LinkId, up: bool) -> bool {
        let changed = self.is_up(link) != up;
        for one in [link, link.reverse()] {
            let bit = 1 << (one.index() % 64);
            if up {
                self.words[one.index() / 64] |= bit;
            } else {
                self.words[one.index() / 64] &= !bit;
            }
        }
        self.version += u64::from(changed);
        changed
    }

    /// Returns the number of changes so far.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the directed links that are down, in ascending order.
    pub fn down(&self) -> impl Iterator<Item = LinkId> + '_ {
        (0..self.links).map(LinkId).filter(|&link| !self.is_up(link))
    }
}
