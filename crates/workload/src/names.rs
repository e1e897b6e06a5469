//! The kinds of traffic, for listings and errors.

use serde::Serialize;

/// A key of a traffic specification.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct TrafficKey {
    /// The name before the `=`.
    pub name: &'static str,
    /// One line: meaning, unit by example, default.
    pub help: &'static str,
}

/// A kind of traffic.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct TrafficName {
    /// The name before the `:`. `FILE.csv` represents any such name.
    pub name: &'static str,
    /// The keys of this traffic.
    pub keys: &'static [TrafficKey],
    /// One line: description.
    pub help: &'static str,
}

const fn key(name: &'static str, help: &'static str) -> TrafficKey {
    TrafficKey { name, help }
}

const LOAD: TrafficKey = key("load", "offered payload per host / access rate, 0.0001 to 10 (0.4)");
const PATTERN: TrafficKey = key(
    "pattern",
    "random, inter-leaf, stride, permutation, unconstrained, one-to-N|N-even|random, all-to-all, incast (random or stride)",
);
const STRIDE: TrafficKey = key("stride", "with pattern=stride: host x sends to host x + stride (half the hosts)");
const SCALE: TrafficKey = key("scale", "factor on all flow sizes (1)");
const MAX_SIZE: TrafficKey = key("max_size", "larger flows are cut to this size, such as 100MB (none)");
const HOSTS: TrafficKey = key("hosts", "how many hosts take part, or their names as h0/h4/h8 (all)");
const PLACEMENT: TrafficKey = key(
    "placement",
    "hosts of ranks: linear (fabric's order), rack, striped (one of each rack in turn), rail or random (linear)",
);
const SKIP: TrafficKey = key("skip", "how many hosts, in the order of the placement, take no part and come first (0)");
const BUFFER: TrafficKey = key("size", "size of the whole buffer (100MB)");
const CHUNKS: TrafficKey = key("chunks", "parts of the buffer that follow each other, with trees and chains (64)");
const ITERATIONS: TrafficKey = key("iterations", "number of iterations, one after the other (1)");
const GAP: TrafficKey = key("gap", "time between two iterations on a host, such as 5ms (0s)");
const FEW_JITTER: TrafficKey = key("jitter", "starts are spread at random over this time (10us)");

const COMPUTE: TrafficKey = key("compute", "on (computation takes the time in the file) or off (takes no time) (on)");
const ROUNDS: TrafficKey = key("iterations", "number of passes forward and backward over all layers (1)");

const PARTS: &[TrafficKey] = &[
    key("algorithm", "ring or recursive (doubling or halving, a power of two of hosts) (ring)"),
    BUFFER,
    HOSTS,
    SKIP,
    PLACEMENT,
    ITERATIONS,
    GAP,
    FEW_JITTER,
];
const ROOTED: &[TrafficKey] = &[
    key("algorithm", "tree (two trees, in chunks), ring (a chain, in chunks) or binomial (tree)"),
    BUFFER,
    key("root", "the rank that sends or gets the buffer, from 0 (0)"),
    CHUNKS,
    HOSTS,
    SKIP,
    PLACEMENT,
    ITERATIONS,
    GAP,
    FEW_JITTER,
];

const POISSON: &[TrafficKey] = &[LOAD, PATTERN, STRIDE, SCALE, MAX_SIZE];

