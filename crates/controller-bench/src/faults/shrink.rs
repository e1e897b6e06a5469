//! Finds the smallest form of a schedule that breaks a promise.

use super::broken_promises;
use super::run::{BareStates, Sabotage};
use super::schedule::Schedule;
use pathloom_model::shrink::{kind_of, smallest};
use pathloom_model::Nanos;

/// The schedule without everything that is not needed to break the same kind of promise. Unchanged if no promise is
/// broken.
pub(super) fn shrink(schedule: &Schedule, sabotage: Option<Sabotage>, bare: &mut BareStates) -> Schedule {
    let kind = |one: &Schedule| broken_promises(one, sabotage, bare).first().map(|broken| kind_of(broken));
    smallest(schedule.clone(), candidates, kind)
}

/// The schedule without one of its parts, in every way, and with prompt switches.
fn candidates(schedule: &Schedule) -> Vec<Schedule> {
    let mut all = Vec::new();
    let mut add = |change: &dyn Fn(&mut Schedule)| {
        let mut one = schedule.clone();
        change(&mut one);
        if one != *schedule {
            all.push(one);
        }
    };
    for at in 0..schedule.steps.len() {
        add(&|one| one.steps.truncate(at));
        add(&|one| {
            one.steps.remove(at);
        });
    }
    for at in 0..schedule.flows.len() {
        add(&|one| {
            one.flows.remove(at);
        });
    }
    add(&|one| one.agents.clear());
    add(&|one| one.read = usize::MAX);
    add(&|one| one.work = Nanos::ZERO);
    all
}
