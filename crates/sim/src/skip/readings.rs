//! Readings of what flows and links have done so far, at equal distances.

use super::steady::Steady;
use crate::link::LinkCounts;
use crate::subflow::Subflow;
use crate::time::Ps;
use crate::transfers::Work;
use pathloom_model::Nanos;

/// Distances between readings in one of the two windows that are compared.
pub(super) const WINDOW: usize = 8;
/// Most readings. When there are so many, every second one is forgotten, and the distance doubles. So the windows grow
/// with the time for which nothing has changed, and the oldest readings are always left out.
const MOST: usize = 24;

/// What a connection had done at some moment.
#[derive(Clone)]
pub(super) struct FlowReading {
    pub(super) slot: u32,
    pub(super) use_count: u32,
    pub(super) transfer: u32,
    pub(super) is_open: bool,
    /// The rate to which the controller limits it: 0 on hold, `None` without a limit.
    pub(super) provided_bps: Option<u64>,
    pub(super) acked_bytes: u64,
    pub(super) window_bytes: u64,
    pub(super) flight_bytes: u64,
    pub(super) work: Work,
}

impl FlowReading {
    pub(super) fn of(slot: usize, subflow: &Subflow, now: Nanos) -> FlowReading {
        FlowReading {
            slot: slot as u32,
            use_count: subflow.use_count,
            transfer: subflow.transfer,
            is_open: subflow.sender.is_open() && subflow.sender.smoothed_rtt().is_some(),
            provided_bps: subflow.sender.provided_bps(),
            acked_bytes: subflow.sender.acked_bytes(),
            flight_bytes: subflow.sender.sent_bytes() - subflow.sender.acked_bytes(),
            window_bytes: subflow.sender.steady_window_bytes(),
            work: Work::of(subflow, now),
        }
    }

    fn is_same(&self, other: &FlowReading) -> bool {
        let key = |of: &FlowReading| (of.slot, of.use_count, of.provided_bps);
        key(self) == key(other)
    }
}

/// What all flows and links had done at some moment.
pub(super) struct Reading {
    pub(super) at: Ps,
    pub(super) flows: Vec<FlowReading>,
    /// Connections of several subflows, with the bytes that they have delivered in order.
    pub(super) connections: Vec<(u32, u64)>,
    /// By link of the fabric.
    pub(super) links: Vec<LinkCounts>,
    /// Counts of packets that do not change in a steady phase.
    pub(super) rare: [u64; 3],
}

/// The readings since the last change.
pub(super) struct Readings {
    taken: Vec<Reading>,
    spacing: Ps,
    /// Distance from the first reading to the second.
    least_spacing: Ps,
}

impl Readings {
    pub(super) fn new(spacing: Ps) -> Readings {
        Readings { taken: Vec::new(), spacing, least_spacing: spacing }
    }

    pub(super) fn spacing(&self) -> Ps {
        self.spacing
    }

    /// Sets the distance from the first reading to the second.
    pub(super) fn set_spacing(&mut self, spacing: Ps) {
        (self.spacing, self.least_spacing) = (spacing, spacing);
    }

    pub(super) fn least_spacing(&self) -> Ps {
        self.least_spacing
    }

    pub(super) fn clear(&mut self) {
        self.taken.clear();
        self.spacing = self.least_spacing;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }

    /// Whether there is one reading.
    pub(super) fn is_first(&self) -> bool {
        self.taken.len() == 1
    }

    /// Adds a reading. If the flows are not those of the last one, it is the first reading.
    pub(super) fn add(&mut self, reading: Reading) {
        let is_same = |last: &Reading| {
            let flows = last.flows.iter().zip(&reading.flows);
            last.flows.len() == reading.flows.len() && flows.into_iter().all(|(one, other)| one.is_same(other))
        };
        if !self.taken.last().is_some_and(is_same) {
            self.clear();
        }
        self.taken.push(reading);
        if self.taken.len() == MOST {
            let mut place = 0;
            self.taken.retain(|_| {
                place += 1;
                place % 2 == 0
            });
            self.spacing *= 2;
        }
    }

    /// The settled rates; `None` if there are too few readings at the present distance.
    ///
    /// # Errors
    /// What has not settled.
    pub(super) fn steady(&self) -> Result<Option<Steady>, &'static str> {
        match self.taken.len().checked_sub(2 * WINDOW + 1) {
            Some(first) => Steady::find(&self.taken[first..]).map(Some),
            None => Ok(None),
        }
    }
}
