//! The rate of an edge in a graph file: the value that its attributes state, and how certain it is.

use super::graph::Attributes;
use pathloom_model::units::parse_rate_bps;

/// A rate that was read from an attribute.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct RateRead {
    pub(super) rate_bps: u64,
    pub(super) certainty: Certainty,
    /// Name and value of the attribute as in the file, for notes.
    pub(super) text: String,
}

/// How certain a rate is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Certainty {
    /// The file states the rate and its unit.
    Stated,
    /// A number without a unit, taken as Mbit/s.
    NoUnit,
    /// Read from the text of a label, such as `OC-192`.
    Label,
    /// Read from an ambiguous label, such as `100-155 Mbit/s`: the smallest rate that it allows.
    LeastOfLabel,
}

/// Attributes that hold a rate, with a unit or as a plain number of Mbit/s (traffic-engineering data sets, Mininet).
const PLAIN_MBPS: [&str; 5] = ["capacity", "bandwidth", "bw", "speed", "LinkSpeed"];
/// Texts for human readers that can contain a rate.
const LABELS: [&str; 3] = ["LinkLabel", "LinkType", "label"];
/// Attributes that errors and notes recommend.
pub(super) const RATE_ATTRIBUTES: &str = "rate_bps, rate, capacity, bandwidth, bw, speed, LinkSpeed or LinkLabel";

/// Returns the rate that the attributes of an edge state for one direction. The names of the attributes begin with
/// `prefix`.
///
/// The first of these attributes that is present applies: `rate_bps`, `rate`, `LinkSpeedRaw` (bit/s), `capacity` and
/// similar ones, `LinkSpeed` with `LinkSpeedUnits`, a label. Labels without a rate are skipped.
///
/// # Errors
/// A line that names an attribute that should contain a rate but does not.
pub(super) fn rate_of(attributes: &Attributes, prefix: &str) -> Result<Option<RateRead>, String> {
    let get = |name: &str| attributes.get(&format!("{prefix}{name}")).map(|text| text.trim());
    let read = |name: &str, text: &str, rate_bps: Option<u64>, certainty| match rate_bps {
        Some(rate_bps) => Ok(Some(RateRead { rate_bps, certainty, text: format!("{name} `{text}`") })),
        None => {
            Err(format!("{name}: `{text}` is not a rate from 1 bit/s to 1 Pbit/s, such as 10Gbps; rate= overrides it"))
        }
    };
    if let Some(text) = get("rate_bps") {
        return read("rate_bps", text, plain(text, 1.0), Certainty::Stated);
    }
    if let Some(text) = get("rate") {
        let exact = || label_rate(text).filter(|label| label.is_whole && label.is_certain).map(|label| label.rate_bps);
        return read("rate", text, parse_rate_bps(text).ok().or_else(exact), Certainty::Stated);
    }
    if let Some(text) = get("LinkSpeedRaw") {
        return read("LinkSpeedRaw", text, plain(text, 1.0), Certainty::Stated);
    }
    for name in PLAIN_MBPS {
        let Some(text) = get(name) else { continue };
        let units = get("LinkSpeedUnits").filter(|_| name == "LinkSpeed").unwrap_or_default();
        if let (true, Some(rate_bps)) = (units.is_empty(), plain(text, 1e6)) {
            return read(name, text, Some(rate_bps), Certainty::NoUnit);
        }
        let whole = format!("{text}{units}");
        let found = label_rate(&whole).filter(|label| label.is_whole);
        let is_certain = found.is_none_or(|label| label.is_certain);
        let certainty = if is_certain { Certainty::Stated } else { Certainty::LeastOfLabel };
        return read(name, &whole, found.map(|label| label.rate_bps), certainty);
    }
    let labels = LABELS.into_iter().filter_map(|name| Some((name, get(name)?)));
    Ok(labels.into_iter().find_map(|(name, text)| {
        let LabelRate { rate_bps, is_certain, .. } = label_rate(text)?;
        let certainty = if is_certain { Certainty::Label } else { Certainty::LeastOfLabel };
        Some(RateRead { rate_bps, certainty, text: format!("{name} `{text}`") })
    }))
}

/// Parses a plain number of `scale` bit/s.
fn plain(text: &str, scale: f64) -> Option<u64> {
    within(text.parse::<f64>().ok()? * scale)
}

fn within(rate_bps: f64) -> Option<u64> {
    let rate_bps = rate_bps.round();
    (1.0..=1e15).contains(&rate_bps).then_some(rate_bps as u64)
}

