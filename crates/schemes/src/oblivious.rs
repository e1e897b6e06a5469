//! oblivious: the packets of a flow take all entropies in turn, whatever happens to them.
//!
//! Hosts do all of it ([`pathloom_transport::uec`]). Switches hash the entropy of each packet with its five-tuple.

use crate::entry::{Entry, EntryInfo};
use crate::ultra_ethernet;
use pathloom_transport::uec::EntropyChoice;

const NAME: &str = "oblivious";

pub(crate) const ENTRY: Entry = Entry {
    info: EntryInfo {
        name: NAME,
        summary: "packets of a transfer take all entropies in turn, over Ultra Ethernet; only in the simulator",
        paper: "Ultra Ethernet Specification 1.0 (2025); -load_balancing_algo oblivious of uet-htsim",
        keys: &[],
    },
    read: |_| Ok(ultra_ethernet::parts(NAME, EntropyChoice::Oblivious)),
};