const NAMES: [TrafficName; 20] = [
    published(0),
    published(1),
    published(2),
    published(3),
    TrafficName {
        name: "FILE.csv",
        keys: POISSON,
        help: "flow sizes from a file of size_bytes,cumulative probability; Poisson arrivals",
    },
    TrafficName {
        name: "on-off",
        keys: &[
            LOAD,
            PATTERN,
            STRIDE,
            key("sizes", "web-search, data-mining, hadoop, web-server or FILE.csv (web-search)"),
            SCALE,
            MAX_SIZE,
            key("on", "mean ON period, such as 100ms (as long as off, or as 5 flows take)"),
            key("off", "mean OFF period (as long as on)"),
            key("sigma_on", "standard deviation of the logarithm of ON periods, 0 to 3 (1)"),
            key("sigma_off", "the same for OFF periods (1)"),
            key("sigma_gap", "the same for the gaps between flows in ON time (1)"),
        ],
        help: "an ON-OFF source per host, log-normal periods and gaps as in the OFPT and LESSOR papers",
    },
    TrafficName {
        name: "long-lived",
        keys: &[
            PATTERN,
            STRIDE,
            key("flows", "flows per pair, or per host if the pattern is random (1)"),
            key("jitter", "starts are spread at random over this time (1ms)"),
        ],
        help: "flows that run from the start to the end",
    },
    TrafficName {
        name: "incast",
        keys: &[
            key("senders", "how many hosts send at once (16, or all others)"),
            key("size", "bytes that each host sends (256KB)"),
            key("period", "time from one incast to the next, such as 100ms (one incast only)"),
            key("receiver", "name or number of the receiving host (a random one for each incast)"),
            FEW_JITTER,
        ],
        help: "many hosts answer one host at the same time",
    },
    TrafficName {
        name: "all-reduce",
        keys: &[
            key("algorithm", "ring, recursive (halving, doubling), tree (two trees, in chunks) or hierarchical (ring)"),
            BUFFER,
            CHUNKS,
            key("groups", "with algorithm=hierarchical: server, rack or a number of ranks (server, else rack)"),
            HOSTS,
            SKIP,
            PLACEMENT,
            ITERATIONS,
            GAP,
            FEW_JITTER,
        ],
        help: "all-reduce of a buffer on every host, in dependent steps",
    },
    TrafficName { name: "all-gather", keys: PARTS, help: "every host gets the parts of all others, in dependent steps" },
    TrafficName {
        name: "reduce-scatter",
        keys: PARTS,
        help: "every host gets its part of the sum of all buffers, in dependent steps",
    },
    TrafficName { name: "broadcast", keys: ROOTED, help: "one host sends a buffer to all others, in dependent steps" },
    TrafficName { name: "reduce", keys: ROOTED, help: "one host gets the sum of all buffers, in dependent steps" },
    TrafficName {
        name: "all-to-all",
        keys: &[
            key("algorithm", "windowed (a few at a time), direct (all at once), pairwise or bruck (windowed)"),
            key("size", "bytes that each host sends to every other host (1MB)"),
            key("parallel", "with algorithm=windowed: transfers that a host sends at the same time (1)"),
            key("order", "shift (in phase p, each host sends to the p-th host after it) or random (shift)"),
            HOSTS,
            SKIP,
            PLACEMENT,
            ITERATIONS,
            GAP,
            FEW_JITTER,
        ],
        help: "every host sends to every other one",
    },
    TrafficName {
        name: "moe",
        keys: &[
            key("tokens", "tokens of each host (4096)"),
            key("token", "size of a token when it is dispatched (7168B)"),
            key("combine", "size of the result of a token (that of the token)"),
            key("experts", "number of experts, a multiple of that of hosts (one for each host)"),
            key("top", "experts of each token (2)"),
            key("skew", "exponent of Zipf's law of the popularity of experts, 0 (equal) to 3 (0)"),
            key("compute", "time of the experts between the last token and the first result (0s)"),
            HOSTS,
            SKIP,
            PLACEMENT,
            ITERATIONS,
            GAP,
            FEW_JITTER,
        ],
        help: "mixture of experts: tokens go to the hosts of their experts, and results come back",
    },
    TrafficName {
        name: "coflow",
        keys: &[
            key("file", "a trace in the text format of the coflow-benchmark"),
            SCALE,
            key("time_scale", "factor on all times of arrival (1)"),
            FEW_JITTER,
        ],
        help: "coflows of a trace",
    },
    TrafficName {
        name: "flows",
        keys: &[key("file", "CSV of start_s,src,dst,size_bytes (no size: long-lived), htsim matrix FILE.cm, ns-3's flow.txt or FILE.xml")],
        help: "the flows that a file lists",
    },
    TrafficName {
        name: "fork",
        keys: &[
            key("file", "a fork of the twin, FILE.plf"),
            key("load", "factor on the rate of arrivals, 0 to 100 (1)"),
        ],
        help: "flows under way that continue, and arrivals like those before the fork",
    },
    TrafficName {
        name: "chakra",
        keys: &[key("file", "the trace of the first rank, NAME.0.et; the others are in the same folder"), COMPUTE, HOSTS, SKIP, PLACEMENT],
        help: "an execution trace of MLCommons Chakra: sends, receives and collectives, with dependencies",
    },
    TrafficName {
        name: "simai",
        keys: &[
            key("file", "a workload file of SimAI or ASTRA-sim (HYBRID_TRANSFORMER_FWD_IN_BCKWD, MICRO, DATA, MODEL)"),
            COMPUTE,
            ROUNDS,
            HOSTS,
            SKIP,
            PLACEMENT,
            key("gather", "size of an all-gather: total (as in SimAI) or part (of a rank, as in ASTRA-sim) (by the file)"),
        ],
        help: "collectives of the layers of a model, forward and backward",
    },
];

const fn published(index: usize) -> TrafficName {
    let table = &crate::tables::PUBLISHED[index];
    TrafficName { name: table.name, keys: POISSON, help: table.help }
}

/// Every kind of traffic, with its keys.
pub fn traffic_names() -> &'static [TrafficName] {
    &NAMES
}
