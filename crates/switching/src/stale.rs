//! What a driver that remembers decisions has to forget.

use pathloom_model::rules::Match;
use pathloom_model::FiveTuple;

/// Which decisions of a switch may have become wrong.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Stale {
    /// None.
    #[default]
    Nothing,
    /// Those about frames of these five-tuples. One may be named twice.
    Flows(Vec<FiveTuple>),
    /// Perhaps all.
    Everything,
}

/// Most flows that are named one by one: nobody may ever ask.
const MOST_FLOWS: usize = 64;

impl Stale {
    /// A rule with this match has come or gone.
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
        FiveTuple { src, dst, proto: PROTO_TCP, src_port, dst_port: 5001 }
    }

    #[test]
    fn rules_of_one_flow_touch_that_flow_alone() {
        let mut stale = Stale::default();
        stale.add(&Match::five_tuple(tuple(1)));
        stale.add(&Match { tag: Some(7), dscp: Some(8), ..Match::five_tuple(tuple(2)) });
        assert_eq!(stale, Stale::Flows(vec![tuple(1), tuple(2)]));
        for wider in [
            Match { src_port: None, ..Match::five_tuple(tuple(1)) },
            Match { proto: None, ..Match::five_tuple(tuple(1)) },
            Match { dst: Some(pathloom_model::Prefix::new(tuple(1).dst, 31)), ..Match::five_tuple(tuple(1)) },
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
    fn a_list_that_nobody_takes_does_not_grow_for_ever() {
        let mut stale = Stale::default();
        (0..=MOST_FLOWS as u16).for_each(|port| stale.add(&Match::five_tuple(tuple(port))));
        assert_eq!(stale, Stale::Everything);
    }
}
