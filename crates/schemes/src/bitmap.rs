//! bitmap: the packets of a flow take all entropies in turn, but those of congested paths are skipped for a while.
//!
//! Hosts do all of it ([`pathloom_transport::uec`]). Switches hash the entropy of each packet with its five-tuple.

use crate::entry::{Entry, EntryInfo};
use crate::ultra_ethernet;
use pathloom_transport::uec::EntropyChoice;

const NAME: &str = "bitmap";

pub(crate) const ENTRY: Entry = Entry {
    info: EntryInfo {
        name: NAME,
        summary: "as oblivious, but entropies of congested paths are skipped for some rounds; only in the simulator",
        paper: "Ultra Ethernet Specification 1.0 (2025); -load_balancing_algo bitmap of uet-htsim",
        keys: &[],
    },
    read: |_| Ok(ultra_ethernet::parts(NAME, EntropyChoice::Bitmap)),
};
