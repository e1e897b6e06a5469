//! ethereal: hosts divide transfers into the fewest parts with which all paths carry the same, and name the path of each part.
//!
//! A part is a TCP connection on one path, so its packets stay in order. Hosts know which transfers they begin together; the rest of the
//! fabric they do not know.

use crate::entry::{Entry, EntryInfo};
use crate::sprayed;
use pathloom_scheme::{Entropy, Selection};

const NAME: &str = "ethereal";

pub(crate) const ENTRY: Entry = Entry {
    info: EntryInfo {
        name: NAME,
        summary: "hosts divide transfers into the fewest parts so that all paths carry the same; only in the simulator",
        paper: "Addanki et al. 2024, Ethereal: Divide and Conquer Network Load Balancing in Large-Scale Distributed Training",
        keys: &[],
    },
    read: |_| Ok(sprayed::parts(NAME, Entropy::Part, Selection::Path)),
};
