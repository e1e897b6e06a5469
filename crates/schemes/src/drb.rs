//! drb: the packets of a flow take all shortest paths in turn; successive packets share as few links as possible.
//!
//! In the paper, the host names the core switch over which each packet goes. It takes them in the order of the reversed
//! digits of their numbers, from a random one on. Here the host numbers its packets, and each switch takes one digit of
//! the number, the first switch the lowest one. That is the same order. It begins with the path that ecmp gives to the flow.

use crate::entry::{Entry, EntryInfo, Parts};
use crate::sprayed;
use pathloom_scheme::{Entropy, Selection};

const NAME: &str = "drb";
/// How a packet gets its path.
const ORDERS: [(&str, (Entropy, Selection)); 2] =
    [("reversed", (Entropy::Cell { bytes: 1 }, Selection::Numbered)), ("random", (Entropy::Packet, Selection::Hash))];

pub(crate) const ENTRY: Entry = Entry {
    info: EntryInfo {
        name: NAME,
        summary: "the packets of a flow bounce off all core switches in turn; only in the simulator",
        paper: "Cao et al. 2013, Per-packet Load-balanced, Low-Latency Routing for Clos-based Data Center Networks (CoNEXT)",
        keys: &[(
            "order",
            "reversed",
            "reversed: core switches by the reversed digits of their numbers; random: any core switch for each packet (VLB)",
        )],
    },
    read: |spec| {
        let (entropy, selection) = spec.choice("order", &ORDERS)?.unwrap_or(ORDERS[0].1);
        Ok(Parts { transport: sprayed::tolerant_tcp(), ..sprayed::parts(NAME, entropy, selection) })
    },
};
