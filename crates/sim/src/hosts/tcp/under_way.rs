//! Senders of transfers that began before the run: they need no SYN, and no slow start.
//!
//! Their first window is paced, because nothing is on its way yet whose acknowledgements could pace it.

use crate::agenda::Event;
use crate::run::Run;
use crate::subflow::Subflow;
use crate::tap::Tap;
use crate::time::{to_nanos, to_ps};
use pathloom_model::units::NS_PER_S;
use pathloom_model::Nanos;
use pathloom_transport::{Settings, Standing};
use pathloom_workload::UnderWay;

/// Shortest and longest round trip of a transfer under way, whatever its window and its rate.
const ROUND_TRIPS: [Nanos; 2] = [Nanos::from_micros(1), Nanos::from_secs(1)];

/// The first window leaves this many times faster than the flow sent, so that queues fill before new flows meet them.
const FILL_SPEED: u64 = 16;

/// Lets a subflow that was just opened continue a transfer that began before the run. Its first window is paced
/// unless something else paces it.
pub(super) fn continue_transfer<T: Tap>(
    run: &mut Run<'_, T>,
    (slot, subflow): (usize, &mut Subflow),
    state: &UnderWay,
    settings: &Settings,
    is_paced: bool,
) {
    let now = to_nanos(run.now);
    let ns = u128::from(state.window_bytes) * 8 * u128::from(NS_PER_S) / u128::from(state.rate_bps.max(1));
    let round_trip = Nanos(u64::try_from(ns).unwrap_or(u64::MAX)).clamp(ROUND_TRIPS[0], ROUND_TRIPS[1]);
    let mut standing = Standing::under_way(settings, state.window_bytes, round_trip, now);
    if state.slow_start {
        standing = standing.in_slow_start(settings);
    }
    standing.resume(&mut subflow.sender, settings, now);
    // Its first segment tells the controller of it, as a SYN would.
    subflow.stands = true;
    if !is_paced {
        // Headers take part of the rate of links.
        let mss = u64::from(settings.mss_bytes);
        let pace_bps = state.rate_bps.saturating_mul(settings.frame_bytes()) / mss.max(1);
        subflow.sender.set_pace(now, Some(pace_bps.saturating_mul(FILL_SPEED).max(1)));
        // Then the acknowledgements of the first segments pace it.
        let over = Event::FirstWindowSent { slot: slot as u32, use_count: subflow.use_count };
        run.agenda.push(run.now + to_ps(round_trip) / FILL_SPEED, over);
    }
}
