//! The rounds of PRE, step by step, against LESSOR §4.2, Algorithm 1 and Eq. 4.

use super::*;
use pathloom_fabrics::fabric_from_spec;
use pathloom_model::FiveTuple;
use pathloom_scheme::FlowView;
use std::sync::Arc;

const SETTINGS: PeriodSettings = PeriodSettings {
    lower: 0.5,
    upper: 0.7,
    first: Nanos::from_secs(4),
    least: Nanos::from_millis(500),
    most: Nanos::from_secs(60),
    alpha: 0.05,
};
const STEADY: FlowId = FlowId(1);
const WILD: FlowId = FlowId(2);
const NOTHING: Due = Due { poll: false, poll_again: false, allocate: false };
const POLL: Due = Due { poll: true, ..NOTHING };
const POLL_AGAIN: Due = Due { poll_again: true, ..NOTHING };
const ALLOCATE: Due = Due { allocate: true, ..NOTHING };

const fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

/// A view with two long flows, at these rates, and this load of the controller.
fn view(rates_bps: [u64; 2], busy_share: f64) -> View {
    let mut view = View::new(Arc::new(fabric_from_spec("dumbbell").unwrap()));
    let (from, to) = (view.fabric.attachments()[0], view.fabric.attachments()[1]);
    let five_tuple = FiveTuple::new(6, (from.address, 1), (to.address, 2));
    for (flow, rate_bps) in [STEADY, WILD].into_iter().zip(rates_bps) {
        let known =
            FlowView { long: true, rate_bps: rate_bps.into(), ..FlowView::new(five_tuple, &from, &to, Nanos::ZERO) };
        view.flows.insert(flow, known);
    }
    view.busy_share = busy_share;
    view
}

/// PRE at the start of its first round, at time zero.
fn begun() -> Pre {
    let mut pre = Pre::new(SETTINGS);
    pre.begin(Nanos::ZERO, &view([0, 0], 0.0));
    pre
}

fn period(pre: &Pre) -> Nanos {
    pre.memory.period.now
}

#[test]
fn the_period_is_computed_half_a_period_after_the_first_answer() {
    let mut pre = begun();
    assert_eq!(pre.next(), None, "the round waits for answers, however long they take");
    assert_eq!(pre.answered(ms(300), &view([100, 100], 0.0)), ALLOCATE);
    assert_eq!(pre.next(), Some(ms(2300)), "T/2 after the answers, not after the poll");
    assert_eq!(pre.wake(ms(2299), &view([100, 100], 0.9)), NOTHING);
    assert_eq!(period(&pre), ms(4000));
    // The load of that moment counts: above UT the period doubles.
    assert_eq!(pre.wake(ms(2300), &view([100, 100], 0.71)), NOTHING);
    assert_eq!(period(&pre), ms(8000));
    // The current round keeps its period; the next one has the new period.
    assert_eq!(pre.next(), Some(ms(4000)));
    assert_eq!(pre.wake(ms(4000), &view([100, 100], 0.0)), POLL);
    pre.answered(ms(4000), &view([100, 100], 0.0));
    assert_eq!(pre.next(), Some(ms(8000)), "half of the new period later");
    pre.wake(ms(8000), &view([100, 100], 0.49));
    assert_eq!((period(&pre), pre.next()), (ms(4000), Some(ms(12_000))), "below LT it is halved");
}

#[test]
fn between_the_thresholds_steps_shrink_and_a_long_round_trip_reverses_them() {
    let mut pre = begun();
    let mut seen = Vec::new();
    let mut at = Nanos::ZERO;
    for (busy_share, rtt) in [(0.5, 1000), (0.7, 1000), (0.6, 2000), (0.6, 1000), (0.4, 1000), (0.6, 1000)] {
        let mut view = view([100, 100], busy_share);
        view.switch_rtt[0] = Some(Nanos::from_micros(rtt));
        pre.answered(at, &view);
        at = pre.next().unwrap();
        pre.wake(at, &view);
        seen.push((period(&pre).0 as f64 / 1e6).round());
        at = pre.next().unwrap();
        assert!(pre.wake(at, &view).poll);
    }
    // 4 s · 0.95 · 0.96, up by 3 % because the round-trip time is twice its average, · 0.98, halved, · 0.99.
    assert_eq!(seen, [3800.0, 3648.0, 3757.0, 3682.0, 1841.0, 1823.0]);
}

