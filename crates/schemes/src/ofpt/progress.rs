//! Whether a flow uses its share.
//!
//! Two signs show that it does not. A flow of known size is *overdue* if it has not ended long after it should have:
//! its host may wait for a retransmission time-out, or for its application. A flow is *idle* if it sends much less
//! than its share allows, according to the counters of the ToRs, which are read while flows wait. Other flows do not
//! wait for overdue or idle flows.

use super::provision::remaining_ns;
use pathloom_model::Nanos;
use pathloom_scheme::OptionU64;

/// A flow is overdue when it takes longer than its bytes take at its rate, plus a quarter of that and plus this time.
/// This margin covers the messages that start the flow and report its end.
const GRACE: Nanos = Nanos::from_millis(20);
const GRACE_PART: u64 = 4;
/// A flow is judged over at least this time: half of the time between two readings.
const LEAST_TIME: Nanos = Nanos::from_millis(100);
/// A flow is idle only if it sent too little for this long. Switches update their counters from time to time (Open
/// vSwitch twice a second), so a flow that sends may show nothing in one or two readings.
const IDLE_TIME: Nanos = Nanos::from_millis(700);

/// A flow that sends less than one part in this many of its share is idle. With a half, flows that TCP slows down on a
/// congested link would count as idle. Others would then be allowed onto that link and congest it more.
const LEAST_USED: u64 = 8;

/// What a reading of the counters shows about a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// It sent at least the part [`LEAST_USED`] of its share.
    Sends,
    /// It sent less.
    Idle,
}

/// The progress of a flow.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Progress {
    /// Time since which it may send; `None` while it waits.
    since: Option<Nanos>,
    /// Time before that in which it was allowed to send, since it was judged last.
    before: Nanos,
    /// Payload bytes that its share allowed since it was judged last, and the bytes counted.
    could_bytes: u64,
    did_bytes: u64,
    /// Payload bytes counted at the last reading.
    counted_bytes: OptionU64,
    /// When it is overdue, if its size is known and it may send.
    overdue_at: Option<Nanos>,
}

impl Progress {
    /// When the flow is overdue, by the rate that it was told last.
    pub(super) fn overdue_at(&self) -> Option<Nanos> {
        self.overdue_at
    }

    /// Records the rate that the flow is told (0 to wait). `left_bytes` are its remaining payload bytes, if known.
    pub(super) fn told(&mut self, now: Nanos, rate_bps: u64, left_bytes: Option<u64>) {
        if rate_bps == 0 {
            self.before = self.judged(now);
            self.since = None;
        } else {
            self.since = self.since.or(Some(now));
        }
        self.overdue_at = left_bytes.filter(|_| rate_bps > 0).map(|bytes| {
            let takes = Nanos(u64::try_from(remaining_ns(bytes, rate_bps)).unwrap_or(u64::MAX));
            now.saturating_add(takes).saturating_add(GRACE.saturating_add(Nanos(takes.0 / GRACE_PART)))
        });
    }

    /// Starts to judge the flow from now on.
    pub(super) fn resume(&mut self, now: Nanos) {
        self.since = self.since.and(Some(now));
        (self.before, self.could_bytes, self.did_bytes) = (Nanos::ZERO, 0, 0);
    }

    /// Judges the flow by a reading of the counters. `estimate_bytes` are the payload bytes that the flow should have
    /// sent in total, by the rates told since the last reading. `counted_bytes` are those that it did send. `None` if
    /// it is too early to judge.
    pub(super) fn read(&mut self, now: Nanos, estimate_bytes: u64, counted_bytes: u64) -> Option<Verdict> {
        let Some(before) = self.counted_bytes.replace(counted_bytes) else {
            // It is not known what it sent before its rules counted it.
            self.resume(now);
            return None;
        };
        self.could_bytes = self.could_bytes.saturating_add(estimate_bytes.saturating_sub(before));
        self.did_bytes = self.did_bytes.saturating_add(counted_bytes.saturating_sub(before));
        let sends = self.did_bytes >= self.could_bytes / LEAST_USED;
        if self.since.is_none() || self.judged(now) < if sends { LEAST_TIME } else { IDLE_TIME } {
            return None;
        }
        self.resume(now);
        Some(if sends { Verdict::Sends } else { Verdict::Idle })
    }

    /// Time in which it was allowed to send since it was judged last.
    fn judged(&self, now: Nanos) -> Nanos {
        self.before.saturating_add(self.since.map_or(Nanos::ZERO, |since| now.saturating_sub(since)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE_BPS: u64 = 8_000_000;

    #[test]
    fn a_flow_is_overdue_after_its_time_plus_a_quarter_and_a_margin() {
        let mut progress = Progress::default();
        progress.told(Nanos::from_millis(5), RATE_BPS, Some(400_000));
        assert_eq!(progress.overdue_at(), Some(Nanos::from_millis(5 + 400 + 100 + 20)));
        progress.told(Nanos::from_millis(5), 0, Some(400_000));
        assert_eq!(progress.overdue_at(), None, "it waits");
        progress.told(Nanos::from_millis(5), RATE_BPS, None);
        assert_eq!(progress.overdue_at(), None, "its size is unknown");
        progress.told(Nanos(1), 1, Some(u64::MAX));
        assert_eq!(progress.overdue_at(), Some(Nanos::MAX));
    }

    #[test]
    fn a_flow_that_sends_less_than_an_eighth_of_its_share_is_idle() {
        let ms = Nanos::from_millis;
        let mut progress = Progress::default();
        progress.told(ms(0), RATE_BPS, Some(10_000_000));
        assert_eq!(progress.read(ms(200), 200_000, 0), None, "its rules may be new");
        assert_eq!(progress.read(ms(250), 50_000, 0), None, "too early");
        assert_eq!(progress.read(ms(900), 700_000, 87_499), Some(Verdict::Idle));
        assert_eq!(progress.read(ms(1_100), 287_499, 112_499), Some(Verdict::Sends), "detected at once");
        progress.told(ms(1_500), 0, Some(1));
        assert_eq!(progress.read(ms(1_900), 512_499, 112_499), None, "it waits");
        progress.told(ms(3_000), RATE_BPS, Some(1));
        assert_eq!(progress.read(ms(3_200), 312_499, 112_499), None, "600 ms in all");
        assert_eq!(progress.read(ms(3_300), 212_499, 112_499), Some(Verdict::Idle), "700 ms in all");
        progress.resume(ms(4_100));
        assert_eq!(progress.read(ms(4_700), 712_499, 112_499), None, "too early after it resumed");
    }

    #[test]
    fn counters_updated_twice_a_second_do_not_make_a_sender_idle() {
        let mut progress = Progress::default();
        progress.told(Nanos(0), RATE_BPS, None);
        let mut counted_bytes = 0;
        for at_ms in (0..10_000).step_by(200) {
            let estimate_bytes = counted_bytes + 200_000;
            counted_bytes = at_ms / 500 * 500_000;
            let verdict = progress.read(Nanos::from_millis(at_ms), estimate_bytes, counted_bytes);
            assert_ne!(verdict, Some(Verdict::Idle), "at {at_ms} ms");
        }
    }
}
