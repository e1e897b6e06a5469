//! drill: each switch sends each packet to the shortest queue among a few of its equal next hops.

use crate::entry::{Entry, EntryInfo, Parts};
use crate::next_hop_choice::{NextHopChoice, AT_KEY, DRILL};
use crate::sprayed;
use pathloom_scheme::{Entropy, Selection};

const NAME: &str = "drill";
/// Most ports that a switch draws, and that it remembers.
const MOST: u64 = 255;

pub(crate) const ENTRY: Entry = Entry {
    info: EntryInfo {
        name: NAME,
        summary: "switches send each packet to the shortest queue of a few equal next hops; only in the simulator",
        paper: "Ghorbani et al. 2017, DRILL: Micro Load Balancing for Low-latency Data Center Networks (SIGCOMM)",
        keys: &[
            ("d", "2", "next hops that a switch draws at random for each packet; all if there are fewer"),
            ("m", "1", "next hops that it considers as well: those with the shortest queues the last time"),
            AT_KEY,
        ],
    },
    read: |spec| {
        let drawn = spec.count("d", 1, MOST)?.map_or(DRILL[0], |count| count as u8);
        let remembered = spec.count("m", 0, MOST)?.map_or(DRILL[1], |count| count as u8);
        let choice = NextHopChoice::at(spec, Selection::ShortestQueue { drawn, remembered })?;
        Ok(Parts { transport: choice.transport(), ..sprayed::parts_at(NAME, Entropy::Flow, choice) })
    },
};
