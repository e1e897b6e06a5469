//! spt: the single shortest path, as the OFPT and LESSOR papers' baseline "TCP" has it.

use crate::defaults_only::DefaultsOnly;
use crate::registry::{Entry, EntryInfo, Parts};
use pathloom_scheme::DefaultRoutes;

const NAME: &str = "spt";

pub(crate) const ENTRY: Entry = Entry {
    info: EntryInfo {
        name: NAME,
        summary: "one shortest path per destination ToR, the same for all flows",
        paper: "baseline of OFPT and LESSOR (there called TCP)",
        keys: &[],
    },
    read: |_| Ok(Parts::central(|_| Box::new(DefaultsOnly { name: NAME, routes: DefaultRoutes::SinglePath }))),
};
