//! State of each switch: its session, its rules, and the messages that it has not confirmed yet.

use crate::io::Removal;
use crate::watch::Watch;
use pathloom_model::rules::{RuleCounters, RuleKey};
use pathloom_scheme::FlowId;
use std::collections::VecDeque;
use std::num::NonZeroU32;

/// State of the session to a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Session {
    /// There is no session. The switch keeps its rules.
    #[default]
    Down,
    /// The session is open, and the rules of the switch are being read.
    Reading,
    /// The switch has the rules that it should have, or they have been sent.
    Ready,
}

/// Purpose of a message to a switch. The message is confirmed by the next barrier, or refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// A step of the current phase of a flow's move.
    Step { flow: FlowId, number: NonZeroU32 },
    /// A counting rule.
    Count { flow: FlowId, plan: u8 },
    /// The deletion of a flow's rule at its source ToR.
    Gone { flow: FlowId, plan: u8 },
    /// A rule at a later switch of a flow's path, added again.
    Hop { flow: FlowId },
    /// The rule of a label.
    Label { label: u16 },
    /// The meter of a flow.
    Meter { flow: FlowId },
    /// A rule at a flow's source ToR, added again.
    Renewed { flow: FlowId, plan: u8 },
    /// A rule or group of no single flow.
    Base,
    /// A rule that copies the first or last packets of an address that has an assignment.
    Copies,
    /// The default routes of a switch, which other switches wait for before they change theirs.
    Stage { number: u32 },
}

impl Purpose {
    /// Whether something waits for the confirmation, so that a barrier must follow at once.
    pub(crate) fn is_urgent(self) -> bool {
        matches!(self, Purpose::Step { .. } | Purpose::Gone { .. } | Purpose::Stage { .. } | Purpose::Copies)
    }
}

/// A rule that a switch reports as removed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Removed {
    pub key: RuleKey,
    pub cookie: u64,
    /// Its last counters.
    pub counters: RuleCounters,
    pub why: Removal,
}

/// One switch.
#[derive(Debug, Default)]
pub(crate) struct Switch {
    pub session: Session,
    /// Messages not confirmed yet, in the order in which they were sent.
    pub awaited: VecDeque<(u32, Purpose)>,
    /// Barriers not answered yet.
    pub barriers: VecDeque<u32>,
    /// Whether a barrier must be sent after the current input.
    pub wants_barrier: bool,
    /// Number of its rules that belong to no single flow ([`crate::base_rules`]).
    pub base_rules: u32,
    /// Number of flow rules that it should have.
    pub flow_rules: u32,
    /// Number of flow rules that moves in progress will add to it, one each.
    pub planned_rules: u32,
    /// Number of rules that its table of paths can hold, if the switch has told.
    pub capacity: Option<u32>,
    /// Number of times in a row that a rule of no single flow was refused.
    pub refusals: u32,
    /// Whether it has refused a group for lack of room or support. Until its next session it gets no further groups.
    pub no_more_groups: bool,
    /// Whether its rules will be read again by a timer.
    pub reread: bool,
    /// Whether its rules have been read since the controller started.
    pub read: bool,
    /// State of the reviews of its rules.
    pub watch: Watch,
}

impl Switch {
    /// Number of rules that it should have.
    pub(crate) fn rules(&self) -> u32 {
        self.base_rules + self.flow_rules
    }

    /// Closes the session. Returns the messages that will not be confirmed any more.
    pub(crate) fn close(&mut self) -> VecDeque<(u32, Purpose)> {
        self.session = Session::Down;
        self.barriers.clear();
        self.wants_barrier = false;
        self.watch.close();
        std::mem::take(&mut self.awaited)
    }
}
