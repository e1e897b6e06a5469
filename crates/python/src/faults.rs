//! `pathloom._core.fault_schedule`.

use pathloom_faults::{run, shrink, Sabotage, Schedule, Scope};
use pyo3::prelude::*;

/// Returns the promises that the schedule of a seed breaks, and the schedule as text. With `smallest`, the schedule
/// is reduced to what breaks the promise.
#[pyfunction]
#[pyo3(signature = (seed, everything = false, smallest = false, sabotage = false))]
pub fn fault_schedule(
    py: Python<'_>,
    seed: u64,
    everything: bool,
    smallest: bool,
    sabotage: bool,
) -> (Vec<String>, String) {
    py.detach(|| {
        let sabotage = sabotage.then_some(Sabotage::HastyBarriers);
        let drawn = Schedule::draw(seed, if everything { Scope::Everything } else { Scope::Promised });
        let schedule = if smallest { shrink(&drawn, sabotage) } else { drawn };
        (run(&schedule, sabotage).violations, schedule.to_string())
    })
}
