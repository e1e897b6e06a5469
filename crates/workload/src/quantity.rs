//! Quantities as text for readers: `1.711 MB`, `10 Mbps`, `300 ms`.

use pathloom_model::Nanos;

/// Bytes with a decimal prefix.
pub(crate) fn bytes(value: f64) -> String {
    scaled(value, &[(1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB"), (1.0, "B")])
}

/// Bits per second with a decimal prefix.
pub(crate) fn rate(value: f64) -> String {
    scaled(value, &[(1e12, "Tbps"), (1e9, "Gbps"), (1e6, "Mbps"), (1e3, "kbps"), (1.0, "bps")])
}

/// A duration.
pub(crate) fn time(value: Nanos) -> String {
    seconds(value.as_secs_f64())
}

/// A duration in seconds.
pub(crate) fn seconds(value: f64) -> String {
    scaled(value, &[(1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")])
}

/// A count with its noun: `1 flow`, `2 flows`.
pub(crate) fn count(number: usize, word: &str) -> String {
    format!("{number} {word}{}", if number == 1 { "" } else { "s" })
}

/// A number with four significant digits and no trailing zeros.
pub(crate) fn number(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    // The exponent as it is printed. It is exact; a logarithm is not.
    let exponent = format!("{value:e}").split_once('e').and_then(|(_, digits)| digits.parse::<i32>().ok()).unwrap_or(0);
    let decimals = (3 - exponent).clamp(0, 12) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

fn scaled(value: f64, units: &[(f64, &str)]) -> String {
    let last = units[units.len() - 1];
    let (unit, name) = units.iter().copied().find(|&(unit, _)| value >= unit).unwrap_or(last);
    format!("{} {name}", number(value / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_four_digits_and_a_unit() {
        assert_eq!(bytes(1_711_250.0), "1.711 MB");
        assert_eq!(bytes(0.0), "0 B");
        assert_eq!(rate(10e6), "10 Mbps");
        assert_eq!(time(Nanos::from_millis(300)), "300 ms");
        assert_eq!(seconds(8.5535), "8.553 s");
        assert_eq!(number(123456.0), "123456");
        assert_eq!(number(0.4), "0.4");
        assert_eq!(count(1, "flow"), "1 flow");
        assert_eq!(count(0, "flow"), "0 flows");
    }
}
