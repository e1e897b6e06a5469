//! Specifications in the form of the command line: `name:key=value,key=value`.
//!
//! A [`Spec`] is read in three steps. [`Spec::parse`] splits the text. The typed getters read the keys that they
//! know. [`Spec::finish`] refuses the remaining keys, and suggests the nearest valid key.

use crate::units;
use std::cell::RefCell;

/// A specification that cannot be used. Its message is one line that names the place, the value found, what was
/// expected and, for a name, the nearest valid one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} `{spec}`: {problem}")]
pub struct SpecError {
    /// Kind of the specification: `fabric`, `traffic`, `transport`, `scheme`.
    pub what: &'static str,
    /// The specification as given.
    pub spec: String,
    /// What is wrong and what was expected.
    pub problem: String,
}

/// A split specification. Getters record the keys that they were asked for.
#[derive(Clone, Debug)]
pub struct Spec {
    what: &'static str,
    text: String,
    name: String,
    pairs: Vec<(String, String)>,
    asked: RefCell<Vec<&'static str>>,
}

impl Spec {
    /// Splits `name:key=value,key=value`. `what` is the word at the start of error messages.
    pub fn parse(what: &'static str, text: &str) -> Result<Spec, SpecError> {
        let text = text.trim();
        let error = |problem: String| SpecError { what, spec: text.to_owned(), problem };
        if text.is_empty() {
            return Err(error(format!("is empty; expected name:key=value,key=value (see `pathloom {what} list`)")));
        }
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        Spec::split(what, text, name, rest)
    }

    /// As [`Spec::parse`], for a text that begins with `name`. The name can contain colons, as the path of a file
    /// can.
    pub fn parse_named(what: &'static str, text: &str, name: &str) -> Result<Spec, SpecError> {
        let text = text.trim();
        let rest = text.strip_prefix(name).map(|rest| rest.strip_prefix(':').unwrap_or(rest)).unwrap_or_default();
        Spec::split(what, text, name, rest)
    }

    fn split(what: &'static str, text: &str, name: &str, rest: &str) -> Result<Spec, SpecError> {
        let error = |problem: String| SpecError { what, spec: text.to_owned(), problem };
        let mut pairs: Vec<(String, String)> = Vec::new();
        for part in rest.split(',').filter(|_| !rest.is_empty()) {
            let (key, value) = part
                .split_once('=')
                .map(|(key, value)| (key.trim(), value.trim()))
                .filter(|(key, value)| !key.is_empty() && !value.is_empty())
                .ok_or_else(|| error(format!("`{part}` is not key=value")))?;
            if pairs.iter().any(|(known, _)| known == key) {
                return Err(error(format!("{key} is given twice")));
            }
            pairs.push((key.to_owned(), value.to_owned()));
        }
        Ok(Spec { what, text: text.to_owned(), name: name.trim().to_owned(), pairs, asked: RefCell::default() })
    }

    /// Returns the part before the colon.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the specification as given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Creates an error about this specification.
    pub fn error(&self, problem: impl Into<String>) -> SpecError {
        SpecError { what: self.what, spec: self.text.clone(), problem: problem.into() }
    }

    /// Creates an error about the name, with the nearest name in `known`.
    pub fn unknown_name(&self, known: &[&str]) -> SpecError {
        let hint = nearest(&self.name, known).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        self.error(format!("no {} is called `{}`{hint} (known: {})", self.what, self.name, known.join(", ")))
    }

