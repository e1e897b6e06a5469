//! Backoff: when to request a path again after a switch refused it. Each further refusal doubles the wait.

use pathloom_model::Nanos;
use pathloom_scheme::{FlowId, Rejection};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The shortest and the longest wait, in the scheme's unit of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waits {
    /// Wait after the first refusal.
    pub first: u64,
    /// Longest wait, after many refusals in a row.
    pub longest: u64,
}

impl Waits {
    /// 5 s, doubled up to 320 s; in nanoseconds.
    pub const SECONDS: Waits = Waits { first: Nanos::from_secs(5).0, longest: Nanos::from_secs(320).0 };
    /// One round, doubled up to 64.
    pub const ROUNDS: Waits = Waits { first: 1, longest: 64 };
}

/// The flows that back off. `now` is in the scheme's unit of time: nanoseconds or rounds.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Backoff(BTreeMap<FlowId, Wait>);

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Wait {
    #[serde(alias = "rounds")]
    length: u64,
    /// When it ends; `None` after the path was requested again, until the answer comes.
    over: Option<u64>,
}

impl Wait {
    fn lasts(&self, now: u64) -> bool {
        self.over.is_some_and(|over| now < over)
    }
}

impl Backoff {
    /// A path for the flow was rejected. After a dead link there is no wait, because the scheme requests another path
    /// at once. An unknown flow is forgotten.
    pub fn rejected(&mut self, now: u64, flow: FlowId, why: &Rejection, waits: Waits) {
        match why {
            Rejection::LinkDown(_) => {}
            Rejection::UnknownFlow => self.end(flow),
            Rejection::Refused(..)
            | Rejection::OverBudget(_)
            | Rejection::SwitchGone(_)
            | Rejection::Draining
            | Rejection::WrongEnds
            | Rejection::Malformed => {
                let before = self.0.get(&flow).map_or(0, |wait| wait.length);
                let length = before.saturating_mul(2).clamp(waits.first, waits.longest);
                self.0.insert(flow, Wait { length, over: Some(now.saturating_add(length)) });
            }
        }
    }

    /// Ends the backoff: the flow has its path, or has ended.
    pub fn end(&mut self, flow: FlowId) {
        self.0.remove(&flow);
    }

    /// Whether the flow backs off, so that it must be left where it is.
    pub fn holds(&self, now: u64, flow: FlowId) -> bool {
        self.0.get(&flow).is_some_and(|wait| wait.lasts(now))
    }

    /// All flows that back off, ascending.
    pub fn waiting(&self, now: u64) -> Vec<FlowId> {
        self.0.iter().filter(|(_, wait)| wait.lasts(now)).map(|(&flow, _)| flow).collect()
    }

    /// Returns the flows whose wait is over, ascending, so that the scheme can request their paths again. Each is
    /// returned once: its next wait begins with the next refusal, and is twice as long.
    pub fn take_due(&mut self, now: u64) -> Vec<FlowId> {
        let due = self.0.iter_mut().filter(|(_, wait)| wait.over.is_some_and(|over| over <= now));
        due.map(|(&flow, wait)| (wait.over = None, flow).1).collect()
    }

    /// When the next flow is due, for [`Scheme::poll_timeout`].
    ///
    /// [`Scheme::poll_timeout`]: pathloom_scheme::Scheme::poll_timeout
    pub fn next_due(&self) -> Option<u64> {
        self.0.values().filter_map(|wait| wait.over).min()
    }

    /// Keeps only the flows for which `known` is true.
    pub fn keep(&mut self, known: impl Fn(FlowId) -> bool) {
        self.0.retain(|&flow, _| known(flow));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_model::rules::Refusal;
    use pathloom_model::{LinkId, NodeId};

    #[test]
    fn waits_double_until_the_path_is_confirmed() {
        let (flow, mut backoff) = (FlowId(1), Backoff::default());
        let refused = Rejection::Refused(NodeId(0), Refusal::TableFull);
        let s = |s: u64| Nanos::from_secs(s).0;
        backoff.rejected(0, flow, &Rejection::LinkDown(LinkId(0)), Waits::SECONDS);
        assert!(!backoff.holds(0, flow));
        let mut now = 0;
        for length in [5, 10, 20, 40, 80, 160, 320, 320] {
            backoff.rejected(now, flow, &refused, Waits::SECONDS);
            let over = now + s(length);
            assert!(backoff.holds(over - 1, flow) && !backoff.holds(over, flow), "{length}");
            assert_eq!((backoff.waiting(now), backoff.waiting(over)), (vec![flow], vec![]));
            assert_eq!((backoff.next_due(), backoff.take_due(over - 1)), (Some(over), vec![]));
            assert_eq!((backoff.take_due(over), backoff.take_due(over)), (vec![flow], vec![]));
            assert!(!backoff.holds(now, flow) && backoff.next_due().is_none());
            now = over;
        }
        backoff.end(flow);
        backoff.rejected(now, flow, &refused, Waits::SECONDS);
        assert!(!backoff.holds(now + s(5), flow));
        backoff.keep(|known| known != flow);
        assert_eq!(backoff, Backoff::default());
    }

    #[test]
    fn states_of_older_versions_are_read() {
        // Hedera called the length of a wait `rounds`.
        for saved in [r#"{"1":{"rounds":2,"over":7}}"#, r#"{"1":{"length":2,"over":7}}"#] {
            let mut backoff: Backoff = serde_json::from_str(saved).unwrap();
            assert!(backoff.holds(6, FlowId(1)) && !backoff.holds(7, FlowId(1)));
            backoff.rejected(7, FlowId(1), &Rejection::Draining, Waits::ROUNDS);
            assert_eq!(backoff.next_due(), Some(11));
        }
    }

    #[test]
    fn waits_in_rounds_double_too() {
        let (flow, mut backoff) = (FlowId(1), Backoff::default());
        for (round, length) in [(0, 1), (1, 2), (3, 4), (7, 8), (15, 16), (31, 32), (63, 64), (127, 64)] {
            backoff.rejected(round, flow, &Rejection::Draining, Waits::ROUNDS);
            assert_eq!(backoff.next_due(), Some(round + length));
        }
    }
}
