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
pub(crate) struct Quiet(BTreeMap<String, Said>);

#[derive(Debug)]
struct Said {
    at: Nanos,
    since: u64,
}

impl Quiet {
    /// Whether to log this subject now. If so, how often it happened since its last line, this time included.
    pub(crate) fn admit(&mut self, now: Nanos, subject: &str) -> Option<u64> {
        let known = self.0.contains_key(subject) || self.0.len() < MOST;
        let subject = if known { subject } else { OTHERS };
        let Some(said) = self.0.get_mut(subject) else {
            self.0.insert(subject.to_owned(), Said { at: now, since: 0 });
            return Some(1);
        };
        if now.saturating_sub(said.at) < EVERY {
            said.since += 1;
            return None;
        }
        said.at = now;
        Some(std::mem::take(&mut said.since) + 1)
    }

    /// The subjects that happened again since their last line and are due for another, with their counts. Subjects
    /// without a new event are forgotten after the same time. Call this about once a second.
    pub(crate) fn overdue(&mut self, now: Nanos) -> Vec<(String, u64)> {
        let mut overdue = Vec::new();
        self.0.retain(|subject, said| {
            if now.saturating_sub(said.at) < EVERY {
                return true;
            }
            let since = std::mem::take(&mut said.since);
            if since > 0 {
                overdue.push((subject.clone(), since));
                said.at = now;
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
        let mut quiet = Quiet::default();
        let second = |tenths: u64| Nanos::from_millis(tenths * 100);
        let said: Vec<_> = (0..=250).filter_map(|tenths| quiet.admit(second(tenths), "one")).collect();
        assert_eq!(said, [1, 100, 100]);
        assert_eq!(quiet.admit(second(250), "other"), Some(1));
        assert_eq!(quiet.overdue(second(260)), []);
        // The last 50 events are reported although no new one happens. Then the subject is forgotten.
        assert_eq!(quiet.overdue(second(310)), [("one".to_owned(), 50)]);
        assert_eq!(quiet.overdue(second(420)), []);
        assert!(quiet.0.is_empty());
    }

    #[test]
    fn the_number_of_subjects_is_limited() {
        let mut quiet = Quiet::default();
        let said = (0..100_000).filter(|number| quiet.admit(Nanos(1), &number.to_string()).is_some()).count();
        assert_eq!(said, MOST + 1);
        assert_eq!(quiet.overdue(Nanos::from_secs(20)), [(OTHERS.to_owned(), 100_000 - MOST as u64 - 1)]);
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
