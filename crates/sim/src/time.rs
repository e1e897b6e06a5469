//! The simulator's clock: picoseconds since the start of a run. 64 bits hold 213 days.

use pathloom_model::units::PS_PER_NS;
use pathloom_model::Nanos;

/// An instant or a span in picoseconds.
pub(crate) type Ps = u64;

/// Never.
pub(crate) const NEVER: Ps = u64::MAX;

/// As the pure crates count time, rounded down.
#[inline]
pub(crate) fn to_nanos(at: Ps) -> Nanos {
    Nanos(at / PS_PER_NS)
}

/// As the simulator counts time.
#[inline]
pub(crate) fn to_ps(at: Nanos) -> Ps {
    at.0.saturating_mul(PS_PER_NS)
}
