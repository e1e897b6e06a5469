//! Connections that stand: what a host keeps between two transfers on the same connection.

use super::receive_window::ReceiveWindow;
use super::Sender;
use crate::rtt::RttEstimator;
use crate::window::Window;
use crate::Settings;
use pathloom_model::Nanos;

/// The congestion window, the RTT estimate and the tuned receive window of a connection between two transfers.
#[derive(Clone, Debug)]
pub struct Standing {
    window: Window,
    rtt: RttEstimator,
    receive_window: ReceiveWindow,
    /// Time of the last segment sent or acknowledgement received.
    active_at: Nanos,
}

impl Standing {
    /// Creates the state of a connection that has carried nothing but its SYN exchange, which took `round_trip`.
    pub fn new(settings: &Settings, round_trip: Nanos) -> Standing {
        let mut rtt = RttEstimator::new(settings);
        rtt.sample(round_trip);
        let receive_window = ReceiveWindow::new(settings);
        Standing { window: Window::new(settings, receive_window.bytes), rtt, receive_window, active_at: Nanos::ZERO }
    }

    /// Creates the state of a connection that has carried data up to `now`, with this congestion window, in congestion
    /// avoidance. Its last round trip took `round_trip`.
    pub fn under_way(settings: &Settings, window_bytes: u64, round_trip: Nanos, now: Nanos) -> Standing {
        let mut rtt = RttEstimator::new(settings);
        rtt.sample(round_trip);
        let receive_window = ReceiveWindow::under_way(settings, window_bytes);
        let window = Window::settled(settings, receive_window.bytes, window_bytes);
        Standing { window, rtt, receive_window, active_at: now }
    }

    /// Lets the connection continue in slow start.
    pub fn in_slow_start(mut self, settings: &Settings) -> Standing {
        self.window.return_to_slow_start(settings);
        self
    }

    /// Returns what the connection of a sender keeps for the next transfer.
    pub fn of(sender: &Sender) -> Standing {
        let mut window = sender.window.clone();
        if sender.in_recovery {
            window.on_recovered(sender.flight());
        }
        let receive_window = sender.receive_window.clone();
        Standing { window, rtt: sender.rtt, receive_window, active_at: sender.active_at }
    }

    /// Lets a closed sender use this connection: it needs no SYN exchange, and continues with the window and the RTT
    /// estimate of the connection. After idle time the window is smaller (RFC 2861 §3).
    pub fn resume(self, sender: &mut Sender, settings: &Settings, now: Nanos) {
        let idle = now.saturating_sub(self.active_at);
        sender.window = self.window.resumed(settings, idle, self.rtt.rto());
        sender.rtt = self.rtt;
        sender.receive_window = self.receive_window.resumed(now);
        sender.limit_flight();
        sender.send_first = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CongestionControl, SegmentKind};

    const ROUND_TRIP: Nanos = Nanos::from_millis(1);

    fn settings(congestion: CongestionControl) -> Settings {
        Settings { mss_bytes: 1000, initial_window_bytes: 4000, ack_every: 1, congestion, ..Settings::default() }
    }

    /// Sends all of `size` from `now` on, with a round trip of 1 ms, and returns the sender and the time of the last
    /// acknowledgement.
    fn transfer(settings: &Settings, standing: Standing, size: u64, mut now: Nanos) -> (Sender, Nanos) {
        let mut sender = Sender::new(settings, Some(size));
        standing.resume(&mut sender, settings, now);
        sender.open(now);
        while !sender.is_finished() {
            let mut ends = Vec::new();
            while let Some(segment) = sender.poll_transmit(now) {
                assert_eq!(segment.kind, SegmentKind::Data);
                ends.push(segment.seq + u64::from(segment.len));
            }
            now += ROUND_TRIP;
            ends.into_iter().for_each(|end| {
                sender.handle_echo(end, false);
                sender.handle_ack(now, end);
            });
        }
        (sender, now)
    }

    #[test]
    fn a_transfer_continues_with_the_window_of_the_last_one() {
        for congestion in
            [CongestionControl::NewReno, CongestionControl::Cubic, CongestionControl::Dctcp { gain: 0.0625 }]
        {
            let settings = settings(congestion);
            let (first, ended) = transfer(&settings, Standing::new(&settings, ROUND_TRIP), 60_000, Nanos::ZERO);
            // Windows of 4, 8, 16 and 32 segments.
            assert_eq!((ended, first.cwnd_bytes()), (Nanos(4 * ROUND_TRIP.0), 64_000));
            let (_, again) = transfer(&settings, Standing::of(&first), 60_000, ended);
            assert_eq!(again, ended + ROUND_TRIP, "all data leave at once");
        }
    }

    #[test]
    fn each_time_out_of_idle_time_halves_the_window_down_to_the_initial_one() {
        let settings = settings(CongestionControl::NewReno);
        let (first, ended) = transfer(&settings, Standing::new(&settings, ROUND_TRIP), 60_000, Nanos::ZERO);
        let rto = Nanos::from_millis(200);
        for (idle, window) in
            [(rto - Nanos(1), 64_000), (rto, 32_000), (Nanos(3 * rto.0), 8_000), (Nanos(99 * rto.0), 4_000)]
        {
            let mut sender = Sender::new(&settings, Some(1));
            Standing::of(&first).resume(&mut sender, &settings, ended + idle);
            assert_eq!(sender.cwnd_bytes(), window, "after {idle:?}");
        }
    }

    #[test]
    fn a_connection_under_way_neither_connects_nor_starts_slowly() {
        let settings = Settings { handshake: true, ..settings(CongestionControl::NewReno) };
        let now = Nanos::from_secs(7);
        let standing = Standing::under_way(&settings, 10_000, ROUND_TRIP, now);
        let (sender, ended) = transfer(&settings, standing, 100_000, now);
        // Windows of 10, 11, 12 and so on up to 15 segments, and the last 25 in two more.
        assert_eq!(ended, now + Nanos(8 * ROUND_TRIP.0));
        assert_eq!(sender.cwnd_bytes(), 17_000);
        let standing = Standing::under_way(&settings, 10_000, ROUND_TRIP, now).in_slow_start(&settings);
        // Windows of 10, 20, 40 and 80 segments.
        assert_eq!(transfer(&settings, standing, 100_000, now).1, now + Nanos(4 * ROUND_TRIP.0));
        let small = Standing::under_way(&settings, 1, ROUND_TRIP, now);
        assert_eq!(transfer(&settings, small, 1000, now).0.timeouts(), 0, "a window is a segment at least");
    }

    #[test]
    fn the_first_transfer_knows_the_round_trip_of_the_set_up() {
        let settings = settings(CongestionControl::NewReno);
        let mut sender = Sender::new(&settings, Some(1000));
        Standing::new(&settings, ROUND_TRIP).resume(&mut sender, &settings, Nanos::ZERO);
        sender.open(Nanos::ZERO);
        assert!(sender.poll_transmit(Nanos::ZERO).is_some());
        assert_eq!(sender.poll_timeout(), Some(settings.min_rto), "not the initial time-out of 1 s");
    }
}
