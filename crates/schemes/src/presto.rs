//! presto: a flow is cut into cells of equal size, which take all shortest paths in turn.
//!
//! In the paper, the controller gives each path a label, and the host writes the label of the next path into each cell.
//! Here the host writes the number of the cell, which switches read as the number of a path. Hosts run TCP that tolerates
//! a window of reordering, in place of the receive offload of the paper, which hides it from TCP.

use crate::entry::{Entry, EntryInfo, Parts};
use crate::sprayed;
use pathloom_scheme::{Entropy, Selection};

const NAME: &str = "presto";
/// Size of a cell in the paper: the most that segmentation offload takes (§3.1).
const CELL: u64 = 64_000;

pub(crate) const ENTRY: Entry = Entry {
    info: EntryInfo {
        name: NAME,
        summary: "equal cells of a flow take all shortest paths in turn; only in the simulator",
        paper: "He et al. 2015, Presto: Edge-based Load Balancing for Fast Datacenter Networks (SIGCOMM)",
        keys: &[("cell", "64KB", "a cell ends when its frames have this many bytes; 1B: every packet is a cell")],
    },
    read: |spec| {
        let entropy = Entropy::Cell { bytes: spec.size_bytes("cell")?.unwrap_or(CELL) };
        Ok(Parts { transport: sprayed::tolerant_tcp(), ..sprayed::parts(NAME, entropy, Selection::Numbered) })
    },
};
