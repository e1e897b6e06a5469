//! Keys that a scheme and `--transport` may both set.

use std::fmt::Display;

/// The value of a key that a scheme and `--transport` may both state: a value that is not the default is stated.
///
/// # Errors
/// Both state it, with different values.
pub(crate) fn stated<T: PartialEq, D: Display>(
    key: &str,
    own: T,
    given: T,
    default: T,
    text: impl Fn(T) -> D,
) -> Result<T, String> {
    if given == default || given == own {
        Ok(own)
    } else if own == default {
        Ok(given)
    } else {
        Err(conflict(key, text(own), text(given)))
    }
}

pub(crate) fn conflict(key: &str, own: impl Display, given: impl Display) -> String {
    format!("the scheme sets {key}={own}, and --transport sets {key}={given}; remove one of them")
}

/// The word for a value of a key.
pub(crate) fn word<T: PartialEq>(words: &[(&'static str, T)], value: T) -> &'static str {
    words.iter().find(|(_, known)| *known == value).map_or("another value", |&(word, _)| word)
}