/// A word, number or sign of a label.
#[derive(Clone, PartialEq, Debug)]
enum Token {
    Number(f64),
    Word(String),
    Sign(char),
}

/// A rate that was found in a label.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct LabelRate {
    rate_bps: u64,
    /// The label allows no other rate.
    is_certain: bool,
    /// The label says nothing but the rate.
    is_whole: bool,
}

/// Finds the rate in a label: `10 Gbit/s`, `155Mb/s`, `2x10G`, `OC-192c`, `STM-64`, `E3`, `GigE`. Of several rates or a
/// range, returns the smallest.
fn label_rate(text: &str) -> Option<LabelRate> {
    let tokens = tokens(text);
    if let [Token::Word(word)] = tokens.as_slice() {
        let is_gigabit = matches!(word.as_str(), "gige" | "gbe" | "ge" | "gigabit");
        return is_gigabit.then_some(LabelRate { rate_bps: 1_000_000_000, is_certain: true, is_whole: true });
    }
    let mut is_certain = !tokens.iter().any(is_open);
    let mut found: Vec<u64> = Vec::new();
    // Tokens that belong to a rate.
    let mut used: Vec<bool> = tokens.iter().map(is_open).collect();
    for place in 0..tokens.len() {
        let (before, here) = tokens.split_at(place);
        let (rate, length) = if let Some(level) = level(here) {
            level
        } else if let [Token::Number(number), Token::Word(word), ..] = here {
            let Some(scale) = unit(word) else { continue };
            // 100-155 Mbit/s, 10/100 Mbit/s
            let least = match before {
                [.., Token::Number(least), Token::Sign('-' | '–' | '/')] => Some(*least),
                _ => None,
            };
            if least.is_some() {
                is_certain = false;
                used[place - 2..place].fill(true);
            }
            (least.map_or(*number, |least| least.min(*number)) * scale, 2 + unit_suffix(&here[2..]))
        } else {
            continue;
        };
        let (count, before_it) = match before {
            // 2 x 10 Gbps
            [.., Token::Number(count), Token::Word(x)] if x == "x" => (*count, 2),
            [.., Token::Number(count), Token::Sign('*' | '×')] => (*count, 2),
            // N x 10 Gbps
            [.., Token::Word(n), Token::Word(x)] if n == "n" && x == "x" => (1.0, 1),
            // 1G-10G, OC-3/OC-12
            [_, .., Token::Sign('-' | '–' | '/' | ',')] => (1.0, 1),
            _ => (1.0, 0),
        };
        found.push(within(count * rate)?);
        used[place - before_it..place + length].fill(true);
    }
    let rate_bps = found.iter().copied().min()?;
    // `1 or 10 Gbps`
    let has_other_number = tokens.iter().zip(&used).any(|(token, &used)| matches!(token, Token::Number(_)) && !used);
    is_certain = is_certain && !has_other_number && found.iter().all(|&rate| rate == rate_bps);
    Some(LabelRate { rate_bps, is_certain, is_whole: used.iter().all(|&used| used) })
}

/// Whether a token makes a rate inexact: `>1 Gbps`, `Nx10G`.
fn is_open(token: &Token) -> bool {
    match token {
        Token::Sign(sign) => matches!(sign, '<' | '>' | '~' | '≤' | '≥' | '≈' | '?' | '+'),
        Token::Word(word) => matches!(word.as_str(), "nx" | "n"),
        Token::Number(_) => false,
    }
}

/// Number of the tokens that continue a unit: `/s`, `per second`, `Ethernet`.
fn unit_suffix(tokens: &[Token]) -> usize {
    match tokens {
        [Token::Sign('/'), Token::Word(word), ..] if is_second(word) => 2,
        [Token::Word(per), Token::Word(word), ..] if per == "per" && is_second(word) => 2,
        [Token::Word(word), ..] if word == "ethernet" => 1,
        _ => 0,
    }
}

fn is_second(word: &str) -> bool {
    matches!(word, "s" | "sec" | "second" | "seconds")
}

