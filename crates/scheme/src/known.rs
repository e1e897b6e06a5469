//! Optional numbers that take eight bytes each.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// An optional number in eight bytes. An `Option<u64>` takes sixteen, and there are several for each of very many
/// flows. `u64::MAX` represents `None`, so the number `u64::MAX` becomes `u64::MAX - 1`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Known(u64);

impl Known {
    /// The number is unknown.
    pub const NOTHING: Known = Known(u64::MAX);

    /// The number, if it is known.
    #[inline]
    pub const fn get(self) -> Option<u64> {
        match self.0 {
            u64::MAX => None,
            number => Some(number),
        }
    }

    /// Sets the number. Returns the previous one.
    pub fn replace(&mut self, number: u64) -> Option<u64> {
        std::mem::replace(self, number.into()).get()
    }
}

impl Default for Known {
    fn default() -> Known {
        Known::NOTHING
    }
}

impl From<u64> for Known {
    #[inline]
    fn from(number: u64) -> Known {
        Known(number.min(u64::MAX - 1))
    }
}

impl From<Option<u64>> for Known {
    #[inline]
    fn from(number: Option<u64>) -> Known {
        number.map_or(Known::NOTHING, Known::from)
    }
}

impl fmt::Debug for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

impl Serialize for Known {
    /// Serialises it as an `Option<u64>`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.get().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Known {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Known, D::Error> {
        Option::<u64>::deserialize(deserializer).map(Known::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behaves_like_an_option_of_half_the_size() {
        assert_eq!(size_of::<Known>(), 8);
        for number in [None, Some(0), Some(1), Some(u64::MAX - 1)] {
            let known = Known::from(number);
            assert_eq!((known.get(), format!("{known:?}")), (number, format!("{number:?}")));
            let text = serde_json::to_string(&known).unwrap();
            assert_eq!(text, serde_json::to_string(&number).unwrap());
            assert_eq!(serde_json::from_str::<Known>(&text).unwrap(), known);
        }
        assert_eq!(Known::from(u64::MAX).get(), Some(u64::MAX - 1));
        let mut known = Known::default();
        assert_eq!((known.replace(5), known.replace(6), known.get()), (None, Some(5), Some(6)));
    }
}
