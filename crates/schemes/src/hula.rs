//! hula: switches send each flowlet to the next hop that probes have found the best.
//!
//! The switches do all of it ([`pathloom_switching::balancing`]). The controller sets default routes, which say which next hops are
//! equal and serve until the first probe arrives. Hosts run plain TCP, as in the paper.

use crate::entry::{Entry, EntryInfo};
use crate::sprayed;
use pathloom_scheme::{Entropy, Selection};
use pathloom_switching::balancing::HulaSettings;

const NAME: &str = "hula";

pub(crate) const ENTRY: Entry = Entry {
    info: EntryInfo {
        name: NAME,
        summary: "switches send each flowlet to the next hop that probes have found the best; only in the simulator",
        paper: "Katta et al. 2016, HULA: Scalable Load Balancing Using Programmable Data Planes (SOSR)",
        keys: &[
            ("gap", "100us", "shortest pause between two flowlets; 0s: every packet is a flowlet"),
            ("probe", "200us", "time between two probes of a ToR; links are measured over twice this time"),
        ],
    },
    read: |spec| {
        let usual = HulaSettings::default();
        let (gap, probe) = (spec.time("gap")?.unwrap_or(usual.gap), sprayed::positive(spec, "probe", usual.probe)?);
        Ok(sprayed::parts(NAME, Entropy::Flow, Selection::Hula { gap, probe }))
    },
};