    /// Returns the text of a key.
    pub fn text_of(&self, key: &'static str) -> Option<&str> {
        self.asked.borrow_mut().push(key);
        self.pairs.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    /// Reads a key as bits per second.
    pub fn rate_bps(&self, key: &'static str) -> Result<Option<u64>, SpecError> {
        self.read(key, |text| units::parse_rate_bps(text).map_err(|e| e.to_string()))
    }

    /// Reads a key as bytes.
    pub fn size_bytes(&self, key: &'static str) -> Result<Option<u64>, SpecError> {
        self.read(key, |text| units::parse_size_bytes(text).map_err(|e| e.to_string()))
    }

    /// Reads a key as picoseconds.
    pub fn time_ps(&self, key: &'static str) -> Result<Option<u64>, SpecError> {
        self.read(key, |text| units::parse_time_ps(text).map_err(|e| e.to_string()))
    }

    /// Reads a key as nanoseconds.
    pub fn time(&self, key: &'static str) -> Result<Option<units::Nanos>, SpecError> {
        self.read(key, |text| units::parse_time(text).map_err(|e| e.to_string()))
    }

    /// Reads a key as a whole number between `least` and `most`.
    pub fn count(&self, key: &'static str, least: u64, most: u64) -> Result<Option<u64>, SpecError> {
        self.read(key, |text| {
            let number = text.parse::<u64>().ok().filter(|n| (least..=most).contains(n));
            number.ok_or_else(|| format!("`{text}` is not a whole number from {least} to {most}"))
        })
    }

    /// Reads a key as a number between `least` and `most`.
    pub fn number(&self, key: &'static str, least: f64, most: f64) -> Result<Option<f64>, SpecError> {
        self.read(key, |text| {
            let number = text.parse::<f64>().ok().filter(|n| n.is_finite() && *n >= least && *n <= most);
            number.ok_or_else(|| {
                let inside = |share: &f64| share.is_finite() && (least..=most).contains(share);
                let share = text.strip_suffix('%').and_then(|percent| percent.trim().parse::<f64>().ok());
                let share = share.map(|percent| percent / 100.0).filter(inside);
                let hint = share.map(|share| format!("; write {share} for `{text}`")).unwrap_or_default();
                format!("`{text}` is not a number from {least} to {most}{hint}")
            })
        })
    }

    /// Reads a key as yes or no.
    pub fn flag(&self, key: &'static str) -> Result<Option<bool>, SpecError> {
        self.choice(
            key,
            &[("true", true), ("false", false), ("on", true), ("off", false), ("yes", true), ("no", false)],
        )
    }

    /// Reads a key as one of these words.
    pub fn choice<T: Copy>(&self, key: &'static str, words: &[(&str, T)]) -> Result<Option<T>, SpecError> {
        self.read(key, |text| {
            words.iter().find(|(word, _)| *word == text).map(|&(_, value)| value).ok_or_else(|| {
                let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                let hint = nearest(text, &names).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
                format!("`{text}` is not one of {}{hint}", names.join(", "))
            })
        })
    }

    /// Returns an error if the specification has a key that no getter read.
    pub fn finish(&self) -> Result<(), SpecError> {
        let mut known: Vec<&str> = self.asked.borrow().clone();
        known.sort_unstable();
        known.dedup();
        match self.pairs.iter().find(|(key, _)| !known.contains(&key.as_str())) {
            None => Ok(()),
            Some((key, _)) => {
                let hint = nearest(key, &known).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
                let keys =
                    if known.is_empty() { "it takes none".into() } else { format!("known: {}", known.join(", ")) };
                Err(self.error(format!("unknown key `{key}`{hint} ({keys})")))
            }
        }
    }

    fn read<T>(&self, key: &'static str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, SpecError> {
        match self.text_of(key) {
            None => Ok(None),
            Some(text) => parse(text).map(Some).map_err(|problem| self.error(format!("{key}: {problem}"))),
        }
    }
}

/// Returns the extension of a file name in lower case: `dir/a.topo` → `topo`. `None` for a name that does not look
/// like a file, such as a number.
pub fn extension(name: &str) -> Option<String> {
    let file = name.rsplit('/').next().unwrap_or(name);
    let (stem, extension) = file.rsplit_once('.')?;
    let sound = !stem.is_empty() && (1..=8).contains(&extension.len());
    let letters = extension.chars().all(|c| c.is_ascii_alphanumeric()) && extension.contains(char::is_alphabetic);
    (sound && letters).then(|| extension.to_ascii_lowercase())
}

/// Returns a line of a text file without its comment, which begins with a `#` outside double quotes.
pub fn without_comment(line: &str) -> &str {
    let mut quoted = false;
    let comment = line.char_indices().find(|&(_, letter)| {
        quoted ^= letter == '"';
        letter == '#' && !quoted
    });
    comment.map_or(line, |(begin, _)| &line[..begin])
}

/// Returns the name in `known` that is nearest to `word`, if it is similar enough. Parts in another order count as
/// one mistake: `rto_min` is near `min_rto`.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let in_order = |name: &str| {
        let mut parts: Vec<&str> = name.split(['_', '-']).collect();
        parts.sort_unstable();
        parts.join("_")
    };
    let distance = |name: &str| {
        let (word, name) = (word.to_lowercase(), name.to_lowercase());
        // Another order of the parts counts as one mistake, so a name with the parts in the same order comes first.
        edit_distance(&word, &name).min(1 + edit_distance(&in_order(&word), &in_order(&name)))
    };
    let best = known.iter().map(|&name| (distance(name), name)).min()?;
    (best.0 <= (word.chars().count() / 2).max(1)).then_some(best.1)
}

