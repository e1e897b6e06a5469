//! What the reader of a graph file had to guess, collected into one note per kind.

use super::rates::{Certainty, RateRead, RATE_ATTRIBUTES};
use super::settings::DEFAULT_LINK;
use crate::units::rate_text;
use std::collections::BTreeMap;

/// A kind of guess about a cable or one of its directions. The order is that of the notes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Guess {
    /// A rate without a unit.
    NoUnit,
    /// A rate out of a label.
    Label,
    /// The least rate that a label allows.
    LeastOfLabel,
    /// No rate in either direction.
    NoRate,
    /// A rate in one direction only.
    OneRate,
    /// No delay, nor coordinates at both ends.
    NoDelay,
}

/// How often each kind of guess was made, and the first time.
#[derive(Default)]
pub(super) struct Guesses(BTreeMap<Guess, (usize, String)>);

impl Guesses {
    /// Counts a guess; `example` says where it was made.
    pub(super) fn add(&mut self, guess: Guess, example: impl FnOnce() -> String) {
        self.0.entry(guess).or_insert_with(|| (0, example())).0 += 1;
    }

    /// Counts how the rate of a direction was read, unless the file states it.
    pub(super) fn note_rate(&mut self, read: &RateRead, place: &str) {
        let guess = match read.certainty {
            Certainty::Stated => return,
            Certainty::NoUnit => Guess::NoUnit,
            Certainty::Label => Guess::Label,
            Certainty::LeastOfLabel => Guess::LeastOfLabel,
        };
        self.add(guess, || format!("{} of {place}, as {}", read.text, rate_text(read.rate_bps)));
    }

    /// A line for each kind of guess that was made.
    pub(super) fn notes(&self) -> Vec<String> {
        let rate = rate_text(DEFAULT_LINK.rate_bps);
        let delay_us = DEFAULT_LINK.delay_ps / 1_000_000;
        let line = |(guess, (count, example)): (&Guess, &(usize, String))| {
            let what = match guess {
                Guess::NoUnit => "rates without a unit, taken as Mbit/s".to_owned(),
                Guess::Label => "rates read from labels".to_owned(),
                Guess::LeastOfLabel => "rates that the file leaves open, of which the least was taken".to_owned(),
                Guess::NoRate => format!("cables without a rate ({RATE_ATTRIBUTES}), given {rate}"),
                Guess::OneRate => "cables with a rate in one direction only, which both were given".to_owned(),
                Guess::NoDelay => {
                    format!("cables with neither a delay nor coordinates at both ends, given {delay_us}us")
                }
            };
            format!("{what}: {count}, such as {example}")
        };
        self.0.iter().map(line).collect()
    }
}
