//! Whether a flow uses the share that it was given.
//!
//! Two things show that it does not. A flow of known size that has not ended long after it should have is overdue: its
//! host may wait for a retransmission time-out, or for its application. And while flows wait, the counters of the ToRs are
//! read: a flow that sent next to nothing of what its share allows is idle. Other flows wait for neither.

use super::provision::remaining_ns;
use pathloom_model::Nanos;
use pathloom_scheme::Known;

/// A flow is overdue when it takes longer than its bytes take at its rate, by this time and by a quarter. That covers the
/// messages that tell it to send and that it has ended.
const GRACE: Nanos = Nanos::from_millis(20);
const GRACE_PART: u64 = 4;
/// A flow is judged by no less than this time: half of the time between two readings.
const LEAST_TIME: Nanos = Nanos::from_millis(100);

/// A flow that sends less than this part of its share is idle. Were it a half, those that TCP slows down on a crowded link
/// would count as idle, others would be let onto that link, and it would be more crowded still.
const LEAST_USED: u64 = 8;

/// What a reading of the counters says of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// It sent a good part of what it could.
    Sends,
    /// It sent nothing, or next to nothing.
    Idle,
}

/// What is known of a flow's progress.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Progress {
    /// Since when it may send; `None` while it waits.
    since: Option<Nanos>,
    /// Payload bytes counted at the last reading.
    counted_bytes: Known,
    /// When it is overdue, if its size is known and it may send.
    overdue_at: Option<Nanos>,
}

impl Progress {
    /// When the flow is overdue, by what it was told last.
    pub(super) fn overdue_at(&self) -> Option<Nanos> {
        self.overdue_at
    }

    /// The flow is told a rate (0 to wait), with so many payload bytes to go if that is known.
    pub(super) fn told(&mut self, now: Nanos, rate_bps: u64, left_bytes: Option<u64>) {
        self.since = (rate_bps > 0).then(|| self.since.unwrap_or(now));
        self.overdue_at = left_bytes.filter(|_| rate_bps > 0).map(|bytes| {
            let takes = Nanos(u64::try_from(remaining_ns(bytes, rate_bps)).unwrap_or(u64::MAX));
            now.saturating_add(takes).saturating_add(GRACE.saturating_add(Nanos(takes.0 / GRACE_PART)))
        });
    }

    /// It sends again: it is judged from now on.
    pub(super) fn resume(&mut self, now: Nanos) {
        self.since = Some(now);
    }

    /// The counters were read: so many payload bytes should have been sent in all by the rates told since the last reading,
    /// and so many were. `None` where it is too early to tell.
    pub(super) fn read(&mut self, now: Nanos, estimate_bytes: u64, counted_bytes: u64) -> Option<Verdict> {
        let before = self.counted_bytes.replace(counted_bytes);
        let since = self.since?;
        let Some(before) = before else {
            // What it sent before its rules counted it is not known.
            self.since = Some(now);
            return None;
        };
        if now.saturating_sub(since) < LEAST_TIME {
            return None;
        }
        let (could, did) = (estimate_bytes.saturating_sub(before), counted_bytes.saturating_sub(before));
        Some(if did < could / LEAST_USED { Verdict::Idle } else { Verdict::Sends })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE_BPS: u64 = 8_000_000;

    #[test]
    fn a_flow_is_overdue_a_quarter_and_a_grace_after_its_time() {
        let mut progress = Progress::default();
        progress.told(Nanos::from_millis(5), RATE_BPS, Some(400_000));
        assert_eq!(progress.overdue_at(), Some(Nanos::from_millis(5 + 400 + 100 + 20)));
        progress.told(Nanos::from_millis(5), 0, Some(400_000));
        assert_eq!(progress.overdue_at(), None, "it waits");
        progress.told(Nanos::from_millis(5), RATE_BPS, None);
        assert_eq!(progress.overdue_at(), None, "nobody knows when");
        progress.told(Nanos(1), 1, Some(u64::MAX));
        assert_eq!(progress.overdue_at(), Some(Nanos::MAX));
    }

    #[test]
    fn less_than_an_eighth_of_its_share_is_idle() {
        let ms = Nanos::from_millis;
        let mut progress = Progress::default();
        progress.told(ms(0), RATE_BPS, Some(10_000_000));
        assert_eq!(progress.read(ms(200), 200_000, 0), None, "its rules may have come just now");
        assert_eq!(progress.read(ms(250), 50_000, 0), None, "too early");
        assert_eq!(progress.read(ms(400), 200_000, 24_999), Some(Verdict::Idle));
        assert_eq!(progress.read(ms(600), 224_999, 49_999), Some(Verdict::Sends));
        progress.told(ms(600), 0, Some(1));
        assert_eq!(progress.read(ms(800), 200_000, 200_000), None, "it waits");
        progress.told(ms(850), RATE_BPS, Some(1));
        assert_eq!(progress.read(ms(900), 250_000, 200_000), None, "it has hardly begun");
        progress.resume(ms(1_000));
        assert_eq!(progress.read(ms(1_050), 400_000, 200_000), None, "it has hardly begun again");
    }
}