/// Returns a level of the digital hierarchies, bits per second, and its number of tokens: SONET OC-n (Telcordia
/// GR-253), SDH STM-n (ITU-T G.707), the levels of North America and Europe (ITU-T G.702).
fn level(tokens: &[Token]) -> Option<(f64, usize)> {
    let (word, number, length) = match tokens {
        [Token::Word(word), Token::Number(number), ..] => (word, *number, 2),
        [Token::Word(word), Token::Sign('-'), Token::Number(number), ..] => (word, *number, 3),
        _ => return None,
    };
    let rate = match (word.as_str(), number) {
        ("oc", n) => 51.84e6 * n,
        ("stm", n) => 155.52e6 * n,
        ("t" | "ds", 1.0) => 1.544e6,
        ("t" | "ds", 3.0) => 44.736e6,
        ("e", 1.0) => 2.048e6,
        ("e", 3.0) => 34.368e6,
        _ => return None,
    };
    // The letter of a concatenated payload: `OC-192c`.
    let concatenated = matches!(tokens.get(length), Some(Token::Word(letter)) if letter == "c");
    Some((rate, length + usize::from(concatenated)))
}

/// Returns the bits per second of a unit: `g`, `gb`, `gbps`, `gbit` (for Gbit/s), `ge`, `gbe`, `gigabit`, …
fn unit(word: &str) -> Option<f64> {
    let scale = match word.chars().next()? {
        'k' => 1e3,
        'm' => 1e6,
        'g' => 1e9,
        't' => 1e12,
        _ => return None,
    };
    let rest = ["", "b", "bs", "bps", "bit", "bits", "e", "be", "ig", "ige", "igabit", "igabits", "egabit", "egabits"];
    rest.contains(&&word[1..]).then_some(scale)
}

fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let run = |of: fn(char) -> bool| rest.find(|c: char| !of(c)).unwrap_or(rest.len());
        let end = if first.is_ascii_digit() {
            let end = number_end(rest);
            tokens.push(number(&rest[..end]).map_or(Token::Word("?".into()), Token::Number));
            end
        } else if first.is_alphabetic() {
            let end = run(char::is_alphabetic);
            tokens.push(Token::Word(word(&rest[..end])));
            end
        } else {
            tokens.push(Token::Sign(first));
            first.len_utf8()
        };
        rest = rest[end..].trim_start();
    }
    tokens
}

/// The end of the number at the beginning of a text. A comma belongs to it if a digit follows, and an `e` between
/// digits.
fn number_end(text: &str) -> usize {
    let bytes = text.as_bytes();
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let continues = |at: usize| match bytes[at] {
        b'.' => true,
        b',' | b'e' | b'E' => is_digit(at + 1),
        byte => byte.is_ascii_digit(),
    };
    (0..bytes.len()).find(|&at| !continues(at)).unwrap_or(bytes.len())
}

/// A number with a decimal point or comma. `None` if it may mean something else: `1,000` is a thousand or one, `2e3`
/// may be two E3 lines, and `1..2` is no number.
fn number(text: &str) -> Option<f64> {
    let decimal = match text.split_once(',') {
        Some((whole, part)) if part.len() != 3 => format!("{whole}.{part}"),
        Some(_) => return None,
        None => text.to_owned(),
    };
    decimal.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.').then(|| decimal.parse().ok())?
}

