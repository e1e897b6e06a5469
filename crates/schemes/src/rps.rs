//! rps: each packet takes one of all shortest paths at random.
//!
//! In the paper, each switch draws a next hop for each packet. Here the host draws an entropy for each packet, and each
//! switch hashes it with the five-tuple and a number of its own, which gives independent choices as well.

use crate::entry::{Entry, EntryInfo, Parts};
use crate::sprayed;
use pathloom_scheme::{Entropy, Selection};

const NAME: &str = "rps";

pub(crate) const ENTRY: Entry = Entry {
    info: EntryInfo {
        name: NAME,
        summary: "each packet takes one of all shortest paths at random; only in the simulator",
        paper: "Dixit et al. 2013, On the Impact of Packet Spraying in Data Center Networks (INFOCOM)",
        keys: &[],
    },
    read: |_| {
        Ok(Parts { transport: sprayed::tolerant_tcp(), ..sprayed::parts(NAME, Entropy::Packet, Selection::Hash) })
    },
};
