//! The different speeds of a network's links. They are few, however many links there are.
//!
//! A packet that enters a link needs the link's rate and delay. On a large fabric, links are not in the CPU's caches,
//! so each cache line of a link costs time. The few speeds of a network stay in the caches.

use super::LinkQueue;
use crate::time::Ps;
use std::collections::BTreeMap;

/// Rate and delay of a link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Speed {
    /// Time to send a byte, in units of 2^-20 ps.
    pub(super) ps_per_byte: u64,
    pub(super) delay: Ps,
}

/// Number of a speed among [`Speeds`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SpeedNumber(u16);

impl SpeedNumber {
    /// For a link whose speed must be read from the link itself.
    pub(super) const OWN: SpeedNumber = SpeedNumber(u16::MAX);
}

/// The different speeds of the links of a network.
#[derive(Clone, Default)]
pub(crate) struct Speeds(Vec<Speed>);

impl Speeds {
    /// Collects the speeds of these links, and sets the speed number of each link.
    pub(crate) fn of(links: &mut [LinkQueue]) -> Speeds {
        let mut numbers = BTreeMap::new();
        let mut speeds = Vec::new();
        for link in links {
            let speed = link.own_speed();
            let number = *numbers.entry(speed).or_insert_with(|| {
                speeds.push(speed);
                speeds.len() - 1
            });
            // Links whose speed has a larger number use their own fields.
            link.speed = u16::try_from(number).map_or(SpeedNumber::OWN, SpeedNumber);
        }
        speeds.truncate(usize::from(SpeedNumber::OWN.0));
        Speeds(speeds)
    }

    /// The speed with this number; `None` if it must be read from the link.
    #[inline(always)]
    pub(super) fn get(&self, number: SpeedNumber) -> Option<Speed> {
        self.0.get(usize::from(number.0)).copied()
    }
}
