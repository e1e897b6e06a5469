//! The receive window of a sender's peer, as the sender knows it.

use crate::right_sizing::RightSizing;
use crate::Settings;
use pathloom_model::Nanos;

/// A receive window of fixed size, or one that the receiver tunes.
#[derive(Clone, Debug)]
pub(super) struct ReceiveWindow {
    /// Its size now, a segment at least.
    pub(super) bytes: u64,
    /// How the receiver tunes it, if it does.
    sizing: Option<Box<RightSizing>>,
}

impl ReceiveWindow {
    /// The window of a new connection.
    pub(super) fn new(settings: &Settings) -> ReceiveWindow {
        let sizing = settings.right_sizing();
        let bytes = sizing.as_ref().map_or(settings.receive_window_bytes, |sizing| sizing.window());
        ReceiveWindow { bytes: bytes.max(u64::from(settings.mss_bytes)), sizing }
    }

    /// The window of a connection under way whose sender has a congestion window of `cwnd` bytes.
    pub(super) fn under_way(settings: &Settings, cwnd: u64) -> ReceiveWindow {
        let new = ReceiveWindow::new(settings);
        match new.sizing.map(|sizing| sizing.under_way(cwnd)) {
            Some(sizing) => ReceiveWindow { bytes: sizing.window(), sizing: Some(Box::new(sizing)) },
            None => ReceiveWindow { bytes: new.bytes, sizing: None },
        }
    }

    /// The window for the next transfer on the same connection. Byte numbers begin again with 0.
    pub(super) fn resumed(self, now: Nanos) -> ReceiveWindow {
        ReceiveWindow { sizing: self.sizing.map(|sizing| Box::new(sizing.resumed(now))), ..self }
    }

    /// Moves all times by `by`.
    pub(super) fn translate(&mut self, by: Nanos) {
        if let Some(sizing) = &mut self.sizing {
            sizing.translate(by);
        }
    }

    /// A round trip is over, and all bytes before `read` have arrived. Returns whether the window has grown.
    #[inline]
    pub(super) fn grows(&mut self, now: Nanos, round_trip: Nanos, read: u64) -> bool {
        let Some(sizing) = &mut self.sizing else { return false };
        let grown = sizing.measure(now, round_trip, read);
        self.bytes = grown.unwrap_or(self.bytes);
        grown.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Sender, Standing, TransportSpec};

    const ROUND_TRIP: Nanos = Nanos::from_millis(1);

    fn settings(rwnd: &str) -> Settings {
        let spec = format!("newreno:mss=1KB,acks=1,handshake=off,rwnd={rwnd}");
        TransportSpec::parse(&spec).unwrap().settings().clone()
    }

    /// Sends `size` bytes over a path without queues, and returns the sender and the bytes in flight in each round trip.
    fn flights(settings: &Settings, standing: Option<Standing>, size: u64) -> (Sender, Vec<u64>) {
        let (mut sender, mut now, mut flights) = (Sender::new(settings, Some(size)), Nanos::ZERO, Vec::new());
        if let Some(standing) = standing {
            standing.resume(&mut sender, settings, now);
        }
        sender.open(now);
        while !sender.is_finished() {
            let ends: Vec<u64> =
                std::iter::from_fn(|| sender.poll_transmit(now)).map(|one| one.seq + u64::from(one.len)).collect();
            flights.push(sender.flight());
            assert!(
                sender.flight() <= sender.receive_window.bytes
                    && sender.cwnd_bytes() <= sender.receive_window.bytes + 1000
            );
            now += ROUND_TRIP;
            ends.into_iter().for_each(|end| sender.handle_ack(now, end));
        }
        (sender, flights)
    }

    #[test]
    fn a_tuned_window_does_not_hold_slow_start_back() {
        let (fixed, tuned) =
            (flights(&settings("3MiB"), None, 30_000_000), flights(&settings("auto"), None, 30_000_000));
        assert_eq!(tuned.1, fixed.1);
        assert_eq!((tuned.1[0], tuned.0.receive_window.bytes), (12_000, 3 << 20));
        let (_, limited) = flights(&settings("64KiB"), None, 30_000_000);
        assert!(limited.len() > 5 * fixed.1.len(), "{} round trips", limited.len());
    }

    #[test]
    fn a_standing_connection_keeps_its_tuned_window() {
        let settings = settings("auto");
        let (first, _) = flights(&settings, None, 1_000_000);
        let grown = first.receive_window.bytes;
        assert!(grown > 1_000_000, "{grown}");
        let (again, flights) = flights(&settings, Some(Standing::of(&first)), 400_000);
        assert_eq!((again.receive_window.bytes, flights), (grown, vec![400_000]));
    }

    #[test]
    fn a_flow_that_reads_little_keeps_a_small_window() {
        let settings = Settings { initial_ssthresh_bytes: 10_000, initial_window_bytes: 2_000, ..settings("auto") };
        let (sender, flights) = flights(&settings, None, 100_000);
        assert!(flights.iter().all(|&flight| flight < 20_000), "{flights:?}");
        assert!(sender.receive_window.bytes < 120_000, "{}", sender.receive_window.bytes);
    }
}
