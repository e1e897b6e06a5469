//! The translation in time.

use super::steady::{FlowRate, Steady};
use super::{Skip, Step};
use crate::link::LinkCounts;
use crate::simulation::Simulation;
use crate::tap::Tap;
use crate::time::{to_ps, Ps};
use crate::transfers::Work;
use pathloom_model::units::PS_PER_NS;

/// A steady phase that is being skipped. It may take several calls of [`Simulation::advance`].
pub(super) struct Phase {
    pub(super) began: Ps,
    /// How long it is, and how much of it has been skipped: whole nanoseconds.
    length: Ps,
    done: Ps,
    steady: Steady,
    /// The event before which it ends; `None` if a flow would finish.
    event: Option<Ps>,
}

impl Phase {
    pub(super) fn is_over(&self) -> bool {
        self.done == self.length
    }

    /// Moves the network and its hosts on to `until`, or to the end of the phase if that is before, as if the rates had
    /// lasted. What a count grows by in the phase so far is rounded down, so several calls add up to what one adds.
    pub(super) fn jump<T: Tap>(&mut self, sim: &mut Simulation<T>, until: Ps) {
        let Phase { began, length, done, steady, .. } = self;
        let whole = until.saturating_sub(*began).min(*length);
        let now_done = (whole - whole % PS_PER_NS).max(*done);
        let grows_by = |count: u64| steady.scaled(count, now_done) - steady.scaled(count, *done);
        let time = now_done - *done;
        sim.now += time;
        for flow in &steady.flows {
            let bytes = grows_by(flow.bytes);
            let work = flow.work.combine(&Work::default(), |count, _| grows_by(count));
            let work = Work { delivered_bytes: bytes, arrived_bytes: bytes, ..work };
            sim.hosts.skip(flow.slot as usize, time, &work);
            for (lane, frames) in (2 * flow.slot..).zip(FlowRate::frames(&work, sim.hosts.header_bytes())) {
                sim.network.credit_lane(sim.now, lane, frames);
            }
        }
        for &(transfer, bytes) in &steady.connections {
            sim.hosts.skip_connection(transfer, time, grows_by(bytes));
        }
        let none = LinkCounts::default();
        let more = steady.links.iter().map(|link| link.combine(&none, |count, _| grows_by(count)));
        let more: Vec<LinkCounts> = more.collect();
        *done = now_done;
        sim.agenda.translate(time);
        sim.network.skip(time, sim.now, &more);
    }
}

impl Skip {
    /// Begins to skip a phase with these rates, if it is long enough.
    pub(super) fn begin_phase<T: Tap>(&mut self, sim: &Simulation<T>, steady: Steady) -> Step {
        // Hosts count nanoseconds, so a phase begins and ends at a whole one.
        if !sim.now.is_multiple_of(PS_PER_NS) {
            return Step::Keep(sim.now.next_multiple_of(PS_PER_NS), steady);
        }
        let event = next_disturbance(sim);
        let (length, is_event) = longest_jump(sim, &steady, event);
        let event = is_event.then_some(event);
        // A jump costs about as much as a reading, and saves the packets of its time.
        if length > self.readings.least_spacing() {
            return Step::Jump(Phase { began: sim.now, length, done: 0, steady, event });
        }
        match event {
            Some(event) => {
                self.note(sim.now, "events that are not packets follow each other too closely");
                Step::Keep(event, steady)
            }
            None => {
                self.note(sim.now, "flows end too soon after rates have settled");
                self.restart(sim.now)
            }
        }
    }

    /// What comes after a phase: packets until the event before which it ended, or until a flow finishes.
    pub(super) fn after_jump(&mut self, now: Ps, phase: Phase) -> Step {
        match phase.event {
            Some(event) => Step::Keep(event, phase.steady),
            None => self.restart(now),
        }
    }
}

/// Time of the next event that is neither a packet nor a timer of a connection, or the end of the run.
fn next_disturbance<T: Tap>(sim: &Simulation<T>) -> Ps {
    let start = sim.hosts.transfers().next_start().map(to_ps).filter(|&at| at < sim.duration);
    start.into_iter().fold(sim.agenda.next_of_others().min(sim.end), Ps::min)
}

/// The longest time that may be skipped before `event`, in whole nanoseconds, and whether the event limits it. A flow is left
/// a quarter of what it sends in the span, so that it finishes with packets.
fn longest_jump<T: Tap>(sim: &Simulation<T>, steady: &Steady, event: Ps) -> (Ps, bool) {
    let mut most = (event.saturating_sub(sim.now), true);
    let mut leave = |unsent: Option<u64>, bytes: u64| {
        let Some(left) = unsent.map(|unsent| unsent.saturating_sub(bytes / 4).saturating_sub(1)) else { return };
        let time = u128::from(left) * u128::from(steady.span) / u128::from(bytes.max(1));
        if time < u128::from(most.0) {
            most = (time as Ps, false);
        }
    };
    for flow in &steady.flows {
        let subflow = sim.hosts.subflow(flow.slot as usize);
        if !flow.still_holds(subflow) {
            return (0, false);
        }
        leave(subflow.sender.unsent_bytes(), flow.bytes);
    }
    for &(transfer, bytes) in &steady.connections {
        leave(sim.hosts.unassigned_bytes(transfer), bytes);
    }
    (most.0 - most.0 % PS_PER_NS, most.1)
}
