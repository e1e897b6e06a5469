//! ecmp: every switch hashes the five-tuple over all shortest next hops.

use crate::defaults_only::DefaultsOnly;
use crate::entry::{Entry, EntryInfo, Parts};
use pathloom_scheme::DefaultRoutes;

const NAME: &str = "ecmp";

pub(crate) const ENTRY: Entry = Entry {
    info: EntryInfo {
        name: NAME,
        summary: "every switch hashes the five-tuple over all shortest next hops",
        paper: "RFC 2992; baseline of all five papers",
        keys: &[],
    },
    read: |_| Ok(Parts::central(|_| Box::new(DefaultsOnly::by_flow(NAME, DefaultRoutes::Ecmp)))),
};
