//! The congestion window: the number of bytes that can be unacknowledged, as a function of acknowledgements and losses.
//!
//! A window has no sequence numbers and no timers. The [`Sender`](crate::Sender) detects losses and reports them to
//! its window. The congestion control determines how far the window grows and shrinks.

mod coupled;
mod cubic;
mod dctcp;
pub(crate) mod law;
pub(crate) mod laws;
mod newreno;

use crate::settings::Settings;
use law::{Ack, Echo, WindowLaw};
use laws::Law;
use pathloom_model::Nanos;

/// Window and threshold, which the congestion control moves. All sizes are in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Extent {
    mss: u64,
    cwnd: u64,
    ssthresh: u64,
    /// Bytes acknowledged in congestion avoidance since the window last grew (RFC 5681 §3.1, byte counting).
    acked_in_avoidance: u64,
}

impl Extent {
    fn new(mss: u64, cwnd: u64) -> Extent {
        Extent { mss, cwnd, ssthresh: u64::MAX, acked_in_avoidance: 0 }
    }

    /// The window in segments.
    fn segments(&self) -> f64 {
        self.cwnd as f64 / self.mss as f64
    }

    /// Congestion avoidance of RFC 5681 §3.1: one segment per window.
    #[inline(always)]
    fn count(&mut self, acked: u64) {
        self.acked_in_avoidance += acked;
        if self.acked_in_avoidance >= self.cwnd {
            self.acked_in_avoidance -= self.cwnd;
            self.cwnd += self.mss;
        }
    }

    /// Multiplies the window and sets the threshold to it.
    fn scale(&mut self, factor: f64) {
        self.cwnd = ((self.cwnd as f64 * factor) as u64).max(2 * self.mss);
        self.ssthresh = self.cwnd;
        self.acked_in_avoidance = 0;
    }
}

/// The window of one sender, in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    extent: Extent,
    /// Upper limit. A window far above the receive window has no effect.
    most: u64,
    byte_counting: bool,
    /// Whether recovery uses selective acknowledgements. If so, segments that have left the network are not added to
    /// the window.
    sack: bool,
    law: Law,
}

impl Window {
    /// The window of a new connection whose receiver has room for `receive_window` bytes.
    pub(crate) fn new(settings: &Settings, receive_window: u64) -> Window {
        let mss = u64::from(settings.mss_bytes);
        let extent = Extent::new(mss, settings.initial_window_bytes.max(mss));
        Window {
            extent: Extent { ssthresh: settings.initial_ssthresh_bytes, ..extent },
            most: receive_window.max(mss) + mss,
            byte_counting: settings.byte_counting,
            sack: settings.sack,
            law: Law::new(settings.congestion),
        }
    }

    /// A window in congestion avoidance, with its threshold at its size.
    pub(crate) fn settled(settings: &Settings, receive_window: u64, bytes: u64) -> Window {
        let mut window = Window::new(settings, receive_window);
        window.extent.cwnd = bytes.clamp(window.extent.mss, window.most);
        window.extent.ssthresh = window.extent.cwnd;
        // CUBIC probes from a plateau at this window, and not as if no loss was known.
        window.law.on_loss(&window.extent);
        window
    }

    /// Sets the threshold to that of a new connection.
    pub(crate) fn return_to_slow_start(&mut self, settings: &Settings) {
        self.extent.ssthresh = settings.initial_ssthresh_bytes;
    }

    /// Returns the window for the next transfer on the same connection, after `idle` with this time-out. RFC 2861 §3, as
    /// in Linux: each time-out of idle time halves the window, down to the initial window, and the threshold remembers
    /// three quarters of it. Byte numbers begin again with 0.
    pub(crate) fn resumed(mut self, settings: &Settings, idle: Nanos, rto: Nanos) -> Window {
        let halvings = idle.0 / rto.0.max(1);
        if halvings > 0 {
            let least = settings.initial_window_bytes.max(self.extent.mss).min(self.extent.cwnd);
            self.extent.ssthresh = self.extent.ssthresh.max(self.extent.cwnd / 4 * 3);
            self.extent.cwnd = self.extent.cwnd.checked_shr(halvings.min(64) as u32).unwrap_or(0).max(least);
        }
        self.extent.acked_in_avoidance = 0;
        self.law.on_resume();
        self
    }

    /// Moves all times by `by`.
    pub(crate) fn translate(&mut self, by: Nanos) {
        self.law.translate(by);
    }

    /// The receiver has room for more.
    pub(crate) fn set_most(&mut self, receive_window: u64) {
        self.most = receive_window + self.extent.mss;
    }

