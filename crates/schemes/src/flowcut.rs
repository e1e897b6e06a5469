//! flowcut: switches may change the path of a flow whenever none of its packets is under way.
//!
//! The switches do all of it ([`pathloom_switching::balancing`]). The controller sets default routes, which say which next hops are
//! equal. Hosts run plain TCP: its packets arrive in the order in which they were sent.

use crate::entry::{Entry, EntryInfo};
use crate::next_hop_choice::{NextHopChoice, AT_KEY};
use crate::sprayed;
use pathloom_scheme::{Entropy, Selection};

const NAME: &str = "flowcut";

pub(crate) const ENTRY: Entry = Entry {
    info: EntryInfo {
        name: NAME,
        summary: "a flow takes the next hop with the shortest queue whenever nothing of it is under way; only in the simulator",
        paper: "Bonato et al. 2025, Flowcut Switching: High-Performance Adaptive Routing With In-Order Delivery Guarantees (ToN)",
        keys: &[AT_KEY],
    },
    read: |spec| Ok(sprayed::parts_at(NAME, Entropy::Flow, NextHopChoice::at(spec, Selection::Flowcut)?)),
};
