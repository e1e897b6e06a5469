//! letflow: each flowlet takes one of all shortest paths at random.
//!
//! In the paper, each switch detects pauses between the packets of a flow. Here the host detects them when it sends,
//! and draws a new entropy, so all switches on the path choose anew together. Hosts run plain TCP, as in the paper:
//! packets of two flowlets rarely overtake each other.

use crate::entry::{Entry, EntryInfo};
use crate::sprayed;
use pathloom_model::Nanos;
use pathloom_scheme::{Entropy, Selection};

const NAME: &str = "letflow";
/// The time-out of flowlets in the measurements of the paper.
const GAP: Nanos = Nanos::from_micros(500);

pub(crate) const ENTRY: Entry = Entry {
    info: EntryInfo {
        name: NAME,
        summary: "after a pause, a flow takes another of all shortest paths at random; only in the simulator",
        paper: "Vanini et al. 2017, Let It Flow: Resilient Asymmetric Load Balancing with Flowlet Switching (NSDI)",
        keys: &[("gap", "500us", "shortest pause between two flowlets; 0s: every packet is a flowlet")],
    },
    read: |spec| {
        let entropy = Entropy::Flowlet { gap: spec.time("gap")?.unwrap_or(GAP) };
        Ok(sprayed::parts(NAME, entropy, Selection::Hash))
    },
};
