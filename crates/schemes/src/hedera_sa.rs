//! hedera-sa: Hedera with Simulated Annealing instead of Global First Fit.

use crate::entry::{Entry, EntryInfo};
use crate::hedera::{self, Settings};
use crate::next_hop_choice::AT_KEY;

const NAME: &str = "hedera-sa";

pub(crate) const ENTRY: Entry = Entry {
    info: EntryInfo {
        name: NAME,
        summary: "ecmp, and every 5 s elephants are spread by Simulated Annealing over destination hosts",
        paper: hedera::PAPER,
        keys: &[
            hedera::ELEPHANT_KEY,
            hedera::PERIOD_KEY,
            hedera::ITERATIONS_KEY,
            hedera::COOLING_KEY,
            hedera::DEFAULTS_KEY,
            AT_KEY,
        ],
    },
    read: |spec| {
        let annealing = Some(hedera::read_annealing(spec)?);
        let settings = Settings { annealing, ..hedera::read_detection(spec)? };
        Ok(hedera::parts(NAME, settings))
    },
};
