//! When the packets of a transfer left, for controls that measure round trips.

use pathloom_model::Nanos;
use std::collections::VecDeque;

/// When each unacknowledged packet left for the first time. A packet that was sent again has no time, because its report may
/// be about either of the two (Karn and Partridge 1987).
#[derive(Clone, Debug, Default)]
pub(super) struct SendTimes {
    /// Number of the first packet of `left`.
    first: u64,
    left: VecDeque<Option<Nanos>>,
}

impl SendTimes {
    /// A packet leaves. Those that leave for the first time do so in the order of their numbers.
    pub(super) fn sent(&mut self, now: Nanos, number: u64, again: bool) {
        if !again {
            if self.left.is_empty() {
                self.first = number;
            }
            self.left.push_back(Some(now));
        } else if let Some(time) = self.place(number).and_then(|place| self.left.get_mut(place)) {
            *time = None;
        }
    }

    /// A report on a packet has come, and all packets below `cumulative` have arrived. Returns when that packet left.
    pub(super) fn reported(&mut self, number: u64, cumulative: u64) -> Option<Nanos> {
        let time = self.place(number).and_then(|place| self.left.get_mut(place)).and_then(Option::take);
        let known = cumulative.saturating_sub(self.first).min(self.left.len() as u64);
        self.left.drain(..known as usize);
        self.first += known;
        time
    }

    fn place(&self, number: u64) -> Option<usize> {
        usize::try_from(number.checked_sub(self.first)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_packet_has_one_time_unless_it_is_sent_again() {
        let mut times = SendTimes::default();
        (0..6).for_each(|number| times.sent(Nanos(10 * number), number, false));
        assert_eq!(times.reported(2, 3), Some(Nanos(20)));
        assert_eq!((times.reported(2, 3), times.reported(9, 3)), (None, None), "old, and never sent");
        times.sent(Nanos(70), 3, true);
        assert_eq!(times.reported(3, 4), None);
        assert_eq!((times.reported(4, 4), times.reported(4, 4)), (Some(Nanos(40)), None), "once each");
        assert_eq!(times.reported(5, 6), Some(Nanos(50)));
        times.sent(Nanos(90), 6, false);
        assert_eq!(times.reported(6, 7), Some(Nanos(90)));
        assert!(times.left.is_empty());
    }
}
