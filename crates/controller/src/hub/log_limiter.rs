//! Limits log lines, so that offenders cannot fill the log: one line for a repeated event, and then a count from time
//! to time.

use pathloom_model::Nanos;
use std::collections::BTreeMap;

/// Time after a line in which the same event is only counted.
const EVERY: Nanos = Nanos::from_secs(10);
/// Maximum number of subjects; further ones are counted together.
const MOST: usize = 1024;
/// The subject of all others.
const OTHERS: &str = "others";

/// Counts events that are not logged.
#[derive(Debug, Default)]
pub(crate) struct LogLimiter(BTreeMap<String, LastLine>);

#[derive(Debug)]
struct LastLine {
    at: Nanos,
    since: u64,
}

impl LogLimiter {
    /// Whether to log this subject now. If so, how often it happened since its last line, this time included.
    pub(crate) fn count_to_log(&mut self, now: Nanos, subject: &str) -> Option<u64> {
        let known = self.0.contains_key(subject) || self.0.len() < MOST;
        let subject = if known { subject } else { OTHERS };
        let Some(last) = self.0.get_mut(subject) else {
            self.0.insert(subject.to_owned(), LastLine { at: now, since: 0 });
            return Some(1);
        };
        if now.saturating_sub(last.at) < EVERY {
            last.since += 1;
            return None;
        }
        last.at = now;
        Some(std::mem::take(&mut last.since) + 1)
    }

    /// The subjects that happened again since their last line and are due for another, with their counts. Subjects
    /// without a new event are forgotten after the same time. Call this about once a second.
    pub(crate) fn overdue(&mut self, now: Nanos) -> Vec<(String, u64)> {
        let mut overdue = Vec::new();
        self.0.retain(|subject, last| {
            if now.saturating_sub(last.at) < EVERY {
                return true;
            }
            let since = std::mem::take(&mut last.since);
            if since > 0 {
                overdue.push((subject.clone(), since));
                last.at = now;
            }
            since > 0
        });
        overdue
    }
}

/// Builds a subject from a peer's address and its offence. It omits the peer's port, and the details that differ from
/// case to case, which begin with a number.
pub(crate) fn subject(peer: &str, why: &str) -> String {
    let address = peer.parse::<std::net::SocketAddr>().map_or_else(|_| peer.to_owned(), |peer| peer.ip().to_string());
    let end = why.find(|letter: char| letter.is_ascii_digit()).unwrap_or(why.len());
    format!("{address}: {}", why[..end].trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_and_then_a_count() {
        let mut limiter = LogLimiter::default();
        let second = |tenths: u64| Nanos::from_millis(tenths * 100);
        let counts: Vec<_> = (0..=250).filter_map(|tenths| limiter.count_to_log(second(tenths), "one")).collect();
        assert_eq!(counts, [1, 100, 100]);
        assert_eq!(limiter.count_to_log(second(250), "other"), Some(1));
        assert_eq!(limiter.overdue(second(260)), []);
        // The last 50 events are reported although no new one happens. Then the subject is forgotten.
        assert_eq!(limiter.overdue(second(310)), [("one".to_owned(), 50)]);
        assert_eq!(limiter.overdue(second(420)), []);
        assert!(limiter.0.is_empty());
    }

    #[test]
    fn the_number_of_subjects_is_limited() {
        let mut limiter = LogLimiter::default();
        let logged =
            (0..100_000).filter(|number| limiter.count_to_log(Nanos(1), &number.to_string()).is_some()).count();
        assert_eq!(logged, MOST + 1);
        assert_eq!(limiter.overdue(Nanos::from_secs(20)), [(OTHERS.to_owned(), 100_000 - MOST as u64 - 1)]);
    }

    #[test]
    fn subjects_omit_details_that_differ_from_case_to_case() {
        let [one, two] = ["000000000000abcd", "00000000ffffffff"].map(|dpid| {
            subject(&format!("192.0.2.1:{}", dpid.len() + 40_000), &format!("the fabric has no switch {dpid}; name it"))
        });
        assert_eq!(one, two);
        assert_eq!(one, "192.0.2.1: the fabric has no switch");
        assert_eq!(subject("a socket", "it is late"), "a socket: it is late");
    }
}
