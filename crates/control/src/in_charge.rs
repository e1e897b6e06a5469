//! The scheme in charge: what it hears, and the jobs that it has begun.

use crate::context::Context;
use crate::io::Output;
use crate::reasons::Cause;
use pathloom_model::Nanos;
use pathloom_scheme::{Action, Event, Scheme, State};
use std::collections::BTreeMap;

/// How long a scheme waits that asks for a time that has passed, and the rest of its events where there are too many.
pub(crate) const BREATH: Nanos = Nanos::from_millis(1);

/// A job that was not answered.
struct Job {
    /// The scheme's mark.
    ticket: u64,
    /// What it was begun for.
    cause: Option<Cause>,
}

/// The scheme in charge.
pub(crate) struct InCharge {
    pub scheme: Box<dyn Scheme>,
    /// By the number given to the driver.
    jobs: BTreeMap<u64, Job>,
    /// Number of the last job, of any scheme.
    last_job: u64,
    /// Room for what it wants.
    actions: Vec<Action>,
    /// It is not told before that its time has come.
    deaf_until: Nanos,
}

impl InCharge {
    pub(crate) fn new(cx: &mut Context, scheme: Box<dyn Scheme>) -> InCharge {
        cx.reasons.in_charge(scheme.name());
        InCharge { scheme, jobs: BTreeMap::new(), last_job: 0, actions: Vec::new(), deaf_until: Nanos::ZERO }
    }

    /// Puts another scheme in charge: it hears nothing of what was meant for the last one.
    pub(crate) fn replace(&mut self, cx: &mut Context, scheme: Box<dyn Scheme>) {
        self.scheme = scheme;
        cx.needs = cx.config.needs(self.scheme.needs());
        cx.reasons.in_charge(self.scheme.name());
        cx.events.clear();
        self.jobs.clear();
        cx.reasons.forget_jobs();
        cx.drop_jobs();
        self.deaf_until = Nanos::ZERO;
    }

    /// When it wants to be told that its time has come.
    pub(crate) fn poll_timeout(&self) -> Option<Nanos> {
        self.scheme.poll_timeout().map(|at| at.max(self.deaf_until))
    }

    /// Notes that its time has come, if it has.
    pub(crate) fn wake_if_due(&mut self, cx: &mut Context) {
        if self.poll_timeout().is_some_and(|at| at <= cx.now) {
            cx.events.push_back(Event::Timeout);
            self.deaf_until = cx.now.saturating_add(BREATH);
        }
    }

    /// Tells it of an event. Gives what it wants, in a list to be given back to [`InCharge::keep`].
    pub(crate) fn hear(&mut self, cx: &mut Context, event: &Event) -> Vec<Action> {
        let mut actions = std::mem::take(&mut self.actions);
        cx.reasons.begin(event);
        self.scheme.handle(cx.now, event, &cx.view, &mut actions);
        actions
    }

    /// All that it wanted has been carried out.
    pub(crate) fn keep(&mut self, cx: &mut Context, actions: Vec<Action>) {
        self.actions = actions;
        cx.reasons.end();
    }

    /// Carries out [`Action::Solve`].
    pub(crate) fn begin_job(&mut self, cx: &mut Context, ticket: u64, input: State, modelled: Nanos) {
        self.last_job += 1;
        self.jobs.insert(self.last_job, Job { ticket, cause: cx.reasons.cause() });
        cx.put(Output::Solve { ticket: self.last_job, input, modelled });
    }

    /// A job was answered. What a scheme that is not in charge any more asked for is nobody's business.
    pub(crate) fn solved(&mut self, cx: &mut Context, number: u64, answer: State) {
        match self.jobs.remove(&number) {
            Some(Job { ticket, cause }) => {
                cx.reasons.answer(cause);
                cx.events.push_back(Event::Solved { ticket, answer });
            }
            None => cx.counts.nonsense += 1,
        }
    }
}
