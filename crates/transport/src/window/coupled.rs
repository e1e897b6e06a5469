//! A window whose growth its connection sets: a subflow of an MPTCP connection (`mptcp/coupling.rs`).

use super::law::{Ack, WindowLaw};
use super::Extent;

/// State of a coupled window. Its growth is LIA's or OLIA's.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Coupled {
    /// Growth per byte acknowledged in congestion avoidance, in bytes; can be negative.
    growth: f64,
    /// Fraction of a byte that the window has not grown by yet.
    remainder: f64,
}

impl Coupled {
    pub(super) fn new() -> Coupled {
        Coupled::default()
    }

    /// Returns the window of `cwnd` bytes after `acked` bytes were acknowledged; at least one segment.
    fn grow(&mut self, cwnd: u64, acked: u64, mss: u64) -> u64 {
        let bytes = self.growth * acked as f64 + self.remainder;
        let whole = bytes as i64;
        self.remainder = bytes - whole as f64;
        cwnd.saturating_add_signed(whole).max(mss)
    }
}

impl WindowLaw for Coupled {
    fn on_ack(&mut self, extent: &mut Extent, ack: &Ack) {
        extent.cwnd = self.grow(extent.cwnd, ack.bytes, extent.mss);
    }

    #[inline]
    fn set_growth(&mut self, growth: f64) {
        self.growth = growth;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_follows_its_growth_without_rounding_loss() {
        let mut window = Coupled { growth: 0.001, remainder: 0.0 };
        let grown = (0..1000).fold(10_000, |cwnd, _| window.grow(cwnd, 100, 1000));
        assert!((10_099..=10_100).contains(&grown), "{grown}");
        window = Coupled { growth: -0.5, remainder: 0.0 };
        assert_eq!(window.grow(10_000, 1000, 1000), 9500);
        assert_eq!((0..100).fold(10_000, |cwnd, _| window.grow(cwnd, 1000, 1000)), 1000);
    }
}
