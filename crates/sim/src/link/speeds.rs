//! The speeds of a network's links: few of them, however many links there are.
//!
//! A packet that enters a link needs the link's rate and delay. On a large fabric each link is far from the core, so each of
//! its cache lines counts; the few speeds of a network stay near.

use super::LinkQueue;
use crate::time::Ps;
use std::collections::BTreeMap;

/// How fast a link is.
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
    /// Of a link that has to be asked itself.
    pub(super) const OWN: SpeedNumber = SpeedNumber(u16::MAX);
}

/// Each speed once.
#[derive(Clone, Default)]
pub(crate) struct Speeds(Vec<Speed>);

impl Speeds {
    /// The speeds of these links, which know their numbers from then on.
    pub(crate) fn of(links: &mut [LinkQueue]) -> Speeds {
        let mut numbers = BTreeMap::new();
        let mut speeds = Vec::new();
        for link in links {
            let speed = link.own_speed();
            let number = *numbers.entry(speed).or_insert_with(|| {
                speeds.push(speed);
                speeds.len() - 1
            });
            // Beyond that many, links have to be asked themselves.
            link.speed = u16::try_from(number).map_or(SpeedNumber::OWN, SpeedNumber);
        }
        speeds.truncate(usize::from(SpeedNumber::OWN.0));
        Speeds(speeds)
    }

    /// The speed with this number, if the link need not be asked.
    #[inline(always)]
    pub(super) fn get(&self, number: SpeedNumber) -> Option<Speed> {
        self.0.get(usize::from(number.0)).copied()
    }
}
