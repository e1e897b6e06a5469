//! reps: entropies of packets that met no congestion are used again.
//!
//! Hosts do all of it ([`pathloom_transport::uec`]). Switches hash the entropy of each packet with its five-tuple.

use crate::entry::{Entry, EntryInfo};
use crate::ultra_ethernet;
use pathloom_transport::uec::EntropyChoice;

const NAME: &str = "reps";

pub(crate) const ENTRY: Entry = Entry {
    info: EntryInfo {
        name: NAME,
        summary:
            "entropies of packets that met no congestion are used again, over Ultra Ethernet; only in the simulator",
        paper: "Bonato et al. 2024, REPS: Recycled Entropy Packet Spraying for Adaptive Load Balancing and \
                Failure Mitigation (arXiv:2407.21625)",
        keys: &[],
    },
    read: |_| Ok(ultra_ethernet::parts(NAME, EntropyChoice::Reps)),
};
