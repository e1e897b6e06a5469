//! The scheme in charge, its events and its jobs.

use crate::context::Context;
use crate::io::Output;
use crate::reasons::Cause;
use pathloom_model::Nanos;
use pathloom_scheme::{Action, Event, Scheme, State};
use std::collections::BTreeMap;

/// Minimum wait before a scheme gets its next [`Event::Timeout`], even if it asks for an earlier time. The remaining
/// events wait as long if there are too many at once.
pub(crate) const MIN_TIMEOUT_GAP: Nanos = Nanos::from_millis(1);

/// A job without an answer yet.
struct Job {
    /// Ticket that the scheme gave the job.
    ticket: u64,
    /// The event that led to the job.
    cause: Option<Cause>,
}

/// The scheme in charge.
pub(crate) struct ActiveScheme {
    pub scheme: Box<dyn Scheme>,
    /// Open jobs, by the number that the driver knows.
    jobs: BTreeMap<u64, Job>,
    /// Number of the last job of any scheme.
    last_job: u64,
    /// Buffer for the actions of the scheme, to avoid allocations.
    actions: Vec<Action>,
    /// The scheme gets no [`Event::Timeout`] before this time.
    next_timeout_from: Nanos,
}

impl ActiveScheme {
    pub(crate) fn new(cx: &mut Context, scheme: Box<dyn Scheme>) -> ActiveScheme {
        cx.reasons.set_active_scheme(scheme.name());
        ActiveScheme { scheme, jobs: BTreeMap::new(), last_job: 0, actions: Vec::new(), next_timeout_from: Nanos::ZERO }
    }

    /// Puts another scheme in charge. It gets none of the events that waited for the last scheme.
    pub(crate) fn replace(&mut self, cx: &mut Context, scheme: Box<dyn Scheme>) {
        self.scheme = scheme;
        cx.needs = cx.config.needs(self.scheme.needs());
        cx.reasons.set_active_scheme(self.scheme.name());
        cx.events.clear();
        self.jobs.clear();
        cx.reasons.forget_jobs();
        cx.drop_jobs();
        self.next_timeout_from = Nanos::ZERO;
    }

    /// When the scheme is due for [`Event::Timeout`].
    pub(crate) fn poll_timeout(&self) -> Option<Nanos> {
        self.scheme.poll_timeout().map(|at| at.max(self.next_timeout_from))
    }

    /// Queues [`Event::Timeout`] if it is due.
    pub(crate) fn wake_if_due(&mut self, cx: &mut Context) {
        if self.poll_timeout().is_some_and(|at| at <= cx.now) {
            cx.events.push_back(Event::Timeout);
            self.next_timeout_from = cx.now.saturating_add(MIN_TIMEOUT_GAP);
        }
    }

    /// Passes an event to the scheme. Returns its actions in a list that must be returned with
    /// [`ActiveScheme::return_buffer`].
    pub(crate) fn handle_event(&mut self, cx: &mut Context, event: &Event) -> Vec<Action> {
        let mut actions = std::mem::take(&mut self.actions);
        cx.reasons.begin(event);
        self.scheme.handle(cx.now, event, &cx.view, &mut actions);
        actions
    }

    /// All actions have been carried out. Takes back the list for the next event.
    pub(crate) fn return_buffer(&mut self, cx: &mut Context, actions: Vec<Action>) {
        self.actions = actions;
        cx.reasons.end();
    }

    /// Carries out [`Action::Solve`].
    pub(crate) fn begin_job(&mut self, cx: &mut Context, ticket: u64, input: State, modelled: Nanos) {
        self.last_job += 1;
        self.jobs.insert(self.last_job, Job { ticket, cause: cx.reasons.cause() });
        cx.put(Output::Solve { ticket: self.last_job, input, modelled });
    }

    /// Handles the answer to a job. Answers to jobs of earlier schemes are ignored.
    pub(crate) fn solved(&mut self, cx: &mut Context, number: u64, answer: State) {
        match self.jobs.remove(&number) {
            Some(Job { ticket, cause }) => {
                cx.reasons.answer(cause);
                cx.events.push_back(Event::Solved { ticket, answer });
            }
            None => cx.counts.invalid_inputs += 1,
        }
    }
}
