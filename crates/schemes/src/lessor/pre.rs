//! PRE: the rounds in which ToRs are polled (LESSOR §4.2).
//!
//! At the start of a round all ToRs with flows are polled. Other switches are not: the load of the other links is the
//! sum of the flows routed over them. The answers give a prediction of each flow's rate. If a rate has changed by more
//! than a tenth, all ToRs are polled again a quarter of a period later. Half a period after the first answer, the
//! controller's load at that moment gives the period of the next round. The round ends with its own period.
//!
//! The contract reports the answers of all ToRs together. If the last of them comes more than half a period after the
//! first, the next period is computed at once.

use super::period::{mean_rtt, Period, PeriodSettings};
use super::prediction::Predictions;
use pathloom_model::Nanos;
use pathloom_scheme::{FlowId, View};
use serde::{Deserialize, Serialize};

/// The current round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Round {
    /// When the next round starts.
    next: Nanos,
    /// Whether the answer to its first poll is outstanding.
    poll_outstanding: bool,
    /// When to poll again, and whether the answer to that is outstanding.
    poll_again_at: Option<Nanos>,
    second_poll_outstanding: bool,
    /// When to compute the next period.
    adjust: Option<Nanos>,
}

/// What is due now; the caller carries it out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Due {
    /// Begin a round: poll the ToRs.
    pub poll: bool,
    /// Poll them once more within the round.
    pub poll_again: bool,
    /// Allocate, because the measurements are new.
    pub allocate: bool,
}

/// The state of PRE.
pub(super) struct Pre {
    settings: PeriodSettings,
    memory: Memory,
    /// Not saved: a restart begins with a round.
    round: Option<Round>,
}

/// State that survives a restart.
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

    /// V: the predicted rate of a flow, in bits per second.
    pub(super) fn predicted(&self, flow: FlowId) -> Option<u64> {
        self.memory.predictions.of(flow)
    }

    pub(super) fn forget(&mut self, flow: FlowId) {
        self.memory.predictions.forget(flow);
    }

    /// Begins a round; the caller polls the ToRs.
    pub(super) fn begin(&mut self, now: Nanos, view: &View) {
        self.memory.predictions.keep_known(view);
        let next = now.saturating_add(self.memory.period.now);
        self.round = Some(Round {
            next,
            poll_outstanding: true,
            poll_again_at: None,
            second_poll_outstanding: false,
            adjust: None,
        });
    }

    /// Handles the answers to a poll, which are in the view.
    pub(super) fn answered(&mut self, now: Nanos, view: &View) -> Due {
        let period = self.memory.period.now;
        let Some(round) = &mut self.round else { return Due::default() };
        if std::mem::take(&mut round.poll_outstanding) {
            let unsteady = self.memory.predictions.read(view);
            round.poll_again_at = unsteady.then(|| now.saturating_add(Nanos(period.0 / 4)));
            let first = view.first_answer.unwrap_or(now);
            round.adjust = Some(first.saturating_add(Nanos(period.0 / 2)).max(now));
            return Due { allocate: !unsteady, ..Due::default() };
        }
        let allocate = std::mem::take(&mut round.second_poll_outstanding);
        if allocate {
            self.memory.predictions.read_again(view);
        }
        Due { allocate, ..Due::default() }
    }

    /// Handles expired timers.
    pub(super) fn wake(&mut self, now: Nanos, view: &View) -> Due {
        let mut due = Due::default();
        let Some(round) = &mut self.round else { return due };
        if round.poll_again_at.is_some_and(|at| at <= now) {
            (round.poll_again_at, round.second_poll_outstanding) = (None, true);
            due.poll_again = true;
        }
        if round.adjust.is_some_and(|at| at <= now) {
            round.adjust = None;
            self.memory.period.adjust(&self.settings, view.busy_share, mean_rtt(&view.switch_rtt));
        }
        if round.is_over(now) {
            // The second poll, or its answer, comes too late now; the next round polls anyway.
            due = Due { poll: true, poll_again: false, allocate: std::mem::take(&mut round.second_poll_outstanding) };
            self.begin(now, view);
        }
        due
    }

    /// When to call [`Pre::wake`].
    pub(super) fn next(&self) -> Option<Nanos> {
        let round = self.round.as_ref()?;
        let next = (!round.poll_outstanding && round.adjust.is_none()).then_some(round.next);
        [round.poll_again_at, round.adjust, next].into_iter().flatten().min()
    }
}

impl Round {
    /// A round without an answer is not over, because the controller has its own time-out for answers. A round without
    /// a new period is not over either, because a late answer means that the controller is busy.
    fn is_over(&self, now: Nanos) -> bool {
        !self.poll_outstanding && self.adjust.is_none() && self.next <= now
    }
}

#[cfg(test)]
#[path = "pre_tests.rs"]
mod tests;
