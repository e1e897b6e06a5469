//! plb: a sender changes the path of its flow after several congested rounds in a row, as Linux does (tcp_plb.c).
//!
//! Linux counts rounds of the old path after a change as well. Here they do not count, because nothing of them was sent on
//! the new path.

use crate::entry::{Entry, EntryInfo};
use crate::rehashed::{self, ON_TIMEOUT, ROUNDS, SUSPENSION, THRESHOLD};
use pathloom_model::Nanos;
use pathloom_scheme::Rehash;

const NAME: &str = "plb";
/// The values of Linux: tcp_plb_cong_thresh, tcp_plb_rehash_rounds, tcp_plb_idle_rehash_rounds and
/// tcp_plb_suspend_rto_sec.
const LINUX: Rehash =
    Rehash { above_permille: 500, rounds: 12, idle_rounds: 3, on_timeout: true, suspension: Nanos::from_secs(60) };

pub(crate) const ENTRY: Entry = Entry {
    info: EntryInfo {
        name: NAME,
        summary:
            "a sender whose packets are marked for several rounds changes the path of its flow; only in the simulator",
        paper:
            "Qureshi et al. 2022, PLB: Congestion Signals are Simple and Effective for Network Load Balancing (SIGCOMM)",
        keys: &[
            ("threshold", "0.5", THRESHOLD),
            ("rounds", "12", ROUNDS),
            (
                "idle_rounds",
                "3",
                "the same for a sender that has nothing in flight; 0: it needs as many rounds as others",
            ),
            ON_TIMEOUT,
            ("suspend", "60s", SUSPENSION),
        ],
    },
    read: |spec| {
        let law = rehashed::read(spec, LINUX)?;
        let idle_rounds = spec.count("idle_rounds", 0, 1_000_000)?.map_or(LINUX.idle_rounds, |rounds| rounds as u32);
        rehashed::parts(NAME, Rehash { idle_rounds, ..law })
    },
};
