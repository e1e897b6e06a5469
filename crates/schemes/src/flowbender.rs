//! flowbender: a sender changes the path of its flow after each round trip with more than a few marks.
//!
//! In the paper, the field TTL takes one of a few values, and switches hash it. Here the entropy takes its place. A round
//! trip whose packets were sent before the last change does not count. The paper leaves a dead path by the time-out alone, so later
//! marks may lead back to it; with `suspend`, they do so only after some time, as in Linux for PLB.

use crate::entry::{Entry, EntryInfo};
use crate::rehashed::{self, ON_TIMEOUT, ROUNDS, SUSPENSION, THRESHOLD};
use pathloom_model::Nanos;
use pathloom_scheme::Rehash;

const NAME: &str = "flowbender";
/// T and N of the paper.
const PAPER: Rehash =
    Rehash { above_permille: 50, rounds: 1, idle_rounds: 0, on_timeout: true, suspension: Nanos::ZERO };

pub(crate) const ENTRY: Entry = Entry {
    info: EntryInfo {
        name: NAME,
        summary: "a sender with marked packets in a round trip changes the path of its flow; only in the simulator",
        paper: "Kabbani et al. 2014, FlowBender: Flow-level Adaptive Routing for Improved Latency and Throughput in \
                Datacenter Networks (CoNEXT)",
        keys: &[("threshold", "0.05", THRESHOLD), ("rounds", "1", ROUNDS), ON_TIMEOUT, ("suspend", "0s", SUSPENSION)],
    },
    read: |spec| rehashed::parts(NAME, rehashed::read(spec, PAPER)?),
};
