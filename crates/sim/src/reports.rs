//! What the receiver of a transfer tells its sender. It does not fit into a packet, so a packet has its number.

use pathloom_transport::packets::Feedback;
use std::collections::VecDeque;

/// Most reports that are kept. If more are under way, the oldest ones were lost.
pub(crate) const MOST_REPORTS: usize = 4096;

/// The reports under way, in the order in which they were sent.
#[derive(Default)]
pub(crate) struct Reports {
    /// Those that have arrived are `None`.
    under_way: VecDeque<Option<Feedback>>,
    /// Number of the first one.
    first: u64,
}

impl Reports {
    /// Stores a report. Returns its number.
    pub(crate) fn put(&mut self, report: Feedback) -> u64 {
        if self.under_way.len() == MOST_REPORTS {
            self.under_way.pop_front();
            self.first += 1;
        }
        self.under_way.push_back(Some(report));
        self.first + self.under_way.len() as u64 - 1
    }

    /// Takes the report with this number, if it is still kept.
    pub(crate) fn take(&mut self, number: u64) -> Option<Feedback> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let report = self.under_way.get_mut(place)?.take();
        while let Some(None) = self.under_way.front() {
            self.under_way.pop_front();
            self.first += 1;
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_transport::packets::{Report, ReportKind};

    fn report(number: u64) -> Feedback {
        Feedback::Report(Report {
            kind: ReportKind::Ack,
            number,
            cumulative: 0,
            base: 0,
            selective: 0,
            received_bytes: 0,
            entropy: 0,
            marked: false,
            hops: 0,
            retransmission: false,
        })
    }

    #[test]
    fn reports_arrive_in_any_order_and_once() {
        let mut reports = Reports::default();
        let numbers: Vec<u64> = (10..14).map(|number| reports.put(report(number))).collect();
        for place in [2, 0, 3] {
            assert_eq!(reports.take(numbers[place]), Some(report(10 + place as u64)));
            assert_eq!(reports.take(numbers[place]), None);
        }
        assert_eq!(reports.under_way.len(), 3, "the second one is missing");
        assert_eq!(reports.take(numbers[1]), Some(report(11)));
        assert_eq!((reports.under_way.len(), reports.first), (0, 4));
    }

    #[test]
    fn lost_reports_are_forgotten_at_last() {
        let mut reports = Reports::default();
        let lost = reports.put(report(0));
        for number in 1..3 * MOST_REPORTS as u64 {
            let at = reports.put(report(number));
            assert_eq!(reports.take(at), Some(report(number)));
            assert!(reports.under_way.len() <= MOST_REPORTS);
        }
        assert_eq!(reports.take(lost), None);
    }
}