/// A word in lower case. `GBps` and `GB` are bytes, so they are no unit of a rate, unlike `GBE` and `GBPS`.
fn word(text: &str) -> String {
    let is_bytes = matches!(text.get(1..), Some("B" | "Bps" | "Bs" | "Byte" | "Bytes"));
    if is_bytes {
        text.to_owned()
    } else {
        text.to_lowercase()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_labels_as_operators_write_them() {
        let read = |text| label_rate(text).map(|label| (label.rate_bps, label.is_certain));
        for (text, expected) in [
            ("OC-192c", Some((9_953_280_000, true))),
            ("OC-192", Some((9_953_280_000, true))),
            ("oc3", Some((155_520_000, true))),
            ("STM-64", Some((9_953_280_000, true))),
            ("STM 1", Some((155_520_000, true))),
            ("E3", Some((34_368_000, true))),
            ("DS-3", Some((44_736_000, true))),
            ("10 Gbps", Some((10_000_000_000, true))),
            ("10 Gbit/s", Some((10_000_000_000, true))),
            ("155Mb/s", Some((155_000_000, true))),
            ("2.5G", Some((2_500_000_000, true))),
            ("10GbE", Some((10_000_000_000, true))),
            ("1 Gigabit Ethernet", Some((1_000_000_000, true))),
            ("GigE", Some((1_000_000_000, true))),
            ("2 x 10 Gbps", Some((20_000_000_000, true))),
            ("4x10G", Some((40_000_000_000, true))),
            ("2*155 Mbps", Some((310_000_000, true))),
            ("512 kbps", Some((512_000, true))),
            ("100-155 Mbit/s", Some((100_000_000, false))),
            ("1G-10G", Some((1_000_000_000, false))),
            (">1Gbps", Some((1_000_000_000, false))),
            ("Nx10Gbps", Some((10_000_000_000, false))),
            ("N x 10G", Some((10_000_000_000, false))),
            ("2 x OC-48", Some((4_976_640_000, true))),
            ("4 x E1", Some((8_192_000, true))),
            ("10/100 Mbps", Some((10_000_000, false))),
            ("1 or 10 Gbps", Some((10_000_000_000, false))),
            ("OC-48/STM-16", Some((2_488_320_000, true))),
            ("34 Mbps / 155 Mbps", Some((34_000_000, false))),
            ("2,5 Gbps", Some((2_500_000_000, true))),
            ("34 Mbps, 155 Mbps", Some((34_000_000, false))),
            ("1,000 Mbps", None),
            ("2e3", None),
            ("1e3 Mbps", None),
            ("10 GB/s", None),
            ("10GBE", Some((10_000_000_000, true))),
            ("10 GBPS", Some((10_000_000_000, true))),
            ("Completion 2007-2008", None),
            ("Lit Fibre", None),
            ("Leased Wavelength/Managed Service", None),
            ("GTS CE own Network", None),
            ("10", None),
            ("1..2 Gbps", None),
            ("99999999 Tbps", None),
            ("", None),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn the_most_certain_attribute_wins() {
        let read = |pairs: &[(&str, &str)]| {
            let attributes = pairs.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect();
            rate_of(&attributes, "").map(|read| read.map(|read| (read.rate_bps, read.certainty)))
        };
        use Certainty::*;
        let all = [
            ("label", "E1"),
            ("LinkLabel", "OC-3"),
            ("LinkSpeedUnits", "G"),
            ("LinkSpeed", "2.5"),
            ("capacity", "5000"),
            ("LinkSpeedRaw", "1e7"),
            ("rate", "10Mbps"),
            ("rate_bps", "7"),
        ];
        let expected = [
            (2_048_000, Label),
            (155_520_000, Label),
            (155_520_000, Label),
            (2_500_000_000, Stated),
            (5_000_000_000, NoUnit),
            (10_000_000, Stated),
            (10_000_000, Stated),
            (7, Stated),
        ];
        for (count, expected) in expected.into_iter().enumerate() {
            assert_eq!(read(&all[..=count]), Ok(Some(expected)), "{count}");
        }
        assert_eq!(read(&[("LinkSpeed", "155")]), Ok(Some((155_000_000, NoUnit))));
        assert_eq!(read(&[("bandwidth", "10 Gbit/s")]), Ok(Some((10_000_000_000, Stated))));
        assert_eq!(read(&[("LinkLabel", "Lit Fibre"), ("LinkType", "OC-48")]), Ok(Some((2_488_320_000, Label))));
        assert_eq!(read(&[("LinkNote", "x")]), Ok(None));
        for text in [
            "10 Gb/second",
            "OC-48/STM-16",
            "10 Gbit/s",
            "2,5 Gbps",
            "OC-192c",
            "GigE",
            "2x10G",
            "1 Gigabit Ethernet",
            "10 Gbit per second",
        ] {
            for name in ["rate", "capacity"] {
                assert!(matches!(read(&[(name, text)]), Ok(Some((_, Stated)))), "{name} {text}");
            }
        }
        assert_eq!(read(&[("capacity", "100-155 Mbit/s")]), Ok(Some((100_000_000, LeastOfLabel))));
        let mut refused = vec![("rate", "10"), ("capacity", "-5"), ("bandwidth", "fast"), ("LinkSpeedRaw", "OC-3")];
        refused.push(("rate", "1/2Gbps"));
        let not_whole = [
            "-1Gbps",
            "- 1 Gbps",
            "2 5Gbps",
            "10 Gbit per minute",
            "10 Gbps per lane",
            "x5Gbps",
            "1GBps",
            "1e400Gbps",
            "up to 10 Gbps",
        ];
        refused.extend(not_whole.iter().flat_map(|text| [("rate", *text), ("capacity", *text)]));
        for (name, text) in refused {
            let problem = read(&[(name, text)]).unwrap_err();
            assert!(problem.starts_with(&format!("{name}: `{text}` is not a rate")), "{problem}");
        }
    }

    proptest! {
        #[test]
        fn no_label_makes_the_reader_panic(text in "[0-9.,eEocstmgGBx*</é -]{0,16}") {
            if let Some(label) = label_rate(&text) {
                prop_assert!((1..=1_000_000_000_000_000).contains(&label.rate_bps));
            }
        }
    }
}
