//! Rates as times per byte, in integers.

use crate::time::Ps;

/// Number of fraction bits of a time per byte.
const FRACTION: u32 = 20;

/// Time to send a byte at a rate, in units of 2^-20 ps.
pub(crate) fn ps_per_byte(rate_bps: u64) -> u64 {
    ((8_000_000_000_000u128 << FRACTION) / u128::from(rate_bps.max(1))) as u64
}

/// Time to send this many bytes.
#[inline(always)]
pub(crate) fn times(bytes: u64, ps_per_byte: u64) -> Ps {
    ((u128::from(bytes) * u128::from(ps_per_byte)) >> FRACTION) as Ps
}

/// Bytes that are sent in this time, rounded up. Times over 8 s count as 8 s.
#[inline(always)]
pub(crate) fn bytes_in(time: Ps, ps_per_byte: u64) -> u64 {
    (time.min(1 << (63 - FRACTION)) << FRACTION).div_ceil(ps_per_byte.max(1))
}
