//! Remembered decisions that a driver must forget.

use pathloom_model::rules::Match;
use pathloom_model::FiveTuple;

/// The decisions of a switch that may have become wrong.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Stale {
    /// No decisions.
    #[default]
    Nothing,
    /// Decisions about frames with these five-tuples. The list may contain duplicates.
    Flows(Vec<FiveTuple>),
    /// Possibly all decisions.
    Everything,
}

/// Maximum length of the list of flows. The limit is necessary because a driver need not ask for the list.
const MOST_FLOWS: usize = 64;

impl Stale {
    /// Records that a rule with this match was added or removed.
    pub(crate) fn add(&mut self, matches: &Match) {
        match (&mut *self, matches.only_five_tuple()) {
            (Stale::Nothing, Some(flow)) => *self = Stale::Flows(vec![flow]),
            (Stale::Flows(flows), Some(flow)) if flows.len() < MOST_FLOWS => flows.push(flow),
            _ => *self = Stale::Everything,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_model::PROTO_TCP;

    fn tuple(src_port: u16) -> FiveTuple {
        let (src, dst) = ([10, 0, 0, 1].into(), [10, 0, 1, 1].into());
        FiveTuple::new(PROTO_TCP, (src, src_port), (dst, 5001))
    }

    #[test]
    fn a_rule_for_one_flow_affects_only_that_flow() {
        let mut stale = Stale::default();
        stale.add(&Match::five_tuple(tuple(1)));
        stale.add(&Match { tag: Some(7), dscp: Some(8), ..Match::five_tuple(tuple(2)) });
        assert_eq!(stale, Stale::Flows(vec![tuple(1), tuple(2)]));
        for wider in [
            Match { src_port: None, ..Match::five_tuple(tuple(1)) },
            Match { proto: None, ..Match::five_tuple(tuple(1)) },
            Match { dst: Some(pathloom_model::Prefix::new(tuple(1).dst(), 31)), ..Match::five_tuple(tuple(1)) },
            Match::default(),
        ] {
            let mut stale = stale.clone();
            stale.add(&wider);
            assert_eq!(stale, Stale::Everything, "{wider:?}");
            stale.add(&Match::five_tuple(tuple(3)));
            assert_eq!(stale, Stale::Everything);
        }
    }

    #[test]
    fn the_list_of_stale_flows_is_bounded() {
        let mut stale = Stale::default();
        (0..=MOST_FLOWS as u16).for_each(|port| stale.add(&Match::five_tuple(tuple(port))));
        assert_eq!(stale, Stale::Everything);
    }
}
