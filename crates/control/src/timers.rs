//! Timers of the controller. They cannot be cancelled. A handler does nothing if its work was already done.

use pathloom_model::{FiveTuple, LinkId, Nanos, NodeId};
use pathloom_scheme::FlowId;
use std::collections::BTreeMap;

/// A timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Timer {
    /// The packets of an abandoned version have left the fabric.
    Drained { five_tuple: FiveTuple, plan: u8 },
    /// A flow without rules gets its counting rule, after a refusal.
    Count { flow: FlowId },
    /// The meter of an adopted flow is removed, if nobody has said its rate.
    UnknownMeter { flow: FlowId },
    /// A link that flapped may be used if it was quiet.
    LinkQuiet { link: LinkId, changes: u64 },
    /// A found rule of a label is deleted if no flow has claimed it.
    Label { switch: NodeId, label: u16 },
    /// Unused groups of a switch are deleted.
    Groups { switch: NodeId },
    /// The rules of a switch are read again, after a refusal.
    Reread { switch: NodeId },
    /// Flows of hosts with more than their share of a switch's rules make room for others.
    MakeRoom,
    /// Flows are checked for paths over something that is out of service.
    Drain,
    /// Packets that switches sent before they changed their default routes have passed the next link.
    Stage,
    /// The next sweep of the sequence with this number begins.
    Sweep { number: u32 },
    /// The sweep ends.
    SweepOver,
    /// The next switch in turn is reviewed.
    Round,
    /// A switch that may have lost rules is reviewed.
    Review { switch: NodeId },
    /// A review continues its search for rules that the switch lacks.
    Scan { switch: NodeId, number: u32 },
}

/// Timers by time. Timers with the same time fire in the order in which they were set.
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

    /// Removes and returns the first timer that is due.
    pub(crate) fn pop(&mut self, now: Nanos) -> Option<Timer> {
        let entry = self.by_time.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(entry.remove())
    }
}