/// Returns the Levenshtein distance: insertions, deletions and replacements.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &cb) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(ca != cb);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_known_keys_and_refuses_the_rest() {
        let spec = Spec::parse("fabric", "fat-tree:k=4,rate=10Mbps,bufer=3").unwrap();
        assert_eq!(spec.name(), "fat-tree");
        assert_eq!(spec.count("k", 2, 64), Ok(Some(4)));
        assert_eq!(spec.rate_bps("rate"), Ok(Some(10_000_000)));
        assert_eq!(spec.count("buffer", 1, 1000), Ok(None));
        let error = spec.finish().unwrap_err().to_string();
        assert!(error.contains("unknown key `bufer`; did you mean `buffer`?"), "{error}");
    }

    #[test]
    fn refuses_malformed_text() {
        for text in ["", "x:k", "x:k=", "x:=4", "x:k=1,k=2", "x:k=1,,"] {
            assert!(Spec::parse("fabric", text).is_err(), "{text}");
        }
        let spec = Spec::parse("fabric", "fat-tree:k=0").unwrap();
        assert!(spec.count("k", 2, 64).unwrap_err().to_string().contains("k: `0` is not a whole number from 2 to 64"));
        let spec = Spec::parse("traffic", "x:load=nan").unwrap();
        assert!(spec.number("load", 0.0, 1.0).is_err());
    }

    #[test]
    fn percentages_are_refused_with_the_number_that_they_mean() {
        for (text, expected) in [
            ("x:load=40%", "`40%` is not a number from 0 to 1; write 0.4 for `40%`"),
            ("x:load=400%", "`400%` is not a number from 0 to 1"),
            ("x:load=%", "`%` is not a number from 0 to 1"),
        ] {
            let problem = Spec::parse("traffic", text).unwrap().number("load", 0.0, 1.0).unwrap_err().to_string();
            assert!(problem.ends_with(expected), "{problem}");
        }
    }

    #[test]
    fn file_names_are_recognised() {
        for (name, expected) in [
            ("dir.d/a.topo", Some("topo")),
            ("a.tar.GZ", Some("gz")),
            ("web-search", None),
            ("dir.d/a", None),
            (".hidden", None),
            ("0.4", None),
            ("a.", None),
        ] {
            assert_eq!(extension(name).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn only_similar_names_are_suggested() {
        assert_eq!(nearest("fattree", &["fat-tree", "vl2"]), Some("fat-tree"));
        assert_eq!(nearest("rto_min", &["max_rto", "min_rto", "mss"]), Some("min_rto"));
        assert_eq!(nearest("tree-fat", &["fat-tree", "vl2"]), Some("fat-tree"));
        assert_eq!(nearest("qwertyuiop", &["fat-tree", "vl2"]), None);
    }
}
