//! Which packets of a transfer have arrived.

use std::collections::VecDeque;

const BITS: u64 = u64::BITS as u64;

/// A set of packet numbers: all below [`Arrivals::expected`], and some above it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arrivals {
    expected: u64,
    /// Numbers from `first` on, 64 in a word; those in between that have not arrived are 0.
    words: VecDeque<u64>,
    /// A multiple of 64, at most `expected`.
    first: u64,
    beyond: u64,
}

impl Arrivals {
    /// The lowest number that is missing.
    pub(crate) fn expected(&self) -> u64 {
        self.expected
    }

    /// How many numbers above [`Arrivals::expected`] there are.
    pub(crate) fn beyond(&self) -> u64 {
        self.beyond
    }

    fn word(&self, number: u64) -> u64 {
        self.words.get(((number - self.first) / BITS) as usize).copied().unwrap_or(0)
    }

    pub(crate) fn has(&self, number: u64) -> bool {
        number < self.expected || self.word(number) >> (number % BITS) & 1 == 1
    }

    /// The 64 numbers from `base` on as bits; `base` is above [`Arrivals::expected`].
    pub(crate) fn bits(&self, base: u64) -> u64 {
        let shift = base % BITS;
        let upper = if shift == 0 { 0 } else { self.word(base + BITS) << (BITS - shift) };
        self.word(base) >> shift | upper
    }

    /// Adds a number that is not there.
    pub(crate) fn insert(&mut self, number: u64) {
        let place = ((number - self.first) / BITS) as usize;
        if self.words.len() <= place {
            self.words.resize(place + 1, 0);
        }
        self.words[place] |= 1 << (number % BITS);
        self.beyond += 1;
        if number == self.expected {
            self.advance();
        }
    }

    fn advance(&mut self) {
        loop {
            let run = u64::from((self.word(self.expected) >> (self.expected % BITS)).trailing_ones());
            self.expected += run;
            self.beyond -= run;
            if self.expected < self.first + BITS {
                return;
            }
            self.words.pop_front();
            self.first += BITS;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_has_what_was_inserted(numbers in prop::collection::vec(0..400u64, 1..600), base in 1..500u64) {
            let (mut arrivals, mut plain) = (Arrivals::default(), BTreeSet::new());
            for number in numbers {
                prop_assert_eq!(arrivals.has(number), plain.contains(&number));
                if plain.insert(number) {
                    arrivals.insert(number);
                }
                let expected = (0..).find(|number| !plain.contains(number)).unwrap();
                prop_assert_eq!((arrivals.expected(), arrivals.beyond()), (expected, plain.len() as u64 - expected));
                let base = base.max(expected + 1);
                let bits = (0..64).map(|offset| u64::from(plain.contains(&(base + offset))) << offset).sum::<u64>();
                prop_assert_eq!(arrivals.bits(base), bits);
            }
        }
    }
}