    /// Returns the number of bytes that can be unacknowledged.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.extent.cwnd
    }

    /// Returns the slow-start threshold.
    pub(crate) fn ssthresh(&self) -> u64 {
        self.extent.ssthresh
    }

    /// Sets the growth of a coupled window per byte acknowledged in congestion avoidance.
    #[inline]
    pub(crate) fn set_growth(&mut self, growth: f64) {
        self.law.set_growth(growth);
    }

    /// Handles an acknowledgement of new data outside recovery. RFC 5681 §3.1: slow start by at most one segment per
    /// acknowledgement (RFC 3465 §2.2 counts bytes), then congestion avoidance. `rtt` is the smoothed round-trip
    /// time.
    #[inline(always)]
    pub(crate) fn on_ack(&mut self, now: Nanos, acked: u64, una: u64, rtt: Option<Nanos>) {
        if self.extent.cwnd < self.extent.ssthresh {
            self.extent.cwnd += if self.byte_counting { acked } else { acked.min(self.extent.mss) };
        } else if let Law::NewReno(_) = self.law {
            // What its law does, without a call.
            self.extent.count(acked);
        } else {
            self.avoid_by_law(&Ack { now, bytes: acked, una, round_trip: rtt });
        }
        self.extent.cwnd = self.extent.cwnd.min(self.most);
    }

    fn avoid_by_law(&mut self, ack: &Ack) {
        self.law.on_ack(&mut self.extent, ack);
    }

    /// Handles what an acknowledgement says of congestion marks, outside recovery.
    pub(crate) fn on_echo(&mut self, echo: &Echo) {
        self.law.on_echo(&mut self.extent, echo);
    }

    /// Whether the congestion control uses echoes of congestion marks.
    #[inline]
    pub(crate) fn uses_echoes(&self) -> bool {
        self.law.reacts_to_marks()
    }

    /// Handles a loss that was detected by duplicate or selective acknowledgements with `flight` unacknowledged
    /// bytes. Recovery begins (RFC 5681 §3.2 (2, 3), RFC 6675 §5 (4.2)).
    pub(crate) fn on_loss(&mut self, flight: u64) {
        // Segments of limited transmit are not counted. Without them, at most `cwnd` bytes are in flight.
        self.extent.ssthresh = self.reduced(flight.min(self.extent.cwnd));
        self.law.on_loss(&self.extent);
        // Duplicate acknowledgements show that three segments have left the network. Selective ones show which
        // segments.
        self.extent.cwnd = self.extent.ssthresh + if self.sack { 0 } else { 3 * self.extent.mss };
    }

    /// Halves the window and its threshold without a loss.
    pub(crate) fn penalise(&mut self) {
        self.extent.ssthresh = (self.extent.cwnd / 2).max(2 * self.extent.mss);
        self.law.on_loss(&self.extent);
        self.extent.cwnd = self.extent.ssthresh;
        self.extent.acked_in_avoidance = 0;
    }

    /// Handles a further segment that has left the network in recovery (RFC 5681 §3.2 (4)).
    pub(crate) fn inflate(&mut self) {
        self.extent.cwnd += self.extent.mss;
    }

    /// Handles a partial acknowledgement in recovery: the window shrinks by the acknowledged bytes (RFC 6582 §3.2 (3)).
    pub(crate) fn on_partial_ack(&mut self, acked: u64) {
        self.extent.cwnd = self.extent.cwnd.saturating_sub(acked).max(self.extent.mss);
        if acked >= self.extent.mss {
            self.extent.cwnd += self.extent.mss;
        }
    }

    /// Ends recovery with `flight` unacknowledged bytes: RFC 6582 §3.2 (3), full acknowledgement, option 1, so that
    /// no burst follows if few bytes are in flight. With selective acknowledgements, the window is at its threshold
    /// already.
    pub(crate) fn on_recovered(&mut self, flight: u64) {
        self.extent.cwnd = if self.sack {
            self.extent.ssthresh
        } else {
            self.extent.ssthresh.min(flight.max(self.extent.mss) + self.extent.mss)
        };
        self.extent.acked_in_avoidance = 0;
    }

    /// Handles an expired retransmission timer (RFC 5681 §3.1). `flight` is the number of unacknowledged bytes if
    /// this is the first expiry in a row. In recovery that number is too large (see below).
    pub(crate) fn on_timeout(&mut self, flight: Option<u64>, in_recovery: bool) {
        if let Some(flight) = flight {
            // In recovery, the flight grows while duplicates show that most of it has arrived. It says nothing about
            // the network, whose share was halved already. RFC 5681 §3.1 allows less than half of the flight.
            let most = if in_recovery { self.extent.ssthresh } else { u64::MAX };
            self.extent.ssthresh = self.reduced(flight).min(most);
        }
        self.law.on_timeout(&self.extent);
        self.extent.cwnd = self.extent.mss;
        self.extent.acked_in_avoidance = 0;
    }

    /// Handles a lost SYN: the window is one segment (RFC 5681 §3.1).
    pub(crate) fn on_repeated_syn(&mut self) {
        self.extent.cwnd = self.extent.mss;
    }

    /// Returns the threshold after a loss or a time-out with `flight` unacknowledged bytes.
    fn reduced(&self, flight: u64) -> u64 {
        self.law.reduced(flight).max(2 * self.extent.mss)
    }
}
