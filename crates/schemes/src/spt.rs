//! spt: the single shortest path, the baseline "TCP" of the OFPT and LESSOR papers. They do not say whether every
//! destination has a path of its own, or all traffic shares one spanning tree, as in a network of plain bridges.

use crate::defaults_only::DefaultsOnly;
use crate::entry::{Entry, EntryInfo, KeyInfo, Parts};
use pathloom_scheme::DefaultRoutes;

const NAME: &str = "spt";

const TREE_KEY: KeyInfo =
    ("tree", "tor", "tor: a tree towards each ToR, ties broken by a hash; one: a spanning tree for all");

pub(crate) const ENTRY: Entry = Entry {
    info: EntryInfo {
        name: NAME,
        summary: "one shortest path per destination ToR, the same for all flows",
        paper: "baseline of OFPT and LESSOR (there called TCP)",
        keys: &[TREE_KEY],
    },
    read: |spec| {
        let routes = match spec.text_of("tree") {
            None | Some("tor") => DefaultRoutes::SinglePath,
            Some("one") => DefaultRoutes::SpanningTree,
            Some(other) => return Err(spec.error(format!("tree: expected tor or one, not `{other}`"))),
        };
        Ok(Parts::central(move |_| Box::new(DefaultsOnly::by_flow(NAME, routes))))
    },
};
