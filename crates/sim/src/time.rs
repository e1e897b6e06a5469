//! The simulator's clock: picoseconds since the start of a run. 64 bits hold 213 days.

use pathloom_model::units::PS_PER_NS;
use pathloom_model::Nanos;

/// A time or a duration in picoseconds.
pub(crate) type Ps = u64;

/// A time that never comes.
pub(crate) const NEVER: Ps = u64::MAX;

/// Converts to the time of the pure crates, rounded down.
#[inline]
pub(crate) fn to_nanos(at: Ps) -> Nanos {
    Nanos(at / PS_PER_NS)
}

/// Converts to the time of the simulator.
#[inline]
pub(crate) fn to_ps(at: Nanos) -> Ps {
    at.0.saturating_mul(PS_PER_NS)
}
