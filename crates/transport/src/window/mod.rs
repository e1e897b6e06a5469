//! The congestion window: how many bytes may be outstanding, by what was acknowledged and what was lost.
//!
//! A window knows no sequence numbers and no timers. The [`Sender`](crate::Sender) decides what a loss is and tells its
//! window; how far the window opens and how far it falls is the business of the congestion control.

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
    /// A window far beyond what the receiver offers has no meaning.
    most: u64,
    /// Bytes acknowledged in congestion avoidance since the window last grew (RFC 5681 §3.1, byte counting).
    acked_in_avoidance: u64,
    byte_counting: bool,
    /// Whether losses are mended by selective acknowledgements: then nothing is added for what has left the network.
    sack: bool,
    law: Law,
}

/// What the congestion control remembers.
#[derive(Clone, Debug)]
enum Law {
    NewReno,
    Cubic(Box<Cubic>),
    Dctcp(Box<Dctcp>),
    Coupled(Coupled),
}

impl Law {
    fn new(control: CongestionControl) -> Law {
        match control {
            CongestionControl::NewReno => Law::NewReno,
            CongestionControl::Cubic => Law::Cubic(Box::default()),
            CongestionControl::Dctcp { gain } => Law::Dctcp(Box::new(Dctcp::new(gain))),
            CongestionControl::Coupled => Law::Coupled(Coupled::default()),
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
            law: Law::new(settings.congestion),
        }
    }

    /// Bytes that may be outstanding.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.cwnd
    }

    /// The slow-start threshold.
    pub(crate) fn ssthresh(&self) -> u64 {
        self.ssthresh
    }

    /// Tells a coupled window by how much it grows per byte acknowledged in congestion avoidance.
    #[inline]
    pub(crate) fn set_growth(&mut self, growth: f64) {
        if let Law::Coupled(coupled) = &mut self.law {
            coupled.growth = growth;
        }
    }

    /// New data were acknowledged outside recovery. RFC 5681 §3.1: slow start by at most one segment per acknowledgement
    /// (RFC 3465 §2.2 counts bytes), then congestion avoidance. `rtt` is the smoothed round-trip time.
    #[inline(always)]
    pub(crate) fn on_ack(&mut self, now: Nanos, acked: u64, una: u64, rtt: Option<Nanos>) {
        if self.cwnd < self.ssthresh {
            self.cwnd += if self.byte_counting { acked } else { acked.min(self.mss) };
        } else if matches!(self.law, Law::NewReno) {
            self.avoid(acked);
        } else {
            self.avoid_by_law(now, acked, una, rtt);
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

    fn avoid_by_law(&mut self, now: Nanos, acked: u64, una: u64, rtt: Option<Nanos>) {
        let mss = self.mss as f64;
        match &mut self.law {
            Law::Cubic(cubic) => {
                let (acked, cwnd) = (acked as f64 / mss, self.cwnd as f64 / mss);
                self.cwnd += cubic.growth(now, rtt.unwrap_or_default(), acked, cwnd, mss);
            }
            Law::Coupled(coupled) => self.cwnd = coupled.grow(self.cwnd, acked, self.mss),
            Law::Dctcp(dctcp) if dctcp.is_reduced(una) => {}
            Law::NewReno | Law::Dctcp(_) => self.avoid(acked),
        }
    }

    /// `acked` more bytes were acknowledged, up to `una`, with or without the echo of a congestion mark (RFC 8257 §3.3);
    /// `next` is the next byte to send. Only DCTCP listens.
    pub(crate) fn on_echo(&mut self, acked: u64, echo: bool, una: u64, next: u64) {
        let Law::Dctcp(dctcp) = &mut self.law else { return };
        if let Some(factor) = dctcp.on_ack(acked, echo, una, next) {
            self.cwnd = ((self.cwnd as f64 * factor) as u64).max(2 * self.mss);
            self.ssthresh = self.cwnd;
            self.acked_in_avoidance = 0;
        }
    }

    /// Whether echoes of congestion marks mean something to it.
    #[inline]
    pub(crate) fn hears_echoes(&self) -> bool {
        matches!(self.law, Law::Dctcp(_))
    }

    /// A loss was noticed by duplicate or selective acknowledgements while `flight` bytes were outstanding, and recovery
    /// begins (RFC 5681 §3.2 (2, 3), RFC 6675 §5 (4.2)).
    pub(crate) fn on_loss(&mut self, flight: u64) {
        // What limited transmit has sent is not counted. Without it no more than cwnd is in flight.
        self.ssthresh = self.reduced(flight.min(self.cwnd));
        if let Law::Cubic(cubic) = &mut self.law {
            cubic.on_loss(self.cwnd as f64 / self.mss as f64);
        }
        // Duplicate acknowledgements tell that three segments have left the network. Selective ones tell which.
        self.cwnd = self.ssthresh + if self.sack { 0 } else { 3 * self.mss };
    }

    /// One more segment has left the network in recovery (RFC 5681 §3.2 (4)).
    pub(crate) fn inflate(&mut self) {
        self.cwnd += self.mss;
    }

    /// A partial acknowledgement came in recovery: the window deflates by what left it (RFC 6582 §3.2 (3)).
    pub(crate) fn on_partial_ack(&mut self, acked: u64) {
        self.cwnd = self.cwnd.saturating_sub(acked).max(self.mss);
        if acked >= self.mss {
            self.cwnd += self.mss;
        }
    }

    /// Recovery is over with `flight` bytes outstanding: RFC 6582 §3.2 (3), full acknowledgement, option 1, so that no
    /// burst follows when little is left in flight. With selective acknowledgements the window is at its threshold already.
    pub(crate) fn on_recovered(&mut self, flight: u64) {
        self.cwnd = if self.sack { self.ssthresh } else { self.ssthresh.min(flight.max(self.mss) + self.mss) };
        self.acked_in_avoidance = 0;
    }

    /// The retransmission timer expired (RFC 5681 §3.1). `flight` is what was outstanding if this is the first expiry in a
    /// row; in recovery it is too large (see below).
    pub(crate) fn on_timeout(&mut self, flight: Option<u64>, in_recovery: bool) {
        if let Some(flight) = flight {
            // In recovery the flight goes on growing while duplicates tell that most of it has arrived: it says nothing of
            // the network, whose share was halved already. RFC 5681 §3.1 allows less than half of it.
            let most = if in_recovery { self.ssthresh } else { u64::MAX };
            self.ssthresh = self.reduced(flight).min(most);
        }
        if let Law::Cubic(cubic) = &mut self.law {
            cubic.on_timeout(self.cwnd as f64 / self.mss as f64);
        }
        self.cwnd = self.mss;
        self.acked_in_avoidance = 0;
    }

    /// A SYN was lost: one segment (RFC 5681 §3.1).
    pub(crate) fn on_repeated_syn(&mut self) {
        self.cwnd = self.mss;
    }

    /// What is left of `flight` after a loss: half (RFC 5681 §3.1 equation (4)), or CUBIC's share (RFC 9438 §4.6).
    fn reduced(&self, flight: u64) -> u64 {
        let left = match self.law {
            Law::Cubic(_) => (flight as f64 * cubic::BETA) as u64,
            Law::NewReno | Law::Dctcp(_) | Law::Coupled(_) => flight / 2,
        };
        left.max(2 * self.mss)
    }
}
