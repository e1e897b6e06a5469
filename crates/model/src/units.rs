//! Quantities as people write them (`10Mbps`, `12KB`, `300ms`) and as the code stores them (plain integers).
//!
//! Prefixes are decimal (`1KB` = 1000 bytes), except the binary ones (`1KiB` = 1024 bytes).

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// Picoseconds in a nanosecond.
pub const PS_PER_NS: u64 = 1_000;
/// Picoseconds in a second.
pub const PS_PER_S: u64 = 1_000_000_000_000;
/// Nanoseconds in a second.
pub const NS_PER_S: u64 = 1_000_000_000;

/// A time since the start of a run, or a duration, in nanoseconds. It is the only clock of the crates without input
/// and output.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Later than the end of any run.
    pub const MAX: Nanos = Nanos(u64::MAX);
    /// The start of a run.
    pub const ZERO: Nanos = Nanos(0);

    /// Creates a duration of whole seconds.
    pub const fn from_secs(s: u64) -> Nanos {
        Nanos(s * NS_PER_S)
    }

    /// Creates a duration of whole milliseconds.
    pub const fn from_millis(ms: u64) -> Nanos {
        Nanos(ms * 1_000_000)
    }

    /// Creates a duration of whole microseconds.
    pub const fn from_micros(us: u64) -> Nanos {
        Nanos(us * 1_000)
    }

    /// Returns the time in seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / NS_PER_S as f64
    }

    /// Sum, limited to [`Nanos::MAX`].
    pub fn saturating_add(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(other.0))
    }

    /// Difference, at least zero.
    pub fn saturating_sub(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(other.0))
    }
}

impl Add for Nanos {
    type Output = Nanos;
    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0 + other.0)
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Nanos) {
        self.0 += other.0;
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    fn sub(self, other: Nanos) -> Nanos {
        Nanos(self.0 - other.0)
    }
}

impl fmt::Debug for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ns", self.0)
    }
}

/// A quantity that could not be parsed. The message names the text, what was expected and an example.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a {what}: expected {expected}")]
pub struct UnitError {
    /// The text as given.
    pub text: String,
    /// Kind of quantity: `rate`, `size` or `time`.
    pub what: &'static str,
    /// What was expected.
    pub expected: &'static str,
}

const RATE_UNITS: [(&str, f64); 5] = [("Tbps", 1e12), ("Gbps", 1e9), ("Mbps", 1e6), ("kbps", 1e3), ("bps", 1.0)];
const SIZE_UNITS: [(&str, f64); 8] = [
    ("KiB", 1024.0),
    ("MiB", 1024.0 * 1024.0),
    ("GiB", 1024.0 * 1024.0 * 1024.0),
    ("TB", 1e12),
    ("GB", 1e9),
    ("MB", 1e6),
    ("KB", 1e3),
    ("B", 1.0),
];
const TIME_UNITS_PS: [(&str, f64); 7] =
    [("min", 60e12), ("ps", 1.0), ("ns", 1e3), ("us", 1e6), ("ms", 1e9), ("s", 1e12), ("h", 3600e12)];

/// Parses `10Mbps` as bits per second. The result is at least 1.
pub fn parse_rate_bps(text: &str) -> Result<u64, UnitError> {
    let expected = "a positive number with a unit of bps, kbps, Mbps, Gbps or Tbps, such as 10Mbps";
    // `MBps` means bytes per second.
    if text.trim_end().ends_with("Bps") {
        return Err(UnitError { text: text.to_owned(), what: "rate", expected });
    }
    parse(text, "rate", expected, &RATE_UNITS, 1.0, 1e15)
}

/// Parses `12KB` as bytes. The result is at least 1.
pub fn parse_size_bytes(text: &str) -> Result<u64, UnitError> {
    let expected = "a positive number with a unit of B, KB, MB, GB, TB, KiB, MiB or GiB, such as 12KB";
    parse(text, "size", expected, &SIZE_UNITS, 1.0, 1e18)
}

/// Parses `300ms` as picoseconds; `0s` is allowed.
pub fn parse_time_ps(text: &str) -> Result<u64, UnitError> {
    let expected = "a number with a unit of ps, ns, us, ms, s, min or h, up to 1000h, such as 300ms";
    parse(text, "time", expected, &TIME_UNITS_PS, 0.0, 3.6e18)
}

