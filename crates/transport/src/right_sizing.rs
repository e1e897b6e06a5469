//! Receive windows that tune themselves: Dynamic Right-Sizing (Fisk and Feng, Dynamic Right-Sizing in TCP, LACSI 2001),
//! as Linux does it (`tcp_rcv_space_adjust` and, for MPTCP, `mptcp_rcv_space_adjust`).
//!
//! Once per round trip, a receiver counts the bytes that its application has read. If they are more than in any round
//! trip before, the window becomes twice that many, and more if the count grows fast, as in slow start. A window never
//! shrinks.
//!
//! Simplified: a simulated application reads data as soon as they are in order. So the cumulative acknowledgement says
//! what it has read, and the sender computes the window that the receiver would announce with it.

use crate::Settings;
use pathloom_model::spec::{Spec, SpecError};
use pathloom_model::Nanos;

/// Window of a new connection: half of the initial buffer of 128 KiB (`tcp_rmem`, `tcp_adv_win_scale`).
const FIRST_WINDOW: u64 = 64 << 10;
/// Most that a window grows to: half of the largest buffer of 6 MiB.
const MOST_WINDOW: u64 = 3 << 20;
/// Segments that a round trip is supposed to bring before the first count (`TCP_INIT_CWND`).
const FIRST_SEGMENTS: u64 = 10;
/// Segments by which a window is larger than twice the count.
const CUSHION_SEGMENTS: u64 = 16;

/// Reads the key `rwnd`: a size, or `auto`. Returns the receive window, and whether receivers tune it up to that.
pub(crate) fn read(spec: &Spec, default: u64) -> Result<(u64, bool), SpecError> {
    if spec.text_of("rwnd") == Some("auto") {
        return Ok((MOST_WINDOW, true));
    }
    let bytes = spec.size_bytes("rwnd");
    let bytes = bytes.map_err(|problem| spec.error(format!("{}, or auto", problem.problem)))?;
    Ok((bytes.unwrap_or(default), false))
}

impl Settings {
    /// Returns the receive window of a new connection, if receivers tune it.
    pub(crate) fn right_sizing(&self) -> Option<Box<RightSizing>> {
        let mss = u64::from(self.mss_bytes);
        self.tunes_receive_window.then(|| Box::new(RightSizing::new(mss, self.receive_window_bytes)))
    }
}

/// The window of one receiver, and its counts. All sizes are in bytes.
#[derive(Clone, Debug)]
pub(crate) struct RightSizing {
    window: u64,
    most: u64,
    mss: u64,
    /// Greatest number of bytes read in a round trip so far.
    space: u64,
    /// When the current round trip began, and the number of bytes read before it.
    since: Nanos,
    read_before: u64,
}

impl RightSizing {
    /// The window of a new connection with segments of `mss` bytes, which grows up to `most`.
    pub(crate) fn new(mss: u64, most: u64) -> RightSizing {
        let window = FIRST_WINDOW.min(most).max(mss);
        let space = window.min(FIRST_SEGMENTS * mss);
        RightSizing { window, most: most.max(mss), mss, space, since: Nanos::ZERO, read_before: 0 }
    }

    /// The window of a connection under way whose sender has a congestion window of `bytes`.
    pub(crate) fn under_way(self, bytes: u64) -> RightSizing {
        let window = bytes.saturating_mul(2).clamp(self.window, self.most);
        RightSizing { window, space: self.space.max(bytes), ..self }
    }

    /// The window for the next transfer on the same connection. Byte numbers begin again with 0.
    pub(crate) fn resumed(self, now: Nanos) -> RightSizing {
        RightSizing { since: now, read_before: 0, ..self }
    }

    /// Moves all times by `by`.
    pub(crate) fn translate(&mut self, by: Nanos) {
        self.since += by;
    }

    /// Returns the window.
    pub(crate) fn window(&self) -> u64 {
        self.window
    }

    /// The application has read all bytes before `read`. Ends the current round trip if `round_trip` has passed since
    /// its beginning. Returns the new window if that makes it larger.
    pub(crate) fn measure(&mut self, now: Nanos, round_trip: Nanos, read: u64) -> Option<u64> {
        if now.saturating_sub(self.since) < round_trip {
            return None;
        }
        let count = read - self.read_before;
        (self.since, self.read_before) = (now, read);
        if count <= self.space {
            return None;
        }
        let steady = count.saturating_mul(2).saturating_add(CUSHION_SEGMENTS * self.mss);
        let growth = u128::from(steady) * u128::from(count - self.space) / u128::from(self.space);
        let wanted = (u128::from(steady) + 2 * growth).min(u128::from(self.most)) as u64;
        self.space = count;
        let grows = wanted > self.window;
        self.window = self.window.max(wanted);
        grows.then_some(self.window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1000;
    const ROUND_TRIP: Nanos = Nanos::from_millis(1);

    #[test]
    fn grows_to_twice_what_a_round_trip_brought_and_a_cushion() {
        let mut sizing = RightSizing::new(MSS, 10_000_000);
        assert_eq!(sizing.window(), FIRST_WINDOW);
        assert_eq!(sizing.measure(Nanos::from_micros(999), ROUND_TRIP, 90_000), None, "the round trip is not over");
        // No more than in the round trips before.
        assert_eq!(sizing.measure(ROUND_TRIP, ROUND_TRIP, 10_000), None);
        // 40,000 bytes where 10,000 came before: 96,000, and twice three times as much for the growth.
        assert_eq!(sizing.measure(Nanos::from_millis(2), ROUND_TRIP, 50_000), Some(96_000 * 7));
        assert_eq!(sizing.measure(Nanos::from_millis(3), ROUND_TRIP, 90_000), None, "a steady rate");
        assert_eq!(sizing.measure(Nanos::from_millis(4), ROUND_TRIP, 91_000), None, "it never shrinks");
        assert_eq!(sizing.window(), 96_000 * 7);
    }

    #[test]
    fn stays_ahead_of_slow_start_up_to_its_limit() {
        let mut sizing = RightSizing::new(MSS, MOST_WINDOW);
        let (mut read, mut flight) = (0, 10 * MSS);
        for round in 1..=20u64 {
            assert!(flight <= sizing.window(), "round {round}: {flight} of {}", sizing.window());
            read += flight;
            sizing.measure(Nanos(round * ROUND_TRIP.0), ROUND_TRIP, read);
            flight = (2 * flight).min(sizing.window());
        }
        assert_eq!(sizing.window(), MOST_WINDOW);
    }

    #[test]
    fn a_connection_keeps_its_window_between_transfers() {
        let sizing = RightSizing::new(MSS, MOST_WINDOW).under_way(500_000);
        assert_eq!(sizing.window(), 1_000_000);
        let mut again = sizing.resumed(Nanos::from_secs(1));
        assert_eq!(again.measure(Nanos::from_millis(1001), ROUND_TRIP, 400_000), None);
        assert_eq!(again.window(), 1_000_000);
        assert_eq!(RightSizing::new(MSS, 100).window(), MSS, "a segment at least");
    }
}
