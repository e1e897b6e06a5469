//! Predicts the rate of a flow in the next period from its rates in the last ones (LESSOR §4.2, Eq. 4).

use pathloom_scheme::{FlowId, View};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The measured and predicted rates of one flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reading {
    /// Vp: the value of the last poll.
    previous: Option<u64>,
    /// Vp + Vc of a flow that is polled again.
    unsettled: Option<u64>,
    /// V.
    predicted: Option<u64>,
}

/// Predicted rates of flows, in bits per second.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Predictions(BTreeMap<FlowId, Reading>);

impl Predictions {
    /// Records the answers of a round. Returns whether the ToRs must be polled again for some flow.
    pub(super) fn read(&mut self, view: &View) -> bool {
        let mut again = false;
        for (id, current) in measured(view) {
            let reading = self.0.entry(id).or_default();
            // The first value of a flow covers only a part of the round, so it allows no prediction.
            if let Some(previous) = reading.previous.replace(current) {
                let sum = previous.saturating_add(current);
                if is_stable(previous, current) {
                    (reading.predicted, reading.unsettled) = (Some(sum / 2), None);
                } else {
                    reading.unsettled = Some(sum);
                    again = true;
                }
            }
        }
        again
    }

    /// Records the answers to the second poll of a round: V = (Vp + Vc + Vn) / 3 for flows that were not stable.
    pub(super) fn read_again(&mut self, view: &View) {
        for (id, newest) in measured(view) {
            let Some(reading) = self.0.get_mut(&id) else { continue };
            if let Some(sum) = reading.unsettled.take() {
                reading.predicted = Some(sum.saturating_add(newest) / 3);
                reading.previous = Some(newest);
            }
        }
    }

    /// V of a flow; `None` before the first prediction.
    pub(super) fn of(&self, flow: FlowId) -> Option<u64> {
        self.0.get(&flow)?.predicted
    }

    /// Forgets a flow.
    pub(super) fn forget(&mut self, flow: FlowId) {
        self.0.remove(&flow);
    }

    /// Forgets all flows except those of the view.
    pub(super) fn keep_known(&mut self, view: &View) {
        self.0.retain(|flow, _| view.flows.contains_key(flow));
    }
}

/// The long flows with a measured rate, and that rate.
fn measured(view: &View) -> impl Iterator<Item = (FlowId, u64)> + '_ {
    view.long_flows().filter_map(|(id, flow)| Some((id, flow.rate_bps.get()?)))
}

/// 0.9·Vp ≤ Vc ≤ 1.1·Vp.
fn is_stable(previous: u64, current: u64) -> bool {
    let (previous, current) = (u128::from(previous), u128::from(current));
    (9 * previous..=11 * previous).contains(&(10 * current))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathloom_fabrics::fabric_from_spec;
    use pathloom_model::{FiveTuple, Nanos};
    use pathloom_scheme::FlowView;
    use std::sync::Arc;

    const FLOW: FlowId = FlowId(7);

    fn view() -> View {
        let fabric = fabric_from_spec("dumbbell").unwrap();
        let (from, to) = (fabric.attachments()[0], fabric.attachments()[1]);
        let five_tuple = FiveTuple::new(6, (from.address, 1), (to.address, 2));
        let flow = FlowView { long: true, ..FlowView::new(five_tuple, &from, &to, Nanos::ZERO) };
        let mut view = View::new(Arc::new(fabric));
        view.flows.insert(FLOW, flow);
        view
    }

    fn at(rate_bps: u64) -> View {
        let mut view = view();
        view.flows.get_mut(&FLOW).unwrap().rate_bps = rate_bps.into();
        view
    }

    #[test]
    fn a_steady_flow_gets_the_mean_of_two_values() {
        let mut predictions = Predictions::default();
        assert!(!predictions.read(&view()), "not measured");
        assert!(!predictions.read(&at(1000)));
        assert_eq!(predictions.of(FLOW), None, "one value allows no prediction");
        assert!(!predictions.read(&at(1100)));
        assert_eq!(predictions.of(FLOW), Some(1050));
        assert!(!predictions.read(&at(990)), "a tenth below the previous value is still steady");
        assert_eq!(predictions.of(FLOW), Some(1045));
        predictions.read_again(&at(5));
        assert_eq!(predictions.of(FLOW), Some(1045), "no second poll was needed");
    }

    #[test]
    fn an_unsteady_flow_is_polled_again() {
        let mut predictions = Predictions::default();
        predictions.read(&at(1000));
        assert!(predictions.read(&at(1101)));
        assert_eq!(predictions.of(FLOW), None);
        predictions.read_again(&at(899));
        assert_eq!(predictions.of(FLOW), Some(1000));
        // The previous value is that of the last poll.
        assert!(!predictions.read(&at(901)));
        assert_eq!(predictions.of(FLOW), Some(900));
    }

    #[test]
    fn the_bounds_count_as_stable() {
        assert!(is_stable(1000, 900) && is_stable(1000, 1100) && is_stable(0, 0));
        assert!(!is_stable(1000, 899) && !is_stable(1000, 1101) && !is_stable(0, 1));
        assert!(is_stable(u64::MAX, u64::MAX));
    }

    #[test]
    fn flows_that_have_ended_are_forgotten() {
        let mut predictions = Predictions::default();
        predictions.read(&at(1));
        predictions.forget(FlowId(1));
        predictions.keep_known(&view());
        assert_ne!(predictions, Predictions::default());
        predictions.forget(FLOW);
        assert_eq!(predictions, Predictions::default());
    }
}
