//! parallel-tcp: hosts open several TCP streams per transfer and request a path for each of them from the controller.
//! All other traffic takes the shortest path, as with the controller of the paper (§4).

use crate::defaults_only::DefaultsOnly;
use crate::entry::{Entry, EntryInfo, Parts};
use pathloom_model::Nanos;
use pathloom_scheme::DefaultRoutes;
use pathloom_transport::streams::{Policy, StreamSettings};
use pathloom_transport::{Settings, TransportSpec};

const NAME: &str = "parallel-tcp";
/// Time between two readings of the port counters.
const PORTS_PERIOD: Nanos = Nanos::from_secs(1);

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
            ("a", "0.001495", "streams that a path can use per Mbit/s of its bandwidth and ms of its round trip"),
            (
                "bandwidth",
                "available",
                "B of a path: available (what other traffic leaves, by port counters read each second) or rate (of its \
                 slowest link)",
            ),
        ],
    },
    read: |spec| {
        let streams = StreamSettings::read(spec, Settings::default())?;
        let routes = DefaultRoutes::SinglePath;
        let reads_ports = streams.policy == Policy::Optimal && streams.available;
        let link_loads_every = reads_ports.then_some(PORTS_PERIOD);
        let policy = move || DefaultsOnly { link_loads_every, ..DefaultsOnly::by_flow(NAME, routes) };
        let central = Parts::central(move |_| Box::new(policy()));
        Ok(Parts { transport: TransportSpec::Streams(streams), ..central })
    },
};
