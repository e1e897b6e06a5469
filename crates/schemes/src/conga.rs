//! conga: leaf switches send each flowlet over the path that is the least busy, as other leaf switches report it.
//!
//! The switches do all of it ([`pathloom_switching::balancing`]). The controller sets default routes, which say which next hops are
//! equal. Hosts run plain TCP, as in the paper.

use crate::entry::{Entry, EntryInfo};
use crate::sprayed;
use pathloom_scheme::{Entropy, Selection};
use pathloom_switching::balancing::CongaSettings;

const NAME: &str = "conga";

pub(crate) const ENTRY: Entry = Entry {
    info: EntryInfo {
        name: NAME,
        summary: "leaf switches send each flowlet over the least busy path, by feedback; only in the simulator",
        paper: "Alizadeh et al. 2014, CONGA: Distributed Congestion-Aware Load Balancing for Datacenters (SIGCOMM)",
        keys: &[
            ("gap", "500us", "shortest pause between two flowlets; 0s: every packet is a flowlet"),
            ("tau", "160us", "time constant of the measured rate of a link"),
        ],
    },
    read: |spec| {
        let usual = CongaSettings::default();
        let (gap, tau) = (spec.time("gap")?.unwrap_or(usual.gap), sprayed::positive(spec, "tau", usual.tau)?);
        Ok(sprayed::parts(NAME, Entropy::Flow, Selection::Conga { gap, tau }))
    },
};
