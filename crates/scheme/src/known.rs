//! Numbers that may not be known, in one word each.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// A number that may not be known: what takes an `Option<u64>` two words takes one here, and there are several for each of
/// very many flows. The greatest number stands for none, so what is as great counts as one less.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Known(u64);

impl Known {
    /// Not known.
    pub const NOTHING: Known = Known(u64::MAX);

    /// The number, if it is known.
    #[inline]
    pub const fn get(self) -> Option<u64> {
        match self.0 {
            u64::MAX => None,
            number => Some(number),
        }
    }

    /// From now on it is this; returns what it was.
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
    /// As an `Option<u64>`.
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
    fn is_what_an_option_is_in_half_the_room() {
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
