//! What the controller has to do at a later time. A timer is not cancelled: what it finds done when it fires, it leaves.

use pathloom_model::{FiveTuple, LinkId, Nanos, NodeId};
use pathloom_scheme::FlowId;
use std::collections::BTreeMap;

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Timer {
    /// The packets of an abandoned version have left the fabric.
    Drained { five_tuple: FiveTuple, plan: u8 },
    /// A flow without rules is to get its counting rule, after a refusal.
    Count { flow: FlowId },
    /// A link that flapped has been quiet for so long that it may be used.
    LinkQuiet { link: LinkId, changes: u64 },
    /// A label's rule that was found is to go if no flow has claimed it.
    Label { switch: NodeId, label: u16 },
    /// Groups of a switch that no rule names are to go.
    Groups { switch: NodeId },
    /// The rules of a switch are to be read again, after a refusal.
    Reread { switch: NodeId },
    /// Flows may still be on what is out of service.
    Drain,
    /// Packets that switches sent before they changed their default routes have passed the next link.
    Stage,
    /// Connections that stand are to be found, for the scheme of this number.
    Sweep { number: u32 },
    /// That is over for now.
    SweepOver,
    /// The next switch in turn is to be reviewed.
    Round,
    /// A switch may have lost rules: it is to be reviewed.
    Review { switch: NodeId },
    /// A review goes on looking for what its switch lacks.
    Scan { switch: NodeId, number: u32 },
}

/// Timers by time; those of one time fire in the order they were set.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    by_time: BTreeMap<(Nanos, u64), Timer>,
    set: u64,
}

impl Timers {
    pub(crate) fn set(&mut self, at: Nanos, timer: Timer) {
        self.by_time.insert((at, self.set), timer);
        self.set += 1;
    }

    pub(crate) fn next(&self) -> Option<Nanos> {
        self.by_time.keys().next().map(|&(at, _)| at)
    }

    /// The first timer that is due.
    pub(crate) fn pop(&mut self, now: Nanos) -> Option<Timer> {
        let entry = self.by_time.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(entry.remove())
    }
}
