//! Pseudo-random numbers that are always the same for the same input.

/// Mixes the bits of a number, so that similar numbers have unrelated results. Different numbers have different results.
///
/// The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
pub fn split_mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The increment of SplitMix64: 2^64 divided by the golden ratio. [`split_mix`] of 0 is 0, so this is added first where 0 may occur.
pub const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
