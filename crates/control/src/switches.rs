//! What the controller knows of each switch: its session, what it was told, and what it has not confirmed yet.

use crate::io::Removal;
use crate::review::Watch;
use pathloom_model::rules::{RuleCounters, RuleKey};
use pathloom_scheme::FlowId;
use std::collections::VecDeque;
use std::num::NonZeroU32;

/// State of the session to a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Session {
    /// There is none; the switch goes on with the rules it has.
    #[default]
    Down,
    /// It stands, and the switch's rules are being read.
    Reading,
    /// The switch has what it should have, or was told.
    Ready,
}

/// What a message to a switch was for. It is confirmed by the next barrier, or refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// A step of the current phase of a flow's move.
    Step { flow: FlowId, number: NonZeroU32 },
    /// A counting rule.
    Count { flow: FlowId, plan: u8 },
    /// The deletion of a flow's rule at its source ToR.
    Gone { flow: FlowId, plan: u8 },
    /// A rule at a later switch of a path that a flow is on, added again.
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
    /// The default routes of a switch, before others change theirs.
    Stage { number: u32 },
}

impl Purpose {
    /// Whether something waits for the confirmation, or it just has to come some time.
    pub(crate) fn is_urgent(self) -> bool {
        matches!(self, Purpose::Step { .. } | Purpose::Gone { .. } | Purpose::Stage { .. } | Purpose::Copies)
    }
}

/// A rule that a switch says to be gone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Removed {
    pub key: RuleKey,
    pub cookie: u64,
    /// What it had counted.
    pub counters: RuleCounters,
    pub why: Removal,
}

/// One switch.
#[derive(Debug, Default)]
pub(crate) struct Switch {
    pub session: Session,
    /// Messages not confirmed yet, in the order they were sent.
    pub awaited: VecDeque<(u32, Purpose)>,
    /// Barriers not answered yet.
    pub barriers: VecDeque<u32>,
    /// Whether a barrier is to be sent when the input at hand has been dealt with.
    pub wants_barrier: bool,
    /// Rules of no single flow that it has ([`crate::base_rules`]).
    pub base_rules: u32,
    /// Rules of flows that it should have.
    pub flow_rules: u32,
    /// Times in a row that a rule of no single flow was refused.
    pub refusals: u32,
    /// Whether a timer will read its rules again.
    pub reread: bool,
    /// Whether its rules were read since the controller started.
    pub read: bool,
    /// Reviews of its rules while the session stands.
    pub watch: Watch,
}

impl Switch {
    /// Rules that it should have.
    pub(crate) fn rules(&self) -> u32 {
        self.base_rules + self.flow_rules
    }

    /// Forgets what an ended session cannot answer any more.
    pub(crate) fn close(&mut self) -> VecDeque<(u32, Purpose)> {
        self.session = Session::Down;
        self.barriers.clear();
        self.wants_barrier = false;
        self.watch.close();
        std::mem::take(&mut self.awaited)
    }
}
