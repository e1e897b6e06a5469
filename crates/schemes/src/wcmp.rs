//! wcmp: as ecmp, but each next hop has a weight by the capacity behind it.

use crate::defaults_only::DefaultsOnly;
use crate::entry::{Entry, EntryInfo, Parts};
use pathloom_scheme::DefaultRoutes;

const NAME: &str = "wcmp";

pub(crate) const ENTRY: Entry = Entry {
    info: EntryInfo {
        name: NAME,
        summary: "as ecmp, but each next hop has a weight by the capacity behind it",
        paper: "Zhou et al. 2014, WCMP: Weighted Cost Multipathing for Improved Fairness in Data Centers (EuroSys)",
        keys: &[],
    },
    read: |_| Ok(Parts::central(|_| Box::new(DefaultsOnly::by_flow(NAME, DefaultRoutes::Weighted)))),
};
