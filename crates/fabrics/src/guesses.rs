//! Guesses that the reader of a graph file made, collected into one note per kind.

use super::rates::{Certainty, RateRead, RATE_ATTRIBUTES};
use super::settings::DEFAULT_LINK;
use pathloom_model::units::rate_text;
use std::collections::BTreeMap;

/// A kind of guess about a cable or one of its directions. Notes have the same order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Guess {
    /// A rate without a unit.
    NoUnit,
    /// A rate read from a label.
    Label,
    /// The smallest rate that a label allows.
    LeastOfLabel,
    /// No rate in either direction.
    NoRate,
    /// A rate in one direction only.
    OneRate,
    /// No delay, and no coordinates at one end or both.
    NoDelay,
}

/// Number of guesses of each kind, and an example (the first).
#[derive(Default)]
pub(super) struct Guesses(BTreeMap<Guess, (usize, String)>);

impl Guesses {
    /// Counts a guess; `example` describes its place.
    pub(super) fn add(&mut self, guess: Guess, example: impl FnOnce() -> String) {
        self.0.entry(guess).or_insert_with(|| (0, example())).0 += 1;
    }

    /// Counts how the rate of a direction was read. A rate with a unit is not a guess.
    pub(super) fn note_rate(&mut self, read: &RateRead, place: &str) {
        let guess = match read.certainty {
            Certainty::Stated => return,
            Certainty::NoUnit => Guess::NoUnit,
            Certainty::Label => Guess::Label,
            Certainty::LeastOfLabel => Guess::LeastOfLabel,
        };
        self.add(guess, || format!("{} of {place}, as {}", read.text, rate_text(read.rate_bps)));
    }

    /// Returns one line for each kind of guess that was made.
    pub(super) fn notes(&self) -> Vec<String> {
        let rate = rate_text(DEFAULT_LINK.rate_bps);
        let delay_us = DEFAULT_LINK.delay_ps / 1_000_000;
        let line = |(guess, (count, example)): (&Guess, &(usize, String))| {
            let what = match guess {
                Guess::NoUnit => "rates without a unit, taken as Mbit/s".to_owned(),
                Guess::Label => "rates read from labels".to_owned(),
                Guess::LeastOfLabel => "ambiguous rates in the file, of which the least was used".to_owned(),
                Guess::NoRate => format!("cables without a rate ({RATE_ATTRIBUTES}), given {rate}"),
                Guess::OneRate => "cables with a rate in one direction only, used in both".to_owned(),
                Guess::NoDelay => {
                    format!("cables with neither a delay nor coordinates at both ends, given {delay_us}us")
                }
            };
            format!("{what}: {count}, such as {example}")
        };
        self.0.iter().map(line).collect()
    }
}
