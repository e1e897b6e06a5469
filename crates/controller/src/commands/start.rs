//! The hub of a controller that starts, that follows another one, or that takes over from it.

use crate::config::{is_of_process, registry, CheckedConfig};
use crate::drivers::clock::Clock;
use crate::drivers::etcd::Elected;
use crate::drivers::persist::{out_of_service, Persist, Stored};
use crate::drivers::record::Recorder;
use crate::drivers::secret::secret;
use crate::drivers::session::Shared;
use crate::drivers::storing::SavedState;
use crate::hub::configured::{configured_hub, discover};
use crate::hub::gauges::Leadership;
use crate::hub::Responder;
use pathloom_control::{Config as ControlConfig, Controller, Snapshot, Target};
use pathloom_model::Nanos;
use pathloom_scheme::Needs;
use pathloom_schemes::SchemeSpec;
use std::io;

/// By how much the clock of the leader before may be ahead of this one.
const MOST_AHEAD: Nanos = Nanos::from_secs(10);

/// Makes the hub of a fabric, from the stored snapshot if there is one. If the snapshot cannot be used, also returns
/// the links and switches that it had out of service, which the caller passes to the controller.
pub(crate) fn hub(checked: &CheckedConfig, persist: &Persist) -> io::Result<(Shared, Vec<Target>)> {
    let config = checked.control(persist.next_epoch()?);
    let stored = persist.load()?;
    let clock = clock_after(stored.snapshot.as_ref());
    let now = clock.now();
    let (controller, recorder, out_of_service) = controller(checked, persist, config, stored, now)?;
    let mut hub = configured_hub(checked, Responder::Fabric(controller));
    discover(&mut hub, checked, secret()?);
    if let Some(discovery) = &mut hub.discovery {
        persist.load_hosts().into_iter().for_each(|host| discovery.remember(now, host));
        discovery.renumber(&persist.load_wiring());
    }
    if recorder.is_some() {
        hub.record();
    }
    hub.gauges.started = now;
    hub.gauges.scheme = (checked.scheme.label.clone(), now);
    let shared = Shared::with_clock(hub, clock);
    *shared.tasks.recorder.borrow_mut() = recorder;
    Ok((shared, out_of_service))
}

/// Makes the controller, from the stored snapshot if it can be used. Also returns the event log, and what the caller must
/// take out of service because the snapshot was not restored.
fn controller(
    checked: &CheckedConfig,
    persist: &Persist,
    config: ControlConfig,
    Stored { snapshot, drains }: Stored,
    now: Nanos,
) -> io::Result<(Controller, Option<Recorder>, Vec<Target>)> {
    let restored = snapshot.and_then(|snapshot| restore(checked, persist, &config, snapshot, now));
    let lost = drains.filter(|_| restored.is_none());
    let out_of_service = lost.map(|drains| out_of_service(&drains, &checked.fabric)).unwrap_or_default();
    let recorder = match &checked.config.log.events {
        Some(path) if restored.is_none() => Some(Recorder::create(path, &config)?),
        Some(path) => {
            let path = path.display();
            tracing::warn!(%path, "no event log: it could not describe the restored state");
            None
        }
        None => None,
    };
    let controller = match restored {
        Some(controller) => controller,
        None => {
            let scheme = checked.scheme.require_central(checked.config.scheme.seed).map_err(io::Error::other)?;
            Controller::new(config, checked.fabric.clone(), scheme)
        }
    };
    Ok((controller, recorder, out_of_service))
}

/// Makes the hub of a controller that follows another one.
pub(crate) fn follower(checked: &CheckedConfig) -> Shared {
    let mut hub = configured_hub(checked, Responder::SurveyOnly);
    hub.follow();
    Shared::new(hub)
}

/// A controller that followed leads by this election. It adopts the rules that it finds in the switches. Returns what must
/// be taken out of service.
pub(crate) fn take_over(
    checked: &CheckedConfig,
    persist: &Persist,
    shared: &Shared,
    Elected { token, epoch, state }: Elected,
) -> io::Result<Vec<Target>> {
    let SavedState { mut stored, hosts, wiring, unknown } = SavedState::read(state.as_deref());
    shared.tasks.storing.unknown.replace(unknown);
    let now = shared.clock.now();
    // The clock of the leader before may be ahead. Times of the controller stand still until this one shows the same.
    if stored.snapshot.as_ref().is_some_and(|snapshot| snapshot.taken() > now + MOST_AHEAD) {
        tracing::warn!("the clock of the leader before is far ahead of this one; its state is not used, except drains");
        stored.snapshot = None;
    }
    let is_restored = stored.snapshot.is_some();
    let (controller, recorder, out_of_service) = controller(checked, persist, checked.control(epoch), stored, now)?;
    let secret = secret()?;
    let is_recorded = recorder.is_some();
    *shared.tasks.recorder.borrow_mut() = recorder;
    shared.drive(|hub, now| {
        if is_recorded {
            hub.record();
        }
        discover(hub, checked, secret);
        if let Some(discovery) = &mut hub.discovery {
            hosts.into_iter().for_each(|host| discovery.remember(now, host));
            discovery.renumber(&wiring);
        }
        hub.gauges.started = now;
        hub.gauges.scheme = (checked.scheme.label.clone(), now);
        hub.gauges.leadership = Some(Leadership { election: token.0, since: now, is_confirmed: true });
        if let Some(member) = &mut hub.gauges.member {
            member.follows = None;
        }
        hub.lead(now, token.0, controller);
    });
    tracing::info!(election = token.0, start = epoch, is_restored, "this controller leads");
    Ok(out_of_service)
}

/// A clock that continues from the time of the snapshot, even if the machine's clock was set back since.
fn clock_after(kept: Option<&Snapshot>) -> Clock {
    let taken = kept.map_or(Nanos::ZERO, Snapshot::taken);
    let ahead = taken.saturating_sub(Clock::start().now());
    if ahead > Nanos::from_secs(1) {
        let ahead_s = ahead.0 / 1_000_000_000;
        tracing::warn!(ahead_s, "this machine's clock is behind the snapshot; times continue from the snapshot");
    }
    Clock::start_not_before(taken)
}

/// Restores a controller from the snapshot. An unusable snapshot is renamed.
fn restore(
    checked: &CheckedConfig,
    persist: &Persist,
    config: &ControlConfig,
    snapshot: Snapshot,
    now: Nanos,
) -> Option<Controller> {
    let seed = checked.config.scheme.seed;
    // The scheme may have changed since the snapshot, by the API or in the configuration. So the snapshot's scheme
    // restores first.
    let last = match snapshot.scheme() {
        spec if is_of_process(spec) => Some(SchemeSpec::of_process(spec, Needs::NOTHING)),
        spec => registry().parse(spec).ok(),
    };
    let last = last.filter(|last| last.name != checked.scheme.name);
    let first = last.as_ref().unwrap_or(&checked.scheme).central(seed)?;
    let homeless = snapshot.homeless(&checked.fabric);
    if let Some(example) = homeless.first() {
        let flows = homeless.len();
        tracing::warn!(flows, ?example, "flows of the snapshot have addresses that no longer exist, and are left out");
    }
    match Controller::restore(config.clone(), checked.fabric.clone(), first, snapshot, now) {
        Ok(mut controller) => {
            if let Some(scheme) = last.and_then(|_| checked.scheme.central(seed)) {
                controller.set_scheme(now, scheme);
            }
            Some(controller)
        }
        Err(problem) => {
            persist.rename_unusable(&problem);
            None
        }
    }
}
