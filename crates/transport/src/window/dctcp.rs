//! DCTCP (RFC 8257): the window falls by the share of bytes that met a queue above the threshold.

use super::law::{Ack, Echo, LawEntry, WindowLaw};
use super::Extent;
use crate::listing::key;
use crate::CongestionControl;

/// g of RFC 8257 §4.2.
const GAIN: f64 = 1.0 / 16.0;

/// State of DCTCP: statistics about the marks that the receiver echoes.
#[derive(Clone, Debug)]
pub(super) struct Dctcp {
    /// Estimated share of bytes that are marked, from 0 to 1.
    alpha: f64,
    /// Weight of a new sample.
    gain: f64,
    /// Bytes acknowledged in this window of data, and those of them with an echo.
    acked: u64,
    marked: u64,
    /// The window of data ends when this byte is acknowledged.
    window_end: u64,
    /// The window was reduced for data sent before this byte.
    reduced_until: u64,
}

impl Dctcp {
    pub(super) fn new(gain: f64) -> Dctcp {
        // RFC 8257 §3.3 (1): the initial estimate is that all bytes are marked.
        Dctcp { alpha: 1.0, gain, acked: 0, marked: 0, window_end: 0, reduced_until: 0 }
    }

    /// Returns the factor for the window, if an echo changes the window (RFC 8257 §3.3).
    fn factor(&mut self, echo: &Echo) -> Option<f64> {
        let &Echo { acked, marked, una, next } = echo;
        self.acked += acked;
        self.marked += if marked { acked } else { 0 };
        if una > self.window_end {
            let share = self.marked as f64 / self.acked.max(1) as f64;
            self.alpha += self.gain * (share - self.alpha);
            (self.acked, self.marked, self.window_end) = (0, 0, next);
        }
        // At most once per window of data, as in RFC 3168 §6.1.2.
        if !marked || una <= self.reduced_until {
            return None;
        }
        self.reduced_until = next;
        Some(1.0 - self.alpha / 2.0)
    }

    #[cfg(test)]
    pub(super) fn alpha(&self) -> f64 {
        self.alpha
    }
}

impl WindowLaw for Dctcp {
    const ENTRY: Option<LawEntry> = Some(LawEntry {
        name: "dctcp",
        about: "Data Center TCP: links mark packets above a threshold; the window falls by the share of marks",
        source: "RFC 8257, RFC 6675, RFC 6298",
        sack: true,
        reacts_to_marks: true,
        keys: &[key(
            "gain",
            "0.0625",
            "weight of a new sample in the estimated share of marks, 0 to 1",
            "RFC 8257 §4.2",
        )],
        read: |spec| Ok(CongestionControl::Dctcp { gain: spec.number("gain", 0.0, 1.0)?.unwrap_or(GAIN) }),
    });

    /// If the window was reduced in the current window of data, it does not grow.
    fn on_ack(&mut self, extent: &mut Extent, ack: &Ack) {
        if ack.una > self.reduced_until {
            extent.count(ack.bytes);
        }
    }

    fn on_echo(&mut self, extent: &mut Extent, echo: &Echo) {
        if let Some(factor) = self.factor(echo) {
            extent.scale(factor);
        }
    }

    /// The estimate stays.
    fn on_resume(&mut self) {
        *self = Dctcp { alpha: self.alpha, ..Dctcp::new(self.gain) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_follows_the_share_of_marks() {
        let mut dctcp = Dctcp::new(1.0 / 16.0);
        let (mut una, mut factors) = (0, Vec::new());
        // Windows of ten segments, of which the last two are marked.
        for segment in 0..2_000u64 {
            una += 1000;
            let marked = segment % 10 >= 8;
            factors.extend(dctcp.factor(&Echo { acked: 1000, marked, una, next: una + 9_000 }));
        }
        assert!((dctcp.alpha() - 0.2).abs() < 0.02, "{}", dctcp.alpha());
        assert!((factors[factors.len() - 1] - 0.9).abs() < 0.01);
        assert!(factors.len() <= 201, "once per window of data: {}", factors.len());
    }

    #[test]
    fn without_marks_the_window_is_not_reduced() {
        let mut dctcp = Dctcp::new(1.0 / 16.0);
        let echo = |una| Echo { acked: 1000, marked: false, una, next: una + 9_000 };
        assert!((1..1000).all(|n| dctcp.factor(&echo(n * 1000)).is_none()));
        assert!(dctcp.alpha() < 0.01);
    }
}
