//! What the controller knows of each switch: its session, what it was told, and what it has not confirmed yet.

use crate::defaults::DefaultTable;
use crate::pacing::Meters;
use crate::review::Watch;
use pathloom_model::rules::{Rule, RuleKey};
use pathloom_model::{FiveTuple, Headers, Nanos, PortNo};
use pathloom_scheme::FlowId;
use std::collections::{BTreeMap, VecDeque};
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
    Fixed,
    /// The default routes of a switch, before others change theirs.
    Stage { number: u32 },
}

impl Purpose {
    /// Whether something waits for the confirmation, or it just has to come some time.
    pub(crate) fn is_urgent(self) -> bool {
        matches!(self, Purpose::Step { .. } | Purpose::Gone { .. } | Purpose::Stage { .. })
    }
}

/// Rules and groups of no single flow.
#[derive(Clone, Debug, Default)]
pub(crate) struct FixedRules {
    /// Default routes.
    pub defaults: DefaultTable,
    /// Joins of tables, and detection; also found rules of ours that make no sense today.
    pub others: BTreeMap<RuleKey, Rule>,
}

impl FixedRules {
    pub(crate) fn len(&self) -> usize {
        self.defaults.routes.len() + self.others.len()
    }
}

/// News of a flow from a ToR whose rules are not known yet.
#[derive(Clone, Debug)]
pub(crate) enum News {
    /// A copy of a packet.
    Packet(PortNo, Headers),
    /// An announcement.
    Announced(FiveTuple, Option<u64>),
}

/// Most news kept per switch until its rules are known.
pub(crate) const MOST_NEWS: usize = 1024;

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
    /// What it has of rules of no single flow, as far as it was told.
    pub fixed: FixedRules,
    /// Until when groups stay that no rule names any more.
    pub groups_until: Nanos,
    /// Its meters.
    pub meters: Meters,
    /// Rules of flows that it should have.
    pub flow_rules: u32,
    /// What came before its rules were known: the flows may be found among them.
    pub news: Vec<News>,
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
        self.fixed.len() as u32 + self.flow_rules
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
