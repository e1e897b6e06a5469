//! A log that offenders cannot fill: of what happens again and again, one line, and then a count once in a while.

use pathloom_model::Nanos;
use std::collections::BTreeMap;

/// After one line, how long the same is only counted.
const EVERY: Nanos = Nanos::from_secs(10);
/// Subjects that are told apart; the others are one.
const MOST: usize = 1024;
/// Stands for all others.
const OTHERS: &str = "others";

/// Counts what the log does not hear.
#[derive(Debug, Default)]
pub(crate) struct Quiet(BTreeMap<String, Said>);

#[derive(Debug)]
struct Said {
    at: Nanos,
    since: u64,
}

impl Quiet {
    /// Whether the log is to hear of this subject now; if so, how often it happened since it last did, this time included.
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

    /// The subjects of which nothing was said for a while though there was something, with how often it happened. Others
    /// that were quiet as long are forgotten. To be called once a second or so.
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

/// A subject from a peer's address and what is wrong with it: without the peer's port, and without what differs from case
/// to case, which begins with a number.
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
        // The last 50 are told of though nothing happens any more, and then it is forgotten.
        assert_eq!(quiet.overdue(second(310)), [("one".to_owned(), 50)]);
        assert_eq!(quiet.overdue(second(420)), []);
        assert!(quiet.0.is_empty());
    }

    #[test]
    fn a_hundred_thousand_subjects_take_the_room_of_a_thousand() {
        let mut quiet = Quiet::default();
        let said = (0..100_000).filter(|number| quiet.admit(Nanos(1), &number.to_string()).is_some()).count();
        assert_eq!(said, MOST + 1);
        assert_eq!(quiet.overdue(Nanos::from_secs(20)), [(OTHERS.to_owned(), 100_000 - MOST as u64 - 1)]);
    }

    #[test]
    fn what_differs_from_case_to_case_is_no_subject() {
        let [one, two] = ["000000000000abcd", "00000000ffffffff"].map(|dpid| {
            subject(&format!("192.0.2.1:{}", dpid.len() + 40_000), &format!("the fabric has no switch {dpid}; name it"))
        });
        assert_eq!(one, two);
        assert_eq!(one, "192.0.2.1: the fabric has no switch");
        assert_eq!(subject("a socket", "it is late"), "a socket: it is late");
    }
}
