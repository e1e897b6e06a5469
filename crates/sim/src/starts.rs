//! The controllers of a run, one after another: faults kill and start them.

use crate::settings::Successor;
use pathloom_control::{Config, Controller, Snapshot};
use pathloom_model::{Fabric, Nanos};
use pathloom_scheme::{Action, Event as SchemeEvent, Needs, Scheme, View};
use std::sync::Arc;

/// What is counted of a controller: routes, reroutes, polls.
type Counted = [u64; 3];

/// Which controller there is, and what the next one needs.
pub(crate) struct Starts {
    /// Settings of the controller that runs, or ran last. Each start has an epoch of its own.
    config: Config,
    /// Whether a controller runs.
    pub(crate) running: bool,
    /// Starts and ends so far, which tells messages of one controller from those of the next.
    pub(crate) number: u32,
    /// Makes the scheme of the next one.
    pub(crate) successor: Option<Successor>,
    /// The snapshot that was written last.
    kept: Option<Snapshot>,
    /// What controllers before this one have counted, and what this one had counted when it started.
    before: Counted,
    at_start: Counted,
}

impl Starts {
    /// The first controller runs, if there is one.
    pub(crate) fn new(config: Config, running: bool) -> Starts {
        let (before, at_start) = (Counted::default(), Counted::default());
        Starts { config, running, number: 0, successor: None, kept: None, before, at_start }
    }

    /// The controller is no more.
    pub(crate) fn end(&mut self, controller: &Controller) {
        self.before = self.counted(controller);
        self.at_start = counts(controller);
        self.running = false;
        self.number += 1;
    }

    /// The next controller, which adopts what it finds in the switches; `None` if there is no scheme for it.
    pub(crate) fn begin(&mut self, fabric: &Arc<Fabric>, now: Nanos, from_snapshot: bool) -> Option<Controller> {
        let make = self.successor.as_mut()?;
        self.config.epoch += 1;
        let kept = self.kept.clone().filter(|_| from_snapshot);
        let restored =
            kept.and_then(|kept| Controller::restore(self.config.clone(), fabric.clone(), make()?, kept, now).ok());
        // A snapshot of no use is set aside, as by the live controller.
        let controller = match restored {
            Some(controller) => controller,
            None => Controller::new(self.config.clone(), fabric.clone(), make()?),
        };
        self.at_start = counts(&controller);
        self.running = true;
        self.number += 1;
        Some(controller)
    }

    /// Writes the snapshot of a controller that runs.
    pub(crate) fn keep(&mut self, controller: &Controller) {
        if self.running {
            self.kept = Some(controller.snapshot());
        }
    }

    /// What all controllers so far have counted.
    pub(crate) fn counted(&self, controller: &Controller) -> Counted {
        let now = counts(controller);
        std::array::from_fn(|index| self.before[index] + now[index].saturating_sub(self.at_start[index]))
    }
}

/// What stands in for a scheme without a central part. Its controller never runs.
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