#[test]
fn steady_flows_get_their_mean_rate_and_others_are_polled_again() {
    let mut pre = begun();
    assert_eq!(pre.answered(ms(0), &view([1000, 1000], 0.6)), ALLOCATE);
    assert_eq!((pre.predicted(STEADY), pre.predicted(WILD)), (None, None), "one value allows no prediction");
    pre.wake(ms(2000), &view([1000, 1000], 0.6));
    assert_eq!(pre.wake(ms(4000), &view([1000, 1000], 0.6)), POLL);
    let period = period(&pre);
    // 0.9·Vp and 1.1·Vp are still steady. 1.2·Vp is not, so nothing is allocated before the second poll.
    assert_eq!(pre.answered(ms(4100), &view([1100, 1200], 0.6)), NOTHING);
    assert_eq!((pre.predicted(STEADY), pre.predicted(WILD)), (Some(1050), None));
    let again = ms(4100) + Nanos(period.0 / 4);
    assert_eq!(pre.next(), Some(again));
    assert_eq!(pre.wake(again - Nanos(1), &view([1100, 1200], 0.6)), NOTHING);
    assert_eq!(pre.wake(again, &view([1100, 1200], 0.6)), POLL_AGAIN);
    assert_eq!(pre.answered(again + ms(50), &view([5, 800], 0.6)), ALLOCATE);
    // Eq. 4: (1000 + 1200 + 800) / 3. For the steady flow, the second poll does not count.
    assert_eq!((pre.predicted(STEADY), pre.predicted(WILD)), (Some(1050), Some(1000)));
    assert_eq!(pre.answered(again + ms(60), &view([7, 7], 0.6)), NOTHING, "no poll was requested");
    assert_eq!((pre.predicted(STEADY), pre.predicted(WILD)), (Some(1050), Some(1000)));
}

#[test]
fn an_unanswered_second_poll_delays_nothing() {
    let mut pre = begun();
    pre.answered(ms(0), &view([1000, 1000], 0.6));
    pre.wake(ms(2000), &view([1000, 1000], 0.6));
    assert_eq!(pre.wake(ms(4000), &view([1000, 1000], 0.6)), POLL);
    assert_eq!(pre.answered(ms(4000), &view([1000, 3000], 0.6)), NOTHING);
    let (period, view) = (period(&pre), view([1000, 3000], 0.6));
    assert_eq!(pre.wake(ms(4000) + Nanos(period.0 / 4), &view), POLL_AGAIN);
    assert_eq!(pre.wake(ms(4000) + Nanos(period.0 / 2), &view), NOTHING);
    // The round is over: rates are allocated without the answer, and a new round begins.
    assert_eq!(pre.wake(ms(4000) + period, &view), Due { poll: true, ..ALLOCATE });
    assert_eq!(pre.predicted(WILD), None, "Eq. 4 needs three values");
}

#[test]
fn a_late_answer_makes_its_round_longer() {
    let mut pre = begun();
    assert_eq!(pre.answered(ms(9000), &view([1, 1], 0.9)), ALLOCATE);
    // The period is over, but less than half a period has passed since the first answer.
    assert_eq!((pre.next(), pre.wake(ms(10_999), &view([1, 1], 0.9))), (Some(ms(11_000)), NOTHING));
    assert_eq!((pre.wake(ms(11_000), &view([1, 1], 0.9)), period(&pre)), (POLL, ms(8000)));
}

#[test]
fn slow_switches_do_not_delay_the_next_period() {
    let answers = |first, last| {
        let mut pre = begun();
        pre.answered(ms(last), &View { first_answer: Some(ms(first)), ..view([1, 1], 0.9) });
        pre.next()
    };
    assert_eq!(answers(300, 300), Some(ms(2300)));
    assert_eq!(answers(300, 1700), Some(ms(2300)), "T/2 after the first answer");
    assert_eq!(answers(300, 3000), Some(ms(3000)), "T/2 had passed when the last answer came");
}

#[test]
fn a_restart_keeps_the_predictions_and_begins_a_round() {
    let mut pre = begun();
    pre.answered(ms(0), &view([1000, 1000], 0.0));
    pre.wake(ms(2000), &view([1000, 1000], 0.9));
    pre.wake(ms(4000), &view([1000, 1000], 0.9));
    pre.answered(ms(4000), &view([1000, 900], 0.9));
    let mut fresh = Pre::new(SETTINGS);
    fresh.recall(pre.memory().clone());
    assert_eq!((fresh.next(), fresh.wake(ms(5000), &view([1, 1], 0.9))), (None, NOTHING), "no round has begun");
    let mut after = view([1000, 900], 0.9);
    after.flows.remove(&WILD);
    fresh.begin(ms(5000), &after);
    assert_eq!(
        (fresh.predicted(STEADY), fresh.predicted(WILD)),
        (Some(1000), None),
        "a flow that has ended is forgotten"
    );
    fresh.answered(ms(5000), &after);
    assert_eq!(fresh.next(), Some(ms(9000)), "half of the restored period of 8 s");
    fresh.forget(STEADY);
    assert_eq!(fresh.predicted(STEADY), None);
}
