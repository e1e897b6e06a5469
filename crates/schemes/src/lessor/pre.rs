//! PRE: the rounds of questions to the ToRs (LESSOR §4.2).
//!
//! A round goes like this. At its start all ToRs with flows are asked, and none but ToRs: the load of the other links is
//! the sum of the flows routed over them. When the answers are there the rate of each flow is predicted; if one has
//! changed by more than a tenth, all are asked again a quarter of a period later. Half a period after the first
//! answers the period of the next round is worked out from the controller's load at that moment. The round is over
//! when its own period is.
//!
//! The contract reports the answers of a round together, so that "the first reply" is the moment when all are there.

use super::period::{mean_rtt, Period, PeriodSettings};
use super::prediction::Predictions;
use pathloom_model::Nanos;
use pathloom_scheme::{FlowId, View};
use serde::{Deserialize, Serialize};

/// The round under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Round {
    /// When its successor starts.
    next: Nanos,
    /// Whether the answer to its first question is still to come.
    asked: bool,
    /// When to ask again, and whether that answer is still to come.
    again: Option<Nanos>,
    asked_again: bool,
    /// When to work out the period.
    adjust: Option<Nanos>,
}

/// What is to be done now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Due {
    /// Begin a round: ask the ToRs.
    pub ask: bool,
    /// Ask them once more within the round.
    pub ask_again: bool,
    /// The picture of the network is new: allocate.
    pub allocate: bool,
}

/// The state of PRE.
pub(super) struct Pre {
    settings: PeriodSettings,
    memory: Memory,
    /// Not saved: a restart begins with a round.
    round: Option<Round>,
}

/// What survives a restart.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Memory {
    period: Period,
    predictions: Predictions,
}

impl Pre {
    pub(super) fn new(settings: PeriodSettings) -> Pre {
        let memory = Memory { period: Period::new(&settings), predictions: Predictions::default() };
        Pre { settings, memory, round: None }
    }

    pub(super) fn memory(&self) -> &Memory {
        &self.memory
    }

    pub(super) fn recall(&mut self, memory: Memory) {
        self.memory = memory;
    }

    /// V of a flow, in bits per second.
    pub(super) fn predicted(&self, flow: FlowId) -> Option<u64> {
        self.memory.predictions.of(flow)
    }

    pub(super) fn forget(&mut self, flow: FlowId) {
        self.memory.predictions.forget(flow);
    }

    /// Begins a round; whoever calls asks the ToRs.
    pub(super) fn begin(&mut self, now: Nanos, view: &View) {
        self.memory.predictions.keep_known(view);
        let next = now.saturating_add(self.memory.period.now);
        self.round = Some(Round { next, asked: true, again: None, asked_again: false, adjust: None });
    }

    /// The answers to a question are in the view.
    pub(super) fn answered(&mut self, now: Nanos, view: &View) -> Due {
        let period = self.memory.period.now;
        let Some(round) = &mut self.round else { return Due::default() };
        if std::mem::take(&mut round.asked) {
            let unsteady = self.memory.predictions.read(view);
            round.again = unsteady.then(|| now.saturating_add(Nanos(period.0 / 4)));
            round.adjust = Some(now.saturating_add(Nanos(period.0 / 2)));
            return Due { allocate: !unsteady, ..Due::default() };
        }
        let allocate = std::mem::take(&mut round.asked_again);
        if allocate {
            self.memory.predictions.read_again(view);
        }
        Due { allocate, ..Due::default() }
    }

    /// Does what the time has come for.
    pub(super) fn wake(&mut self, now: Nanos, view: &View) -> Due {
        let mut due = Due::default();
        let Some(round) = &mut self.round else { return due };
        if round.again.is_some_and(|at| at <= now) {
            (round.again, round.asked_again) = (None, true);
            due.ask_again = true;
        }
        if round.adjust.is_some_and(|at| at <= now) {
            round.adjust = None;
            self.memory.period.adjust(&self.settings, view.busy_share, mean_rtt(&view.switch_rtt));
        }
        if round.is_over(now) {
            // What was to be asked again has waited too long: the next round asks anyway.
            due = Due { ask: true, ask_again: false, allocate: std::mem::take(&mut round.asked_again) };
            self.begin(now, view);
        }
        due
    }

    /// When [`Pre::wake`] is wanted.
    pub(super) fn next(&self) -> Option<Nanos> {
        let round = self.round.as_ref()?;
        let next = (!round.asked && round.adjust.is_none()).then_some(round.next);
        [round.again, round.adjust, next].into_iter().flatten().min()
    }
}

impl Round {
    /// A round without an answer is not over: the controller ends it by its own patience. Nor is one whose period has
    /// not been adjusted: a late answer means a busy controller.
    fn is_over(&self, now: Nanos) -> bool {
        !self.asked && self.adjust.is_none() && self.next <= now
    }
}

#[cfg(test)]
#[path = "pre_tests.rs"]
mod tests;
