//! parallel-tcp: hosts open several TCP streams per transfer and request a path for each of them from the controller.
//! All other traffic takes the shortest path, as with the controller of the paper (§4).

use crate::defaults_only::DefaultsOnly;
use crate::entry::{Entry, EntryInfo, Parts};
use pathloom_scheme::DefaultRoutes;
use pathloom_transport::streams::StreamSettings;
use pathloom_transport::{Settings, TransportSpec};

const NAME: &str = "parallel-tcp";

pub(crate) const ENTRY: Entry = Entry {
    info: EntryInfo {
        name: NAME,
        summary: "several TCP streams per transfer, each on a path that its host requests from the controller",
        paper: "Huang et al. 2017, A Multipath OpenFlow Controller for Multiple TCP Stream Applications",
        keys: &[
            ("paths", "4", "paths that a transfer requests, 1 to 64"),
            ("streams", "4", "streams of a transfer, 1 to 256"),
            (
                "policy",
                "optimal",
                "how streams are spread: single, round-robin, or optimal by max(1, a·B·R) of each path",
            ),
            ("ratio", "none", "how streams are spread instead: a share for each path, such as 8/2/10/2"),
            ("search", "breadth-first", "which paths: breadth-first by hops, or edge-disjoint"),
            ("a", "0.001495", "streams that a path can use per Mbit/s of its rate and ms of its round trip"),
        ],
    },
    read: |spec| {
        let streams = StreamSettings::read(spec, Settings::default())?;
        let routes = DefaultRoutes::SinglePath;
        let central = Parts::central(move |_| Box::new(DefaultsOnly::by_flow(NAME, routes)));
        Ok(Parts { transport: TransportSpec::Streams(streams), ..central })
    },
};
