//! The congestion window: the number of bytes that can be unacknowledged, as a function of acknowledgements and losses.
//!
//! A window has no sequence numbers and no timers. The [`Sender`](crate::Sender) detects losses and reports them to
//! its window. The congestion control determines how far the window grows and shrinks.

mod coupled;
mod cubic;
mod dctcp;

use crate::settings::{CongestionControl, Settings};
use coupled::Coupled;
use cubic::Cubic;
use dctcp::Dctcp;
use pathloom_model::Nanos;

/// The window of one sender, in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    mss: u64,
    cwnd: u64,
    ssthresh: u64,
    /// Upper limit. A window far above the receive window has no effect.
    most: u64,
    /// Bytes acknowledged in congestion avoidance since the window last grew (RFC 5681 §3.1, byte counting).
    acked_in_avoidance: u64,
    byte_counting: bool,
    /// Whether recovery uses selective acknowledgements. If so, segments that have left the network are not added to
    /// the window.
    sack: bool,
    control: ControlState,
}

/// State of the congestion control.
#[derive(Clone, Debug)]
enum ControlState {
    NewReno,
    Cubic(Box<Cubic>),
    Dctcp(Box<Dctcp>),
    Coupled(Coupled),
}

impl ControlState {
    fn new(control: CongestionControl) -> ControlState {
        match control {
            CongestionControl::NewReno => ControlState::NewReno,
            CongestionControl::Cubic => ControlState::Cubic(Box::default()),
            CongestionControl::Dctcp { gain } => ControlState::Dctcp(Box::new(Dctcp::new(gain))),
            CongestionControl::Coupled => ControlState::Coupled(Coupled::default()),
        }
    }
}

impl Window {
    pub(crate) fn new(settings: &Settings) -> Window {
        let mss = u64::from(settings.mss_bytes);
        Window {
            mss,
            cwnd: settings.initial_window_bytes.max(mss),
            ssthresh: settings.initial_ssthresh_bytes,
            most: settings.receive_window_bytes.max(mss) + mss,
            acked_in_avoidance: 0,
            byte_counting: settings.byte_counting,
            sack: settings.sack,
            control: ControlState::new(settings.congestion),
        }
    }

    /// Returns the window for the next transfer on the same connection, after `idle` with this time-out. RFC 2861 §3, as
    /// in Linux: each time-out of idle time halves the window, down to the initial window, and the threshold remembers
    /// three quarters of it. Byte numbers begin again with 0.
    pub(crate) fn resumed(mut self, settings: &Settings, idle: Nanos, rto: Nanos) -> Window {
        let halvings = idle.0 / rto.0.max(1);
        if halvings > 0 {
            let least = settings.initial_window_bytes.max(self.mss).min(self.cwnd);
            self.ssthresh = self.ssthresh.max(self.cwnd / 4 * 3);
            self.cwnd = self.cwnd.checked_shr(halvings.min(64) as u32).unwrap_or(0).max(least);
        }
        self.acked_in_avoidance = 0;
        match &mut self.control {
            ControlState::Cubic(cubic) => cubic.on_idle(),
            ControlState::Dctcp(dctcp) => dctcp.on_new_numbers(),
            ControlState::NewReno | ControlState::Coupled(_) => {}
        }
        self
    }

