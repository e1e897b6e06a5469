//! Priorities by age: the more bytes of a message a host has sent, the lower the priority of the next packet.
//!
//! Nobody needs to know sizes. Sizes in a datacenter are heavy-tailed, so the message that has sent least is the best guess
//! for the one that ends first (Bai et al. 2015, Information-Agnostic Flow Scheduling for Commodity Data Centers, NSDI, §3.1).
//! Where applications announce sizes, the message that has least left ends first (Alizadeh et al. 2013, pFabric, SIGCOMM, §3).

use pathloom_model::MOST_QUEUES;
use serde::{Deserialize, Serialize};

/// Levels of priority, and the bytes at which each ends. Level 0 is for the first bytes of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ageing {
    /// Payload bytes at which level 0 ends.
    pub first_bytes: u64,
    /// Each further level ends at this many times as many bytes as the level before; at least 2.
    pub factor: u8,
    /// Number of levels, 1 to [`MOST_QUEUES`].
    pub levels: u8,
    /// Share of the messages whose size applications announce, 0 to 100 percent. These are ranked by the bytes that are left,
    /// not by those sent.
    pub announced_percent: u8,
}

impl Ageing {
    /// The level of a packet with these payload bytes of its message before it or, if its size is announced, left with it.
    #[inline]
    pub fn level(&self, bytes: u64) -> u8 {
        let (mut level, mut end) = (0, self.first_bytes);
        while level + 1 < self.levels && bytes >= end {
            level += 1;
            end = end.saturating_mul(self.factor.into());
        }
        level
    }

    /// The class selector (RFC 2474 §4.2.2) with which hosts mark packets of a level. Ports send lower levels first
    /// ([`pathloom_model::PortSettings::queue_of`]).
    #[inline]
    pub fn class_selector(&self, level: u8) -> u8 {
        match (self.levels.min(MOST_QUEUES) - 1).saturating_sub(level) {
            0 => 1,
            1 => 0,
            rank => rank,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_model::PortSettings;

    #[test]
    fn levels_end_at_multiples_and_the_last_one_does_not_end() {
        let ageing = Ageing { first_bytes: 10_000, factor: 4, levels: 3, announced_percent: 0 };
        assert_eq!([0, 9_999, 10_000, 39_999, 40_000, u64::MAX].map(|bytes| ageing.level(bytes)), [0, 0, 1, 1, 2, 2]);
        let huge = Ageing { first_bytes: u64::MAX / 2, factor: 255, levels: 8, announced_percent: 0 };
        assert_eq!(huge.level(u64::MAX), 7, "no overflow");
    }

    #[test]
    fn ports_send_younger_levels_first() {
        for levels in 2..=MOST_QUEUES {
            let ageing = Ageing { first_bytes: 1, factor: 2, levels, announced_percent: 0 };
            let ports = PortSettings { queues: levels, ..PortSettings::DROP_TAIL };
            let queues = (0..levels).map(|level| ports.queue_of(ageing.class_selector(level) << 3));
            let ranks: Vec<usize> = (0..usize::from(levels)).rev().collect();
            assert_eq!(queues.collect::<Vec<_>>(), ranks, "{levels} levels");
        }
    }
}
