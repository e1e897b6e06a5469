//! DCTCP (RFC 8257): the window falls by the share of bytes that met a queue above the threshold.

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

    /// Handles an acknowledgement of `acked` more bytes, up to `una`, with or without the echo of a mark. `next` is
    /// the next byte to send. Returns the factor for the window, if the window changes (RFC 8257 §3.3).
    pub(super) fn on_ack(&mut self, acked: u64, echo: bool, una: u64, next: u64) -> Option<f64> {
        self.acked += acked;
        self.marked += if echo { acked } else { 0 };
        if una > self.window_end {
            let share = self.marked as f64 / self.acked.max(1) as f64;
            self.alpha += self.gain * (share - self.alpha);
            (self.acked, self.marked, self.window_end) = (0, 0, next);
        }
        // At most once per window of data, as in RFC 3168 §6.1.2.
        if !echo || una <= self.reduced_until {
            return None;
        }
        self.reduced_until = next;
        Some(1.0 - self.alpha / 2.0)
    }

    /// Byte numbers begin again with 0. The estimate stays.
    pub(super) fn on_new_numbers(&mut self) {
        *self = Dctcp { alpha: self.alpha, ..Dctcp::new(self.gain) };
    }

    /// Whether the window was reduced in the current window of data. If so, it does not grow.
    pub(super) fn is_reduced(&self, una: u64) -> bool {
        una <= self.reduced_until
    }

    #[cfg(test)]
    pub(super) fn alpha(&self) -> f64 {
        self.alpha
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
            factors.extend(dctcp.on_ack(1000, segment % 10 >= 8, una, una + 9_000));
        }
        assert!((dctcp.alpha() - 0.2).abs() < 0.02, "{}", dctcp.alpha());
        assert!((factors[factors.len() - 1] - 0.9).abs() < 0.01);
        assert!(factors.len() <= 201, "once per window of data: {}", factors.len());
    }

    #[test]
    fn without_marks_the_window_is_not_reduced() {
        let mut dctcp = Dctcp::new(1.0 / 16.0);
        assert!((1..1000).all(|n| dctcp.on_ack(1000, false, n * 1000, n * 1000 + 9_000).is_none()));
        assert!(dctcp.alpha() < 0.01);
    }
}
