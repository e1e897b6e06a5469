//! Flows that are left alone for a while because a switch refused their path.

use pathloom_model::Nanos;
use pathloom_scheme::{FlowId, Rejection};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// First rest, and the longest; each refusal in a row doubles it.
const FIRST: Nanos = Nanos::from_secs(5);
const LONGEST: Nanos = Nanos::from_secs(320);

/// Who rests, and until when.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Rests(BTreeMap<FlowId, Rest>);

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Rest {
    length: Nanos,
    over: Nanos,
}

impl Rests {
    /// A path for the flow was rejected. A dead link is no reason to rest: the flow is placed anew at once.
    pub(crate) fn rejected(&mut self, now: Nanos, flow: FlowId, why: &Rejection) {
        match why {
            Rejection::LinkDown(_) => {}
            Rejection::UnknownFlow => self.end(flow),
            Rejection::Refused(..)
            | Rejection::SwitchGone(_)
            | Rejection::Draining
            | Rejection::WrongEnds
            | Rejection::Malformed => {
                let before = self.0.get(&flow).map_or(Nanos::ZERO, |rest| rest.length);
                let length = Nanos(before.0.saturating_mul(2)).clamp(FIRST, LONGEST);
                self.0.insert(flow, Rest { length, over: now.saturating_add(length) });
            }
        }
    }

    /// The flow has its path, or is over.
    pub(crate) fn end(&mut self, flow: FlowId) {
        self.0.remove(&flow);
    }

    /// Whether the flow is to be left where it is.
    pub(crate) fn holds(&self, now: Nanos, flow: FlowId) -> bool {
        self.0.get(&flow).is_some_and(|rest| now < rest.over)
    }

    /// All flows that are to be left where they are, ascending.
    pub(crate) fn resting(&self, now: Nanos) -> Vec<FlowId> {
        self.0.iter().filter(|(_, rest)| now < rest.over).map(|(&flow, _)| flow).collect()
    }

    /// Forgets flows that are gone.
    pub(crate) fn keep(&mut self, known: impl Fn(FlowId) -> bool) {
        self.0.retain(|&flow, _| known(flow));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_model::rules::Refusal;
    use pathloom_model::{LinkId, NodeId};

    #[test]
    fn rests_double_until_the_path_is_there() {
        let (flow, mut rests) = (FlowId(1), Rests::default());
        let refused = Rejection::Refused(NodeId(0), Refusal::TableFull);
        let s = Nanos::from_secs;
        rests.rejected(s(0), flow, &Rejection::LinkDown(LinkId(0)));
        assert!(!rests.holds(s(0), flow));
        let mut now = s(0);
        for length in [5, 10, 20, 40, 80, 160, 320, 320] {
            rests.rejected(now, flow, &refused);
            let over = now.saturating_add(s(length));
            assert!(rests.holds(over.saturating_sub(Nanos(1)), flow) && !rests.holds(over, flow), "{length}");
            assert_eq!((rests.resting(now), rests.resting(over)), (vec![flow], vec![]));
            now = over;
        }
        rests.end(flow);
        rests.rejected(now, flow, &refused);
        assert!(!rests.holds(now.saturating_add(s(5)), flow));
        rests.keep(|known| known != flow);
        assert_eq!(rests, Rests::default());
    }
}