/// Parses `300ms` as nanoseconds, rounded down; `0s` is allowed.
pub fn parse_time(text: &str) -> Result<Nanos, UnitError> {
    parse_time_ps(text).map(|ps| Nanos(ps / PS_PER_NS))
}

/// Formats a rate with its unit in four significant digits, such as `9.953 Gbit/s`.
pub fn rate_text(rate_bps: u64) -> String {
    let units = [("Tbit/s", 1e12), ("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3), ("bit/s", 1.0)];
    let (unit, scale) = units.into_iter().find(|&(_, scale)| rate_bps as f64 >= scale).unwrap_or(("bit/s", 1.0));
    let number = rate_bps as f64 / scale;
    // Four digits in all: a number with three digits before the decimal point has one after it.
    let decimals = if number >= 999.5 { 0 } else { 3 - (number.max(1.0).log10() as usize) };
    let text = format!("{number:.decimals$}");
    let text = if decimals > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {unit}")
}

fn parse(
    text: &str,
    what: &'static str,
    expected: &'static str,
    units: &[(&str, f64)],
    least: f64,
    most: f64,
) -> Result<u64, UnitError> {
    let error = || UnitError { text: text.to_owned(), what, expected };
    let trimmed = text.trim();
    let (number, scale) = units
        .iter()
        .find_map(|&(unit, scale)| {
            let cut = trimmed.len().checked_sub(unit.len())?;
            let (number, tail) = (trimmed.get(..cut)?, trimmed.get(cut..)?);
            let digits_end = number.trim_end().ends_with(|c: char| c.is_ascii_digit() || c == '.');
            (tail.eq_ignore_ascii_case(unit) && digits_end).then_some((number.trim_end(), scale))
        })
        .ok_or_else(error)?;
    let plain = number.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-'));
    let value = if plain { number.parse::<f64>().map_err(|_| error())? * scale } else { return Err(error()) };
    let rounded = value.round();
    if !rounded.is_finite() || rounded < least || rounded > most || value < 0.0 {
        return Err(error());
    }
    Ok(rounded as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_quantities_as_written() {
        assert_eq!(parse_rate_bps("10Mbps"), Ok(10_000_000));
        assert_eq!(parse_rate_bps("2.5 gbps"), Ok(2_500_000_000));
        assert_eq!(parse_size_bytes("12KB"), Ok(12_000));
        assert_eq!(parse_size_bytes("1KiB"), Ok(1024));
        assert_eq!(parse_time_ps("1us"), Ok(1_000_000));
        assert_eq!(parse_time("300ms"), Ok(Nanos::from_millis(300)));
        assert_eq!(parse_time("1min"), Ok(Nanos::from_secs(60)));
        assert_eq!(parse_time("0s"), Ok(Nanos::ZERO));
    }

    #[test]
    fn rates_are_written_with_a_suitable_unit() {
        for (rate_bps, text) in [
            (1_000_000_000, "1 Gbit/s"),
            (9_953_280_000, "9.953 Gbit/s"),
            (155_520_000, "155.5 Mbit/s"),
            (44_736_000, "44.74 Mbit/s"),
            (100_000_000, "100 Mbit/s"),
            (999_960_000, "1000 Mbit/s"),
            (7, "7 bit/s"),
            (0, "0 bit/s"),
            (3_000_000_000_000, "3 Tbit/s"),
        ] {
            assert_eq!(rate_text(rate_bps), text);
        }
    }

    #[test]
    fn quantities_without_unit_or_valid_number_are_refused() {
        for text in
            ["", "10", "Mbps", "-1Mbps", "nanMbps", "infbps", "0bps", "1e99Gbps", "10MBps", "10MBps!", "1..2bps"]
        {
            assert!(parse_rate_bps(text).is_err(), "{text}");
        }
        for text in ["60", "s", "-1s", "nan s", "1e30s", "5 minutes"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
        let error = parse_time("60").unwrap_err().to_string();
        assert!(error.contains("`60`") && error.contains("300ms"), "{error}");
    }
}
