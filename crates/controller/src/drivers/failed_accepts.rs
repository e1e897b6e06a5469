//! Connections that the system does not let the controller accept, usually for lack of file descriptors: one line when
//! that begins and one when it is over, instead of one for each attempt.

use std::io;
use std::time::{Duration, Instant};

/// Time until the next attempt. Until then others may have closed connections.
const PAUSE: Duration = Duration::from_millis(100);
/// It is over when nothing has failed for this long. Under a shortage, accepts succeed and fail in turn.
const OVER: Duration = Duration::from_secs(10);

/// The failed accepts of one listening socket.
pub(crate) struct FailedAccepts {
    /// Who connects there.
    who: &'static str,
    /// Number of failures since it began, and the last one.
    failing: Option<(u64, Instant)>,
}

impl FailedAccepts {
    /// None so far, on a socket for these peers.
    pub(crate) fn new(who: &'static str) -> FailedAccepts {
        FailedAccepts { who, failing: None }
    }

    /// Handles a failed accept: waits before the next attempt.
    pub(crate) async fn failed(&mut self, problem: &io::Error) {
        if self.count(Instant::now()) {
            tracing::warn!(
                %problem,
                "connections of {} are not accepted; if there are too many open files, raise LimitNOFILE of the unit, or \
                 `ulimit -Hn`",
                self.who
            );
        }
        tokio::time::sleep(PAUSE).await;
    }

    /// Handles an accepted connection.
    pub(crate) fn accepted(&mut self) {
        if let Some(failed) = self.failing.and_then(|_| self.end(Instant::now())) {
            tracing::info!(failed, "connections of {} are accepted again", self.who);
        }
    }

    /// Counts a failure. Returns whether it is the first one.
    fn count(&mut self, now: Instant) -> bool {
        let before = self.failing.map_or(0, |(failed, _)| failed);
        self.failing = Some((before + 1, now));
        before == 0
    }

    /// Returns the number of failures if they are over.
    fn end(&mut self, now: Instant) -> Option<u64> {
        let (failed, _) = self.failing.filter(|&(_, last)| now.duration_since(last) >= OVER)?;
        self.failing = None;
        Some(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_when_it_begins_and_one_when_it_is_over() {
        let (begin, mut accepts) = (Instant::now(), FailedAccepts::new("switches"));
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!(accepts.end(begin), None);
        let lines: Vec<bool> = [0, 1, 9].map(|seconds| accepts.count(at(seconds))).into();
        assert_eq!(lines, [true, false, false]);
        assert_eq!((accepts.end(at(18)), accepts.end(at(19)), accepts.end(at(40))), (None, Some(3), None));
        assert!(accepts.count(at(41)), "it begins again");
    }
}
