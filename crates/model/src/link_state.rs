//! Which links are up at a moment.

use crate::{Fabric, LinkId};
use serde::{Deserialize, Serialize};

/// One bit per directed link. A cable that is cut is down in both directions.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LinkState {
    words: Vec<u64>,
    links: u32,
    /// Counts every change, so that what was derived from a state can tell that it is stale.
    version: u64,
}

impl LinkState {
    /// All links of `fabric` up, but for those that its specification failed from the start, and those without capacity.
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

    /// Brings both directions of the cable of `link` up or down. Tells whether that changed anything.
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

    /// How often the state has changed.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The directed links that are down, in ascending order.
    pub fn down(&self) -> impl Iterator<Item = LinkId> + '_ {
        (0..self.links).map(LinkId).filter(|&link| !self.is_up(link))
    }
}