    /// Returns the number of bytes that can be unacknowledged.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.cwnd
    }

    /// Returns the slow-start threshold.
    pub(crate) fn ssthresh(&self) -> u64 {
        self.ssthresh
    }

    /// Sets the growth of a coupled window per byte acknowledged in congestion avoidance.
    #[inline]
    pub(crate) fn set_growth(&mut self, growth: f64) {
        if let ControlState::Coupled(coupled) = &mut self.control {
            coupled.growth = growth;
        }
    }

    /// Handles an acknowledgement of new data outside recovery. RFC 5681 §3.1: slow start by at most one segment per
    /// acknowledgement (RFC 3465 §2.2 counts bytes), then congestion avoidance. `rtt` is the smoothed round-trip
    /// time.
    #[inline(always)]
    pub(crate) fn on_ack(&mut self, now: Nanos, acked: u64, una: u64, rtt: Option<Nanos>) {
        if self.cwnd < self.ssthresh {
            self.cwnd += if self.byte_counting { acked } else { acked.min(self.mss) };
        } else if matches!(self.control, ControlState::NewReno) {
            self.avoid(acked);
        } else {
            self.avoid_by_control(now, acked, una, rtt);
        }
        self.cwnd = self.cwnd.min(self.most);
    }

    /// Congestion avoidance of RFC 5681 §3.1: one segment per window.
    #[inline(always)]
    fn avoid(&mut self, acked: u64) {
        self.acked_in_avoidance += acked;
        if self.acked_in_avoidance >= self.cwnd {
            self.acked_in_avoidance -= self.cwnd;
            self.cwnd += self.mss;
        }
    }

    fn avoid_by_control(&mut self, now: Nanos, acked: u64, una: u64, rtt: Option<Nanos>) {
        let mss = self.mss as f64;
        match &mut self.control {
            ControlState::Cubic(cubic) => {
                let (acked, cwnd) = (acked as f64 / mss, self.cwnd as f64 / mss);
                self.cwnd += cubic.growth(now, rtt.unwrap_or_default(), acked, cwnd, mss);
            }
            ControlState::Coupled(coupled) => self.cwnd = coupled.grow(self.cwnd, acked, self.mss),
            ControlState::Dctcp(dctcp) if dctcp.is_reduced(una) => {}
            ControlState::NewReno | ControlState::Dctcp(_) => self.avoid(acked),
        }
    }

    /// Handles the acknowledgement of `acked` more bytes, up to `una`, with or without the echo of a congestion mark
    /// (RFC 8257 §3.3). `next` is the next byte to send. Only DCTCP uses it.
    pub(crate) fn on_echo(&mut self, acked: u64, echo: bool, una: u64, next: u64) {
        let ControlState::Dctcp(dctcp) = &mut self.control else { return };
        if let Some(factor) = dctcp.on_ack(acked, echo, una, next) {
            self.cwnd = ((self.cwnd as f64 * factor) as u64).max(2 * self.mss);
            self.ssthresh = self.cwnd;
            self.acked_in_avoidance = 0;
        }
    }

    /// Whether the congestion control uses echoes of congestion marks.
    #[inline]
    pub(crate) fn uses_echoes(&self) -> bool {
        matches!(self.control, ControlState::Dctcp(_))
    }

    /// Handles a loss that was detected by duplicate or selective acknowledgements with `flight` unacknowledged
    /// bytes. Recovery begins (RFC 5681 §3.2 (2, 3), RFC 6675 §5 (4.2)).
    pub(crate) fn on_loss(&mut self, flight: u64) {
        // Segments of limited transmit are not counted. Without them, at most `cwnd` bytes are in flight.
        self.ssthresh = self.reduced(flight.min(self.cwnd));
        if let ControlState::Cubic(cubic) = &mut self.control {
            cubic.on_loss(self.cwnd as f64 / self.mss as f64);
        }
        // Duplicate acknowledgements show that three segments have left the network. Selective ones show which
        // segments.
        self.cwnd = self.ssthresh + if self.sack { 0 } else { 3 * self.mss };
    }

    /// Halves the window and its threshold without a loss.
    pub(crate) fn penalise(&mut self) {
        self.ssthresh = (self.cwnd / 2).max(2 * self.mss);
        if let ControlState::Cubic(cubic) = &mut self.control {
            cubic.on_loss(self.cwnd as f64 / self.mss as f64);
        }
        self.cwnd = self.ssthresh;
        self.acked_in_avoidance = 0;
    }

    /// Handles a further segment that has left the network in recovery (RFC 5681 §3.2 (4)).
    pub(crate) fn inflate(&mut self) {
        self.cwnd += self.mss;
    }

    /// Handles a partial acknowledgement in recovery: the window shrinks by the acknowledged bytes (RFC 6582 §3.2 (3)).
    pub(crate) fn on_partial_ack(&mut self, acked: u64) {
        self.cwnd = self.cwnd.saturating_sub(acked).max(self.mss);
        if acked >= self.mss {
            self.cwnd += self.mss;
        }
    }

    /// Ends recovery with `flight` unacknowledged bytes: RFC 6582 §3.2 (3), full acknowledgement, option 1, so that
    /// no burst follows if few bytes are in flight. With selective acknowledgements, the window is at its threshold
    /// already.
    pub(crate) fn on_recovered(&mut self, flight: u64) {
        self.cwnd = if self.sack { self.ssthresh } else { self.ssthresh.min(flight.max(self.mss) + self.mss) };
        self.acked_in_avoidance = 0;
    }

    /// Handles an expired retransmission timer (RFC 5681 §3.1). `flight` is the number of unacknowledged bytes if
    /// this is the first expiry in a row. In recovery that number is too large (see below).
    pub(crate) fn on_timeout(&mut self, flight: Option<u64>, in_recovery: bool) {
        if let Some(flight) = flight {
            // In recovery, the flight grows while duplicates show that most of it has arrived. It says nothing about
            // the network, whose share was halved already. RFC 5681 §3.1 allows less than half of the flight.
            let most = if in_recovery { self.ssthresh } else { u64::MAX };
            self.ssthresh = self.reduced(flight).min(most);
        }
        if let ControlState::Cubic(cubic) = &mut self.control {
            cubic.on_timeout(self.cwnd as f64 / self.mss as f64);
        }
        self.cwnd = self.mss;
        self.acked_in_avoidance = 0;
    }

    /// Handles a lost SYN: the window is one segment (RFC 5681 §3.1).
    pub(crate) fn on_repeated_syn(&mut self) {
        self.cwnd = self.mss;
    }

    /// Returns the reduced value of `flight` after a loss: half (RFC 5681 §3.1 equation (4)), or CUBIC's share (RFC
    /// 9438 §4.6).
    fn reduced(&self, flight: u64) -> u64 {
        let left = match self.control {
            ControlState::Cubic(_) => (flight as f64 * cubic::BETA) as u64,
            ControlState::NewReno | ControlState::Dctcp(_) | ControlState::Coupled(_) => flight / 2,
        };
        left.max(2 * self.mss)
    }
}
