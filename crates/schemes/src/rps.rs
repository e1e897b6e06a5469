//! rps: each packet takes one of all shortest paths, at random or in turn.
//!
//! In the paper, each switch draws a next hop for each packet. Here the host draws an entropy for each packet, and each
//! switch hashes it with the five-tuple and a number of its own, which gives independent choices as well. In turn means
//! that each switch takes one next hop after another, whatever the flow.

use crate::entry::{Entry, EntryInfo, Parts};
use crate::sprayed;
use pathloom_scheme::{Entropy, Selection};

const NAME: &str = "rps";
/// The ways in which packets are spread.
const ORDERS: [(&str, (Entropy, Selection)); 2] =
    [("random", (Entropy::Packet, Selection::Hash)), ("round-robin", (Entropy::Flow, Selection::RoundRobin))];

pub(crate) const ENTRY: Entry = Entry {
    info: EntryInfo {
        name: NAME,
        summary: "each packet takes one of all shortest paths; only in the simulator",
        paper: "Dixit et al. 2013, On the Impact of Packet Spraying in Data Center Networks (INFOCOM)",
        keys: &[("order", "random", "random: each packet at random; round-robin: next hops in turn at each switch")],
    },
    read: |spec| {
        let (entropy, selection) = spec.choice("order", &ORDERS)?.unwrap_or(ORDERS[0].1);
        Ok(Parts { transport: sprayed::tolerant_tcp(), ..sprayed::parts(NAME, entropy, selection) })
    },
};
