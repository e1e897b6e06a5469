//! Finds the faults, operations and flows of a schedule that matter.

use crate::run::{run, Sabotage};
use crate::schedule::Schedule;
use pathloom_model::shrink::{kind_of, smallest};
use pathloom_workload::Workload;
use std::sync::Arc;

/// The schedule without everything that is not needed to break the same kind of promise. Unchanged if no promise is
/// broken.
pub fn shrink(schedule: &Schedule, sabotage: Option<Sabotage>) -> Schedule {
    let kind = |one: &Schedule| run(one, sabotage).violations.first().map(|violation| kind_of(violation));
    smallest(schedule.clone(), candidates, kind)
}

/// The schedule without one item, in every way. Pairs of faults come first, because most faults come in pairs.
fn candidates(schedule: &Schedule) -> Vec<Schedule> {
    let faults = schedule.faults.len();
    let pairs = (0..faults).flat_map(move |a| (a + 1..faults).map(move |b| (a, b)));
    let without_pair = pairs.map(|(a, b)| {
        let mut one = schedule.clone();
        one.faults.remove(b);
        one.faults.remove(a);
        one
    });
    let without_fault = (0..faults).map(|index| {
        let mut one = schedule.clone();
        one.faults.remove(index);
        one
    });
    let without_act = (0..schedule.acts.len()).map(|index| {
        let mut one = schedule.clone();
        one.acts.remove(index);
        one
    });
    let flows = schedule.workload.flows.len();
    let without_flow = (0..flows).filter(move |_| flows > 1).map(|index| {
        let mut flows = schedule.workload.flows.clone();
        flows.remove(index);
        let workload = Workload { flows, ..(*schedule.workload).clone() };
        Schedule { workload: Arc::new(workload), ..schedule.clone() }
    });
    without_pair.chain(without_fault).chain(without_act).chain(without_flow).collect()
}
