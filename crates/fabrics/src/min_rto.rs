//! The minimum retransmission time-out that fits a fabric.

use pathloom_model::Nanos;

/// A time-out fits if it is at least this many of the longest round trips: NewReno repairs one loss per round trip, and its
/// timer continues from the first partial acknowledgement (RFC 6582 §4).
const ROUND_TRIPS: u64 = 4;

/// The minimum time-out for a longest round trip with full queues ([`crate::round_trip_ps`]), in ps: four round trips, rounded
/// up to one digit (1, 2 or 5), so that it reads well in a specification.
pub fn fitting_min_rto(full_round_trip_ps: u64) -> Nanos {
    let least_ns = (full_round_trip_ps.saturating_mul(ROUND_TRIPS).saturating_add(500) / 1000).max(1);
    let power = 10u64.pow(least_ns.ilog10());
    let rounded = [1, 2, 5, 10].iter().filter_map(|step| power.checked_mul(*step)).find(|&ns| ns >= least_ns);
    Nanos(rounded.unwrap_or(least_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_round_trips_are_rounded_up_to_one_digit() {
        let fitting = |ns: u64| fitting_min_rto(ns * 1000 / ROUND_TRIPS).0;
        for (ns, expected) in [
            (632_000, 1_000_000),
            (150_000, 200_000),
            (1_100_000_000, 2_000_000_000),
            (4, 5),
            (50_000_000, 50_000_000),
            (0, 1),
        ] {
            assert_eq!(fitting(ns), expected, "{ns}");
        }
        assert_eq!(fitting_min_rto(158_000_000), Nanos::from_millis(1));
        assert!(fitting_min_rto(u64::MAX).0 > 0);
    }
}
