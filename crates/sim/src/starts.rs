//! The controllers of a run, one after another. Faults kill and start them.

use crate::settings::Successor;
use pathloom_control::{Config, Controller, Snapshot};
use pathloom_model::{Fabric, Nanos};
use pathloom_scheme::{Action, Event as SchemeEvent, Needs, Scheme, View};
use std::sync::Arc;

/// Counts of a controller: routes, reroutes, polls.
type Counted = [u64; 3];

/// State of the present controller, and data for the start of the next one.
pub(crate) struct ControllerStarts {
    /// Settings of the controller that runs, or ran last. Each start has its own epoch.
    config: Config,
    /// Whether a controller runs.
    pub(crate) running: bool,
    /// Number of starts and ends so far. It distinguishes messages of one controller from those of the next.
    pub(crate) number: u32,
    /// Makes the scheme of the next controller.
    pub(crate) successor: Option<Successor>,
    /// The latest snapshot.
    snapshot: Option<Snapshot>,
    /// Counts of earlier controllers, and counts that the present one had when it started.
    before: Counted,
    at_start: Counted,
}

impl ControllerStarts {
    /// State before the first event. `running` tells whether there is a first controller.
    pub(crate) fn new(config: Config, running: bool) -> ControllerStarts {
        let (before, at_start) = (Counted::default(), Counted::default());
        ControllerStarts { config, running, number: 0, successor: None, snapshot: None, before, at_start }
    }

    /// The controller has ended.
    pub(crate) fn end(&mut self, controller: &Controller) {
        self.before = self.counted(controller);
        self.at_start = counts(controller);
        self.running = false;
        self.number += 1;
    }

    /// Creates the next controller, which adopts the rules that it finds in switches; `None` if there is no scheme
    /// for it.
    pub(crate) fn begin(&mut self, fabric: &Arc<Fabric>, now: Nanos, from_snapshot: bool) -> Option<Controller> {
        let make = self.successor.as_mut()?;
        self.config.epoch += 1;
        let snapshot = self.snapshot.clone().filter(|_| from_snapshot);
        let restored = snapshot
            .and_then(|snapshot| Controller::restore(self.config.clone(), fabric.clone(), make()?, snapshot, now).ok());
        // An unusable snapshot is ignored, as by the live controller.
        let controller = match restored {
            Some(controller) => controller,
            None => Controller::new(self.config.clone(), fabric.clone(), make()?),
        };
        self.at_start = counts(&controller);
        self.running = true;
        self.number += 1;
        Some(controller)
    }

    /// Stores a snapshot of the controller, if it runs.
    pub(crate) fn store_snapshot(&mut self, controller: &Controller) {
        if self.running {
            self.snapshot = Some(controller.snapshot());
        }
    }

    /// Sum of the counts of all controllers so far.
    pub(crate) fn counted(&self, controller: &Controller) -> Counted {
        let now = counts(controller);
        std::array::from_fn(|index| self.before[index] + now[index].saturating_sub(self.at_start[index]))
    }
}

/// Placeholder for a scheme without a central part. Its controller never runs.
pub(crate) struct NoCentral;

impl Scheme for NoCentral {
    fn name(&self) -> &'static str {
        "none"
    }

    fn needs(&self) -> Needs {
        Needs::NOTHING
    }

    fn handle(&mut self, _: Nanos, _: &SchemeEvent, _: &View, _: &mut Vec<Action>) {}
}

fn counts(controller: &Controller) -> Counted {
    let counts = controller.counts();
    [counts.routes + counts.bound, counts.reroutes, counts.polls]
}
