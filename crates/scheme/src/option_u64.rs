//! Optional numbers that take eight bytes each.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// An optional number in eight bytes. An `Option<u64>` takes sixteen, and there are several for each of very many
/// flows. `u64::MAX` represents `None`, so the number `u64::MAX` becomes `u64::MAX - 1`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct OptionU64(u64);

impl OptionU64 {
    /// The number is unknown.
    pub const NONE: OptionU64 = OptionU64(u64::MAX);

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

impl Default for OptionU64 {
    fn default() -> OptionU64 {
        OptionU64::NONE
    }
}

impl From<u64> for OptionU64 {
    #[inline]
    fn from(number: u64) -> OptionU64 {
        OptionU64(number.min(u64::MAX - 1))
    }
}

impl From<Option<u64>> for OptionU64 {
    #[inline]
    fn from(number: Option<u64>) -> OptionU64 {
        number.map_or(OptionU64::NONE, OptionU64::from)
    }
}

impl fmt::Debug for OptionU64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

impl Serialize for OptionU64 {
    /// Serialises it as an `Option<u64>`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.get().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for OptionU64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OptionU64, D::Error> {
        Option::<u64>::deserialize(deserializer).map(OptionU64::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behaves_like_an_option_of_half_the_size() {
        assert_eq!(size_of::<OptionU64>(), 8);
        for number in [None, Some(0), Some(1), Some(u64::MAX - 1)] {
            let option = OptionU64::from(number);
            assert_eq!((option.get(), format!("{option:?}")), (number, format!("{number:?}")));
            let text = serde_json::to_string(&option).unwrap();
            assert_eq!(text, serde_json::to_string(&number).unwrap());
            assert_eq!(serde_json::from_str::<OptionU64>(&text).unwrap(), option);
        }
        assert_eq!(OptionU64::from(u64::MAX).get(), Some(u64::MAX - 1));
        let mut option = OptionU64::default();
        assert_eq!((option.replace(5), option.replace(6), option.get()), (None, Some(5), Some(6)));
    }
}
