//! Which lanes have a row in the cache, if packets of a flow take several paths.
//!
//! Such a row is long, because it has an entry for each hop and path. Packets of a short transfer use most entries once, so a
//! lane gets a row only when it has sent some packets. What switches decide about destinations serves the others.

/// Most packet-hops of a lane before it has a row.
const WITHOUT_ROW: u32 = 256;
/// Bit of an item of [`Rows::of_lane`]: the other bits are the packet-hops so far, not the number of a row.
const COUNTS: u32 = 1 << 31;

/// The rows of lanes.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows {
    of_lane: Vec<u32>,
    lane_of: Vec<u32>,
    free: Vec<u32>,
    /// Most rows.
    pub(super) most: usize,
}

impl Rows {
    /// No rows yet, and at most this many.
    pub(super) fn new(most: usize) -> Rows {
        Rows { most, ..Rows::default() }
    }

    /// The row of a lane, if it has one.
    #[inline(always)]
    pub(super) fn of(&self, lane: u32) -> Option<usize> {
        self.of_lane.get(lane as usize).filter(|&&row| row & COUNTS == 0).map(|&row| row as usize)
    }

    /// The lane that has a row, or had it last.
    pub(super) fn lane(&self, row: usize) -> u32 {
        self.lane_of[row]
    }

    /// Number of rows, free ones included.
    pub(super) fn len(&self) -> usize {
        self.lane_of.len()
    }

    /// Makes room for this many lanes, of which the new ones have no rows.
    pub(super) fn reserve_lanes(&mut self, lanes: usize) {
        if self.of_lane.len() < lanes {
            self.of_lane.resize(lanes, COUNTS);
        }
    }

    /// Counts a packet-hop of a lane without a row. Returns whether it should get one now.
    pub(super) fn count(&mut self, lane: u32) -> bool {
        let item = &mut self.of_lane[lane as usize];
        if *item & COUNTS == 0 {
            return false;
        }
        *item = (*item + 1).min(COUNTS + WITHOUT_ROW);
        *item == COUNTS + WITHOUT_ROW
    }

    /// Gives a lane a row, if it has none and there may be another one.
    pub(super) fn give(&mut self, lane: u32) {
        if self.of(lane).is_some() {
            return;
        }
        let row = match self.free.pop() {
            Some(row) => row,
            None if self.lane_of.len() < self.most => {
                self.lane_of.push(lane);
                self.lane_of.len() as u32 - 1
            }
            None => return,
        };
        self.lane_of[row as usize] = lane;
        self.of_lane[lane as usize] = row;
    }

    /// A lane is over. All entries of its row must be empty.
    pub(super) fn release(&mut self, lane: u32) {
        if let Some(row) = self.of(lane) {
            self.free.push(row as u32);
        }
        self.of_lane[lane as usize] = COUNTS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_gets_a_row_after_some_packets_and_the_next_one_reuses_it() {
        let mut rows = Rows::new(2);
        rows.reserve_lanes(6);
        assert!((1..WITHOUT_ROW).all(|_| !rows.count(3)), "a short transfer");
        assert!(rows.count(3) && rows.count(3));
        rows.give(3);
        assert_eq!((rows.of(3), rows.lane(0), rows.count(3)), (Some(0), 3, false));
        [3, 4, 5].into_iter().for_each(|lane| rows.give(lane));
        assert_eq!(
            ([3, 4, 5, 9].map(|lane| rows.of(lane)), rows.len()),
            ([Some(0), Some(1), None, None], 2),
            "two at most"
        );
        rows.release(3);
        rows.give(5);
        assert_eq!((rows.of(3), rows.of(5), rows.lane(0)), (None, Some(0), 5));
        assert!(!rows.count(3), "the next connection in this slot counts from 0");
    }
}
