//! The time-outs of the hub, the jobs of its scheme, and the work that is done from time to time outside of the hub.

use crate::drivers::load::Load;
use crate::drivers::persist::Persist;
use crate::drivers::record::Recorder;
use crate::drivers::session::Shared;
use crate::hub::job::Job;
use pathloom_control::Input;
use pathloom_model::Nanos;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::time::{interval, sleep, MissedTickBehavior};

/// How often the event log is written.
const TICK: Duration = Duration::from_millis(250);
/// How often the state is stored.
const STORE_INTERVAL: Duration = Duration::from_secs(5);
/// Number of ticks between two looks at the load of this process.
const LOAD_TICKS: u64 = 4;

/// A time of the system as one of the hub.
pub(crate) fn nanos(duration: Duration) -> Nanos {
    Nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

/// Carries out the results of received messages, after all readable messages have been handled.
async fn settle_inputs(shared: Shared) {
    loop {
        shared.tasks.settle.notified().await;
        shared.drive(|hub, now| hub.settle(now));
    }
}

/// Calls the hub at its time-outs, and runs its jobs in other threads.
pub(crate) async fn run_timers(shared: Shared) {
    tokio::task::spawn_local(settle_inputs(shared.clone()));
    let (sender, mut solved) = mpsc::unbounded_channel();
    loop {
        let (next, jobs) = shared.drive(|hub, now| {
            if hub.poll_timeout() <= now {
                hub.handle_timeout(now);
            }
            let jobs: Vec<Job> = std::iter::from_fn(|| hub.poll_job()).collect();
            shared.tasks.armed.set(hub.poll_timeout());
            (hub.poll_timeout(), jobs)
        });
        for job in jobs {
            let sender = sender.clone();
            tokio::task::spawn_blocking(move || {
                let begun = Instant::now();
                let result = job.run();
                let _ = sender.send((nanos(begun.elapsed()), result));
            });
        }
        tokio::select! {
            () = shared.tasks.timer.notified() => {}
            () = sleep(shared.clock.until(next)) => {}
            Some((took, result)) = solved.recv() => shared.drive(|hub, now| hub.solved(now, took, result)),
        }
    }
}

/// Does the periodic work outside of the hub: the event log, the load and the state.
pub(crate) async fn run_periodic_work(shared: Shared, persist: Persist) {
    let mut load = Load::new();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for count in 1u64.. {
        ticks.tick().await;
        shared.tasks.recorder.borrow_mut().iter_mut().for_each(Recorder::flush);
        if count.is_multiple_of(LOAD_TICKS) {
            if let Some(busy_share) = load.busy_share() {
                shared.drive(|hub, now| hub.handle(now, Input::Load { busy_share }));
            }
        }
        if count.is_multiple_of((STORE_INTERVAL.as_millis() / TICK.as_millis()) as u64) {
            store_state(&shared, &persist);
        }
    }
}

/// Stores the state in its directory, if it has one.
pub(crate) fn store_state(shared: &Shared, persist: &Persist) {
    if persist.is_enabled() {
        if let Some(discovery) = &shared.hub.borrow().discovery {
            persist.save_hosts(discovery.state().hosts().hosts());
            persist.save_wiring(&discovery.renumbered());
        }
        let snapshot = shared.hub.borrow_mut().controller().map(|controller| controller.snapshot());
        snapshot.iter().for_each(|snapshot| persist.save(snapshot));
    }
}
