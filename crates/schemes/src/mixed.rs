//! mixed: entropies of packets that met no congestion are used again; without one, as bitmap.
//!
//! Hosts do all of it ([`pathloom_transport::uec`]). Switches hash the entropy of each packet with its five-tuple.

use crate::entry::{Entry, EntryInfo};
use crate::ultra_ethernet;
use pathloom_transport::uec::EntropyChoice;

const NAME: &str = "mixed";

pub(crate) const ENTRY: Entry = Entry {
    info: EntryInfo {
        name: NAME,
        summary: "as reps while it knows good entropies, otherwise as bitmap; only in the simulator",
        paper: "-load_balancing_algo mixed of uet-htsim",
        keys: &[],
    },
    read: |_| Ok(ultra_ethernet::parts(NAME, EntropyChoice::Mixed)),
};
